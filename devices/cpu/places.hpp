#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "devices/cpu/onednn.hpp"

namespace troupe::cpu {

/// What is needed during one call or between neighbouring ones only; each use has one place, as large as the largest
/// of its kind. wide: f32 copies of operands that are stored in bf16. packed: copies in a layout that a primitive
/// wants.
enum class SharedUse : std::uint8_t {
  scratch,
  wide_input,
  wide_weights,
  wide_output,
  packed_input,
  packed_weights,
  packed_output
};

/// Where a program's tensors lie. A program for fewer rows of the same graph takes the places of one for more, its
/// room, wherever they are large enough: it is built in the same order, so the n-th of one is the n-th of the other.
class Places {
 public:
  Places(const dnnl::engine& engine, const Places* room) : engine_(engine), room_(room) {}
  Places(Places&&) = default;

  /// A place that nothing else has.
  dnnl::memory take(const dnnl::memory::desc& desc);
  /// A place that others of its use have too. It has an address once settle() has run.
  dnnl::memory share(SharedUse use, const dnnl::memory::desc& desc);
  /// Field `index` of a batch; its address is set by set_field().
  dnnl::memory field(std::size_t index, const dnnl::memory::desc& desc);
  void set_field(std::size_t index, void* first);
  /// All that is shared gets its address. Nothing is asked for afterwards.
  void settle();

 private:
  static constexpr std::size_t kUses = 7;
  struct Shared {
    std::vector<dnnl::memory> parts;
    dnnl::memory whole;  // none: nothing is needed, or the room's serves
    void* first = nullptr;
    std::size_t size_bytes = 0;
  };
  dnnl::engine engine_;
  const Places* room_;
  std::vector<dnnl::memory> taken_;
  std::array<Shared, kUses> shared_;
  std::vector<std::vector<dnnl::memory>> fields_;
};

}  // namespace troupe::cpu
