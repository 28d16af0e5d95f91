#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// The number type of gradients and deltas when they are sent to other nodes. Sums, parameters and the optimizer's
/// state stay f32.
enum class Compression : std::uint8_t {
  none,
  bf16,  // rounded to the nearest bf16, ties to even
};
constexpr std::string_view name_of(Compression kind) noexcept { return kind == Compression::bf16 ? "bf16" : "none"; }

/// How a group's gradients and deltas are sent.
struct CompressionSettings {
  Compression kind = Compression::none;  // update.compress
  /// A rank's rounding error is added to the values that it sends next (update.error_feedback).
  bool error_feedback = false;
  friend bool operator==(const CompressionSettings&, const CompressionSettings&) = default;
};

}  // namespace troupe
