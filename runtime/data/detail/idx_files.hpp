#pragma once

#include <array>
#include <optional>
#include <string>

#include "runtime/data/idx.hpp"

namespace troupe::detail {

/// The number of files of an IDX set: images and labels for training, then for testing.
inline constexpr std::size_t kIdxParts = 4;
using IdxPaths = std::array<std::string, kIdxParts>;

/// The name of part `part` as a plain file.
std::string idx_name(std::size_t part);
/// The four files of `folder`, plain or .gz; empty if none of them exists. Throws Error{invalid} if some are
/// missing.
std::optional<IdxPaths> idx_paths_in(const std::string& folder);
/// The headers of a set's images.
struct IdxImageHeaders {
  IdxHeader train, test;
};
/// Throws like check_idx if a file of the set is broken, and Error{invalid} if the files do not fit together.
IdxImageHeaders check_idx_set(const IdxPaths& paths);

}  // namespace troupe::detail
