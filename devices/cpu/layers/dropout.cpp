#include "runtime/model/dropout.hpp"

#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

/// The random choice is not stored: the backward pass makes the same choice again, which takes less time than reading a
/// mask.
class DropoutCalls final : public LayerCalls {
 public:
  DropoutCalls(ProgramBuilder& builder, const Stage& stage, const Dropout& dropout)
      : builder_(builder), stage_(stage), rate_(dropout.rate), keys_(builder.field(kSampleKey)) {}

  void forward(Calls& calls) override {
    calls.emplace_back(drop(builder_.tensor(stage_.output).value, builder_.tensor(stage_.inputs.front()).value));
  }
  void backward(Calls& calls, Gradients& gradients) override {
    Gradients::Place gradient = gradients.use(stage_.output);
    calls.emplace_back(drop(gradient.value, gradient.value));
    gradient.masked = false;
    gradients.contribute(calls, stage_.inputs.front(), std::move(gradient));
  }

 private:
  Drop drop(const dnnl::memory& to, const dnnl::memory& from) const {
    return {to, from, keys_, stage_.layer, rate_, builder_.rows(), builder_.tensor(stage_.output).width};
  }

  ProgramBuilder& builder_;
  const Stage& stage_;
  const double rate_;
  const dnnl::memory keys_;
};

}  // namespace

std::unique_ptr<LayerCalls> make_dropout(ProgramBuilder& builder, const Stage& stage, const Dropout& dropout) {
  return std::make_unique<DropoutCalls>(builder, stage, dropout);
}

}  // namespace troupe::cpu
