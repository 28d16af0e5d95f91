#include "runtime/model/dropout.hpp"

#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

/// The random choice is not stored: the backward pass makes the same choice again, which takes less time than reading a
/// mask.
class DropoutCalls final : public LayerCalls {
 public:
  DropoutCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const Dropout& dropout)
      : builder_(builder), fused_layer_(fused_layer), rate_(dropout.rate), keys_(builder.field(kSampleKey)) {}

  void forward(Calls& calls) override {
    calls.emplace_back(
        drop(builder_.tensor(fused_layer_.output).value, builder_.tensor(fused_layer_.inputs.front()).value));
  }
  void backward(Calls& calls, Gradients& gradients) override {
    Gradients::Place gradient = gradients.use(fused_layer_.output);
    calls.emplace_back(drop(gradient.value, gradient.value));
    gradient.masked = false;
    gradients.contribute(calls, fused_layer_.inputs.front(), std::move(gradient));
  }

 private:
  Drop drop(const dnnl::memory& to, const dnnl::memory& from) const {
    return {to, from, keys_, fused_layer_.layer, rate_, builder_.rows(), builder_.tensor(fused_layer_.output).width};
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const double rate_;
  const dnnl::memory keys_;
};

}  // namespace

std::unique_ptr<LayerCalls> make_dropout(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                         const Dropout& dropout) {
  return std::make_unique<DropoutCalls>(builder, fused_layer, dropout);
}

}  // namespace troupe::cpu
