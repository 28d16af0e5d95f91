#include "devices/cpu/image_layouts.hpp"
#include "devices/cpu/kernels/max_pool.hpp"
#include "devices/cpu/layers/layers.hpp"
#include "devices/cpu/parallel.hpp"

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
        output_(builder.image(fused_layer.output_shape, fused_layer.inputs.front(), builder.computed())),
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
      if (!input_gradient) return;
      const auto& engine = builder_.engine();
      const memory from = builder_.operand(calls, {builder_.as_stored(output_), engine, gradient.get_data_handle()});
      const memory kept{builder_.as_stored(input_), engine, input_gradient.get_data_handle()};
      const memory to = builder_.result(kept);
      backward_by_onednn(calls, from, to);
      builder_.convert(calls, to, kept);
    });
  }

 private:
  void backward_by_onednn(Calls& calls, const memory& from, const memory& to) {
    auto descriptor =
        describe_pool_backward(forward_, builder_.engine(), builder_.attributes(), window_.algorithm, input_, output_,
                               size(window_.stride), size(window_.kernel), size(window_.padding));
    builder_.choose(descriptor, fused_layer_, "gradient of the input");
    calls.emplace_back(BoundPrimitive{pooling_backward{descriptor},
                                      with_workspace({{DNNL_ARG_DIFF_DST, from},
                                                      {DNNL_ARG_DIFF_SRC, to},
                                                      {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}})});
  }
  using Arguments = std::vector<std::pair<int, memory>>;
  Arguments with_workspace(Arguments arguments) const {
    if (workspace_) arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace_);
    return arguments;
  }
  static dims size(const Size2& of) { return {of.height, of.width}; }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const PoolWindow window_;
  const memory::desc input_, output_;
  Described<pooling_forward> forward_;
  memory workspace_;  // empty if nothing is noted
};

/// The mean over whole images, by loops of our own. A plane (an image, or where images are in blocks, a block of
/// channels of one) is one thread's work.
class GlobalAverageCalls final : public LayerCalls {
 public:
  GlobalAverageCalls(ProgramBuilder& builder, const FusedLayer& fused_layer)
      : builder_(builder), fused_layer_(fused_layer) {
    const auto& image = fused_layer.input_shape.extents;
    pixels_ = std::size_t{image[0]} * image[1];
    width_ = builder.in_blocks(fused_layer.inputs.front()) ? kBlockChannels : image[2];
    planes_ = builder.rows() * (image[2] / width_);
  }

  void forward(Calls& calls) override {
    builder_.choose_own(fused_layer_, "forward", "own:average");
    const auto value = [&](std::uint32_t tensor) {
      return builder_.value_as(tensor,
                               builder_.matrix(builder_.rows(), builder_.tensor(tensor).width, builder_.stored()));
    };
    add(calls, value(fused_layer_.output), value(fused_layer_.inputs.front()),
        [pixels = pixels_, width = width_](const Kernels& kernels, auto* output, auto* image) {
          if constexpr (std::is_same_v<decltype(output), float*>)
            kernels.average_f32(output, image, pixels, width);
          else
            kernels.average_bf16(output, image, pixels, width);
        });
  }

  /// The gradient to a mean, for each pixel.
  void backward(Calls& calls, Gradients& gradients) override {
    add_backward(builder_, fused_layer_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      if (!input_gradient) return;
      builder_.choose_own(fused_layer_, "gradient of the input", "own:spread");
      add(calls, gradient, input_gradient,
          [pixels = pixels_, width = width_](const Kernels& kernels, auto* output, auto* image) {
            if constexpr (std::is_same_v<decltype(output), float*>)
              kernels.spread_average_f32(image, output, pixels, width);
            else
              kernels.spread_average_bf16(image, output, pixels, width);
          });
    });
  }

 private:
  /// Calls act(kernels, the output's elements, the image's) for each plane.
  template <class Act>
  void add(Calls& calls, const memory& output, const memory& image, Act act) const {
    calls.emplace_back(OwnWork{
        {output, image},
        [=, pixels = pixels_, width = width_, planes = planes_, threads = usable_threads()](const Kernels& kernels) {
          for_each_in_parallel(threads, planes, [&](std::size_t plane, std::size_t) {
            const auto act_on = [&]<class Element>(Element* to, Element* all) {
              act(kernels, to + plane * width, all + plane * pixels * width);
            };
            if (is_f32(image))
              act_on(data_of<float>(output), data_of<float>(image));
            else
              act_on(data_of<std::uint16_t>(output), data_of<std::uint16_t>(image));
          });
        }});
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  std::size_t planes_, pixels_, width_;
};

/// What both passes of MaxPoolKernels read and write. A plane is an image, or where images are in blocks, a block of
/// channels of one. It is one thread's work.
template <class Element>
struct PooledPlanes {
  const MaxPoolKernels<Element>* kernels = nullptr;
  PooledImage of;
  std::size_t planes = 0, threads = 1;
  memory input, output, choices;  // of the backward pass: the gradients to them

  template <class T>
  static T* plane(const memory& all, std::size_t index, std::size_t elements) {
    return static_cast<T*>(all.get_data_handle()) + index * elements;
  }
  void forward() const {
    for_each_in_parallel(threads, planes, [&](std::size_t index, std::size_t) {
      kernels->forward(of, plane<const Element>(input, index, of.input_elements()),
                       plane<Element>(output, index, of.output_elements()),
                       plane<std::uint16_t>(choices, index, kernels->choice_words(of)));
    });
  }
  void backward() const {
    for_each_in_parallel(threads, planes, [&](std::size_t index, std::size_t) {
      kernels->backward(of, plane<const Element>(output, index, of.output_elements()),
                        plane<const std::uint16_t>(choices, index, kernels->choice_words(of)),
                        plane<Element>(input, index, of.input_elements()));
    });
  }
};

/// By kernels of our own.
template <class Element>
class OwnMaxPoolCalls final : public LayerCalls {
 public:
  OwnMaxPoolCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const MaxPoolKernels<Element>& kernels,
                  bool overlaps)
      : builder_(builder),
        fused_layer_(fused_layer),
        input_(builder.image(fused_layer.input_shape, fused_layer.inputs.front(), builder.computed())),
        output_(builder.image(fused_layer.output_shape, fused_layer.inputs.front(), builder.computed())) {
    const auto& extents = fused_layer.input_shape.extents;
    const bool blocks = builder.in_blocks(fused_layer.inputs.front());
    planes_.kernels = &kernels;
    planes_.of = {.height = extents[0],
                  .width = extents[1],
                  .channels = blocks ? kBlockChannels : extents[2],
                  .relu = fused_layer.activation == Activation::relu,
                  .overlaps = overlaps};
    planes_.planes = builder.rows() * (extents[2] / planes_.of.channels);
    planes_.threads = usable_threads();
    const std::size_t words = planes_.planes * planes_.kernels->choice_words(planes_.of);  // of 16 bits, in pairs
    planes_.choices = builder.places().take(builder.matrix(1, (words + 1) / 2, ProgramBuilder::Type::s32));
  }

  void forward(Calls& calls) override {
    builder_.choose_own(fused_layer_, "forward", planes_.kernels->name);
    const memory kept = builder_.value_as(fused_layer_.output, builder_.as_stored(output_));
    const memory output = builder_.result(kept);
    PooledPlanes<Element> pass = planes_;
    pass.input = builder_.operand(calls, builder_.value_as(fused_layer_.inputs.front(), builder_.as_stored(input_)));
    pass.output = output;
    add(calls, pass, [pass](const Kernels&) { pass.forward(); });
    if (fused_layer_.activation != Activation::none && !pass.of.relu)
      add_activation(builder_, calls, fused_layer_.activation, output);
    builder_.convert(calls, output, kept);
  }

  void backward(Calls& calls, Gradients& gradients) override {
    add_backward(builder_, fused_layer_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      if (!input_gradient) return;
      builder_.choose_own(fused_layer_, "gradient of the input", planes_.kernels->name);
      const auto& engine = builder_.engine();
      const memory kept{builder_.as_stored(input_), engine, input_gradient.get_data_handle()};
      PooledPlanes<Element> pass = planes_;
      pass.output = builder_.operand(calls, {builder_.as_stored(output_), engine, gradient.get_data_handle()});
      pass.input = builder_.result(kept);
      add(calls, pass, [pass](const Kernels&) { pass.backward(); });
      builder_.convert(calls, pass.input, kept);
    });
  }

 private:
  static void add(Calls& calls, const PooledPlanes<Element>& pass, std::function<void(const Kernels&)> run) {
    calls.emplace_back(OwnWork{{pass.input, pass.output, pass.choices}, std::move(run)});
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const memory::desc input_, output_;
  PooledPlanes<Element> planes_;  // without input and output
};

bool is_max_pool(const PoolWindow& window, std::uint32_t kernel, std::uint32_t padding) {
  const auto is = [](const Size2& size, std::uint32_t value) { return size.height == value && size.width == value; };
  return window.algorithm == dnnl::algorithm::pooling_max && is(window.kernel, kernel) && is(window.stride, 2) &&
         is(window.padding, padding);
}

/// Null: no kernels of our own can do it.
template <class Element>
std::unique_ptr<LayerCalls> make_own_max_pool(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                              const PoolWindow& window) {
  using Kernels = MaxPoolKernels<Element>;
  const auto make = [&](const std::vector<const Kernels*>& usable, bool overlaps) -> std::unique_ptr<LayerCalls> {
    if (usable.empty()) return nullptr;
    return std::make_unique<OwnMaxPoolCalls<Element>>(builder, fused_layer, *usable.back(), overlaps);
  };
  if (is_max_pool(window, 2, 0)) return make(usable_max_pools<Element>(), false);
  if constexpr (sizeof(Element) == sizeof(float)) {
    if (is_max_pool(window, 3, 1) && fused_layer.input_shape.extents[2] >= Kernels::kLeastChannelsOfOverlapping)
      return make(usable_overlapping_max_pools(), true);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<LayerCalls> make_pool(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                      const PoolWindow& window) {
  std::unique_ptr<LayerCalls> own = builder.computed() == ProgramBuilder::Type::f32
                                        ? make_own_max_pool<float>(builder, fused_layer, window)
                                        : make_own_max_pool<std::uint16_t>(builder, fused_layer, window);
  if (own != nullptr) return own;
  return std::make_unique<PoolCalls>(builder, fused_layer, window);
}

std::unique_ptr<LayerCalls> make_global_average_pool(ProgramBuilder& builder, const FusedLayer& fused_layer) {
  return std::make_unique<GlobalAverageCalls>(builder, fused_layer);
}

}  // namespace troupe::cpu
