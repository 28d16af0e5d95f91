#include <algorithm>

#include "devices/cpu/layers/layers.hpp"
#include "devices/cpu/parallel.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;

/// Own loops, since oneDNN's backward pass with AVX-512 takes twice as long as one with AVX2. Threads share the tensor
/// in parts that stay in the caches.
class GeluCalls final : public LayerCalls {
 public:
  GeluCalls(ProgramBuilder& builder, const FusedLayer& fused_layer)
      : builder_(builder),
        fused_layer_(fused_layer),
        count_(builder.rows() * builder.tensor(fused_layer.output).width),
        threads_(usable_threads()) {}

  void forward(Calls& calls) override {
    builder_.choose_own(fused_layer_, "forward", kName);
    add(calls, builder_.tensor(fused_layer_.output).value, &Kernels::gelu_f32, &Kernels::gelu_bf16);
  }

  /// The gradient to the input takes the place of the output's gradient.
  void backward(Calls& calls, Gradients& gradients) override {
    Gradients::Place gradient = gradients.use(fused_layer_.output);
    builder_.choose_own(fused_layer_, "backward", kName);
    add(calls, gradient.value, &Kernels::gelu_slope_f32, &Kernels::gelu_slope_bf16);
    gradient.masked = false;
    gradients.contribute(calls, fused_layer_.inputs.front(), std::move(gradient));
  }

 private:
  static constexpr const char* kName = "own:gelu";
  static constexpr std::uint64_t kPart = 16384;  // elements
  template <class Element>
  using Loop = void (*Kernels::*)(Element* to, const Element* from, std::size_t count);

  void add(Calls& calls, const memory& to, Loop<float> f32, Loop<std::uint16_t> bf16) const {
    const memory from =
        builder_.value_as(fused_layer_.inputs.front(), builder_.tensor(fused_layer_.output).value.get_desc());
    calls.emplace_back(OwnWork{{to, from}, [=, count = count_, threads = threads_](const Kernels& kernels) {
                                 if (is_f32(to))
                                   run(kernels.*f32, to, from, count, threads);
                                 else
                                   run(kernels.*bf16, to, from, count, threads);
                               }});
  }

  template <class Element>
  static void run(void (*loop)(Element*, const Element*, std::size_t), const memory& to, const memory& from,
                  std::uint64_t count, std::size_t threads) {
    auto* const first = static_cast<Element*>(to.get_data_handle());
    const auto* const read = static_cast<const Element*>(from.get_data_handle());
    for_each_in_parallel(threads, (count + kPart - 1) / kPart, [&](std::size_t part, std::size_t) {
      const std::uint64_t at = part * kPart;
      loop(first + at, read + at, std::min(kPart, count - at));
    });
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const std::uint64_t count_;
  const std::size_t threads_;
};

}  // namespace

std::unique_ptr<LayerCalls> make_gelu(ProgramBuilder& builder, const FusedLayer& fused_layer) {
  return std::make_unique<GeluCalls>(builder, fused_layer);
}

}  // namespace troupe::cpu
