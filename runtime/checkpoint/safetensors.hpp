#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/fd.hpp"

namespace troupe {

// The safetensors format: 8 bytes with the length of a JSON header (little-endian), the header, then the tensors' bytes
// without gaps. The header maps each name to {"dtype", "shape", "data_offsets": [begin, end)}, offsets from the end of
// the header, and "__metadata__" to strings.

/// One tensor of a file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;                   // F32, BF16, ... as the format spells it
  std::vector<std::uint64_t> extents;  // row-major
  std::uint64_t begin = 0;             // of its bytes, from the end of the header
  std::uint64_t size_bytes = 0;
};

/// What a header says.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  std::uint64_t header_bytes = 0;  // the 8 bytes of the length included: where the tensors begin
  std::uint64_t data_bytes = 0;

  /// Null when there is none of that name.
  const SafetensorsEntry* find(std::string_view name) const noexcept;
};

/// Longer headers are refused.
inline constexpr std::uint64_t kMaxSafetensorsHeader = std::uint64_t{100} << 20;

/// Reads a header from the start of a file of `file_bytes` bytes; `bytes` holds at least the header. Checks all that
/// the format asks for: known types, sizes that are those of the shapes, offsets without gaps or overlap up to the end
/// of the file. Takes memory in proportion to `bytes`. Throws Error{corrupt} that starts with `path` and says what is
/// wrong.
SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                    const std::string& path);

/// The header's bytes for tensors that follow each other in this order; `begin` of the entries is filled in. Padded
/// with spaces so that the tensors begin at a multiple of 4,096 bytes.
std::vector<std::byte> format_safetensors(std::span<SafetensorsEntry> entries,
                                          const std::map<std::string, std::string>& metadata);

/// Bytes of an element; 0 for a type that the format does not know.
std::uint64_t safetensors_element_bytes(std::string_view dtype) noexcept;

/// What there is to know of a tensor's bytes.
struct SafetensorsContents {
  std::uint64_t hash = 0;                   // xxh3
  std::optional<std::uint64_t> not_finite;  // of type F32: the first element that is infinite or no number
};

/// A file of that format, open for reading. Threads: any number at a time.
class SafetensorsFile {
 public:
  /// Reads and checks the header. Throws Error{environment} when the file cannot be read, Error{corrupt}.
  explicit SafetensorsFile(const std::string& path);

  const SafetensorsHeader& header() const noexcept { return header_; }
  /// xxh3 of the header's bytes, its length included.
  std::uint64_t header_hash() const noexcept { return header_hash_; }
  /// Reads `to.size()` bytes of `entry`, `offset` in. Throws Error{environment}; Error{corrupt} when the file became
  /// shorter; Error{invalid} for bytes that are none of the entry's.
  void read(const SafetensorsEntry& entry, std::uint64_t offset, std::span<std::byte> to) const;
  /// Reads all of `entry`. Throws as read().
  SafetensorsContents look_through(const SafetensorsEntry& entry) const;

 private:
  const std::string path_;
  Fd fd_;
  SafetensorsHeader header_;
  std::uint64_t header_hash_ = 0;
};

}  // namespace troupe
