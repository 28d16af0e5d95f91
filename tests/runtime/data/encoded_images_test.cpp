#include "runtime/data/encoded_images.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <latch>
#include <mutex>

#include "runtime/base/random.hpp"
#include "runtime/data/find_data.hpp"
#include "runtime/data/image_decoder.hpp"
#include "runtime/data/image_lists.hpp"
#include "tests/runtime/data/encoded.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using testing::Bytes;
using testing::error_of;
using ::testing::HasSubstr;
using testing::jpeg_of;
using testing::png_of;
using testing::smooth_image;
using testing::TempFolder;
using testing::write_file;

constexpr std::uint32_t kHeight = 30, kWidth = 40;

/// The decoder's image as [height, width, 3], of the whole at its own size.
Bytes decoded(const Bytes& bytes) {
  ImageDecoder decoder;
  EXPECT_EQ(decoder.open(bytes), "");
  const std::uint32_t height = decoder.height(), width = decoder.width();
  const auto image = decoder.decode({0, 0, double(height), double(width)}, height, width);
  EXPECT_EQ(image.fault, "");
  EXPECT_EQ(image.window, (PixelWindow{0, 0, double(height), double(width)}));
  Bytes out;
  for (std::uint32_t y = 0; y < height; ++y)
    for (std::uint32_t x = 0; x < width; ++x)
      for (std::size_t c = 0; c < 3; ++c) out.push_back(image.pixels.data[y * image.pixels.stride + 4 * x + c]);
  return out;
}

double mean_difference(const Bytes& a, const Bytes& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(int{a[i]} - int{b[i]});
  return sum / static_cast<double>(a.size());
}

TEST(ImageDecoder, ReadsPngExactly) {
  const Bytes rgb = smooth_image(kHeight, kWidth, 3);
  EXPECT_EQ(decoded(png_of(rgb, kHeight, kWidth, 3)), rgb);
  Bytes with_alpha;
  for (std::size_t i = 0; i < rgb.size(); ++i) {
    with_alpha.push_back(rgb[i]);
    if (i % 3 == 2) with_alpha.push_back(static_cast<std::uint8_t>(i));
  }
  EXPECT_EQ(decoded(png_of(with_alpha, kHeight, kWidth, 4)), rgb);
}

TEST(ImageDecoder, ReadsJpegWholeOrProgressive) {
  const Bytes rgb = smooth_image(kHeight, kWidth, 3);
  for (const bool progressive : {false, true})
    EXPECT_LT(mean_difference(decoded(jpeg_of(rgb, kHeight, kWidth, 3, 95, progressive)), rgb), 4);
}

TEST(ImageDecoder, MakesGreyThreeTimesTheSame) {
  const Bytes grey = smooth_image(kHeight, kWidth, 1);
  for (const Bytes& bytes : {jpeg_of(grey, kHeight, kWidth, 1), png_of(grey, kHeight, kWidth, 1)}) {
    const Bytes image = decoded(bytes);
    Bytes first;
    for (std::size_t i = 0; i < image.size(); i += 3) {
      ASSERT_EQ(image[i], image[i + 1]);
      ASSERT_EQ(image[i], image[i + 2]);
      first.push_back(image[i]);
    }
    EXPECT_LT(mean_difference(first, grey), 3);
  }
}

TEST(ImageDecoder, ReadsTheInksOfAPrintersJpeg) {
  const Bytes inks = smooth_image(kHeight, kWidth, 4);  // Adobe's, as libjpeg writes them: inverted
  const Bytes image = decoded(jpeg_of(inks, kHeight, kWidth, 4));
  Bytes wanted;
  for (std::size_t i = 0; i < inks.size(); i += 4)
    for (std::size_t c = 0; c < 3; ++c) wanted.push_back(static_cast<std::uint8_t>(inks[i + c] * inks[i + 3] / 255));
  EXPECT_LT(mean_difference(image, wanted), 4);
}

TEST(ImageDecoder, DecodesOfAJpegWhatTheWindowNeeds) {
  constexpr std::uint32_t kTall = 300, kWide = 400;
  const Bytes bytes = jpeg_of(smooth_image(kTall, kWide, 3), kTall, kWide, 3);
  ImageDecoder decoder;
  Resizer resizer;
  for (int round = 0; round < 40; ++round) {
    const auto between = [&](double low, double high, int what) {
      return std::floor(low + (high - low) * random_unit(round, what));
    };
    PixelWindow window;
    window.height = between(8, kTall, 0);
    window.width = between(8, kWide, 1);
    window.top = between(0, kTall - window.height + 1, 2);
    window.left = between(0, kWide - window.width + 1, 3);
    const auto side = static_cast<std::uint32_t>(between(4, 60, 4));
    const auto resized = [&](const PixelView& pixels, const PixelWindow& part) {
      Bytes to(std::size_t{side} * side * 3);
      resizer.resize(pixels, part, side, side, 3, to.data());
      return to;
    };
    ASSERT_EQ(decoder.open(bytes), "");
    const auto part = decoder.decode(window, side, side);
    ASSERT_EQ(part.fault, "");
    EXPECT_LE(part.pixels.height, window.height + 2 * (window.height / side + 4));
    const Bytes of_part = resized(part.pixels, part.window);
    ASSERT_EQ(decoder.open(bytes), "");
    const auto whole = decoder.decode({0, 0, kTall, kWide}, kTall, kWide);
    const bool shrunk = std::min(window.height, window.width) >= 2.0 * side;  // by another filter then
    EXPECT_LT(mean_difference(of_part, resized(whole.pixels, window)), shrunk ? 3 : 0.5) << "round " << round;
  }
}

/// What decode() gives, resized.
Bytes resized_pixels(ImageDecoder& decoder, const Bytes& bytes, const PixelWindow& window, std::uint32_t side) {
  EXPECT_EQ(decoder.open(bytes), "");
  const auto image = decoder.decode(window, side, side);
  Bytes to(std::size_t{side} * side * 3);
  Resizer{}.resize(image.pixels, image.window, side, side, 3, to.data());
  return to;
}

Bytes resized_planes(ImageDecoder& decoder, const Bytes& bytes, const PixelWindow& window, std::uint32_t side) {
  EXPECT_EQ(decoder.open(bytes), "");
  EXPECT_TRUE(decoder.has_planes());
  const auto image = decoder.decode_planes(window, side, side);
  EXPECT_EQ(image.fault, "");
  Resizer resizer;
  resizer.begin(image.planes, image.window, side, side, /*flipped=*/false);
  Bytes to(std::size_t{side} * side * 3);
  for (std::uint32_t y = 0; y < side; ++y) resizer.write_row(y, 3, to.data() + std::size_t{y} * side * 3);
  return to;
}

/// Colors that change quickly, so that a plane that is moved by a pixel is noticed.
Bytes coarse_image(std::uint32_t height, std::uint32_t width, int channels) {
  Bytes pixels = smooth_image(height, width, channels);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(pixels[i] / 2 + random_below(3, i / 5, 100));
  return pixels;
}

TEST(ImageDecoder, GivesPlanesThatResizeToWhatItsPixelsResizeTo) {
  constexpr std::uint32_t kTall = 150, kWide = 203;  // no whole number of blocks
  const Bytes rgb = coarse_image(kTall, kWide, 3);
  const std::vector<Bytes> all{
      jpeg_of(rgb, kTall, kWide, 3),
      jpeg_of(rgb, kTall, kWide, 3, 95, true),
      jpeg_of(rgb, kTall, kWide, 3, 95, false, 2, 1),
      jpeg_of(rgb, kTall, kWide, 3, 95, false, 1, 1),
      jpeg_of(coarse_image(kTall, kWide, 1), kTall, kWide, 1),
  };
  ImageDecoder decoder;
  for (int round = 0; round < 100; ++round) {
    const auto between = [&](double low, double high, int what) {
      return std::floor(low + (high - low) * random_unit(round, what));
    };
    PixelWindow window;
    window.height = between(8, kTall + 1, 0);
    window.width = between(8, kWide + 1, 1);
    window.top = between(0, kTall - window.height + 1, 2);
    window.left = between(0, kWide - window.width + 1, 3);
    const auto side = static_cast<std::uint32_t>(between(4, 70, 4));
    const std::size_t kind = static_cast<std::size_t>(round) % all.size();
    const Bytes planes = resized_planes(decoder, all[kind], window, side),
                pixels = resized_pixels(decoder, all[kind], window, side);
    // A JPEG that is shrunk in decoding has its colors by the shrinking, too, instead of by interpolation.
    const bool shrunk = std::min(window.height, window.width) >= 2.0 * side;
    EXPECT_LT(mean_difference(planes, pixels), shrunk ? 2 : 0.6) << "kind " << kind << ", round " << round;
  }
}

TEST(ImageDecoder, HasNoPlanesWhereColorsAreNotLumaAndChroma) {
  ImageDecoder decoder;
  EXPECT_EQ(decoder.open(jpeg_of(smooth_image(kHeight, kWidth, 4), kHeight, kWidth, 4)), "");
  EXPECT_FALSE(decoder.has_planes());
  EXPECT_EQ(decoder.open(png_of(smooth_image(kHeight, kWidth, 3), kHeight, kWidth, 3)), "");
  EXPECT_FALSE(decoder.has_planes());
}

TEST(ImageDecoder, SaysWhatIsWrong) {
  const Bytes image = smooth_image(kHeight, kWidth, 3);
  const auto fault = [](const Bytes& bytes) {
    ImageDecoder decoder;
    if (std::string found = decoder.open(bytes); !found.empty()) return found;
    return decoder.decode({0, 0, kHeight, kWidth}, kHeight, kWidth).fault;
  };
  const Bytes jpeg = jpeg_of(image, kHeight, kWidth, 3), png = png_of(image, kHeight, kWidth, 3);
  EXPECT_EQ(fault(jpeg), "");
  EXPECT_EQ(fault(png), "");
  EXPECT_EQ(fault({}), "is empty");
  EXPECT_THAT(fault({'h', 't', 'm', 'l'}), HasSubstr("neither a JPEG nor a PNG"));
  EXPECT_THAT(fault(testing::cut(jpeg, jpeg.size() / 2)), HasSubstr("damaged JPEG"));
  EXPECT_THAT(fault(testing::cut(jpeg, 30)), HasSubstr("damaged JPEG"));
  EXPECT_THAT(fault(testing::cut(png, png.size() / 2)), HasSubstr("damaged PNG"));
  Bytes flipped = png;
  flipped[png.size() / 2] ^= 1;
  EXPECT_THAT(fault(flipped), HasSubstr("damaged PNG"));
  Bytes huge = png;  // the width, without its checksum: refused for one or the other, before anything is allocated
  huge[16] = 0x7f;
  EXPECT_NE(fault(huge), "");
}

/// What a set of `count` images of two classes looks like, kHeight x kWidth.
class ImageFolder : public ::testing::Test {
 protected:
  void write_images(const fs::path& to, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      const Bytes pixels = smooth_image(kHeight, kWidth, 3, i);
      const std::string name = std::to_string(100 + i);
      write_file(to / (i % 2 == 0 ? "ape" : "bee") / (i % 3 == 0 ? name + ".png" : name + ".JPG"),
                 i % 3 == 0 ? png_of(pixels, kHeight, kWidth, 3) : jpeg_of(pixels, kHeight, kWidth, 3));
    }
  }
  void write_set() {
    write_images(folder.path() / "train", 12);
    write_images(folder.path() / "val", 5);
    write_file(folder.path() / "train/ape/notes.txt", {'x'});
  }
  DataRequest request(const std::vector<std::string>& augment = {}, const char* source = "folder") const {
    DataRequest made{.source = source, .path = folder.path().string(), .path_is_set = true};
    made.options.augmentation = parse_augmentation(augment);
    made.options.note = [this](const std::string& note) {
      const std::scoped_lock hold(mutex_);
      notes.push_back(note);
    };
    return made;
  }
  DataSet read(const DataRequest& what) const {
    DataPlace place = find_data(what);
    return read_data(place);
  }

  TempFolder folder;
  mutable std::mutex mutex_;
  mutable std::vector<std::string> notes;
};

struct Batch {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
  friend bool operator==(const Batch&, const Batch&) = default;
};

Batch batch_of(const Source& source, const std::vector<Sample>& samples) {
  const BatchLayout layout{static_cast<std::uint32_t>(samples.size()), source.fields()};
  std::vector<std::byte> slot(layout.size_bytes(), std::byte{0x5a});
  fill_now(source, {samples, 7, &layout, slot.data()});
  const auto* images = reinterpret_cast<const float*>(slot.data() + layout.entry(kImage).offset);
  const auto* labels = reinterpret_cast<const std::int32_t*>(slot.data() + layout.entry(kLabel).offset);
  return {{images, images + samples.size() * layout.entry(kImage).row_elements()}, {labels, labels + samples.size()}};
}

std::vector<Sample> samples_of(const Source& source, std::uint64_t epoch = 0) {
  std::vector<Sample> samples;
  for (std::uint64_t i = 0; i < source.count_samples(); ++i) samples.push_back({i, epoch});
  return samples;
}

TEST_F(ImageFolder, NumbersTheSortedNamesOfItsFolders) {
  write_set();
  const DataPlace place = find_data(request());
  EXPECT_THAT(place.description, HasSubstr("12 training, 5 test samples, 30 x 40 x 3, 2 classes"));
  const DataSet set = read_data(place);
  EXPECT_EQ(set.train->fields(), look_at_data(place).fields);
  const Batch batch = batch_of(*set.train, samples_of(*set.train));
  EXPECT_EQ(batch.labels, (std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}));
  const Bytes first = smooth_image(kHeight, kWidth, 3, 0);  // ape/100.png
  for (std::size_t i = 0; i < first.size(); ++i) ASSERT_EQ(batch.images[i], static_cast<float>(first[i]) / 255.0F);
}

TEST_F(ImageFolder, GivesTheSameBatchesForAnyNumberOfThreads) {
  write_set();
  const DataSet set = read(request({"random_crop:16", "flip", "jitter:0.4,0.4,0.4", "normalize:0.5,0.25", "cutout:4"}));
  const std::vector<Sample> samples = samples_of(*set.train, 3);
  const Batch wanted = batch_of(*set.train, samples);
  struct Counted final : FillDone {
    explicit Counted(std::latch& its_latch) : latch(its_latch) {}
    void filled(const Status& its_status) noexcept override {
      status = its_status;
      latch.count_down();
    }
    std::latch& latch;
    Status status;
  };
  for (const std::size_t count : {1U, 3U}) {
    IoThreads threads("data", count);
    const BatchLayout layout{1, set.train->fields()};
    std::vector<std::vector<std::byte>> slots(samples.size(), std::vector<std::byte>(layout.size_bytes()));
    std::latch latch(static_cast<std::ptrdiff_t>(samples.size()));
    std::vector<std::shared_ptr<Counted>> done;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      done.push_back(std::make_shared<Counted>(latch));
      set.train->fill({{&samples[i], 1}, 7, &layout, slots[i].data()}, threads, done.back());
    }
    latch.wait();
    const std::size_t elements = layout.entry(kImage).row_elements();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      EXPECT_TRUE(done[i]->status.ok());
      const auto* image = reinterpret_cast<const float*>(slots[i].data() + layout.entry(kImage).offset);
      EXPECT_TRUE(
          std::equal(image, image + elements, wanted.images.begin() + static_cast<std::ptrdiff_t>(i * elements)))
          << "sample " << i << " of " << count << " threads";
    }
  }
}

TEST_F(ImageFolder, EndsWithTheNameOfABrokenFile) {
  write_set();
  write_file(folder.path() / "train/bee/101.JPG", {0xff, 0xd8, 0xff, 0xe0});
  const DataSet set = read(request());
  const std::string why = error_of(Code::invalid, [&] { batch_of(*set.train, samples_of(*set.train)); });
  EXPECT_THAT(why, AllOf(HasSubstr("train/bee/101.JPG: is a damaged JPEG"), HasSubstr("data.broken = \"skip\"")));
}

TEST_F(ImageFolder, SkipsBrokenFilesAndNamesThem) {
  write_set();
  DataRequest skipping = request();
  skipping.options.broken = Broken::skip;
  const DataSet whole = read(skipping);
  const Batch before = batch_of(*whole.train, samples_of(*whole.train));
  write_file(folder.path() / "train/bee/101.JPG", {0xff, 0xd8, 0xff, 0xe0});
  fs::remove(folder.path() / "train/bee/107.JPG");
  write_file(folder.path() / "train/bee/109.png", png_of(smooth_image(5, 5, 3), 5, 5, 3));
  const Batch batch = batch_of(*whole.train, samples_of(*whole.train));
  EXPECT_EQ(batch.labels, (std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, -1, 1, 1, -1, -1, 1}));
  const std::size_t elements = before.images.size() / 12;
  for (std::size_t row = 0; row < 12; ++row) {
    for (std::size_t i = row * elements; i < (row + 1) * elements; ++i)
      ASSERT_EQ(batch.images[i], batch.labels[row] < 0 ? 0.0F : before.images[i]) << row;
  }
  ASSERT_EQ(notes.size(), 3U);
  EXPECT_THAT(notes[0], HasSubstr("101.JPG: is a damaged JPEG"));
  EXPECT_THAT(notes[1], HasSubstr("107.JPG: cannot be opened: No such file"));
  EXPECT_THAT(notes[2],
              AllOf(HasSubstr("109.png: is 5 x 5 pixels large, the first image is 30 x 40"), HasSubstr("resize:30")));
  EXPECT_EQ(dynamic_cast<const EncodedImages&>(*whole.train).count_skipped(), 3U);
}

TEST_F(ImageFolder, SkipsNotEveryImage) {
  write_set();
  DataRequest skipping = request();
  skipping.options.broken = Broken::skip;
  const DataSet set = read(skipping);
  const auto fill = [&] { batch_of(*set.train, samples_of(*set.train)); };
  const auto fill_often = [&] {
    for (int i = 0; i < 83; ++i) fill();  // 996 images
  };
  fs::rename(folder.path() / "train", folder.path() / "away");
  fill_often();
  fs::rename(folder.path() / "away", folder.path() / "train");
  fill();
  fs::remove_all(folder.path() / "train");
  fill_often();
  EXPECT_THAT(error_of(Code::environment, fill),
              AllOf(HasSubstr("the last 1000 images were all broken"), HasSubstr("cannot be opened: No such file")));
}

TEST_F(ImageFolder, TakesTheSizeOfTheFirstWholeImageWhereBrokenOnesAreSkipped) {
  write_set();
  const Shape wanted = read(request()).train->fields().front().shape;
  write_file(folder.path() / "train/ape/100.png", {});
  EXPECT_THAT(error_of(Code::invalid, [&] { read(request()); }), HasSubstr("100.png: is empty; it is the first image"));
  DataRequest skipping = request();
  skipping.options.broken = Broken::skip;
  EXPECT_EQ(read(skipping).train->fields().front().shape, wanted);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator{folder.path() / "train"})
    if (entry.is_regular_file()) write_file(entry.path(), {});
  EXPECT_THAT(error_of(Code::invalid, [&] { read(skipping); }), HasSubstr("and the next 11 are broken, too"));
}

TEST_F(ImageFolder, GivesTheSameBatchesFromACopy) {
  for (const Stage stage : {Stage::memory, Stage::disk}) {
    write_set();
    write_file(folder.path() / "train/bee/101.JPG", {0xff, 0xd8, 0xff, 0xe0});
    const TempFolder disk;
    DataRequest here = request({"random_crop:16", "flip"});
    here.options.broken = Broken::skip;
    const DataSet wanted = read(here);
    const Batch train = batch_of(*wanted.train, samples_of(*wanted.train, 2));
    const Batch test = batch_of(*wanted.test, samples_of(*wanted.test));

    std::vector<std::pair<std::uint64_t, std::uint64_t>> told;
    here.options.stage = {
        .stage = stage,
        .folder = disk.path().string(),
        .progress = [&](std::uint64_t done, std::uint64_t all, const std::string&) { told.emplace_back(done, all); }};
    const DataPlace place = find_data(here);
    EXPECT_TRUE(told.empty()) << "looking copies nothing";
    const DataSet copy = read_data(place);
    EXPECT_THAT(told, ::testing::Contains(std::pair{12U, 12U}));
    EXPECT_EQ(told.back(), (std::pair<std::uint64_t, std::uint64_t>{5U, 5U}));
    EXPECT_TRUE(fs::is_empty(disk.path())) << "the copy has no name";
    for (const char* gone : {"train", "val"}) fs::remove_all(folder.path() / gone);
    notes.clear();
    EXPECT_EQ(batch_of(*copy.train, samples_of(*copy.train, 2)), train) << name_of(stage);
    EXPECT_EQ(batch_of(*copy.test, samples_of(*copy.test)), test) << name_of(stage);
    EXPECT_THAT(notes, ::testing::ElementsAre(HasSubstr("101.JPG: is a damaged JPEG")));
  }
}

TEST_F(ImageFolder, SaysWhyItCannotBeCopied) {
  write_set();
  DataRequest staged = request();
  staged.options.stage = {.stage = Stage::disk, .folder = folder.file("nowhere")};
  EXPECT_THAT(error_of(Code::environment, [&] { read(staged); }),
              AllOf(HasSubstr("nowhere (data.stage_path)"), HasSubstr("No such file")));
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (const Stage stage : {Stage::memory, Stage::disk}) {
    staged.options.stage = {.stage = stage, .folder = folder.path().string()};
    EXPECT_THAT(error_of(Code::environment, [&] { read(staged); }),
                AllOf(HasSubstr("the copy of the data set cannot be written"), HasSubstr("data.stage = \"none\"")));
  }
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

TEST_F(ImageFolder, DoesNotHangOnAPipe) {
  write_set();
  fs::remove(folder.path() / "train/bee/101.JPG");
  ASSERT_EQ(::mkfifo(folder.file("train/bee/101.JPG").c_str(), 0600), 0);
  const DataSet set = read(request());
  EXPECT_THAT(error_of(Code::invalid, [&] { batch_of(*set.train, samples_of(*set.train)); }),
              HasSubstr("101.JPG: is not a regular file"));
}

TEST_F(ImageFolder, RefusesWhatIsNoSet) {
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request()); }), HasSubstr("holds none of a folder train"));
  write_images(folder.path() / "train", 4);
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request()); }), HasSubstr("has neither test nor val"));
  write_images(folder.path() / "test", 4);
  write_file(folder.path() / "test/cat/1.jpg", jpeg_of(smooth_image(8, 8, 3), 8, 8, 3));
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request()); }),
              AllOf(HasSubstr("test/cat: no class of the training set is called cat"), HasSubstr("ape, bee")));
}

TEST_F(ImageFolder, MapFilesNameTheSameImages) {
  write_set();
  const auto write_text = [&](const char* name, const std::string& lines) {
    write_file(folder.path() / name, Bytes(lines.begin(), lines.end()));
  };
  write_text("train_map.txt", "train/bee/101.JPG\t1\r\n\ntrain/ape/100.png\t0\n");
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request({}, "map")); }), HasSubstr("lacks test_map.txt"));
  write_text("test_map.txt", "val/ape/100.png\t0");
  const DataSet set = read(request({}, "map"));
  EXPECT_EQ(batch_of(*set.train, samples_of(*set.train)).labels, (std::vector<std::int32_t>{1, 0}));
  const DataSet folders = read(request());
  const Batch of_folder = batch_of(*folders.train, {{0, 0}}), of_map = batch_of(*set.train, {{1, 0}});
  EXPECT_EQ(of_map, of_folder);
  write_text("train_map.txt", "train/bee/101.JPG\t7\ntrain/ape/100.png\t0\n");
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request({}, "map")); }),
              HasSubstr("there is a label 7, but no label 1"));
}

TEST(MapFile, NamesTheLineThatIsWrong) {
  const auto refusal = [](std::string_view lines) {
    return error_of(Code::invalid, [&] { parse_map(lines, "train_map.txt"); });
  };
  EXPECT_EQ(parse_map("a b.jpg\t3\n", "m"), (std::vector<MapEntry>{{"a b.jpg", 3}}));
  EXPECT_EQ(parse_map("\xef\xbb\xbf"
                      "a.jpg\t0\r\n",
                      "m"),
            (std::vector<MapEntry>{{"a.jpg", 0}}));
  EXPECT_THAT(refusal("a.jpg\t0\nb.jpg 1\n"), HasSubstr("train_map.txt:2: is not a path, a tab and a label"));
  EXPECT_THAT(refusal("a.jpg\t0\n\nb.jpg\tx\n"), HasSubstr("train_map.txt:3: the label is not a whole number"));
  EXPECT_THAT(refusal("a.jpg\t-1\n"), HasSubstr("train_map.txt:1: the label"));
  EXPECT_THAT(refusal("\t1\n"), HasSubstr("train_map.txt:1: is not a path"));
  EXPECT_THAT(refusal("\n\n"), HasSubstr("has no line with an image"));
}

}  // namespace
}  // namespace troupe
