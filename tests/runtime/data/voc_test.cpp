#include "runtime/data/voc.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <mutex>

#include "runtime/base/clock.hpp"
#include "runtime/base/random.hpp"
#include "runtime/data/encoded_images.hpp"
#include "runtime/data/find_data.hpp"
#include "tests/runtime/data/encoded.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using testing::Bytes;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::png_of;
using testing::TempFolder;
using testing::write_file;

Bytes xml_bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::string object_xml(const std::string& name, int left, int top, int right, int bottom, bool difficult = false) {
  return text("  <object>\n    <name>", name, "</name>\n    <difficult>", difficult ? 1 : 0,
              "</difficult>\n    <bndbox><xmin>", left, "</xmin><ymin>", top, "</ymin><xmax>", right, "</xmax><ymax>",
              bottom, "</ymax></bndbox>\n  </object>\n");
}

std::string annotation_xml(int height, int width, const std::string& objects) {
  return text("<annotation>\n  <size><width>", width, "</width><height>", height, "</height></size>\n", objects,
              "</annotation>\n");
}

/// Black, but for the pixels from `left`, `top` to `right`, `bottom`, counted from 1, which are white.
Bytes rectangle(std::uint32_t height, std::uint32_t width, int left, int top, int right, int bottom) {
  Bytes pixels(std::size_t{height} * width * 3);
  for (int y = top - 1; y < bottom; ++y)
    for (int x = left - 1; x < right; ++x)
      for (int c = 0; c < 3; ++c) pixels[(static_cast<std::size_t>(y) * width + x) * 3 + c] = 255;
  return png_of(pixels, height, width, 3);
}

struct BoxBatch {
  std::vector<float> images, boxes;
  std::vector<std::int32_t> labels, difficult, count;
  friend bool operator==(const BoxBatch&, const BoxBatch&) = default;
};

BoxBatch boxes_of(const Source& source, const std::vector<Sample>& samples) {
  const BatchLayout layout{static_cast<std::uint32_t>(samples.size()), source.fields()};
  std::vector<std::byte> slot(layout.size_bytes(), std::byte{0x5a});
  fill_now(source, {samples, 7, &layout, slot.data()});
  const auto values = [&]<class T>(std::string_view name, std::vector<T>& to) {
    const BatchLayout::Entry& entry = layout.entry(name);
    const auto* from = reinterpret_cast<const T*>(slot.data() + entry.offset);
    to.assign(from, from + samples.size() * entry.row_elements());
  };
  BoxBatch batch;
  values(kImage, batch.images);
  values(kBoxes, batch.boxes);
  values(kLabels, batch.labels);
  values(kDifficult, batch.difficult);
  values(kCount, batch.count);
  return batch;
}

class VocFolder : public ::testing::Test {
 protected:
  /// Adds an image to a list; its objects are XML.
  void add(const std::string& list, const std::string& name, const Bytes& image, const std::string& annotation) {
    write_file(folder.path() / "JPEGImages" / (name + ".jpg"), image);
    write_file(folder.path() / "Annotations" / (name + ".xml"), xml_bytes(annotation));
    lists[list] += name + "\n";
    write_file(folder.path() / "ImageSets/Main" / (list + ".txt"), xml_bytes(lists[list]));
  }
  /// Two images of 20 x 40 pixels for training, one for the test.
  void write_set() {
    add("train", "a", rectangle(20, 40, 5, 3, 12, 10),
        annotation_xml(20, 40, object_xml("dog", 5, 3, 12, 10) + object_xml("cat", 1, 1, 40, 20, true)));
    add("train", "b", rectangle(20, 40, 31, 11, 40, 20), annotation_xml(20, 40, object_xml("cat", 31, 11, 40, 20)));
    add("val", "c", rectangle(20, 40, 1, 1, 8, 8), annotation_xml(20, 40, object_xml("dog", 1, 1, 8, 8)));
  }
  DataRequest request(std::vector<std::string> augment = {}) {
    DataRequest made{.source = "voc", .path = folder.path().string(), .path_is_set = true};
    made.options.augmentation = parse_augmentation(augment);
    made.options.boxes = 3;
    made.options.note = [this](const std::string& note) {
      const std::lock_guard lock{mutex_};
      notes.push_back(note);
    };
    return made;
  }
  static DataSet read(const DataRequest& from) { return read_data(find_data(from)); }
  std::string refusal(const DataRequest& from) {
    return error_of(Code::invalid, [&] { read(from); });
  }

  TempFolder folder;
  std::map<std::string, std::string> lists;
  std::mutex mutex_;  // guards notes
  std::vector<std::string> notes;
};

TEST_F(VocFolder, GivesBoxesRelativeToTheImageAndPadding) {
  write_set();
  const DataPlace place = find_data(request());
  EXPECT_THAT(place.description, HasSubstr("2 training, 1 test samples, 20 x 40 x 3, 2 classes"));
  const DataSet set = read_data(place);
  EXPECT_EQ(set.train->fields(), look_at_data(place).fields);
  const BoxBatch batch = boxes_of(*set.train, {{0, 0}, {1, 0}});
  EXPECT_THAT(batch.count, ElementsAre(2, 1));
  EXPECT_THAT(batch.labels, ElementsAre(1, 0, -1, 0, -1, -1));
  EXPECT_THAT(batch.difficult, ElementsAre(0, 1, 0, 0, 0, 0));
  const std::vector<float> wanted{0.1F,  0.1F, 0.3F, 0.5F, 0, 0, 1, 1, 0, 0, 0, 0,  //
                                  0.75F, 0.5F, 1,    1,    0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(batch.boxes, wanted);
}

TEST_F(VocFolder, NumbersTheClassesAsTheyAreListed) {
  write_set();
  DataRequest listed = request();
  listed.options.classes = {"dog", "bird", "cat"};
  const DataSet set = read(listed);
  EXPECT_EQ(find_field(set.train->fields(), kLabels)->classes, 3U);
  EXPECT_THAT(boxes_of(*set.train, {{0, 0}}).labels, ElementsAre(0, 2, -1));
}

TEST_F(VocFolder, GivesTheFirstObjectsOfACrowdAndSaysSo) {
  write_set();
  DataRequest one = request();
  one.options.boxes = 1;
  const DataSet set = read(one);
  const BoxBatch batch = boxes_of(*set.train, {{0, 0}});
  EXPECT_THAT(batch.count, ElementsAre(1));
  EXPECT_THAT(batch.labels, ElementsAre(1));
  EXPECT_THAT(notes, ElementsAre(AllOf(HasSubstr("1 of 2 images have more than 1 objects"), HasSubstr("data.boxes"))));
}

/// First and last pixel of what is brighter than half, plus 1, along one axis; as shares of `extent`.
struct Bright {
  double left = 2, top = 2, right = -1, bottom = -1;
};
Bright bright_part(const std::vector<float>& image, std::uint32_t height, std::uint32_t width) {
  Bright part;
  for (std::uint32_t y = 0; y < height; ++y)
    for (std::uint32_t x = 0; x < width; ++x) {
      if (image[(std::size_t{y} * width + x) * 3] <= 0.5F) continue;
      part.left = std::min(part.left, double(x) / width);
      part.right = std::max(part.right, (x + 1.0) / width);
      part.top = std::min(part.top, double(y) / height);
      part.bottom = std::max(part.bottom, (y + 1.0) / height);
    }
  return part;
}

TEST_F(VocFolder, MovesBoxesWithThePixels) {
  for (std::uint64_t i = 0; i < 30; ++i) {
    const auto at = [&](int what, int low, int high) {
      return low + static_cast<int>(random_below(11, 4 * i + static_cast<std::uint64_t>(what),
                                                 static_cast<std::uint64_t>(high - low + 1)));
    };
    const int left = at(0, 1, 40), top = at(1, 1, 40), right = at(2, left + 15, 60), bottom = at(3, top + 15, 60);
    add("train", text("r", i), rectangle(60, 60, left, top, right, bottom),
        annotation_xml(60, 60, object_xml("dog", left, top, right, bottom)));
  }
  add("val", "c", rectangle(60, 60, 1, 1, 8, 8), annotation_xml(60, 60, object_xml("dog", 1, 1, 8, 8)));
  const std::vector<std::vector<std::string>> cases{{"crop:15"},
                                                    {"flip"},
                                                    {"resize:30,45", "flip"},
                                                    {"crop:9", "flip"},
                                                    {"random_crop:48,0.3", "flip", "crop:6"},
                                                    {"center_crop:40,0.7"}};
  for (const auto& augment : cases) {
    const DataSet set = read(request(augment));
    const Shape shape = find_field(set.train->fields(), kImage)->shape;
    const std::uint32_t height = shape.extents[0], width = shape.extents[1];
    int kept = 0;
    for (std::uint64_t index = 0; index < set.train->count_samples(); ++index) {
      const BoxBatch batch = boxes_of(*set.train, {{index, 1}});
      if (batch.count[0] == 0) continue;
      ++kept;
      const Bright part = bright_part(batch.images, height, width);
      const double off = 1.01 / std::min(height, width);  // a pixel is bright or not
      EXPECT_NEAR(batch.boxes[0], part.left, off) << augment[0] << " of " << index;
      EXPECT_NEAR(batch.boxes[1], part.top, off) << augment[0] << " of " << index;
      EXPECT_NEAR(batch.boxes[2], part.right, off) << augment[0] << " of " << index;
      EXPECT_NEAR(batch.boxes[3], part.bottom, off) << augment[0] << " of " << index;
    }
    EXPECT_GE(kept, 15) << augment[0];
  }
}

TEST(ImageBoxes, LeavesOutObjectsWhoseCenterIsOutsideTheWindow) {
  const Augmentation augmentation{.fit = Fit::random_crop, .height = 10, .width = 10};
  const DrawnAugmentation drawn{.window = {0, 20, 40, 40}};
  const std::vector<BoxedObject> objects{{0, 0, 38, 20, 0}, {0, 0, 44, 20, 1}, {50, 30, 90, 50, 2}};
  EXPECT_THAT(moved_objects(objects, augmentation, drawn, 40, 100), ElementsAre(BoxedObject{0, 0, 0.6, 0.5, 1}));
}

TEST_F(VocFolder, RefusesAnAnnotationByFileAndLine) {
  write_set();
  const struct {
    std::string annotation;
    std::vector<std::string> words;
  } cases[]{
      {"<annotation>\n<size>", {"b.xml:", "is not XML"}},
      {"<other/>\n", {"b.xml:1: ", "no element annotation"}},
      {"<annotation>\n\n<object/></annotation>", {"b.xml:1: annotation has no element size"}},
      {annotation_xml(20, 40, "<object>\n<name>cat</name></object>"), {"b.xml:3: object has no element bndbox"}},
      {annotation_xml(20, 40, object_xml("cat", 31, 11, 41, 20)), {"b.xml:6: the box from 31,11 to 41,20", "40 x 20"}},
      {annotation_xml(20, 40, object_xml("cat", 9, 11, 8, 20)), {"b.xml:6: the box"}},
      {annotation_xml(0, 40, ""), {"b.xml:2: height is not a number of pixels"}},
      {annotation_xml(20, 40, "<object><name>x</name><bndbox>\n<xmin>a</xmin></bndbox></object>"),
       {"b.xml:4: xmin is not a number"}}};
  for (const auto& one : cases) {
    write_file(folder.path() / "Annotations/b.xml", xml_bytes(one.annotation));
    const std::string why = refusal(request());
    for (const std::string& word : one.words) EXPECT_THAT(why, HasSubstr(word)) << one.annotation;
    EXPECT_THAT(why, HasSubstr("data.broken = \"skip\""));
  }
  DataRequest listed = request();
  listed.options.classes = {"dog"};
  write_set();
  EXPECT_THAT(refusal(listed), AllOf(HasSubstr("a.xml:8: cat is not one of the classes dog")));
}

TEST(VocAnnotation, IsReadInTimeThatGrowsWithItsSizeAndNotWithTheSquareOfIt) {
  std::string objects;
  for (int i = 0; i < 25'000; ++i) objects += object_xml("c", 1, 1, 2, 2);  // 4 MB
  const auto begin = Clock::now();
  const VocAnnotation read = parse_voc_annotation(annotation_xml(20, 40, objects), "crowd.xml");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds{5});  // some 0.1 s
  ASSERT_EQ(read.objects.size(), 25'000U);
  EXPECT_EQ(read.objects[1].line - read.objects[0].line, read.objects.back().line - read.objects[24'998].line);
}

TEST_F(VocFolder, RefusesAListByFileAndLine) {
  write_set();
  write_file(folder.path() / "ImageSets/Main/train.txt", xml_bytes("a\n../b\n"));
  EXPECT_THAT(refusal(request()), HasSubstr("train.txt:2: is not the name of an image"));
  write_file(folder.path() / "ImageSets/Main/train.txt", xml_bytes("a\nnowhere\n"));
  EXPECT_THAT(refusal(request()), AllOf(HasSubstr("Annotations/nowhere.xml"), HasSubstr("No such file")));
  fs::remove(folder.path() / "ImageSets/Main/val.txt");
  EXPECT_THAT(refusal(request()), HasSubstr("neither trainval.txt and test.txt"));
}

TEST_F(VocFolder, SkipsBrokenAnnotationsAndImagesAndNamesThem) {
  write_set();
  add("train", "d", rectangle(20, 40, 1, 1, 9, 9), annotation_xml(20, 39, object_xml("cat", 1, 1, 9, 9)));
  write_file(folder.path() / "Annotations/b.xml", xml_bytes("<annotation>\n<size>"));
  DataRequest skipping = request();
  skipping.options.broken = Broken::skip;
  const DataSet set = read(skipping);
  const BoxBatch batch = boxes_of(*set.train, {{0, 0}, {1, 0}, {2, 0}});
  EXPECT_THAT(batch.count, ElementsAre(2, 0, 0));
  EXPECT_THAT(batch.labels, ElementsAre(1, 0, -1, -1, -1, -1, -1, -1, -1));
  for (std::size_t i = 20 * 40 * 3; i < batch.images.size(); ++i) ASSERT_EQ(batch.images[i], 0);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("b.xml:"),
                                 HasSubstr("is 20 x 40 pixels large, but its annotation was made for 20 x 39")));
}

TEST_F(VocFolder, GivesTheSameBatchWhicheverBatchASampleIsIn) {
  write_set();
  const DataSet set = read(request({"random_crop:16", "flip"}));
  const BoxBatch both = boxes_of(*set.train, {{0, 5}, {1, 5}}), second = boxes_of(*set.train, {{1, 5}});
  EXPECT_EQ(second.boxes, std::vector<float>(both.boxes.begin() + 12, both.boxes.end()));
  EXPECT_EQ(second.labels, std::vector<std::int32_t>(both.labels.begin() + 3, both.labels.end()));
  EXPECT_EQ(second.images, std::vector<float>(both.images.begin() + 16 * 16 * 3, both.images.end()));
}

}  // namespace
}  // namespace troupe
