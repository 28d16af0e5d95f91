#include "actors/remote/tensor.hpp"

#include <limits>
#include <utility>

#include "actors/caf_error.hpp"

namespace troupe {
namespace {

/// The bytes of a tensor; false if their number is too large.
bool bytes_of(const Tensor::Extents& extents, DType dtype, std::uint64_t& bytes) noexcept {
  bytes = size_bytes(dtype);
  for (const std::uint64_t extent : extents) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return false;
  }
  return true;
}

const Tensor::Extents kNoExtents;

thread_local detail::TensorSlots* current_slots = nullptr;

}  // namespace

struct Tensor::State {
  Memory memory;
  Extents extents;
  DType dtype;
  Point valid_from;
  std::shared_ptr<const void> owner;
  MemoryKind kind;
};

Tensor::Tensor(Memory memory, Extents extents, DType dtype, Point valid_from, std::shared_ptr<const void> owner,
               MemoryKind kind) {
  std::uint64_t bytes = 0;
  TROUPE_CHECK(bytes_of(extents, dtype, bytes) && bytes == memory.size_bytes, Code::invalid, "a tensor of ", bytes,
               " bytes cannot lie in memory of ", memory.size_bytes, "; the sizes must be equal");
  state_ = std::make_shared<State>(State{memory, std::move(extents), dtype, valid_from, std::move(owner), kind});
}

Memory Tensor::memory() const noexcept { return state_ ? state_->memory : Memory{}; }
const Tensor::Extents& Tensor::extents() const noexcept { return state_ ? state_->extents : kNoExtents; }
DType Tensor::dtype() const noexcept { return state_ ? state_->dtype : DType::f32; }
Point Tensor::valid_from() const noexcept { return state_ ? state_->valid_from : Point{}; }
MemoryKind Tensor::kind() const noexcept { return state_ ? state_->kind : MemoryKind::host; }

Tensor Tensor::into(SinkKey key) const {
  Tensor same = *this;
  same.sink_ = key;
  return same;
}

namespace detail {

TensorSlots::TensorSlots() noexcept : outer_(std::exchange(current_slots, this)) {}
TensorSlots::~TensorSlots() { current_slots = outer_; }
TensorSlots* TensorSlots::current() noexcept { return current_slots; }

caf::error save_tensor(const Tensor& tensor, std::uint32_t& slot) {
  TensorSlots* const slots = TensorSlots::current();
  if (slots == nullptr) {
    return to_caf(
        Status{Code::unsupported, "a tensor travels in messages between actors only; it cannot be written elsewhere"});
  }
  if (!tensor) return {};
  slot = static_cast<std::uint32_t>(slots->sent.size());
  slots->sent.push_back(tensor);
  return {};
}

caf::error load_tensor(Tensor& tensor, std::uint32_t slot, Tensor::Extents extents, std::uint8_t dtype) {
  tensor = {};
  if (slot == TensorSlots::kEmpty) return {};
  TensorSlots* const slots = TensorSlots::current();
  const bool known = slots != nullptr && slot < slots->arrived.size() && is_dtype(dtype);
  std::uint64_t bytes = 0;
  if (!known || !bytes_of(extents, static_cast<DType>(dtype), bytes) ||
      bytes != slots->arrived[slot].memory.size_bytes) {
    return to_caf(Status{Code::corrupt, text("tensor ", slot, " of a message does not fit what arrived with it")});
  }
  TensorSlots::Landed& landed = slots->arrived[slot];
  tensor = Tensor{landed.memory,     std::move(extents),      static_cast<DType>(dtype),
                  landed.valid_from, std::move(landed.owner), landed.kind};
  return {};
}

}  // namespace detail
}  // namespace troupe
