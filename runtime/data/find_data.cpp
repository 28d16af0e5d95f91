#include "runtime/data/find_data.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/user_cache.hpp"
#include "runtime/base/words.hpp"
#include "runtime/data/detail/data_format.hpp"
#include "runtime/data/detail/idx_files.hpp"
#include "runtime/data/digits.hpp"
#include "runtime/data/idx.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

using detail::DataFormat;
using detail::IdxPaths;
using detail::is_there;

constexpr std::uint64_t kDigitsSeed = 1;
constexpr std::uint32_t kTrainDigits = 60'000;
constexpr std::uint32_t kTestDigits = 10'000;
constexpr std::uint32_t kDigitClasses = 10;

/// "28 x 28", "32 x 32 x 3"
std::string extents_text(const Shape& shape) {
  std::vector<std::uint32_t> extents = shape.extents;
  if (extents.size() > 2 && extents.back() == 1) extents.pop_back();
  return joined(extents, " x ");
}

DataFacts facts_of(const DataSet& set) {
  return {.fields = set.train->fields(),
          .train_samples = set.train->count_samples(),
          .test_samples = set.test->count_samples(),
          .size_bytes = set.train->size_bytes() + set.test->size_bytes()};
}

/// Looking copies nothing, and leaves notes to the later read.
DataFacts look_in(const std::string& folder, const DataFormat& format, DataOptions options) {
  options.stage = {};
  options.note = {};
  return format.look != nullptr ? format.look(folder, options) : facts_of(format.read(folder, options));
}

/// Describes and checks the files: "IDX data from /data/mnist (data.path): 60,000 training, 10,000 test samples, 28 x
/// 28, 10 classes".
DataPlace place_at(const fs::path& folder, const DataFormat& format, const DataRequest& request,
                   const std::string& origin) {
  const DataFacts facts = look_in(folder.string(), format, request.options);
  std::string description =
      text(format.title, " from ", folder.string(), " (", origin, "): ", grouped(facts.train_samples), " training, ",
           grouped(facts.test_samples), " test samples");
  for (const Field& field : facts.fields) {
    if (field.name == kImage) description += ", " + extents_text(field.shape);
    if (field.name == kTokens)
      description += text(", ", extents_text(field.shape), " bytes each");
    else if (field.classes > 0)
      description += text(", ", field.classes, field.classes == 1 ? " class" : " classes");
  }
  return {.folder = folder.string(),
          .description = std::move(description),
          .format = std::string{format.word},
          .options = request.options};
}

/// The advice what to name instead: a phrase.
std::string name_what(const DataFormat& format) {
  return text("name ", format.is_file ? "" : "a folder that holds ", format.needs);
}

/// A folder that the user named: all files must exist and be complete.
DataPlace named_place(const fs::path& folder, const DataFormat& format, const DataRequest& request,
                      const std::string& origin, const std::string& cure) {
  const std::string kind = format.is_file ? "file" : "folder";
  TROUPE_CHECK(is_there(folder), Code::invalid, folder.string(), " (", origin, "): no such ", kind, "; ", cure);
  TROUPE_CHECK(fs::is_directory(folder) != format.is_file, Code::invalid, folder.string(), " (", origin, "): is not a ",
               kind, "; ", cure);
  TROUPE_CHECK(format.is_in(folder.string()), Code::invalid, folder.string(), " (", origin, "): holds none of ",
               format.needs, "; ", cure);
  return place_at(folder, format, request, origin);
}

fs::path whole_path(const fs::path& path) {
  fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

/// A path from the command line is first looked up relative to the working directory.
fs::path resolve_set_path(const DataRequest& request) {
  const fs::path typed = whole_path(request.path);
  return is_there(typed) ? typed : whole_path(fs::path{request.folder} / request.path);
}

fs::path cache_folder(const DataRequest& request) {
  if (!request.cache.empty()) return whole_path(request.cache);
  const std::string cache = user_cache_folder();
  TROUPE_CHECK(!cache.empty(), Code::environment,
               "no folder for the generated digits: neither XDG_CACHE_HOME nor HOME is set; set XDG_CACHE_HOME to a "
               "folder that can be written");
  return cache;
}

IdxPaths digit_files(const fs::path& folder) {
  IdxPaths files;
  for (std::size_t i = 0; i < files.size(); ++i) files[i] = (folder / detail::idx_name(i)).string();
  return files;
}

/// Draws both sets and writes them. Two processes may do so at the same time: their files are equal, and each appears
/// complete.
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
  const IdxPaths files = digit_files(folder);
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
    const IdxPaths files = digit_files(folder);
    const auto [train, test] = detail::check_idx_set(files);
    const bool whole = train == IdxHeader{IdxKind::images, kTrainDigits, kDigitSide, kDigitSide} &&
                       test == IdxHeader{IdxKind::images, kTestDigits, kDigitSide, kDigitSide};
    return whole ? "" : "other counts than expected";
  } catch (const Error& error) {
    if (error.code() != Code::invalid) throw;
    return error.what();
  }
}

/// `why`: why there are no other data, for people.
DataPlace generated_place(const DataRequest& request, const std::string& why) {
  const fs::path folder = cache_folder(request) / text("digits-v", kDigitsVersion, "-seed", kDigitsSeed);
  const bool there = is_there(folder);
  const std::string fault = find_fault(folder);
  if (!fault.empty() && !request.draw) {
    return {.folder = folder.string(),
            .description = text("generated digits, to be drawn ", there ? "again " : "", "into ", folder.string(), " (",
                                why, there ? "; the cached ones are incomplete or damaged)" : ")"),
            .generated = true,
            .there = false,
            .options = request.options};
  }
  if (!fault.empty()) generate(folder, request.progress);
  const std::string note = fault.empty() ? ""
                           : there       ? "; drawn again, the cached ones were incomplete or damaged"
                                         : "; drawn now";
  return {.folder = folder.string(),
          .description = text("generated digits from ", folder.string(), " (", why, note, ")"),
          .generated = true,
          .options = request.options};
}

/// The configured folder, unless it does not exist or contains no part of a set.
std::optional<DataPlace> configured_place(const fs::path& folder, const DataFormat& format,
                                          const DataRequest& request) {
  if (!is_there(folder)) return std::nullopt;
  TROUPE_CHECK(fs::is_directory(folder) != format.is_file, Code::invalid, folder.string(), " (data.path): is not a ",
               format.is_file ? "file; " : "folder; ", name_what(format));
  if (!format.is_in(folder.string())) return std::nullopt;
  return place_at(folder, format, request, "data.path");
}

const DataFormat* find_format(std::string_view word) {
  const auto formats = detail::data_formats();
  const auto at = std::ranges::find(formats, word, [](const DataFormat* format) { return format->word; });
  return at == formats.end() ? nullptr : *at;
}

const DataFormat& format_of(const DataPlace& place) {
  const DataFormat* const format = find_format(place.format);
  TROUPE_CHECK(format != nullptr, Code::unsupported, place.folder, ": no format is called ", place.format);
  return *format;
}

DataPlace find_files(const DataRequest& request, const DataFormat& format) {
  if (request.path_is_set) {
    TROUPE_CHECK(!request.path.empty(), Code::invalid, "data.path is set to nothing (--set data.path); ",
                 name_what(format));
    return named_place(resolve_set_path(request), format, request, "--set data.path", name_what(format));
  }
  const bool configured = !request.path.empty();
  const fs::path folder = configured ? whole_path(fs::path{request.folder} / request.path) : fs::path{};
  if (configured) {
    if (auto place = configured_place(folder, format, request)) return *place;
  }
  const bool in_environment = !request.environment.empty() && !format.set.empty();
  if (in_environment) {
    const std::string why = configured ? text("; data.path = ", folder.string(), " holds no data set") : "";
    return named_place(whole_path(fs::path{request.environment} / format.set), format, request,
                       text("TROUPE_DATA", why),
                       text("TROUPE_DATA names a folder whose subfolder ", format.set, " holds ", format.needs,
                            "; correct or unset it"));
  }
  const std::string unset = format.set.empty() ? "" : ", TROUPE_DATA unset";
  if (&format == &detail::kIdxFormat) {
    return generated_place(
        request, configured ? text("no IDX data found in ", folder.string(), unset) : text("no data.path", unset));
  }
  fail(Code::invalid,
       text("data.source = \"", format.word, "\": ", configured ? folder.string() : std::string{"no data.path"},
            configured ? (format.is_file ? " (data.path) is not there" : " (data.path) does not hold what it needs")
                       : "",
            unset, "; ", name_what(format), format.cure));
}

}  // namespace

bool detail::is_there(const std::string& path) {
  std::error_code reason;
  const bool there = fs::exists(path, reason);
  TROUPE_CHECK(!reason, Code::environment, path, ": cannot be looked at: ", reason.message(),
               "; check the permissions of its folder");
  return there;
}

std::span<const DataFormat* const> detail::data_formats() {
  static constexpr std::array kFormats{&kIdxFormat,    &kCifarFormat, &kFolderFormat, &kMapFormat,
                                       &kShardsFormat, &kVocFormat,   &kTextFormat};
  return kFormats;
}

DataPlace find_data(const DataRequest& request) {
  if (request.source == "generated") return generated_place(request, "data.source");
  const DataFormat* const format = find_format(request.source);
  TROUPE_CHECK(format != nullptr, Code::unsupported, "data.source = \"", request.source,
               "\": this build does not have it");
  return find_files(request, *format);
}

DataFacts look_at_data(const DataPlace& place) {
  if (place.there) return look_in(place.folder, format_of(place), place.options);
  const IdxHeader train{IdxKind::images, kTrainDigits, kDigitSide, kDigitSide};
  const IdxHeader test{IdxKind::images, kTestDigits, kDigitSide, kDigitSide};
  return {.fields = image_fields({{kDigitSide, kDigitSide, 1}}, kDigitClasses, place.options.augmentation),
          .train_samples = train.count,
          .test_samples = test.count,
          .size_bytes = train.content_bytes() + train.count + test.content_bytes() + test.count};
}

DataSet read_data(const DataPlace& place) {
  DataSet set = format_of(place).read(place.folder, place.options);
  TROUPE_CHECK(set.train->fields() == set.test->fields(), Code::invalid, place.folder, ": training samples are ",
               list_fields(set.train->fields()), ", test samples ", list_fields(set.test->fields()),
               "; the files do not belong together");
  set.origin = place.description;
  return set;
}

}  // namespace troupe
