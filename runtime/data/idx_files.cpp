#include "runtime/data/detail/idx_files.hpp"

#include <filesystem>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/data/detail/data_format.hpp"

namespace troupe::detail {
namespace {

/// One of the four files, by its name without the extension of a packed file.
struct IdxPart {
  const char* stem;
  const char* type;
};
constexpr std::array<IdxPart, kIdxParts> kParts{{{"train-images", "idx3-ubyte"},
                                                 {"train-labels", "idx1-ubyte"},
                                                 {"t10k-images", "idx3-ubyte"},
                                                 {"t10k-labels", "idx1-ubyte"}}};

/// The file of a part in `folder`, under the first of its names that exists.
std::optional<std::string> idx_path_of(const std::string& folder, const IdxPart& part) {
  for (const char* joint : {"-", "."}) {
    for (const char* packing : {"", ".gz"}) {
      const std::string path = (std::filesystem::path{folder} / text(part.stem, joint, part.type, packing)).string();
      if (is_there(path)) return path;
    }
  }
  return std::nullopt;
}

/// The header of the images.
IdxHeader check_pair(const std::string& images_file, const std::string& labels_file) {
  const IdxHeader images = check_idx(images_file, IdxKind::images);
  const IdxHeader labels = check_idx(labels_file, IdxKind::labels);
  TROUPE_CHECK(images.count == labels.count, Code::invalid, images_file, ": ", images.count, " images, but ",
               labels_file, " has ", labels.count, " labels; the files do not belong together");
  return images;
}

IdxPaths idx_paths_still_in(const std::string& folder) {
  auto paths = idx_paths_in(folder);
  TROUPE_CHECK(paths, Code::invalid, folder, ": the data files are gone; start again to search for them");
  return std::move(*paths);
}

DataFacts look_at_idx(const std::string& folder, const DataOptions& options) {
  const IdxPaths paths = idx_paths_still_in(folder);
  const auto [train, test] = check_idx_set(paths);
  const std::uint32_t classes = count_classes(read_idx(paths[1], IdxKind::labels), read_idx(paths[3], IdxKind::labels));
  return {.fields = image_fields({{train.height, train.width, 1}}, classes, options.augmentation),
          .train_samples = train.count,
          .test_samples = test.count,
          .size_bytes = train.content_bytes() + train.count + test.content_bytes() + test.count};  // a label is one
                                                                                                   // byte
}

DataSet read_idx_set(const std::string& folder, const DataOptions& options) {
  const IdxPaths paths = idx_paths_still_in(folder);
  IdxFile train_labels = read_idx(paths[1], IdxKind::labels), test_labels = read_idx(paths[3], IdxKind::labels);
  const std::uint32_t classes = count_classes(train_labels, test_labels);
  const auto source = [&](const std::string& images, IdxFile labels, bool training) {
    return std::make_unique<ByteImages>(idx_image_set(read_idx(images, IdxKind::images), std::move(labels), classes),
                                        options.augmentation, training);
  };
  DataSet set;
  set.train = source(paths[0], std::move(train_labels), true);
  set.test = source(paths[2], std::move(test_labels), false);
  return set;
}

}  // namespace

std::string idx_name(std::size_t part) { return text(kParts.at(part).stem, "-", kParts.at(part).type); }

std::optional<IdxPaths> idx_paths_in(const std::string& folder) {
  IdxPaths paths;
  std::string missing;
  std::size_t found = 0;
  for (std::size_t i = 0; i < kIdxParts; ++i) {
    if (auto path = idx_path_of(folder, kParts[i])) {
      paths[i] = std::move(*path);
      ++found;
    } else {
      missing += text(missing.empty() ? "" : ", ", idx_name(i));
    }
  }
  if (found == 0) return std::nullopt;
  TROUPE_CHECK(found == kIdxParts, Code::invalid, folder, ": lacks ", missing,
               " (plain or .gz); add what is missing, or name another folder (--set data.path=FOLDER)");
  return paths;
}

IdxImageHeaders check_idx_set(const IdxPaths& paths) {
  const IdxHeader train = check_pair(paths[0], paths[1]), test = check_pair(paths[2], paths[3]);
  TROUPE_CHECK(train.height == test.height && train.width == test.width, Code::invalid, paths[2], ": images of ",
               test.height, " x ", test.width, ", but ", paths[0], " has ", train.height, " x ", train.width,
               "; the files do not belong together");
  return {train, test};
}

const DataFormat kIdxFormat{
    .word = "idx",
    .title = "IDX data",
    .set = "mnist",
    .needs =
        "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte "
        "(plain or .gz)",
    .cure = {},
    .is_in = [](const std::string& folder) { return idx_paths_in(folder).has_value(); },
    .look = look_at_idx,
    .read = read_idx_set};

}  // namespace troupe::detail
