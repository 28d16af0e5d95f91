#include <algorithm>

#include "devices/cpu/layers/layers.hpp"
#include "devices/cpu/parallel.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;

/// Own loops, since oneDNN's backward pass with AVX-512 takes twice as long as one with AVX2. The slope costs little
/// where the function is computed, because both need the same exponential, so the forward pass keeps it, and the input
/// need not be kept. Threads share the tensor in parts that stay in the caches.
class GeluCalls final : public LayerCalls {
 public:
  GeluCalls(ProgramBuilder& builder, const FusedLayer& fused_layer)
      : builder_(builder),
        fused_layer_(fused_layer),
        width_(builder.tensor(fused_layer.output).width),
        threads_(usable_threads()) {}

  void forward(Calls& calls) override {
    if (!builder_.tensor(fused_layer_.output).trained) return evaluation(calls);
    builder_.choose_own(fused_layer_, "forward", kName);
    slope_ = builder_.places().take(builder_.matrix(builder_.rows(), width_, builder_.stored()));
    const memory to = output(), from = input();
    add(calls, {to, slope_, from}, [=, slope = slope_](const Kernels& kernels, const Part& part) {
      if (is_f32(to))
        kernels.gelu_with_slope_f32(part.of<float>(to), part.of<float>(slope), part.of<float>(from), part.count);
      else
        kernels.gelu_with_slope_bf16(part.of<Half>(to), part.of<Half>(slope), part.of<Half>(from), part.count);
    });
  }

  bool has_evaluation() const override { return true; }
  void evaluation(Calls& calls) override {
    builder_.choose_own(fused_layer_, "evaluation", kName);
    const memory to = output(), from = input();
    add(calls, {to, from}, [=](const Kernels& kernels, const Part& part) {
      if (is_f32(to))
        kernels.gelu_f32(part.of<float>(to), part.of<float>(from), part.count);
      else
        kernels.gelu_bf16(part.of<Half>(to), part.of<Half>(from), part.count);
    });
  }

  /// The gradient to the input takes the place of the output's gradient.
  void backward(Calls& calls, Gradients& gradients) override {
    Gradients::Place gradient = gradients.use(fused_layer_.output);
    builder_.choose_own(fused_layer_, "backward", kName);
    add(calls, {gradient.value, slope_},
        [to = gradient.value, slope = slope_](const Kernels& kernels, const Part& part) {
          if (is_f32(to))
            kernels.multiply_f32(part.of<float>(to), part.of<float>(slope), part.count);
          else
            kernels.multiply_bf16(part.of<Half>(to), part.of<Half>(slope), part.count);
        });
    gradient.masked = false;
    gradients.contribute(calls, fused_layer_.inputs.front(), std::move(gradient));
  }

 private:
  static constexpr const char* kName = "own:gelu";
  static constexpr std::uint64_t kPart = 16384;  // elements
  using Half = std::uint16_t;

  /// Some elements of each tensor.
  struct Part {
    std::uint64_t first, count;
    template <class Element>
    Element* of(const memory& tensor) const {
      return static_cast<Element*>(tensor.get_data_handle()) + first;
    }
  };

  const memory& output() const { return builder_.tensor(fused_layer_.output).value; }
  memory input() const { return builder_.value_as(fused_layer_.inputs.front(), output().get_desc()); }

  /// Adds the call of act(kernels, part) for all parts of the tensors.
  template <class Act>
  void add(Calls& calls, std::vector<memory> used, Act act) const {
    calls.emplace_back(
        OwnWork{std::move(used), [act, count = builder_.rows() * width_, threads = threads_](const Kernels& kernels) {
                  for_each_in_parallel(threads, (count + kPart - 1) / kPart, [&](std::size_t part, std::size_t) {
                    act(kernels, Part{part * kPart, std::min(kPart, count - part * kPart)});
                  });
                }});
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const std::uint64_t width_;
  const std::size_t threads_;
  memory slope_;  // from the forward pass
};

}  // namespace

std::unique_ptr<LayerCalls> make_gelu(ProgramBuilder& builder, const FusedLayer& fused_layer) {
  return std::make_unique<GeluCalls>(builder, fused_layer);
}

}  // namespace troupe::cpu
