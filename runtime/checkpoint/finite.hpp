#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace troupe {

/// The index of the first f32 in `bytes` (whole f32, at any address) that is infinite or NaN; empty: all are finite.
/// Runs at about the speed of memory.
std::optional<std::uint64_t> first_not_finite(std::span<const std::byte> bytes) noexcept;

}  // namespace troupe
