#include "devices/cpu/calls.hpp"

#include <cstddef>
#include <cstring>

#include "devices/cpu/stored_number.hpp"
#include "runtime/model/dropout.hpp"

namespace troupe::cpu {
namespace {

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
    case ElementwiseKind::add: break;
  }
  const void* const other = loop.other.get_data_handle();
  if (f32) {
    return kernels.add(static_cast<float*>(to), static_cast<const float*>(from), static_cast<const float*>(other),
                       loop.count);
  }
  kernels.add_bf16(static_cast<Half*>(to), static_cast<const Half*>(from), static_cast<const Half*>(other), loop.count);
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
