#pragma once

#include <caf/deserializer.hpp>
#include <caf/meta/load_callback.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/serializer.hpp>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/model/graph.hpp"

namespace troupe {

/// Numbers in an arena that can be sent between actors: a reference-counted handle, cheap to copy. The data does not
/// change as long as any copy exists, here or in another process. In a message to another process it is sent by
/// reference if that process has mapped its arena; otherwise its bytes are sent and stored in the receiver's memory.
/// The bytes never pass through CAF's serialization. Registered as "troupe.Tensor". Threads: each copy by one thread at
/// a time.
class Tensor {
 public:
  using Extents = std::vector<std::uint64_t>;

  Tensor() noexcept = default;
  /// `memory` contains the row-major elements, starts at a multiple of 64 bytes for best speed, and may be read from
  /// `valid_from` on. `owner` keeps it unchanged: it is dropped, on any thread, when the last copy in any process is
  /// destroyed. `kind` is that of its arena. Throws Error{invalid} if the size of `memory` does not match the extents.
  Tensor(Memory memory, Extents extents, DType dtype, Point valid_from, std::shared_ptr<const void> owner,
         MemoryKind kind = MemoryKind::host);

  explicit operator bool() const noexcept { return state_ != nullptr; }
  /// Empty for an empty handle.
  Memory memory() const noexcept;
  const Extents& extents() const noexcept;
  DType dtype() const noexcept;
  Point valid_from() const noexcept;
  MemoryKind kind() const noexcept;

  /// The same tensor, to be stored in a buffer that the receiving process posted under `key` (RemoteActors::post_sink),
  /// instead of memory of its pool.
  Tensor into(SinkKey key) const;
  SinkKey sink() const noexcept { return sink_; }

 private:
  struct State;
  std::shared_ptr<const State> state_;
  SinkKey sink_;
};

namespace detail {

/// Holds the tensors of a message while it is written or read; the message itself contains only slot numbers. Each
/// thread has one at a time: the innermost scope counts.
class TensorSlots {
 public:
  struct Landed {
    Memory memory;
    Point valid_from;
    std::shared_ptr<const void> owner;
    MemoryKind kind = MemoryKind::host;
  };
  static constexpr std::uint32_t kEmpty = 0xffffffff;

  TensorSlots() noexcept;
  TensorSlots(const TensorSlots&) = delete;
  TensorSlots& operator=(const TensorSlots&) = delete;
  ~TensorSlots();

  std::vector<Tensor> sent;     // filled by writing
  std::vector<Landed> arrived;  // filled before reading

  static TensorSlots* current() noexcept;

 private:
  TensorSlots* outer_;
};

/// The tensor's slot in the current scope; an error if there is none (a tensor cannot be written to a file).
caf::error save_tensor(const Tensor& tensor, std::uint32_t& slot);
/// The opposite; an error if slot, extents or type do not match what has arrived.
caf::error load_tensor(Tensor& tensor, std::uint32_t slot, Tensor::Extents extents, std::uint8_t dtype);

}  // namespace detail

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Tensor& tensor) {
  std::uint32_t slot = detail::TensorSlots::kEmpty;
  Tensor::Extents extents = tensor.extents();
  auto dtype = static_cast<std::uint8_t>(tensor.dtype());
  if constexpr (std::is_base_of_v<caf::serializer, Inspector>) {
    if (auto error = detail::save_tensor(tensor, slot)) return error;
  }
  auto load = [&]() -> caf::error { return detail::load_tensor(tensor, slot, std::move(extents), dtype); };
  return f(caf::meta::type_name("troupe.Tensor"), slot, extents, dtype, caf::meta::load_callback(load));
}

}  // namespace troupe
