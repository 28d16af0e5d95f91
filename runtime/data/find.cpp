#include "runtime/data/find.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/data/digits.hpp"
#include "runtime/data/idx.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kDigitsSeed = 1;
constexpr std::uint32_t kTrainDigits = 60'000;
constexpr std::uint32_t kTestDigits = 10'000;
constexpr std::uint32_t kDigitClasses = 10;

/// One of the four files, by its name without the ending that says how it is packed.
struct Part {
  const char* stem;
  const char* type;
  IdxKind kind;
};
constexpr std::array<Part, 4> kMnistParts{{{"train-images", "idx3-ubyte", IdxKind::images},
                                           {"train-labels", "idx1-ubyte", IdxKind::labels},
                                           {"t10k-images", "idx3-ubyte", IdxKind::images},
                                           {"t10k-labels", "idx1-ubyte", IdxKind::labels}}};

std::string plain_name(const Part& part) { return text(part.stem, "-", part.type); }

bool is_there(const fs::path& path) {
  std::error_code reason;
  const bool there = fs::exists(path, reason);
  TROUPE_CHECK(!reason, Code::environment, path.string(), ": cannot be looked at: ", reason.message(),
               "; check the permissions of its folder");
  return there;
}

/// The file of a part in `folder`, under the first of its names that is there.
std::optional<std::string> file_of(const fs::path& folder, const Part& part) {
  for (const char* joint : {"-", "."}) {
    for (const char* packing : {"", ".gz"}) {
      const fs::path file = folder / text(part.stem, joint, part.type, packing);
      if (is_there(file)) return file.string();
    }
  }
  return std::nullopt;
}

using Files = std::array<std::string, kMnistParts.size()>;

/// The four files of `folder`; nothing when there is none of them. Throws Error{invalid} when some are missing.
std::optional<Files> files_in(const fs::path& folder) {
  Files files;
  std::string missing;
  std::size_t found = 0;
  for (std::size_t i = 0; i < kMnistParts.size(); ++i) {
    if (auto file = file_of(folder, kMnistParts[i])) {
      files[i] = std::move(*file);
      ++found;
    } else {
      missing += text(missing.empty() ? "" : ", ", plain_name(kMnistParts[i]));
    }
  }
  if (found == 0) return std::nullopt;
  TROUPE_CHECK(found == kMnistParts.size(), Code::invalid, folder.string(), ": lacks ", missing,
               " (plain or .gz); add what is missing, or name another folder (--set data.path=FOLDER)");
  return files;
}

void check_pair(const std::string& images_file, const std::string& labels_file) {
  const IdxHeader images = check_idx(images_file, IdxKind::images);
  const IdxHeader labels = check_idx(labels_file, IdxKind::labels);
  TROUPE_CHECK(images.count == labels.count, Code::invalid, images_file, ": ", images.count, " images, but ",
               labels_file, " has ", labels.count, " labels; the files do not belong together");
}

/// Throws as check_idx when a file of the set is broken, Error{invalid} when they do not fit each other.
void check_files(const Files& files) {
  check_pair(files[0], files[1]);
  check_pair(files[2], files[3]);
  const IdxHeader train = check_idx(files[0], IdxKind::images), test = check_idx(files[2], IdxKind::images);
  TROUPE_CHECK(train.height == test.height && train.width == test.width, Code::invalid, files[2], ": images of ",
               test.height, " x ", test.width, ", but ", files[0], " has ", train.height, " x ", train.width,
               "; the files do not belong together");
}

std::string needs() {
  return "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (plain "
         "or .gz)";
}

/// 60,000
std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(std::size_t(at), ",");
  return digits;
}

/// "IDX data from /data/mnist (data.path): 60,000 training, 10,000 test samples, 28 x 28, 10 classes". Checks the
/// files.
DataPlace idx_place(const fs::path& folder, const Files& files, const std::string& origin) {
  check_files(files);
  const IdxHeader train = check_idx(files[0], IdxKind::images), test = check_idx(files[2], IdxKind::images);
  const std::uint32_t classes = count_classes(read_idx(files[1], IdxKind::labels), read_idx(files[3], IdxKind::labels));
  return {folder.string(),
          text("IDX data from ", folder.string(), " (", origin, "): ", grouped(train.count), " training, ",
               grouped(test.count), " test samples, ", train.height, " x ", train.width, ", ", classes, " classes"),
          false};
}

/// A folder that was named on purpose: everything must be there and whole.
DataPlace named_place(const fs::path& folder, const std::string& origin, const std::string& cure) {
  TROUPE_CHECK(is_there(folder), Code::invalid, folder.string(), " (", origin, "): no such folder; ", cure);
  TROUPE_CHECK(fs::is_directory(folder), Code::invalid, folder.string(), " (", origin, "): is not a folder; ", cure);
  const auto files = files_in(folder);
  TROUPE_CHECK(files, Code::invalid, folder.string(), " (", origin, "): holds none of ", needs(), "; ", cure);
  return idx_place(folder, *files, origin);
}

fs::path whole_path(const fs::path& path) {
  fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

/// What was typed on the command line is first looked for where it was typed.
fs::path resolve_set_path(const DataRequest& request) {
  const fs::path typed = whole_path(request.path);
  return is_there(typed) ? typed : whole_path(fs::path{request.folder} / request.path);
}

fs::path cache_folder(const DataRequest& request) {
  if (!request.cache.empty()) return whole_path(request.cache);
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/')
    return fs::path{cache} / "troupe";  // the XDG rule: a relative one does not count
  const char* home = std::getenv("HOME");
  TROUPE_CHECK(home != nullptr && *home == '/', Code::environment,
               "no folder for the generated digits: neither XDG_CACHE_HOME nor HOME is set; set XDG_CACHE_HOME to a "
               "folder that can be written");
  return fs::path{home} / ".cache" / "troupe";
}

Files digit_files(const fs::path& folder) {
  Files files;
  for (std::size_t i = 0; i < kMnistParts.size(); ++i) files[i] = (folder / plain_name(kMnistParts[i])).string();
  return files;
}

/// Draws both sets and writes them. Two processes may do so at once: the files come out the same, and each appears
/// whole.
void generate(const fs::path& folder, const DataProgress& progress) {
  const std::string cure = text("; set XDG_CACHE_HOME to a folder that can be written (the digits take 55 MB)");
  std::error_code reason;
  fs::create_directories(folder, reason);
  TROUPE_CHECK(!reason, Code::environment, folder.string(), ": cannot be made: ", reason.message(), cure);
  TROUPE_CHECK_ERRNO(::access(folder.c_str(), W_OK | X_OK) == 0, Code::environment, folder.string(),
                     ": cannot be written", cure);
  constexpr std::uint32_t kCount = kTrainDigits + kTestDigits;
  std::vector<std::uint8_t> images(std::size_t{kCount} * kDigitPixels), labels(kCount);
  draw_digits(kDigitsSeed, 0, images, labels, count_allowed_cores(), progress);
  const Files files = digit_files(folder);
  const auto write = [&](std::size_t part, std::uint32_t first, std::uint32_t count) {
    const std::span<const std::uint8_t> all_images{images}, all_labels{labels};
    try {
      write_idx(files[part], {IdxKind::images, count, kDigitSide, kDigitSide},
                all_images.subspan(std::size_t{first} * kDigitPixels, std::size_t{count} * kDigitPixels));
      write_idx(files[part + 1], {IdxKind::labels, count}, all_labels.subspan(first, count));
    } catch (const Error& error) {
      fail(error.code(), text(error.what(), cure));
    }
  };
  write(0, 0, kTrainDigits);
  write(2, kTrainDigits, kTestDigits);
}

/// What is wrong with the cached digits; empty: nothing.
std::string find_fault(const fs::path& folder) {
  try {
    const Files files = digit_files(folder);
    check_files(files);
    const bool whole =
        check_idx(files[0], IdxKind::images) == IdxHeader{IdxKind::images, kTrainDigits, kDigitSide, kDigitSide} &&
        check_idx(files[2], IdxKind::images) == IdxHeader{IdxKind::images, kTestDigits, kDigitSide, kDigitSide};
    return whole ? "" : "other counts than expected";
  } catch (const Error& error) {
    if (error.code() != Code::invalid) throw;
    return error.what();
  }
}

/// Why there are no other data, for people.
DataPlace generated_place(const DataRequest& request, const std::string& why) {
  const fs::path folder = cache_folder(request) / text("digits-v", kDigitsVersion, "-seed", kDigitsSeed);
  const bool there = is_there(folder);
  const std::string fault = find_fault(folder);
  if (!fault.empty() && !request.draw) {
    return {.folder = folder.string(),
            .description = text("generated digits, to be drawn ", there ? "again " : "", "into ", folder.string(), " (",
                                why, there ? "; the cached ones are incomplete or damaged)" : ")"),
            .generated = true,
            .there = false};
  }
  if (!fault.empty()) generate(folder, request.progress);
  const std::string note = fault.empty() ? ""
                           : there       ? "; drawn again, the cached ones were incomplete or damaged"
                                         : "; drawn now";
  return {folder.string(), text("generated digits from ", folder.string(), " (", why, note, ")"), true};
}

/// The configured folder, unless it is absent or holds no part of a set.
std::optional<DataPlace> configured_place(const fs::path& folder) {
  if (!is_there(folder)) return std::nullopt;
  TROUPE_CHECK(fs::is_directory(folder), Code::invalid, folder.string(),
               " (data.path): is not a folder; name one that holds ", needs());
  const auto files = files_in(folder);
  if (!files) return std::nullopt;
  return idx_place(folder, *files, "data.path");
}

/// The files of a place that was found.
Files files_of(const DataPlace& place) {
  const auto files = files_in(place.folder);
  TROUPE_CHECK(files, Code::invalid, place.folder, ": the data files are gone; start again to search for them");
  return *files;
}

}  // namespace

DataPlace find_data(const DataRequest& request) {
  if (request.source == "generated") return generated_place(request, "data.source");
  TROUPE_CHECK(request.source == "idx", Code::unsupported, "data.source = \"", request.source,
               "\": this build has idx and generated");
  if (request.path_is_set) {
    TROUPE_CHECK(!request.path.empty(), Code::invalid,
                 "data.path is set to nothing (--set data.path); name a folder that holds ", needs());
    return named_place(resolve_set_path(request), "--set data.path", "name a folder that holds the four MNIST files");
  }
  const bool configured = !request.path.empty();
  const fs::path folder = configured ? whole_path(fs::path{request.folder} / request.path) : fs::path{};
  if (configured) {
    if (auto place = configured_place(folder)) return *place;
  }
  if (!request.environment.empty()) {
    const std::string why = configured ? text("; data.path = ", folder.string(), " holds no data set") : "";
    return named_place(whole_path(fs::path{request.environment} / "mnist"), text("TROUPE_DATA", why),
                       "TROUPE_DATA names a folder whose subfolder mnist holds the four files; correct or unset it");
  }
  if (!configured) return generated_place(request, "no data.path, TROUPE_DATA unset");
  return generated_place(request, text("no IDX data found in ", folder.string(), ", TROUPE_DATA unset"));
}

DataFacts look_at_data(const DataPlace& place) {
  DataFacts facts;
  std::uint32_t classes = kDigitClasses;
  IdxHeader train{IdxKind::images, kTrainDigits, kDigitSide, kDigitSide};
  IdxHeader test{IdxKind::images, kTestDigits, kDigitSide, kDigitSide};
  if (place.there) {
    const Files files = files_of(place);
    check_files(files);
    train = check_idx(files[0], IdxKind::images);
    test = check_idx(files[2], IdxKind::images);
    classes = count_classes(read_idx(files[1], IdxKind::labels), read_idx(files[3], IdxKind::labels));
  }
  facts.fields = image_fields(train, classes);
  facts.train_samples = train.count;
  facts.test_samples = test.count;
  facts.size_bytes = train.content_bytes() + train.count + test.content_bytes() + test.count;  // a label is a byte
  return facts;
}

DataSet read_data(const DataPlace& place) {
  const Files files = files_of(place);
  IdxFile train_labels = read_idx(files[1], IdxKind::labels), test_labels = read_idx(files[3], IdxKind::labels);
  const std::uint32_t classes = count_classes(train_labels, test_labels);
  DataSet set;
  set.train = std::make_unique<IdxSource>(read_idx(files[0], IdxKind::images), std::move(train_labels), classes);
  set.test = std::make_unique<IdxSource>(read_idx(files[2], IdxKind::images), std::move(test_labels), classes);
  TROUPE_CHECK(set.train->fields() == set.test->fields(), Code::invalid, place.folder, ": training samples are ",
               list_fields(set.train->fields()), ", test samples ", list_fields(set.test->fields()),
               "; the files do not belong together");
  set.origin = place.description;
  return set;
}

}  // namespace troupe
