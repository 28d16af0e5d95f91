#include "runtime/data/image_lists.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/data/detail/data_format.hpp"
#include "runtime/data/detail/encoded_format.hpp"
#include "runtime/data/detail/unpacked.hpp"
#include "runtime/data/encoded_images.hpp"

// data.source = "folder" and "map": a file for each image.
namespace troupe {
namespace {

namespace fs = std::filesystem;

using detail::count_label_classes;

constexpr const char* kListCure = "; correct the file, or name another folder (--set data.path=FOLDER)";
constexpr std::uint64_t kMostListBytes = std::uint64_t{1} << 30;
constexpr std::array kTestFolders{"test", "val"};
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // some editors begin UTF-8 with it

bool is_image_name(const fs::path& path) {
  const std::string ending = lower_case(path.extension().string());
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

/// The names in `folder` for which `wanted` is true, sorted, so that every machine numbers them in the same way.
template <class Wanted>
std::vector<std::string> sorted_names(const fs::path& folder, Wanted wanted) {
  std::vector<std::string> names;
  std::error_code reason;
  for (fs::directory_iterator at{folder, reason}, end; !reason && at != end; at.increment(reason))
    if (wanted(*at)) names.push_back(at->path().filename().string());
  TROUPE_CHECK(!reason, Code::environment, folder.string(), ": cannot be read: ", reason.message());
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> folders_in(const fs::path& folder) {
  return sorted_names(folder, [](const fs::directory_entry& entry) {
    std::error_code ignored;
    return entry.is_directory(ignored) && !entry.path().filename().string().starts_with('.');
  });
}

std::optional<fs::path> test_folder_in(const std::string& folder) {
  for (const char* name : kTestFolders)
    if (const fs::path path = fs::path{folder} / name; detail::is_there(path.string())) return path;
  return std::nullopt;
}

/// The images of `folder`, which has a subfolder for each class of `classes` that occurs.
EncodedImageSet images_by_class(const fs::path& folder, const std::vector<std::string>& classes) {
  auto files = std::make_unique<PathFiles>();
  EncodedImageSet set{.classes = static_cast<std::uint32_t>(classes.size())};
  for (const std::string& name : folders_in(folder)) {
    const auto at = std::ranges::lower_bound(classes, name);
    TROUPE_CHECK(at != classes.end() && *at == name, Code::invalid, (folder / name).string(),
                 ": no class of the training set is called ", name, "; it has ", joined(classes));
    for (const std::string& image :
         sorted_names(folder / name, [](const fs::directory_entry& entry) { return is_image_name(entry.path()); })) {
      files->add((folder / name / image).string());
      set.labels.push_back(static_cast<std::int32_t>(at - classes.begin()));
    }
  }
  TROUPE_CHECK(files->count() > 0, Code::invalid, folder.string(),
               ": none of its folders holds a .jpg, .jpeg or .png file", kListCure);
  set.files = std::move(files);
  return set;
}

DataSet read_folders(const std::string& folder, const DataOptions& options) {
  const fs::path train = fs::path{folder} / "train";
  const auto test = test_folder_in(folder);
  TROUPE_CHECK(test, Code::invalid, folder, ": has neither test nor val, with a folder of images for each class",
               kListCure);
  const std::vector<std::string> classes = folders_in(train);
  EncodedImageSet images = images_by_class(train, classes);  // first, since its errors are told first
  return detail::encoded_set(std::move(images), images_by_class(*test, classes), options);
}

/// Paths are relative to the folder of the map file.
EncodedImageSet mapped_images(const fs::path& file, std::uint32_t classes) {
  auto files = std::make_unique<PathFiles>();
  EncodedImageSet set;
  for (const MapEntry& entry : parse_map(detail::read_whole(file.string(), kMostListBytes, kListCure), file.string())) {
    files->add((file.parent_path() / entry.path).string());
    set.labels.push_back(entry.label);
  }
  set.classes = classes;
  set.files = std::move(files);
  return set;
}

constexpr const char* kTrainMap = "train_map.txt";
constexpr const char* kTestMap = "test_map.txt";

DataSet read_maps(const std::string& folder, const DataOptions& options) {
  const fs::path train_file = fs::path{folder} / kTrainMap;
  EncodedImageSet train = mapped_images(train_file, 0);
  train.classes = count_label_classes(train.labels, train_file.string());
  EncodedImageSet test = mapped_images(fs::path{folder} / kTestMap, train.classes);
  return detail::encoded_set(std::move(train), std::move(test), options);
}

bool has_maps(const std::string& folder) {
  const bool train = detail::is_there((fs::path{folder} / kTrainMap).string());
  const bool test = detail::is_there((fs::path{folder} / kTestMap).string());
  TROUPE_CHECK(train == test, Code::invalid, folder, ": lacks ", train ? kTestMap : kTrainMap, kListCure);
  return train;
}

}  // namespace

std::vector<MapEntry> parse_map(std::string_view text_, const std::string& name) {
  std::vector<MapEntry> entries;
  if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  for (std::uint64_t line = 1; !text_.empty(); ++line) {
    std::string_view row = detail::take_line(text_);
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (trimmed(row).empty()) continue;
    const std::size_t tab = row.rfind('\t');
    TROUPE_CHECK(tab != std::string_view::npos && tab > 0, Code::invalid, name, ':', line,
                 ": is not a path, a tab and a label", kListCure);
    const std::int32_t number = number_in<std::int32_t>(trimmed(row.substr(tab + 1))).value_or(-1);
    TROUPE_CHECK(number >= 0 && number <= kMostMapLabel, Code::invalid, name, ':', line,
                 ": the label is not a whole number from 0 to ", kMostMapLabel, kListCure);
    TROUPE_CHECK(row.substr(0, tab).find('\0') == std::string_view::npos, Code::invalid, name, ':', line,
                 ": the path has a zero character", kListCure);
    entries.push_back({std::string{row.substr(0, tab)}, number});
  }
  TROUPE_CHECK(!entries.empty(), Code::invalid, name, ": has no line with an image", kListCure);
  return entries;
}

const detail::DataFormat detail::kFolderFormat{
    .word = "folder",
    .title = "image folder",
    .set = {},
    .needs = "a folder train with a folder of .jpg or .png images for each class, and test or val with the same",
    .cure = {},
    .is_in = [](const std::string& folder) { return is_there((fs::path{folder} / "train").string()); },
    .read = read_folders};

const detail::DataFormat detail::kMapFormat{
    .word = "map",
    .title = "map files",
    .set = {},
    .needs = "train_map.txt and test_map.txt, with a path, a tab and a label in each line",
    .cure = {},
    .is_in = has_maps,
    .read = read_maps};

}  // namespace troupe
