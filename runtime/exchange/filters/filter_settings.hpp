#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// What gradients and deltas become on their way from one process to another. Sums, parameters and the optimizer's
/// state stay f32.
enum class FilterKind : std::uint8_t {
  none,
  bf16,  // rounded to the nearest bf16, ties to even
};
constexpr std::string_view name_of(FilterKind filter) noexcept { return filter == FilterKind::bf16 ? "bf16" : "none"; }

/// How gradients and deltas of a group travel.
struct FilterSettings {
  FilterKind kind = FilterKind::none;  // update.compress
  /// What a rank's rounding took away is added to what it sends next (update.error_feedback).
  bool error_feedback = false;
  friend bool operator==(const FilterSettings&, const FilterSettings&) = default;
};

}  // namespace troupe
