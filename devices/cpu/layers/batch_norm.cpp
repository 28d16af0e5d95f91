#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

using dnnl::batch_normalization_backward;
using dnnl::batch_normalization_forward;
using dnnl::memory;
using dnnl::normalization_flags;
using dnnl::prop_kind;

/// For processors for which there are no kernels of our own. A ReLU after the layer is part of the primitives of both
/// passes: the forward pass notes in a workspace which elements it cut off. Scale, shift and statistics are always f32;
/// the gradient to the input takes the place of the output's gradient.
class BatchNormCalls final : public LayerCalls {
 public:
  BatchNormCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const BatchNorm& norm)
      : builder_(builder),
        fused_layer_(fused_layer),
        epsilon_(static_cast<float>(norm.epsilon)),
        image_(builder.image(as_image(fused_layer.input_shape), fused_layer.inputs.front(), builder.computed())),
        channels_({static_cast<memory::dim>(fused_layer.input_shape.extents.back())}, ProgramBuilder::Type::f32,
                  memory::format_tag::a),
        forward_(descriptor(prop_kind::forward_training, flags())) {
    builder_.choose(forward_, fused_layer_, "forward");
    mean_ = builder_.places().take(channels_);
    variance_ = builder_.places().take(channels_);
    const memory::desc workspace = forward_.workspace_desc();
    if (workspace.get_size() > 0) workspace_ = builder_.places().take(workspace);
    const auto count = static_cast<double>(builder_.rows() * builder_.tensor(fused_layer_.output).width /
                                           fused_layer_.input_shape.extents.back());
    // The variance of the batch is divided by n, the one that is kept by n - 1.
    const double unbiased = count > 1 ? count / (count - 1) : 1;
    builder_.add_statistic({mean_, fused_layer_.first_parameter + kRunningMean, 1});
    builder_.add_statistic({variance_, fused_layer_.first_parameter + kRunningVariance, static_cast<float>(unbiased)});
  }

  void forward(Calls& calls) override { add_forward(calls, forward_, mean_, variance_, workspace_); }

  bool has_evaluation() const override { return true; }
  void evaluation(Calls& calls) override {
    auto made = descriptor(prop_kind::forward_inference, flags() | normalization_flags::use_global_stats);
    builder_.choose(made, fused_layer_, "evaluation");
    add_forward(calls, made, parameter(kRunningMean), parameter(kRunningVariance), {});
  }

  void backward(Calls& calls, Gradients& gradients) override {
    Gradients::Place gradient = gradients.use(fused_layer_.output);
    auto made = describe_norm_backward<batch_normalization_backward>(forward_, builder_.engine(), builder_.attributes(),
                                                                     image_, epsilon_, flags());
    builder_.choose(made, fused_layer_, "backward");
    const memory kept{builder_.as_stored(image_), builder_.engine(), gradient.value.get_data_handle()};
    const memory through = builder_.operand(calls, kept);
    Arguments arguments{{DNNL_ARG_SRC, stored_input(calls)},
                        {DNNL_ARG_MEAN, mean_},
                        {DNNL_ARG_VARIANCE, variance_},
                        {DNNL_ARG_DIFF_DST, through},
                        {DNNL_ARG_DIFF_SRC, through},
                        {DNNL_ARG_SCALE, parameter(kScale)},
                        {DNNL_ARG_DIFF_SCALE, builder_.gradient(fused_layer_.first_parameter + kScale, channels_)},
                        {DNNL_ARG_DIFF_SHIFT, builder_.gradient(fused_layer_.first_parameter + kShift, channels_)},
                        {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(made)}};
    if (kBackwardTakesShift) arguments.emplace_back(DNNL_ARG_SHIFT, parameter(kShift));
    calls.emplace_back(
        BoundPrimitive{batch_normalization_backward{made}, with_workspace(std::move(arguments), workspace_)});
    builder_.convert(calls, through, kept);
    gradient.masked = false;
    if (builder_.tensor(fused_layer_.inputs.front()).trained)
      gradients.contribute(calls, fused_layer_.inputs.front(), std::move(gradient));
  }

 private:
  using Arguments = std::vector<std::pair<int, memory>>;

  static Shape as_image(const Shape& shape) {
    return shape.extents.size() == 1 ? Shape{{1, 1, shape.extents.front()}} : shape;
  }
  normalization_flags flags() const {
    const auto scaled = normalization_flags::use_scale | normalization_flags::use_shift;
    return fused_layer_.activation == Activation::relu ? scaled | normalization_flags::fuse_norm_relu : scaled;
  }
  Described<batch_normalization_forward> descriptor(prop_kind kind, normalization_flags flags) const {
    return describe_norm<batch_normalization_forward>(builder_.engine(), builder_.attributes(), kind, image_, epsilon_,
                                                      flags);
  }

  void add_forward(Calls& calls, const Described<batch_normalization_forward>& made, const memory& mean,
                   const memory& variance, const memory& workspace) {
    const memory kept = builder_.value_as(fused_layer_.output, builder_.as_stored(image_));
    const memory output = builder_.result(kept);
    calls.emplace_back(BoundPrimitive{batch_normalization_forward{made},
                                      with_workspace({{DNNL_ARG_SRC, stored_input(calls)},
                                                      {DNNL_ARG_DST, output},
                                                      {DNNL_ARG_MEAN, mean},
                                                      {DNNL_ARG_VARIANCE, variance},
                                                      {DNNL_ARG_SCALE, parameter(kScale)},
                                                      {DNNL_ARG_SHIFT, parameter(kShift)},
                                                      {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(made)}},
                                                     workspace)});
    builder_.convert(calls, output, kept);
  }

  memory stored_input(Calls& calls) {
    return builder_.operand(calls, builder_.value_as(fused_layer_.inputs.front(), builder_.as_stored(image_)));
  }
  memory parameter(std::size_t which) const { return builder_.bias(fused_layer_.first_parameter + which, channels_); }
  static Arguments with_workspace(Arguments arguments, const memory& workspace) {
    if (workspace) arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace);
    return arguments;
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const float epsilon_;
  const memory::desc image_, channels_;
  Described<batch_normalization_forward> forward_;
  memory mean_, variance_, workspace_;
};

}  // namespace

NormTensors take_norm_tensors(ProgramBuilder& builder, const FusedLayer& fused_layer, std::size_t channels) {
  const memory::desc each({static_cast<memory::dim>(channels)}, ProgramBuilder::Type::f32, memory::format_tag::a);
  const auto parameter = [&](NormParameter which) { return builder.bias(fused_layer.first_parameter + which, each); };
  const auto gradient = [&](NormParameter which) {
    return builder.gradient(fused_layer.first_parameter + which, each);
  };
  return {parameter(kScale), parameter(kShift), parameter(kRunningMean),     parameter(kRunningVariance),
          gradient(kScale),  gradient(kShift),  builder.places().take(each), builder.places().take(each)};
}

std::unique_ptr<LayerCalls> make_batch_norm(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                            const BatchNorm& norm) {
  if (auto own = make_own_batch_norm(builder, fused_layer, norm)) return own;
  return std::make_unique<BatchNormCalls>(builder, fused_layer, norm);
}

}  // namespace troupe::cpu
