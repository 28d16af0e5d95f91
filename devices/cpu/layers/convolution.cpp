#include "devices/cpu/layers/layers.hpp"
#include "runtime/compute/winograd.hpp"

namespace troupe::cpu {
namespace {

using dnnl::convolution_backward_data;
using dnnl::convolution_backward_weights;
using dnnl::convolution_forward;
using dnnl::memory;
using Type = ProgramBuilder::Type;
using dims = memory::dims;

/// Images stay as they lie. Weights are packed as the implementation wants them, which
/// costs next to nothing beside what they are used for: each one is used for every place of every image.
class ConvolutionCalls final : public LayerCalls {
 public:
  ConvolutionCalls(ProgramBuilder& builder, const Stage& stage, const Conv2d& conv)
      : builder_(builder),
        stage_(stage),
        conv_(conv),
        input_(builder.image(stage.input_shape, stage.inputs.front(), builder.computed())),
        output_(builder.image(stage.output_shape, stage.output, builder.computed())),
        bias_(conv.bias ? memory::desc{{conv.filters}, Type::f32, memory::format_tag::a} : memory::desc{}),
        winograd_(builder.computed() == Type::f32 && onednn_has_winograd() &&
                  gains_by_winograd(conv, stage.input_shape, stage.output_shape, builder.rows())) {}

  void forward(Calls& calls) override {
    auto descriptor = forward_descriptor(stage_.activation);
    builder_.choose(descriptor, stage_, "forward");
    const memory input = arranged_input(calls, descriptor.src_desc());
    const memory weights = packed_weights(calls, descriptor.weights_desc());
    const Output to = output_of(builder_.value_as(stage_.output, builder_.as_stored(output_)), descriptor.dst_desc());
    BoundArguments arguments{{DNNL_ARG_SRC, input},
                             {DNNL_ARG_WEIGHTS, weights},
                             {DNNL_ARG_DST, to.written},
                             {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}};
    if (conv_.bias) arguments.emplace_back(DNNL_ARG_BIAS, builder_.bias(stage_.first_parameter + 1, bias_));
    calls.emplace_back(Product{{convolution_forward{descriptor}, arguments}});
    keep(calls, to);
  }

  void backward(Calls& calls, Gradients& gradients) override {
    go_back(builder_, stage_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      auto hint = forward_descriptor(Activation::none);
      const memory stored_gradient{builder_.as_stored(output_), builder_.engine(), gradient.get_data_handle()};
      const memory output_gradient = builder_.operand(calls, stored_gradient);
      to_weights(calls, hint, output_gradient);
      if (input_gradient) to_input(calls, hint, output_gradient, input_gradient);
    });
  }

 private:
  /// Where a primitive writes, and where that is kept in the end.
  struct Output {
    memory written, wide, kept;
  };

  /// With images as they lie, or where oneDNN has no more than reference code for that, in a layout of its own; by
  /// Winograd's algorithm where that gains.
  template <class Make>
  auto best(Make&& make) const {
    const auto any = [](const memory::desc& desc) {
      return memory::desc{dims_of(desc), type_of(desc), memory::format_tag::any};
    };
    if (winograd_) return make(dnnl::algorithm::convolution_winograd, any(input_), any(output_));
    auto direct = make(dnnl::algorithm::convolution_direct, input_, output_);
    if (!is_reference_code(direct.impl_info_str())) return direct;
    return make(dnnl::algorithm::convolution_direct, any(input_), any(output_));
  }

  Described<convolution_forward> forward_descriptor(Activation activation) const {
    return best([&](dnnl::algorithm algorithm, const memory::desc& input, const memory::desc& output) {
      return describe<convolution_forward>(
          builder_.engine(), builder_.attributes(activation), dnnl::prop_kind::forward_training, algorithm, input,
          weights_in(builder_.computed()), bias_, output, strides(), dilations(), padding(), padding());
    });
  }

  void to_weights(Calls& calls, const Described<convolution_forward>& hint, const memory& gradient) {
    auto descriptor = best([&](dnnl::algorithm algorithm, const memory::desc& input, const memory::desc& output) {
      return describe_backward<convolution_backward_weights>(hint, builder_.engine(), builder_.attributes(), algorithm,
                                                             input, weights_in(Type::f32), bias_, output, strides(),
                                                             dilations(), padding(), padding());
    });
    builder_.choose(descriptor, stage_, "gradient of the weights");
    const memory input = arranged_input(calls, descriptor.src_desc());
    const memory from = builder_.arranged(calls, gradient, descriptor.diff_dst_desc());
    const Output to =
        output_of(builder_.gradient(stage_.first_parameter, plain_weights(Type::f32)), descriptor.diff_weights_desc());
    BoundArguments arguments{{DNNL_ARG_SRC, input},
                             {DNNL_ARG_DIFF_DST, from},
                             {DNNL_ARG_DIFF_WEIGHTS, to.written},
                             {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}};
    if (conv_.bias) {
      arguments.emplace_back(DNNL_ARG_DIFF_BIAS,
                             builder_.gradient(stage_.first_parameter + 1, descriptor.diff_bias_desc()));
    }
    calls.emplace_back(Product{{convolution_backward_weights{descriptor}, arguments}});
    keep(calls, to);
  }

  void to_input(Calls& calls, const Described<convolution_forward>& hint, const memory& gradient,
                const memory& input_gradient) {
    auto descriptor = best([&](dnnl::algorithm algorithm, const memory::desc& input, const memory::desc& output) {
      return describe_backward<convolution_backward_data>(hint, builder_.engine(), builder_.attributes(), algorithm,
                                                          input, weights_in(builder_.computed()), output, strides(),
                                                          dilations(), padding(), padding());
    });
    builder_.choose(descriptor, stage_, "gradient of the input");
    const memory from = builder_.arranged(calls, gradient, descriptor.diff_dst_desc());
    const memory weights = packed_weights(calls, descriptor.weights_desc());
    const Output to = output_of({builder_.as_stored(input_), builder_.engine(), input_gradient.get_data_handle()},
                                descriptor.diff_src_desc());
    calls.emplace_back(Product{{convolution_backward_data{descriptor},
                                {{DNNL_ARG_DIFF_DST, from},
                                 {DNNL_ARG_WEIGHTS, weights},
                                 {DNNL_ARG_DIFF_SRC, to.written},
                                 {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}}}});
    keep(calls, to);
  }

  memory arranged_input(Calls& calls, const memory::desc& wanted) {
    const memory input = builder_.value_as(stage_.inputs.front(), builder_.as_stored(input_));
    return builder_.arranged(calls, builder_.operand(calls, input), wanted);
  }
  memory packed_weights(Calls& calls, const memory::desc& wanted) {
    const memory weights = builder_.weights(stage_.first_parameter, plain_weights(builder_.computed()));
    return builder_.arranged(calls, builder_.operand(calls, weights), wanted);
  }
  Output output_of(const memory& kept, const memory::desc& written) const {
    const memory wide = builder_.result(kept);
    return {wide.get_desc() == written ? wide : builder_.places().take(written), wide, kept};
  }
  void keep(Calls& calls, const Output& to) {
    builder_.arrange(calls, to.written, to.wide);
    builder_.convert(calls, to.wide, to.kept);
  }

  dims weights_dims() const {
    const auto channels = static_cast<memory::dim>(stage_.input_shape.extents[2] / conv_.groups);
    if (conv_.groups == 1) return {conv_.filters, channels, conv_.kernel.height, conv_.kernel.width};
    return {conv_.groups, conv_.filters / conv_.groups, channels, conv_.kernel.height, conv_.kernel.width};
  }
  /// As the parameter lies.
  memory::desc plain_weights(Type type) const {
    return {weights_dims(), type, conv_.groups == 1 ? memory::format_tag::abcd : memory::format_tag::abcde};
  }
  memory::desc weights_in(Type type) const { return {weights_dims(), type, memory::format_tag::any}; }
  dims strides() const { return {conv_.stride.height, conv_.stride.width}; }
  /// oneDNN counts the elements between two that are read.
  dims dilations() const { return {conv_.dilation.height - 1, conv_.dilation.width - 1}; }
  dims padding() const { return {conv_.padding.height, conv_.padding.width}; }

  ProgramBuilder& builder_;
  const Stage& stage_;
  const Conv2d conv_;
  const memory::desc input_, output_, bias_;  // no bias: of no dimensions
  const bool winograd_;
};

}  // namespace

std::unique_ptr<LayerCalls> make_convolution(ProgramBuilder& builder, const Stage& stage, const Conv2d& conv) {
  return std::make_unique<ConvolutionCalls>(builder, stage, conv);
}

}  // namespace troupe::cpu
