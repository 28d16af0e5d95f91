#include "runtime/data/voc.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <pugixml.hpp>
#include <set>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/data/detail/data_format.hpp"
#include "runtime/data/detail/encoded_format.hpp"
#include "runtime/data/detail/unpacked.hpp"
#include "runtime/data/image_decoder.hpp"

// data.source = "voc": images with boxes in the layout of Pascal VOC.
namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostAnnotationBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kMostVocListBytes = std::uint64_t{1} << 30;
constexpr const char* kVocCure = "; correct the file, or name another folder (--set data.path=FOLDER)";
constexpr const char* kAnnotationCure = "; correct the file, or continue without such images: data.broken = \"skip\"";

/// Reads an annotation, and says where in the file something is wrong.
class AnnotationReader {
 public:
  AnnotationReader(std::string_view content, const std::string& name) : content_(content), name_(name) {
    check(content.size() <= kMostAnnotationBytes, 0, text("has more than ", kMostAnnotationBytes, " bytes"));
    const auto result = document_.load_buffer(content.data(), content.size(), pugi::parse_default, pugi::encoding_utf8);
    check(static_cast<bool>(result), result.offset, text("is not XML: ", result.description()));
  }

  VocAnnotation read() const {
    const pugi::xml_node root = document_.child("annotation");
    check(root, 0, "has no element annotation");
    const pugi::xml_node size = child(root, "size");
    VocAnnotation all{.height = side(size, "height"), .width = side(size, "width"), .objects = {}};
    for (const pugi::xml_node& object : root.children("object")) {
      const pugi::xml_node name = child(object, "name");
      const std::string_view word = trimmed(name.child_value());
      check(!word.empty(), name.offset_debug(), "an object has an empty name");
      all.objects.push_back({std::string{word}, line_of(object.offset_debug()), box_of(object, all)});
    }
    return all;
  }

 private:
  /// Goes on from the place that was asked for before: an annotation may have many objects, each with its line.
  std::uint64_t line_of(std::ptrdiff_t offset) const {
    const auto at = std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(content_.size()));
    if (at < place_) place_ = line_ = 0;
    line_ += std::count(content_.begin() + place_, content_.begin() + at, '\n');
    place_ = at;
    return 1 + static_cast<std::uint64_t>(line_);
  }
  void check(bool holds, std::ptrdiff_t offset, const std::string& fault) const {
    if (!holds) fail(Code::invalid, text(name_, ':', line_of(offset), ": ", fault));
  }
  pugi::xml_node child(const pugi::xml_node& parent, const char* name) const {
    const pugi::xml_node found = parent.child(name);
    check(found, parent.offset_debug(), text(parent.name(), " has no element ", name));
    return found;
  }
  double number(const pugi::xml_node& parent, const char* name) const {
    const pugi::xml_node node = child(parent, name);
    const std::string_view digits = trimmed(node.child_value());
    const auto value = number_in<double>(digits);
    check(value && std::isfinite(*value), node.offset_debug(), text(name, " is not a number: ", digits.substr(0, 40)));
    return *value;
  }
  std::uint32_t side(const pugi::xml_node& size, const char* name) const {
    const double value = number(size, name);
    check(value >= 1 && value <= static_cast<double>(kMostImagePixels) && value == std::floor(value),
          size.offset_debug(), text(name, " is not a number of pixels: ", value));
    return static_cast<std::uint32_t>(value);
  }
  BoxedObject box_of(const pugi::xml_node& object, const VocAnnotation& image) const {
    const pugi::xml_node box = child(object, "bndbox");
    const double left = number(box, "xmin"), top = number(box, "ymin");
    const double right = number(box, "xmax"), bottom = number(box, "ymax");
    // Some programs count pixels from 0.
    const auto fits = [](double low, double high, double most) { return low >= 0 && low <= high && high <= most; };
    check(fits(left, right, image.width) && fits(top, bottom, image.height) && right > 0 && bottom > 0,
          box.offset_debug(),
          text("the box from ", left, ',', top, " to ", right, ',', bottom, " is not in the image of ", image.width,
               " x ", image.height, " pixels (width x height)"));
    const bool difficult = object.child("difficult") && number(object, "difficult") != 0;
    return {std::max(left - 1, 0.0), std::max(top - 1, 0.0), right, bottom, 0, difficult};
  }

  std::string_view content_;
  const std::string& name_;
  pugi::xml_document document_;
  mutable std::ptrdiff_t place_ = 0, line_ = 0;  // of what line_of() was asked last
};

/// The lists of a folder: those of the first pair of which both exist.
struct VocLists {
  fs::path train;
  fs::path test;
};

std::optional<VocLists> lists_in(const fs::path& folder) {
  constexpr std::array<std::pair<const char*, const char*>, 3> kPairs{
      {{"trainval.txt", "test.txt"}, {"train.txt", "val.txt"}, {"train.txt", "test.txt"}}};
  for (const auto& [train, test] : kPairs) {
    const VocLists lists{folder / "ImageSets" / "Main" / train, folder / "ImageSets" / "Main" / test};
    if (detail::is_there(lists.train.string()) && detail::is_there(lists.test.string())) return lists;
  }
  return std::nullopt;
}

/// The images of one list with their annotations, or what is wrong with these.
struct AnnotatedImages {
  struct Image {
    VocAnnotation annotation;
    std::string file;   // of the annotation
    std::string fault;  // of the annotation; empty: none
  };
  std::unique_ptr<PathFiles> files = std::make_unique<PathFiles>();
  std::vector<Image> images;
};

AnnotatedImages read_annotations(const fs::path& folder, const fs::path& list, const DataOptions& options) {
  AnnotatedImages set;
  for (const std::string& name :
       parse_voc_list(detail::read_whole(list.string(), kMostVocListBytes, kVocCure), list.string())) {
    set.files->add((folder / "JPEGImages" / (name + ".jpg")).string());
    AnnotatedImages::Image& image = set.images.emplace_back();
    image.file = (folder / "Annotations" / (name + ".xml")).string();
    try {
      image.annotation = parse_voc_annotation(detail::read_whole(image.file, kMostAnnotationBytes, ""), image.file);
    } catch (const Error& error) {
      if (error.code() != Code::invalid) throw;
      if (options.broken == Broken::fatal) fail(Code::invalid, text(error.what(), kAnnotationCure));
      image.fault = error.what();
    }
  }
  return set;
}

std::vector<std::string> classes_of(const AnnotatedImages& train, const DataOptions& options, const fs::path& list) {
  if (!options.classes.empty()) return options.classes;
  std::set<std::string> names;
  for (const AnnotatedImages::Image& image : train.images)
    for (const VocAnnotation::Object& object : image.annotation.objects) names.insert(object.name);
  TROUPE_CHECK(!names.empty(), Code::invalid, list.string(), ": no annotation of its images has an object", kVocCure);
  return {names.begin(), names.end()};
}

EncodedImageSet boxed_images(AnnotatedImages read, const std::vector<std::string>& classes,
                             const DataOptions& options) {
  EncodedImageSet set{.files = std::move(read.files), .labels = {}, .classes = 0, .boxes = {}};
  set.boxes.emplace(options.boxes, static_cast<std::uint32_t>(classes.size()));
  std::uint64_t crowded = 0;
  for (AnnotatedImages::Image& image : read.images) {
    std::vector<BoxedObject> objects;
    for (const VocAnnotation::Object& object : image.annotation.objects) {
      const auto at = std::ranges::find(classes, object.name);
      if (at == classes.end()) {
        image.fault = text(image.file, ':', object.line, ": ", object.name.substr(0, 80), " is not one of the classes ",
                           joined(classes));
        TROUPE_CHECK(options.broken == Broken::skip, Code::invalid, image.fault, kAnnotationCure);
        break;
      }
      objects.push_back(object.box);
      objects.back().label = static_cast<std::int32_t>(at - classes.begin());
    }
    crowded += objects.size() > options.boxes ? 1 : 0;
    if (image.fault.empty())
      set.boxes->add(image.annotation.height, image.annotation.width, objects);
    else
      set.boxes->add_broken(std::move(image.fault));
  }
  if (crowded > 0 && options.note) {
    options.note(text(crowded, " of ", read.images.size(), " images have more than ", options.boxes,
                      " objects; a sample has the first ones only, unless data.boxes is larger"));
  }
  return set;
}

DataSet read_voc(const std::string& folder, const DataOptions& options) {
  const auto lists = lists_in(folder);
  TROUPE_CHECK(lists, Code::invalid, folder,
               ": ImageSets/Main has neither trainval.txt and test.txt nor train.txt and val.txt or test.txt",
               kVocCure);
  AnnotatedImages train = read_annotations(folder, lists->train, options);
  AnnotatedImages test = read_annotations(folder, lists->test, options);
  const std::vector<std::string> classes = classes_of(train, options, lists->train);
  EncodedImageSet images = boxed_images(std::move(train), classes, options);  // first, since its errors are told first
  return detail::encoded_set(std::move(images), boxed_images(std::move(test), classes, options), options);
}

}  // namespace

VocAnnotation parse_voc_annotation(std::string_view text_, const std::string& name) {
  return AnnotationReader{text_, name}.read();
}

std::vector<std::string> parse_voc_list(std::string_view text_, const std::string& name) {
  std::vector<std::string> images;
  for (std::uint64_t line = 1; !text_.empty(); ++line) {
    const std::string_view image = trimmed(detail::take_line(text_));
    if (image.empty()) continue;
    constexpr std::string_view kForbidden{"/ \t\0", 4};
    TROUPE_CHECK(image.find_first_of(kForbidden) == std::string_view::npos, Code::invalid, name, ':', line,
                 ": is not the name of an image, without folder and ending", kVocCure);
    images.emplace_back(image);
  }
  TROUPE_CHECK(!images.empty(), Code::invalid, name, ": has no line with an image", kVocCure);
  return images;
}

const detail::DataFormat detail::kVocFormat{
    .word = "voc",
    .title = "VOC data",
    .set = {},
    .needs =
        "Annotations, JPEGImages and ImageSets/Main, with trainval.txt and test.txt, or train.txt and val.txt or "
        "test.txt",
    .cure = {},
    .is_in = [](const std::string& folder) { return is_there((fs::path{folder} / "ImageSets" / "Main").string()); },
    .read = read_voc};

}  // namespace troupe
