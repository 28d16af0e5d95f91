#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/hash.hpp"

namespace troupe::detail {

/// The other files in which a model keeps numbers: only files of its own folder are read, and each byte of them once,
/// so that memory is bounded by what is on the disk.
class ExternalData {
 public:
  /// Empty: there is no folder, and a model with such numbers is refused.
  explicit ExternalData(std::string folder) : folder_(std::move(folder)) {}

  /// `size_bytes` bytes at `offset` of the file `location`, for messages about `tensor`. Throws Error{invalid} if the
  /// file is not there, is outside of the folder, or is shorter.
  std::vector<std::byte> read(std::string_view tensor, std::string_view location, std::uint64_t offset,
                              std::uint64_t size_bytes);
  /// Gets what was read.
  Xxh3& hash() noexcept { return hash_; }

 private:
  std::string path_of(std::string_view tensor, std::string_view location) const;

  std::string folder_;
  std::map<std::string, std::uint64_t> taken_bytes_;  // by path
  Xxh3 hash_;
};

}  // namespace troupe::detail
