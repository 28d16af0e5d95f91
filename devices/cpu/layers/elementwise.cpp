#include <algorithm>

#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

using dnnl::algorithm;
using dnnl::eltwise_forward;
using dnnl::memory;

std::uint64_t count_of(const ProgramBuilder& builder, std::uint32_t tensor) {
  return builder.rows() * builder.tensor(tensor).width;
}

class EltwiseCalls final : public LayerCalls {
 public:
  EltwiseCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, Activation function)
      : builder_(builder), fused_layer_(fused_layer), function_(function) {}

  void forward(Calls& calls) override {
    const memory& kept = builder_.tensor(fused_layer_.output).value;
    const memory output = builder_.result(kept);
    auto descriptor =
        describe_eltwise(builder_.engine(), builder_.attributes(), algorithm_of(function_), output.get_desc());
    builder_.choose(descriptor, fused_layer_, "forward");
    const memory input = builder_.operand(calls, stored_input());
    calls.emplace_back(BoundPrimitive{
        eltwise_forward{descriptor},
        {{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, output}, {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}}});
    builder_.convert(calls, output, kept);
  }

  void backward(Calls& calls, Gradients& gradients) override {
    Gradients::Place gradient = gradients.use(fused_layer_.output);
    add_activation_backward(calls, function_, gradient.value, builder_.tensor(fused_layer_.output).value);
    gradient.masked = false;
    gradients.contribute(calls, fused_layer_.inputs.front(), std::move(gradient));
  }

 private:
  memory stored_input() const {
    return builder_.value_as(fused_layer_.inputs.front(), builder_.tensor(fused_layer_.output).value.get_desc());
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const Activation function_;
};

/// Own loops; their time is that of reading and writing memory.
class ReluCalls final : public LayerCalls {
 public:
  ReluCalls(ProgramBuilder& builder, const FusedLayer& fused_layer) : builder_(builder), fused_layer_(fused_layer) {}

  void forward(Calls& calls) override {
    calls.emplace_back(Elementwise{ElementwiseKind::relu,
                                   builder_.tensor(fused_layer_.output).value,
                                   builder_.tensor(fused_layer_.inputs.front()).value,
                                   {},
                                   count_of(builder_, fused_layer_.output)});
  }
  void backward(Calls& calls, Gradients& gradients) override {
    Gradients::Place gradient = gradients.use(fused_layer_.output);
    add_activation_backward(calls, Activation::relu, gradient.value, builder_.tensor(fused_layer_.output).value);
    gradients.contribute(calls, fused_layer_.inputs.front(), std::move(gradient));
  }

 private:
  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
};

class SumCalls final : public LayerCalls {
 public:
  SumCalls(ProgramBuilder& builder, const FusedLayer& fused_layer) : builder_(builder), fused_layer_(fused_layer) {}

  void forward(Calls& calls) override {
    const memory& output = builder_.tensor(fused_layer_.output).value;
    const std::uint64_t count = count_of(builder_, fused_layer_.output);
    const auto input = [&](std::size_t i) { return builder_.tensor(fused_layer_.inputs[i]).value; };
    calls.emplace_back(Elementwise{ElementwiseKind::add, output, input(0), input(1), count});
    for (std::size_t i = 2; i < fused_layer_.inputs.size(); ++i)
      calls.emplace_back(Elementwise{ElementwiseKind::add, output, output, input(i), count});
  }

  /// Every summand has the sum's gradient. The last summand that has no gradient yet takes over the sum's place;
  /// another one gets a copy, or the same place if the last summand's gradient is used up before anything is added
  /// there.
  void backward(Calls& calls, Gradients& gradients) override {
    Gradients::Place gradient = gradients.use(fused_layer_.output);
    const auto is_trained = [&](std::uint32_t tensor) { return builder_.tensor(tensor).trained; };
    for (auto at = fused_layer_.inputs.begin(); at != fused_layer_.inputs.end(); ++at) {
      if (!is_trained(*at)) continue;
      if (gradients.has(*at)) {
        gradients.add(calls, *at, gradient.value);
      } else if (std::any_of(at + 1, fused_layer_.inputs.end(), is_trained)) {
        share_or_copy(calls, gradients, at, gradient);
      } else {
        gradient.masked = false;
        gradients.contribute(calls, *at, gradient);
      }
    }
  }

 private:
  using Summand = std::vector<std::uint32_t>::const_iterator;

  void share_or_copy(Calls& calls, Gradients& gradients, Summand at, Gradients::Place gradient) const {
    const bool is_the_last_but_one = at + 2 == fused_layer_.inputs.end();
    if (!is_the_last_but_one || gradients.has_pixels(*at) || builder_.activation_of(*at) != Activation::none ||
        !is_next_and_only_read(at[1]))
      return gradients.copy(calls, *at, gradient.value);
    gradient.masked = false;
    gradients.contribute(calls, *at, std::move(gradient));
  }

  /// Whether the backward pass goes on with the layer that computes `tensor`, without a loss in between, and that layer
  /// leaves the gradient to it as it is.
  bool is_next_and_only_read(std::uint32_t tensor) const {
    const std::vector<FusedLayer>& layers = builder_.fused_layers();
    if (&fused_layer_ == &layers.front() || builder_.tensor(tensor).readers != 1) return false;
    const FusedLayer& before = *(&fused_layer_ - 1);
    return before.layer + 1 == fused_layer_.layer && before.output == tensor && before.activation == Activation::none &&
           std::holds_alternative<Dense>(builder_.graph().layers()[before.layer].operation);
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
};

}  // namespace

algorithm algorithm_of(Activation activation) noexcept {
  switch (activation) {
    case Activation::tanh: return algorithm::eltwise_tanh_use_dst_for_bwd;
    case Activation::sigmoid: return algorithm::eltwise_logistic_use_dst_for_bwd;
    case Activation::relu:
    case Activation::none: break;
  }
  return algorithm::eltwise_relu;
}

void add_activation(ProgramBuilder& builder, Calls& calls, Activation activation, const memory& to) {
  const auto descriptor =
      describe_eltwise(builder.engine(), builder.attributes(), algorithm_of(activation), to.get_desc());
  calls.emplace_back(
      BoundPrimitive{eltwise_forward{descriptor},
                     {{DNNL_ARG_SRC, to}, {DNNL_ARG_DST, to}, {DNNL_ARG_SCRATCHPAD, builder.scratch_for(descriptor)}}});
}

void add_activation_backward(Calls& calls, Activation activation, const memory& gradient, const memory& output) {
  const memory::dims dims = dims_of(gradient.get_desc());
  const auto kind = [&] {
    switch (activation) {
      case Activation::tanh: return ElementwiseKind::tanh_slope;
      case Activation::sigmoid: return ElementwiseKind::sigmoid_slope;
      case Activation::relu:
      case Activation::none: break;
    }
    return ElementwiseKind::mask;
  }();
  calls.emplace_back(Elementwise{kind, gradient, output, {}, static_cast<std::uint64_t>(dims[0] * dims[1])});
}

std::unique_ptr<LayerCalls> make_eltwise(ProgramBuilder& builder, const FusedLayer& fused_layer, Activation function) {
  return std::make_unique<EltwiseCalls>(builder, fused_layer, function);
}
std::unique_ptr<LayerCalls> make_relu(ProgramBuilder& builder, const FusedLayer& fused_layer) {
  return std::make_unique<ReluCalls>(builder, fused_layer);
}
std::unique_ptr<LayerCalls> make_sum(ProgramBuilder& builder, const FusedLayer& fused_layer) {
  return std::make_unique<SumCalls>(builder, fused_layer);
}

}  // namespace troupe::cpu
