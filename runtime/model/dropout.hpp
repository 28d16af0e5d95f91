#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/random.hpp"
#include "runtime/model/graph.hpp"

namespace troupe {

// How dropout chooses elements, on all devices. A batch carries, in a field of its own, a key for each row's sample. So
// a replica needs no steps, ranks or seeds, and a replayed step drops the elements of its own samples.

/// The additional field, i32 [2], of batches for a graph with dropout: the sample's key, low half first.
inline constexpr std::string_view kSampleKey = "sample_key";
Field sample_key_field();

/// The key of a sample in one pass over the training set.
constexpr std::uint64_t sample_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) noexcept {
  constexpr std::uint64_t kDropped = 0x64726f70706564;  // keeps these numbers different from all others of the seed
  return sub_key(sub_key(sub_key(seed, kDropped), epoch), sample);
}
/// Joins the halves of a sample's key, which a batch has.
constexpr std::uint64_t joined_key(const std::int32_t* halves) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(halves[1])} << 32 | static_cast<std::uint32_t>(halves[0]);
}

/// Which elements of one row a layer drops: each 64-bit random number serves two elements, a half each.
class DroppedElements {
 public:
  /// `layer`: its index in the graph.
  constexpr DroppedElements(std::uint64_t sample_key, std::uint32_t layer, double rate) noexcept
      : key_(mix(sub_key(sample_key, layer))), below_(static_cast<std::uint32_t>(rate * 0x1p32)) {}
  constexpr bool drops(std::uint64_t element) const noexcept {
    return static_cast<std::uint32_t>(mix(key_ ^ (element / 2)) >> (element % 2 * 32)) < below_;
  }

 private:
  std::uint64_t key_;
  std::uint32_t below_;  // elements whose random half is below this are dropped
};

}  // namespace troupe
