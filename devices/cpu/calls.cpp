#include "devices/cpu/calls.hpp"

#include <cstring>

namespace troupe::cpu {
namespace {

void run_loop(const Elementwise& loop, const Kernels& kernels) {
  using Half = std::uint16_t;
  void* const to = loop.to.get_data_handle();
  const void* const from = loop.from.get_data_handle();
  const bool f32 = loop.to.get_desc().data.data_type == dnnl_f32;
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
    case ElementwiseKind::add: break;
  }
  const void* const other = loop.other.get_data_handle();
  if (f32) {
    return kernels.add(static_cast<float*>(to), static_cast<const float*>(from), static_cast<const float*>(other),
                       loop.count);
  }
  kernels.add_bf16(static_cast<Half*>(to), static_cast<const Half*>(from), static_cast<const Half*>(other), loop.count);
}

}  // namespace

void execute(const Calls& calls, const dnnl::stream& stream, const Kernels& kernels) {
  for (const Call& call : calls) {
    if (const auto* product = std::get_if<Product>(&call)) {
      product->primitive.execute(stream);
    } else if (const auto* primitive = std::get_if<BoundPrimitive>(&call)) {
      primitive->execute(stream);
    } else if (const auto* work = std::get_if<OwnWork>(&call)) {
      work->run(kernels);
    } else {
      run_loop(std::get<Elementwise>(call), kernels);
    }
  }
}

void execute_products(const Calls& calls, const dnnl::stream& stream) {
  for (const Call& call : calls)
    if (const auto* product = std::get_if<Product>(&call)) product->primitive.execute(stream);
}

}  // namespace troupe::cpu
