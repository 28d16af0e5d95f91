#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

using dnnl::layer_normalization_backward;
using dnnl::layer_normalization_forward;
using dnnl::memory;
using Type = ProgramBuilder::Type;

const auto kWithBoth = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;

class LayerNormCalls final : public LayerCalls {
 public:
  LayerNormCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const LayerNorm& norm)
      : builder_(builder),
        fused_layer_(fused_layer),
        epsilon_(static_cast<float>(norm.epsilon)),
        width_(fused_layer.input_shape.extents.back()),
        rows_(builder.rows() * fused_layer.input_shape.count_elements() / width_),
        data_(builder.matrix(rows_, width_, builder.computed())),
        vector_({static_cast<memory::dim>(width_)}, Type::f32, memory::format_tag::a),
        moments_({static_cast<memory::dim>(rows_)}, Type::f32, memory::format_tag::a),
        mean_(builder.places().take(moments_)),
        variance_(builder.places().take(moments_)) {}

  void forward(Calls& calls) override {
    auto descriptor = forward_descriptor();
    builder_.choose(descriptor, fused_layer_, "forward");
    const memory kept = builder_.value_as(fused_layer_.output, builder_.as_stored(data_));
    const memory output = builder_.result(kept);
    const memory input = builder_.operand(calls, stored_input());
    calls.emplace_back(BoundPrimitive{layer_normalization_forward{descriptor},
                                      {{DNNL_ARG_SRC, input},
                                       {DNNL_ARG_MEAN, mean_},
                                       {DNNL_ARG_VARIANCE, variance_},
                                       {DNNL_ARG_SCALE, builder_.bias(fused_layer_.first_parameter, vector_)},
                                       {DNNL_ARG_SHIFT, builder_.bias(fused_layer_.first_parameter + 1, vector_)},
                                       {DNNL_ARG_DST, output},
                                       {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}}});
    builder_.convert(calls, output, kept);
  }

  /// The gradient to the input takes the place of the output's gradient.
  void backward(Calls& calls, Gradients& gradients) override {
    auto descriptor = describe_norm_backward<layer_normalization_backward>(
        forward_descriptor(), builder_.engine(), builder_.attributes(), data_, moments_, epsilon_, kWithBoth);
    builder_.choose(descriptor, fused_layer_, "backward");
    Gradients::Place gradient = gradients.use(fused_layer_.output);
    const memory stored{builder_.as_stored(data_), builder_.engine(), gradient.value.get_data_handle()};
    const memory input = builder_.operand(calls, stored_input());
    const memory wide = builder_.operand(calls, stored);
    calls.emplace_back(
        BoundPrimitive{layer_normalization_backward{descriptor},
                       {{DNNL_ARG_SRC, input},
                        {DNNL_ARG_MEAN, mean_},
                        {DNNL_ARG_VARIANCE, variance_},
                        {DNNL_ARG_SCALE, builder_.bias(fused_layer_.first_parameter, vector_)},
                        // oneDNN 2.6 requires this argument, but does not read it.
                        {DNNL_ARG_SHIFT, builder_.bias(fused_layer_.first_parameter + 1, vector_)},
                        {DNNL_ARG_DIFF_DST, wide},
                        {DNNL_ARG_DIFF_SRC, wide},
                        {DNNL_ARG_DIFF_SCALE, builder_.gradient(fused_layer_.first_parameter, vector_)},
                        {DNNL_ARG_DIFF_SHIFT, builder_.gradient(fused_layer_.first_parameter + 1, vector_)},
                        {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}}});
    builder_.convert(calls, wide, stored);
    gradient.masked = false;
    if (builder_.tensor(fused_layer_.inputs.front()).trained)
      gradients.contribute(calls, fused_layer_.inputs.front(), std::move(gradient));
  }

 private:
  Described<layer_normalization_forward> forward_descriptor() const {
    return describe_norm<layer_normalization_forward>(builder_.engine(), builder_.attributes(),
                                                      dnnl::prop_kind::forward_training, data_, moments_, epsilon_,
                                                      kWithBoth);
  }
  memory stored_input() const { return builder_.value_as(fused_layer_.inputs.front(), builder_.as_stored(data_)); }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const float epsilon_;
  const std::uint64_t width_, rows_;
  const memory::desc data_, vector_, moments_;
  const memory mean_, variance_;  // of each row, for the backward pass
};

}  // namespace

std::unique_ptr<LayerCalls> make_layer_norm(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                            const LayerNorm& norm) {
  return std::make_unique<LayerNormCalls>(builder, fused_layer, norm);
}

}  // namespace troupe::cpu
