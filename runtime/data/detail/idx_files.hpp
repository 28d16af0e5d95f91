#pragma once

#include <array>
#include <optional>
#include <string>

#include "runtime/data/idx.hpp"

namespace troupe::detail {

/// Of the four files that an IDX set consists of: images and labels for training, then for testing.
inline constexpr std::size_t kIdxParts = 4;
using IdxPaths = std::array<std::string, kIdxParts>;

/// The name of part `part` as a plain file.
std::string idx_name(std::size_t part);
/// The four files of `folder`, plain or .gz; nothing when there is none of them. Throws Error{invalid} when some are
/// missing.
std::optional<IdxPaths> idx_paths_in(const std::string& folder);
/// Throws as check_idx when a file of the set is broken, Error{invalid} when they do not fit each other.
void check_idx_set(const IdxPaths& paths);

}  // namespace troupe::detail
