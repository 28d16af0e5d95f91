#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

using dnnl::inner_product_backward_data;
using dnnl::inner_product_backward_weights;
using dnnl::inner_product_forward;
using dnnl::memory;
using Type = ProgramBuilder::Type;

/// The forward pass of at least this number of rows in f32 copies its weights to oneDNN's own layout: that takes a
/// hundredth of the product's time, and saves two to five.
constexpr std::uint64_t kRowsThatPayForACopy = 256;

/// Plain layouts everywhere else: docs/adr/0003-plain-weight-layouts-on-the-cpu.md.
class DenseCalls final : public LayerCalls {
 public:
  DenseCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const Dense& dense)
      : builder_(builder),
        fused_layer_(fused_layer),
        inputs_(dense.flatten ? fused_layer.input_shape.count_elements() : fused_layer.input_shape.extents.back()),
        rows_(builder.rows() * (fused_layer.input_shape.count_elements() / inputs_)),
        input_(builder.matrix(rows_, inputs_, builder.computed())),
        output_(builder.matrix(rows_, dense.units, builder.computed())),
        weights_(builder.matrix(dense.units, inputs_, builder.computed())),
        bias_(dense.bias ? memory::desc{{static_cast<memory::dim>(dense.units)}, Type::f32, memory::format_tag::a}
                         : memory::desc{}) {}

  void forward(Calls& calls) override {
    const memory stored_output = as(output_, builder_.tensor(fused_layer_.output).value);
    const memory output = builder_.result(stored_output);
    auto descriptor = forward_descriptor(forward_weights(), output.get_desc(), fused_layer_.activation);
    builder_.choose(descriptor, fused_layer_, "forward");
    const memory input = builder_.operand(calls, stored_input(calls));
    const memory weights =
        builder_.arranged(calls, builder_.operand(calls, stored_weights()), descriptor.weights_desc());
    BoundArguments arguments{{DNNL_ARG_SRC, input},
                             {DNNL_ARG_WEIGHTS, weights},
                             {DNNL_ARG_DST, output},
                             {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}};
    if (has_bias()) arguments.emplace_back(DNNL_ARG_BIAS, builder_.bias(fused_layer_.first_parameter + 1, bias_));
    calls.emplace_back(Product{{inner_product_forward{descriptor}, arguments}});
    builder_.convert(calls, output, stored_output);
  }

  void backward(Calls& calls, Gradients& gradients) override {
    add_backward(builder_, fused_layer_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      const auto hint = forward_descriptor(weights_, output_, Activation::none);
      const memory output_gradient = to_weights(calls, hint, as(output_, gradient));
      if (input_gradient) to_input(calls, hint, output_gradient, as(input_, input_gradient));
    });
  }

 private:
  /// A new place with the shape of `desc`.
  memory as(memory::desc desc, const memory& place) const {
    return {with_type(std::move(desc), type_of(place)), builder_.engine(), place.get_data_handle()};
  }
  Described<inner_product_forward> forward_descriptor(const memory::desc& weights, const memory::desc& output,
                                                      Activation activation) const {
    return describe<inner_product_forward>(builder_.engine(), builder_.attributes(activation),
                                           dnnl::prop_kind::forward_training, input_, weights, bias_, output);
  }
  memory::desc forward_weights() const {
    if (builder_.stored() != Type::f32 || rows_ < kRowsThatPayForACopy) return weights_;
    return {dims_of(weights_), Type::f32, memory::format_tag::any};
  }

  /// Returns the gradient as an operand.
  memory to_weights(Calls& calls, const Described<inner_product_forward>& hint, const memory& gradient) {
    auto descriptor = describe_backward<inner_product_backward_weights>(
        hint, builder_.engine(), builder_.attributes(), input_, with_type(weights_, Type::f32), bias_, output_);
    builder_.choose(descriptor, fused_layer_, "gradient of the weights");
    const memory input = builder_.operand(calls, stored_input(calls));
    memory output_gradient = builder_.operand(calls, gradient);
    BoundArguments arguments{
        {DNNL_ARG_SRC, input},
        {DNNL_ARG_DIFF_DST, output_gradient},
        {DNNL_ARG_DIFF_WEIGHTS, builder_.gradient(fused_layer_.first_parameter, descriptor.diff_weights_desc())},
        {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}};
    if (has_bias()) {
      arguments.emplace_back(DNNL_ARG_DIFF_BIAS,
                             builder_.gradient(fused_layer_.first_parameter + 1, descriptor.diff_bias_desc()));
    }
    calls.emplace_back(Product{{inner_product_backward_weights{descriptor}, arguments}});
    return output_gradient;
  }

  void to_input(Calls& calls, const Described<inner_product_forward>& hint, const memory& output_gradient,
                const memory& input_gradient) {
    auto descriptor = describe_backward<inner_product_backward_data>(hint, builder_.engine(), builder_.attributes(),
                                                                     input_, weights_, output_);
    builder_.choose(descriptor, fused_layer_, "gradient of the input");
    const memory weights = builder_.operand(calls, stored_weights());
    // A gradient whose tensor is in blocks is computed in a plain place first; into_blocks() then copies it.
    const std::uint32_t read = fused_layer_.inputs.front();
    const memory wide_gradient =
        builder_.in_blocks(read) ? builder_.places().take(input_) : builder_.result(input_gradient);
    calls.emplace_back(Product{{inner_product_backward_data{descriptor},
                                {{DNNL_ARG_DIFF_DST, output_gradient},
                                 {DNNL_ARG_WEIGHTS, weights},
                                 {DNNL_ARG_DIFF_SRC, wide_gradient},
                                 {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}}}});
    if (builder_.in_blocks(read)) return builder_.into_blocks(calls, read, wide_gradient, input_gradient);
    builder_.convert(calls, wide_gradient, input_gradient);
  }

  memory stored_input(Calls& calls) const {
    const std::uint32_t read = fused_layer_.inputs.front();
    const Type stored = type_of(builder_.tensor(read).value);
    return builder_.unblocked(calls, read, with_type(input_, stored));
  }
  bool has_bias() const noexcept { return fused_layer_.count_parameters > 1; }
  memory stored_weights() const { return builder_.weights(fused_layer_.first_parameter, weights_); }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const std::uint64_t inputs_;                          // of a unit
  const std::uint64_t rows_;                            // of the product
  const memory::desc input_, output_, weights_, bias_;  // without a bias, bias_ has no dimensions
};

}  // namespace

std::unique_ptr<LayerCalls> make_dense(ProgramBuilder& builder, const FusedLayer& fused_layer, const Dense& dense) {
  return std::make_unique<DenseCalls>(builder, fused_layer, dense);
}

}  // namespace troupe::cpu
