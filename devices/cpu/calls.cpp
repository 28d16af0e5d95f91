#include "devices/cpu/calls.hpp"

#include <cstddef>
#include <cstring>

#include "devices/cpu/stored_number.hpp"
#include "runtime/model/dropout.hpp"

namespace troupe::cpu {
namespace {

/// A loop over three tensors.
void run_sum(const Elementwise& loop, const Kernels& kernels) {
  const auto call = [&]<class T>(void (*add)(T*, const T*, const T*, std::size_t)) {
    add(static_cast<T*>(loop.to.get_data_handle()), static_cast<const T*>(loop.from.get_data_handle()),
        static_cast<const T*>(loop.other.get_data_handle()), loop.count);
  };
  const bool f32 = is_f32(loop.to);
  if (loop.kind == ElementwiseKind::add_masked)
    return f32 ? call(kernels.add_masked_f32) : call(kernels.add_masked_bf16);
  return f32 ? call(kernels.add) : call(kernels.add_bf16);
}

void run_loop(const Elementwise& loop, const Kernels& kernels) {
  using Half = std::uint16_t;
  void* const to = loop.to.get_data_handle();
  const void* const from = loop.from.get_data_handle();
  const bool f32 = is_f32(loop.to);
  switch (loop.kind) {
    case ElementwiseKind::widen:
      return kernels.widen(static_cast<float*>(to), static_cast<const Half*>(from), loop.count);
    case ElementwiseKind::round:
      return kernels.round(static_cast<Half*>(to), static_cast<const float*>(from), loop.count);
    case ElementwiseKind::copy: std::memcpy(to, from, loop.count * (f32 ? sizeof(float) : sizeof(Half))); return;
    case ElementwiseKind::relu:
      if (f32) return kernels.relu_f32(static_cast<float*>(to), static_cast<const float*>(from), loop.count);
      return kernels.relu_bf16(static_cast<Half*>(to), static_cast<const Half*>(from), loop.count);
    case ElementwiseKind::mask:
      if (f32) return kernels.mask_f32(static_cast<float*>(to), static_cast<const float*>(from), loop.count);
      return kernels.mask_bf16(static_cast<Half*>(to), static_cast<const Half*>(from), loop.count);
    case ElementwiseKind::tanh_slope:
      if (f32) return kernels.tanh_slope_f32(static_cast<float*>(to), static_cast<const float*>(from), loop.count);
      return kernels.tanh_slope_bf16(static_cast<Half*>(to), static_cast<const Half*>(from), loop.count);
    case ElementwiseKind::sigmoid_slope:
      if (f32) return kernels.sigmoid_slope_f32(static_cast<float*>(to), static_cast<const float*>(from), loop.count);
      return kernels.sigmoid_slope_bf16(static_cast<Half*>(to), static_cast<const Half*>(from), loop.count);
    case ElementwiseKind::add:
    case ElementwiseKind::add_masked: return run_sum(loop, kernels);
  }
}

template <class T>
void drop_elements(const Drop& drop, const std::int32_t* keys) {
  auto* to = static_cast<T*>(drop.to.get_data_handle());
  const auto* from = static_cast<const T*>(drop.from.get_data_handle());
  const auto factor = static_cast<float>(1 / (1 - drop.rate));
  for (std::uint32_t row = 0; row < drop.rows; ++row, to += drop.width, from += drop.width) {
    const DroppedElements dropped{joined_key(keys + 2 * row), drop.layer, drop.rate};
    for (std::uint64_t i = 0; i < drop.width; ++i) store(dropped.drops(i) ? 0.0F : number_of(from[i]) * factor, to + i);
  }
}

void run_drop(const Drop& drop) {
  const bool f32 = is_f32(drop.to);
  const auto* keys = static_cast<const std::int32_t*>(drop.keys.get_data_handle());
  if (keys == nullptr) {
    std::memmove(drop.to.get_data_handle(), drop.from.get_data_handle(),
                 drop.rows * drop.width * (f32 ? sizeof(float) : sizeof(std::uint16_t)));
  } else if (f32) {
    drop_elements<float>(drop, keys);
  } else {
    drop_elements<std::uint16_t>(drop, keys);
  }
}

void copy_columns(const CopyColumns& copy) {
  auto* to = static_cast<std::byte*>(copy.to.matrix.get_data_handle()) + copy.to.first_bytes;
  const auto* from = static_cast<const std::byte*>(copy.from.matrix.get_data_handle()) + copy.from.first_bytes;
  for (std::uint64_t row = 0; row < copy.rows; ++row, to += copy.to.row_bytes, from += copy.from.row_bytes)
    std::memcpy(to, from, copy.size_bytes);
}

}  // namespace

void execute(std::span<const Call> calls, const dnnl::stream& stream, const Kernels& kernels) {
  for (const Call& call : calls) {
    if (const auto* product = std::get_if<Product>(&call)) {
      product->primitive.execute(stream);
    } else if (const auto* primitive = std::get_if<BoundPrimitive>(&call)) {
      primitive->execute(stream);
    } else if (const auto* work = std::get_if<OwnWork>(&call)) {
      work->run(kernels);
    } else if (const auto* drop = std::get_if<Drop>(&call)) {
      run_drop(*drop);
    } else if (const auto* copy = std::get_if<CopyColumns>(&call)) {
      copy_columns(*copy);
    } else {
      run_loop(std::get<Elementwise>(call), kernels);
    }
  }
}

void execute_products(const Calls& calls, const dnnl::stream& stream, const Kernels& kernels) {
  for (const Call& call : calls) {
    if (const auto* product = std::get_if<Product>(&call)) product->primitive.execute(stream);
    if (const auto* work = std::get_if<OwnWork>(&call); work != nullptr && work->is_product) work->run(kernels);
  }
}

}  // namespace troupe::cpu
