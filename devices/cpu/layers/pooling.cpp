#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;
using dnnl::pooling_backward;
using dnnl::pooling_forward;
using dims = memory::dims;

class PoolCalls final : public LayerCalls {
 public:
  PoolCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const PoolWindow& window)
      : builder_(builder),
        fused_layer_(fused_layer),
        window_(window),
        input_(builder.image(fused_layer.input_shape, fused_layer.inputs.front(), builder.computed())),
        output_(builder.image(output_image(), fused_layer.inputs.front(), builder.computed())),
        forward_(describe_pool(builder.engine(), builder.attributes(), window.algorithm, input_, output_,
                               size(window.stride), size(window.kernel), size(window.padding))) {
    builder_.choose(forward_, fused_layer_, "forward");
    // The workspace notes which element was the largest.
    const memory::desc workspace = forward_.workspace_desc();
    if (workspace.get_size() > 0) workspace_ = builder_.places().take(workspace);
  }

  void forward(Calls& calls) override {
    const memory kept = builder_.value_as(fused_layer_.output, builder_.as_stored(output_));
    const memory output = builder_.result(kept);
    const memory input =
        builder_.operand(calls, builder_.value_as(fused_layer_.inputs.front(), builder_.as_stored(input_)));
    calls.emplace_back(BoundPrimitive{
        pooling_forward{forward_},
        with_workspace(
            {{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, output}, {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(forward_)}})});
    if (fused_layer_.activation != Activation::none) add_activation(builder_, calls, fused_layer_.activation, output);
    builder_.convert(calls, output, kept);
  }

  void backward(Calls& calls, Gradients& gradients) override {
    add_backward(builder_, fused_layer_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      auto descriptor =
          describe_pool_backward(forward_, builder_.engine(), builder_.attributes(), window_.algorithm, input_, output_,
                                 size(window_.stride), size(window_.kernel), size(window_.padding));
      builder_.choose(descriptor, fused_layer_, "gradient of the input");
      const auto& engine = builder_.engine();
      const memory from = builder_.operand(calls, {builder_.as_stored(output_), engine, gradient.get_data_handle()});
      const memory kept{builder_.as_stored(input_), engine, input_gradient.get_data_handle()};
      const memory to = builder_.result(kept);
      calls.emplace_back(BoundPrimitive{pooling_backward{descriptor},
                                        with_workspace({{DNNL_ARG_DIFF_DST, from},
                                                        {DNNL_ARG_DIFF_SRC, to},
                                                        {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}})});
      builder_.convert(calls, to, kept);
    });
  }

 private:
  using Arguments = std::vector<std::pair<int, memory>>;
  Arguments with_workspace(Arguments arguments) const {
    if (workspace_) arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace_);
    return arguments;
  }
  /// A window over the whole image gives one place.
  Shape output_image() const {
    if (fused_layer_.output_shape.extents.size() == 3) return fused_layer_.output_shape;
    return {{1, 1, fused_layer_.output_shape.extents[0]}};
  }
  static dims size(const Size2& of) { return {of.height, of.width}; }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const PoolWindow window_;
  const memory::desc input_, output_;
  Described<pooling_forward> forward_;
  memory workspace_;  // empty if nothing is noted
};

}  // namespace

std::unique_ptr<LayerCalls> make_pool(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                      const PoolWindow& window) {
  return std::make_unique<PoolCalls>(builder, fused_layer, window);
}

}  // namespace troupe::cpu
