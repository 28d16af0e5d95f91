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
// without gaps. The header maps each name to {"dtype", "shape", "data_offsets": [begin, end)}, with offsets from the
// end of the header, and "__metadata__" to strings.

/// One tensor of a file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;                   // F32, BF16, ... as in the format
  std::vector<std::uint64_t> extents;  // row-major
  std::uint64_t begin = 0;             // offset of its bytes, from the end of the header
  std::uint64_t size_bytes = 0;
};

/// The content of a header.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  std::uint64_t header_bytes = 0;  // including the 8 bytes of the length: offset of the tensors
  std::uint64_t data_bytes = 0;

  /// Null if there is no such name.
  const SafetensorsEntry* find(std::string_view name) const noexcept;
};

/// Longer headers are refused.
inline constexpr std::uint64_t kMaxSafetensorsHeader = std::uint64_t{100} << 20;

/// Reads a header from the start of a file of `file_bytes` bytes; `bytes` contains at least the header. Checks
/// everything that the format requires: known types, sizes that match the shapes, offsets without gaps or overlap up to
/// the end of the file. Takes memory in proportion to `bytes`. Throws Error{corrupt}, whose text starts with `path` and
/// says what is wrong.
SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                    const std::string& path);

/// The header's bytes for tensors that are stored in this order; sets `begin` of the entries. Padded with spaces so
/// that the tensors begin at a multiple of 4,096 bytes.
std::vector<std::byte> format_safetensors(std::span<SafetensorsEntry> entries,
                                          const std::map<std::string, std::string>& metadata);

/// Bytes of an element; 0 for an unknown type.
std::uint64_t safetensors_element_bytes(std::string_view dtype) noexcept;

/// Facts about a tensor's bytes.
struct SafetensorsContents {
  std::uint64_t hash = 0;                   // xxh3
  std::optional<std::uint64_t> not_finite;  // for type F32: the first element that is infinite or NaN
};

/// A safetensors file, open for reading. Threads: any number at the same time.
class SafetensorsFile {
 public:
  /// Reads and checks the header. Throws Error{environment} if the file is not readable, Error{corrupt} if damaged.
  explicit SafetensorsFile(const std::string& path);

  const SafetensorsHeader& header() const noexcept { return header_; }
  /// xxh3 of the header's bytes, its length included.
  std::uint64_t header_hash() const noexcept { return header_hash_; }
  /// Reads `to.size()` bytes of `entry` from `offset` on. Throws Error{environment}; Error{corrupt} if the file has
  /// become shorter; Error{invalid} for bytes outside the entry.
  void read(const SafetensorsEntry& entry, std::uint64_t offset, std::span<std::byte> to) const;
  /// Reads all of `entry`. Throws like read().
  SafetensorsContents look_through(const SafetensorsEntry& entry) const;

 private:
  const std::string path_;
  Fd fd_;
  SafetensorsHeader header_;
  std::uint64_t header_hash_ = 0;
};

}  // namespace troupe
