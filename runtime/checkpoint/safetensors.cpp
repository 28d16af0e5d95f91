#include "runtime/checkpoint/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/detail/read_at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/checkpoint/finite.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kAlignment = 4096;  // a page: what is aligned so in memory can be written to the disk directly
constexpr std::size_t kMaxExtents = 64;
constexpr const char* kMetadata = "__metadata__";

static_assert(std::endian::native == std::endian::little, "tensors are stored as they lie in memory");

struct Type {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array kTypes{Type{"F32", 4}, Type{"BF16", 2}, Type{"F16", 2}, Type{"F64", 8},     Type{"I64", 8},
                            Type{"I32", 4}, Type{"I16", 2},  Type{"I8", 1},  Type{"U8", 1},      Type{"BOOL", 1},
                            Type{"U16", 2}, Type{"U32", 4},  Type{"U64", 8}, Type{"F8_E4M3", 1}, Type{"F8_E5M2", 1}};

/// Parses a header while it is read, so that only the entries are kept, and stops at the first item that does not
/// belong there.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(SafetensorsHeader& to) : to_(to) {}
  const std::string& why() const noexcept { return why_; }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) return enter(Place::root);
    if (place_ == Place::root && key_ == kMetadata) return enter(Place::metadata);
    if (place_ == Place::root) {
      to_.entries.emplace_back().name = std::move(key_);
      seen_ = 0;
      return enter(Place::entry);
    }
    return no("an object where none belongs");
  }
  bool key(std::string& name) override {
    key_ = std::move(name);
    if (place_ != Place::entry) return true;
    const unsigned which = key_ == "dtype"          ? kDtype
                           : key_ == "shape"        ? kShape
                           : key_ == "data_offsets" ? kOffsets
                                                    : kOther;
    if (which == kOther) return no("\"" + entry().name + "\" has a \"" + key_ + "\"");
    if ((std::exchange(seen_, seen_ | which) & which) != 0) {
      return no("\"" + entry().name + "\" has its \"" + key_ + "\" twice");
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::metadata) return enter(Place::root);
    if (place_ == Place::root) return enter(Place::end);
    if (seen_ != (kDtype | kShape | kOffsets) || offsets_ != 2) {
      return no("\"" + entry().name + "\" lacks its dtype, shape or data_offsets");
    }
    if (end_ < entry().begin) return no("\"" + entry().name + "\" ends before it begins");
    entry().size_bytes = end_ - entry().begin;
    offsets_ = 0;
    return enter(Place::root);
  }
  bool start_array(std::size_t) override {
    if (place_ == Place::entry && key_ == "shape") return enter(Place::shape);
    if (place_ == Place::entry && key_ == "data_offsets") return enter(Place::offsets);
    return no("a list where none belongs");
  }
  bool end_array() override { return enter(Place::entry); }
  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::shape) {
      if (entry().extents.size() == kMaxExtents) return no("\"" + entry().name + "\" has too many dimensions");
      entry().extents.push_back(value);
      return true;
    }
    if (place_ == Place::offsets && offsets_ < 2) {
      (offsets_++ == 0 ? entry().begin : end_) = value;
      return true;
    }
    return no("a number where none belongs");
  }
  bool string(std::string& value) override {
    if (place_ == Place::metadata) {
      to_.metadata[key_] = std::move(value);
      return true;
    }
    if (place_ == Place::entry && key_ == "dtype") {
      entry().dtype = std::move(value);
      return true;
    }
    return no("a text where none belongs");
  }
  bool null() override { return no("null"); }
  bool boolean(bool) override { return no("true or false"); }
  bool number_integer(std::int64_t) override { return no("a negative number"); }
  bool number_float(double, const std::string&) override { return no("a broken number"); }
  bool binary(nlohmann::json::binary_t&) override { return no("bytes"); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) override {
    return no(text("no JSON at byte ", at));
  }

 private:
  enum class Place : std::uint8_t { outside, root, metadata, entry, shape, offsets, end };
  static constexpr unsigned kDtype = 1, kShape = 2, kOffsets = 4, kOther = 8;

  SafetensorsEntry& entry() { return to_.entries.back(); }
  bool enter(Place place) {
    place_ = place;
    return true;
  }
  bool no(std::string why) {
    if (why_.empty()) why_ = std::move(why);
    return false;
  }

  SafetensorsHeader& to_;
  Place place_ = Place::outside;
  std::string key_;
  unsigned seen_ = 0;
  unsigned offsets_ = 0;
  std::uint64_t end_ = 0;
  std::string why_;
};

std::uint64_t length_in(std::span<const std::byte> bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length;
}

void check_length(std::uint64_t length, std::uint64_t file_bytes, const std::string& path) {
  TROUPE_CHECK(length <= kMaxSafetensorsHeader, Code::corrupt, path, ": a header of ", length,
               " bytes; no safetensors file has more than ", kMaxSafetensorsHeader);
  TROUPE_CHECK(length <= file_bytes - kLengthBytes, Code::corrupt, path, ": a header of ", length,
               " bytes in a file of ", file_bytes, ": it was cut off");
}

void check_entry(const SafetensorsEntry& entry, const std::string& path) {
  std::uint64_t bytes = safetensors_element_bytes(entry.dtype);
  TROUPE_CHECK(bytes > 0, Code::corrupt, path, ": tensor \"", entry.name, "\" has the unknown type ", entry.dtype);
  for (const std::uint64_t extent : entry.extents) {
    TROUPE_CHECK(!__builtin_mul_overflow(bytes, extent, &bytes), Code::corrupt, path, ": tensor \"", entry.name,
                 "\" has more elements than can be counted");
  }
  TROUPE_CHECK(bytes == entry.size_bytes, Code::corrupt, path, ": tensor \"", entry.name, "\" of ", bytes,
               " bytes is said to take ", entry.size_bytes);
}

/// Checks that the tensors cover the data without gaps or overlap.
void check_places(SafetensorsHeader& header, const std::string& path) {
  std::ranges::stable_sort(header.entries, {},
                           [](const SafetensorsEntry& entry) { return std::pair(entry.begin, entry.size_bytes); });
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    TROUPE_CHECK(entry.begin == end, Code::corrupt, path, ": tensor \"", entry.name, "\" begins at byte ", entry.begin,
                 " of the data, where the one before ends at ", end, ": they overlap or leave a gap");
    TROUPE_CHECK(entry.size_bytes <= header.data_bytes - end, Code::corrupt, path, ": tensor \"", entry.name, "\" of ",
                 entry.size_bytes, " bytes begins at byte ", end, " of ", header.data_bytes,
                 ": it leaves the file, which was cut off");
    end += entry.size_bytes;
  }
  TROUPE_CHECK(end == header.data_bytes, Code::corrupt, path, ": its tensors take ", end, " bytes, it has ",
               header.data_bytes);
  std::vector<std::string_view> names;
  for (const SafetensorsEntry& entry : header.entries) names.emplace_back(entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  TROUPE_CHECK(twice == names.end(), Code::corrupt, path, ": two tensors are named \"", *twice, "\"");
}

}  // namespace

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(entries, name, &SafetensorsEntry::name);
  return found == entries.end() ? nullptr : &*found;
}

std::uint64_t safetensors_element_bytes(std::string_view dtype) noexcept {
  const auto found = std::ranges::find(kTypes, dtype, &Type::name);
  return found == kTypes.end() ? 0 : found->bytes;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                    const std::string& path) {
  TROUPE_CHECK(bytes.size() >= kLengthBytes && file_bytes >= kLengthBytes, Code::corrupt, path,
               ": too short for a safetensors file");
  const std::uint64_t length = length_in(bytes);
  check_length(length, file_bytes, path);
  TROUPE_CHECK(bytes.size() - kLengthBytes >= length, Code::corrupt, path, ": the header was cut off");
  SafetensorsHeader header;
  header.header_bytes = kLengthBytes + length;
  header.data_bytes = file_bytes - header.header_bytes;
  const auto* const begin = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
  HeaderReader reader(header);
  // What json::sax_parse() does with text: that function has readers of five binary formats compiled too.
  auto from = nlohmann::detail::input_adapter(begin, begin + length);
  const bool read = nlohmann::detail::parser<nlohmann::json, decltype(from)>(std::move(from)).sax_parse(&reader);
  TROUPE_CHECK(read, Code::corrupt, path, ": the header is none of a safetensors file: ", reader.why());
  for (const SafetensorsEntry& entry : header.entries) check_entry(entry, path);
  check_places(header, path);
  return header;
}

std::vector<std::byte> format_safetensors(std::span<SafetensorsEntry> entries,
                                          const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json[kMetadata] = metadata;
  std::uint64_t end = 0;
  for (SafetensorsEntry& entry : entries) {
    entry.begin = end;
    end += entry.size_bytes;
    json[entry.name] = {{"dtype", entry.dtype}, {"shape", entry.extents}, {"data_offsets", {entry.begin, end}}};
  }
  std::string text = json.dump();
  const std::uint64_t used = (kLengthBytes + text.size()) % kAlignment;
  if (used != 0) text.append(kAlignment - used, ' ');
  std::vector<std::byte> bytes(kLengthBytes + text.size());
  const std::uint64_t length = text.size();
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + kLengthBytes, text.data(), text.size());
  return bytes;
}

namespace {

void read_whole(const Fd& file, std::uint64_t at, std::span<std::byte> to, const std::string& path) {
  const ssize_t got = read_at(file, at, to);
  TROUPE_CHECK_ERRNO(got >= 0, Code::environment, path, ": cannot be read");
  const auto end = static_cast<std::uint64_t>(got);
  TROUPE_CHECK(end == to.size(), Code::corrupt, path, ": it ends at byte ", at + end, ": it was cut off");
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  TROUPE_CHECK_ERRNO(fd_, Code::environment, path, ": cannot be opened");
  struct stat about {};
  TROUPE_CHECK_ERRNO(::fstat(fd_.get(), &about) == 0, Code::environment, path, ": cannot be looked at");
  TROUPE_CHECK(S_ISREG(about.st_mode), Code::corrupt, path, ": not a regular file");
  const auto file_bytes = static_cast<std::uint64_t>(about.st_size);
  TROUPE_CHECK(file_bytes >= kLengthBytes, Code::corrupt, path, ": too short for a safetensors file");
  std::vector<std::byte> bytes(kLengthBytes);
  read_whole(fd_, 0, bytes, path);
  const std::uint64_t length = length_in(bytes);
  check_length(length, file_bytes, path);
  bytes.resize(kLengthBytes + length);
  read_whole(fd_, kLengthBytes, std::span(bytes).subspan(kLengthBytes), path);
  header_ = parse_safetensors(bytes, file_bytes, path);
  header_hash_ = xxh3(bytes);
}

void SafetensorsFile::read(const SafetensorsEntry& entry, std::uint64_t offset, std::span<std::byte> to) const {
  TROUPE_CHECK(offset <= entry.size_bytes && to.size() <= entry.size_bytes - offset, Code::invalid, path_, ": ",
               to.size(), " bytes at ", offset, " of tensor \"", entry.name, "\", which has ", entry.size_bytes);
  read_whole(fd_, header_.header_bytes + entry.begin + offset, to, path_);
}

SafetensorsContents SafetensorsFile::look_through(const SafetensorsEntry& entry) const {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  const bool numbers = entry.dtype == "F32";
  SafetensorsContents contents;
  Xxh3 hash;
  std::vector<std::byte> buffer(std::min(kPiece, entry.size_bytes));
  for (std::uint64_t done = 0; done < entry.size_bytes;) {
    const auto piece = std::span(buffer).first(std::min(kPiece, entry.size_bytes - done));
    read(entry, done, piece);
    hash.add(piece);
    if (numbers && !contents.not_finite) {
      if (const auto at = first_not_finite(piece)) contents.not_finite = done / sizeof(float) + *at;
    }
    done += piece.size();
  }
  contents.hash = hash.value();
  return contents;
}

}  // namespace troupe
