#include <algorithm>

#include "devices/cpu/image_layouts.hpp"
#include "devices/cpu/kernels/one_channel.hpp"
#include "devices/cpu/kernels/one_channel_forward.hpp"
#include "devices/cpu/kernels/one_channel_gradient.hpp"
#include "devices/cpu/layers/lane_convolution.hpp"
#include "devices/cpu/layers/layers.hpp"
#include "devices/cpu/layers/patch_convolution.hpp"
#include "devices/cpu/parallel.hpp"
#include "runtime/compute/winograd.hpp"

namespace troupe::cpu {
namespace {

using dnnl::convolution_backward_data;
using dnnl::convolution_backward_weights;
using dnnl::convolution_forward;
using dnnl::memory;
using Type = ProgramBuilder::Type;
using dims = memory::dims;

template <class T>
T* elements(const memory& of) {
  return static_cast<T*>(of.get_data_handle());
}

/// What convolve_one_channel works on.
struct OneChannelCall {
  OneChannelConvolution of;
  std::size_t images, threads;
  memory input, weights, bias, packed, padded_bias, output;  // bias: none where there is none

  void operator()(const Kernels&) const {
    auto* const words = elements<std::uint32_t>(packed);
    auto* const biases = elements<float>(padded_bias);
    pack_one_channel(of, elements<const std::uint16_t>(weights), words);
    std::fill_n(biases, OneChannelConvolution::kLanes, 0.0F);
    if (bias) std::copy_n(elements<const float>(bias), of.filters, biases);
    const auto* const from = elements<const std::uint16_t>(input);
    auto* const to = elements<std::uint16_t>(output);
    const std::size_t from_size = of.height * of.width;
    const std::size_t to_size = of.output_height() * of.output_width() * of.filters;
    for_each_in_parallel(threads, images, [&](std::size_t image, std::size_t) {
      convolve_one_channel(of, from + image * from_size, words, biases, to + image * to_size);
    });
  }
};

/// What OneChannelForward works on.
struct OneChannelForwardCall {
  const OneChannelForward* kernel;
  OneChannelConvolution of;
  std::size_t images, threads;
  memory input, weights, bias, packed, output;  // bias: none where there is none

  void operator()(const Kernels&) const {
    auto* const weights_and_bias = elements<float>(packed);
    kernel->pack(of, elements<const float>(weights), bias ? elements<const float>(bias) : nullptr, weights_and_bias);
    for_each_in_parallel(threads, images, [&](std::size_t image, std::size_t) {
      kernel->convolve(of, elements<const float>(input) + image * of.height * of.width, weights_and_bias,
                       elements<float>(output) + image * of.output_height() * of.output_width() * of.filters);
    });
  }
};

/// The sums of OneChannelGradient over all images. These are divided into kParts parts, each one thread's work, whose
/// sums are added in their order: the result does not depend on the number of threads.
struct OneChannelGradientCall {
  const OneChannelGradient* kernel;
  OneChannelConvolution of;
  std::size_t images, threads;
  memory input, gradient, weights, bias, of_parts;  // bias: none where there is none

  static constexpr std::size_t kParts = 16;
  /// [kernel height x kernel width + 1, filters], which the last row makes the biases.
  std::size_t sums() const { return (of.kernel_height * of.kernel_width + 1) * of.filters; }

  void operator()(const Kernels& kernels) const {
    auto* const parts = elements<float>(of_parts);
    for_each_in_parallel(threads, kParts, [&](std::size_t part, std::size_t) {
      float* const to = parts + part * sums();
      std::fill_n(to, sums(), 0.0F);
      for (std::size_t image = part * images / kParts; image < (part + 1) * images / kParts; ++image) {
        kernel->add(of, elements<const float>(input) + image * of.height * of.width,
                    elements<const float>(gradient) + image * of.output_height() * of.output_width() * of.filters, to);
      }
    });
    for (std::size_t part = 1; part < kParts; ++part) kernels.add(parts, parts, parts + part * sums(), sums());
    const std::size_t taps = of.kernel_height * of.kernel_width;
    for (std::size_t t = 0; t < taps; ++t)
      for (std::size_t f = 0; f < of.filters; ++f) elements<float>(weights)[f * taps + t] = parts[t * of.filters + f];
    if (bias) std::copy_n(parts + taps * of.filters, of.filters, elements<float>(bias));
  }
};

/// Images stay as they lie. Weights are packed as the implementation wants them, which
/// costs next to nothing beside what they are used for: each one is used for every place of every image.
class ConvolutionCalls final : public LayerCalls {
 public:
  ConvolutionCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const Conv2d& conv)
      : builder_(builder),
        fused_layer_(fused_layer),
        conv_(conv),
        input_(builder.image_beside(fused_layer.output, fused_layer.input_shape, fused_layer.inputs.front(),
                                    builder.computed())),
        output_(builder.image_beside(fused_layer.inputs.front(), fused_layer.output_shape, fused_layer.output,
                                     builder.computed())),
        bias_(conv.bias ? memory::desc{{conv.filters}, Type::f32, memory::format_tag::a} : memory::desc{}),
        winograd_(builder.computed() == Type::f32 && onednn_has_winograd() &&
                  gains_by_winograd(conv, fused_layer.input_shape, fused_layer.output_shape, builder.rows())),
        lanes_(builder, fused_layer, conv),
        patches_(builder, fused_layer, conv) {}

  void forward(Calls& calls) override {
    if (suits_one_channel()) return forward_of_one_channel(calls);
    if (suits_one_channel_forward()) return forward_of_one_channel_f32(calls);
    if (lanes_.gain_forward()) return forward_by(lanes_, calls);
    if (patches_.gain()) return forward_by(patches_, calls);
    auto descriptor = fastest_forward();
    builder_.choose(descriptor, fused_layer_, "forward");
    const memory input = arranged_input(calls, descriptor.src_desc());
    const memory weights = packed_weights(calls, descriptor.weights_desc());
    const Output to = output_of(stored_output(), descriptor.dst_desc());
    BoundArguments arguments{{DNNL_ARG_SRC, input},
                             {DNNL_ARG_WEIGHTS, weights},
                             {DNNL_ARG_DST, to.written},
                             {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}};
    if (conv_.bias) arguments.emplace_back(DNNL_ARG_BIAS, builder_.bias(fused_layer_.first_parameter + 1, bias_));
    calls.emplace_back(Product{{convolution_forward{descriptor}, arguments}});
    keep(calls, to);
  }

  void backward(Calls& calls, Gradients& gradients) override {
    if (leaves_out_pixels() && !lanes_.gain_to_input()) return backward_to_pixels(calls, gradients);
    add_backward(builder_, fused_layer_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      const memory output_gradient = operand_gradient(calls, gradient);
      any_to_weights(calls, output_gradient);
      if (!input_gradient) return;
      if (lanes_.gain_to_input()) return to_input_in_lanes(calls, output_gradient, input_gradient);
      if (patches_.gain()) return to_input_by_patches(calls, output_gradient, input_gradient, input_);
      to_input(calls, output_gradient, input_gradient, {input_, strides()});
    });
  }

 private:
  /// Where a primitive writes its result, and where the result is kept.
  struct Output {
    memory written, wide, kept;
  };
  /// What a primitive takes for the input.
  struct Read {
    memory::desc image;
    dims strides;
  };

  /// Whether a kernel of one element leaves out pixels of the input.
  bool leaves_out_pixels() const {
    return conv_.kernel.height * conv_.kernel.width == 1 && conv_.stride.height * conv_.stride.width > 1 &&
           conv_.padding.height + conv_.padding.width == 0;
  }

  /// The gradient to the pixels that are read is computed as that of a convolution without stride.
  void backward_to_pixels(Calls& calls, Gradients& gradients) {
    const memory output_gradient = operand_gradient(calls, gradients.use(fused_layer_.output).value);
    any_to_weights(calls, output_gradient);
    const std::uint32_t read = fused_layer_.inputs.front();
    if (!builder_.tensor(read).trained) return;
    PixelGradient part = pixel_gradient();
    const auto& to = fused_layer_.output_shape.extents;
    const memory::desc image =
        builder_.image_beside(fused_layer_.output, {{to[0], to[1], channels()}}, read, builder_.computed());
    if (patches_.gain())
      to_input_by_patches(calls, output_gradient, part.value, image);
    else
      to_input(calls, output_gradient, part.value, {image, {1, 1}});
    gradients.contribute_pixels(calls, read, std::move(part));
  }

  PixelGradient pixel_gradient() const {
    const auto &from = fused_layer_.input_shape.extents, &to = fused_layer_.output_shape.extents;
    const std::size_t blocks = builder_.in_blocks(fused_layer_.inputs.front()) ? channels() / kBlockChannels : 1;
    return {.value =
                builder_.places().take(builder_.matrix(builder_.rows(), to[0] * to[1] * channels(), builder_.stored())),
            .planes = builder_.rows() * blocks,
            .elements = channels() / blocks,
            .height = from[0],
            .width = from[1],
            .stride_height = conv_.stride.height,
            .stride_width = conv_.stride.width};
  }

  memory operand_gradient(Calls& calls, const memory& gradient) const {
    return builder_.operand(calls, {builder_.as_stored(output_), builder_.engine(), gradient.get_data_handle()});
  }

  void any_to_weights(Calls& calls, const memory& gradient) {
    if (suits_one_channel_gradient()) return to_weights_of_one_channel(calls, gradient);
    if (lanes_.gain_to_weights()) return to_weights_by(lanes_, calls, gradient);
    if (patches_.gain()) return to_weights_by(patches_, calls, gradient);
    to_weights(calls, gradient);
  }

  bool is_one_channel() const {
    const auto is = [](const Size2& size, std::uint32_t value) { return size.height == value && size.width == value; };
    return fused_layer_.input_shape.extents[2] == 1 && is(conv_.stride, 1) && is(conv_.dilation, 1) &&
           is(conv_.padding, 0) && conv_.groups == 1;
  }
  OneChannelConvolution one_channel() const {
    return {.height = fused_layer_.input_shape.extents[0],
            .width = fused_layer_.input_shape.extents[1],
            .kernel_height = conv_.kernel.height,
            .kernel_width = conv_.kernel.width,
            .filters = conv_.filters,
            .relu = fused_layer_.activation == Activation::relu};
  }

  /// Where convolve_one_channel can do the forward pass.
  bool suits_one_channel() const {
    const bool has_activation =
        fused_layer_.activation == Activation::none || fused_layer_.activation == Activation::relu;
    return is_one_channel() && has_activation && conv_.kernel.width > 1 &&
           conv_.filters <= OneChannelConvolution::kLanes && builder_.computed() == Type::bf16 &&
           may_convolve_one_channel();
  }

  /// Where OneChannelForward can.
  bool suits_one_channel_forward() const {
    return is_one_channel() && builder_.computed() == Type::f32 && !builder_.in_blocks(fused_layer_.output) &&
           OneChannelForward::suits(one_channel()) && usable_one_channel_forward() != nullptr;
  }

  /// Where OneChannelGradient can compute the gradient to the weights.
  bool suits_one_channel_gradient() const {
    return is_one_channel() && builder_.computed() == Type::f32 && conv_.filters % OneChannelGradient::kFilters == 0 &&
           !builder_.in_blocks(fused_layer_.output) && !usable_one_channel_gradients().empty();
  }

  void to_weights_of_one_channel(Calls& calls, const memory& gradient) {
    OneChannelGradientCall call{.kernel = usable_one_channel_gradients().back(),
                                .of = one_channel(),
                                .images = builder_.rows(),
                                .threads = usable_threads(),
                                .input = operand_input(calls),
                                .gradient = gradient,
                                .weights = weights_gradient(),
                                .bias = bias_gradient(),
                                .of_parts = {}};
    call.of_parts = builder_.places().take(builder_.matrix(OneChannelGradientCall::kParts, call.sums(), Type::f32));
    builder_.choose_own(fused_layer_, "gradient of the weights", call.kernel->name);
    calls.emplace_back(OwnWork{{call.input, call.gradient, call.weights, call.of_parts, call.bias}, std::move(call)});
  }

  void forward_of_one_channel(Calls& calls) {
    const OneChannelConvolution of = one_channel();
    const auto place = [&](std::size_t count, Type type) {
      return builder_.places().take(builder_.matrix(1, count, type));
    };
    OneChannelCall call{.of = of,
                        .images = builder_.rows(),
                        .threads = usable_threads(),
                        .input = builder_.value_as(fused_layer_.inputs.front(), input_),
                        .weights = builder_.weights(fused_layer_.first_parameter, plain_weights(Type::bf16)),
                        .bias = bias(),
                        .packed = place(of.packed_words(), Type::s32),
                        .padded_bias = place(OneChannelConvolution::kLanes, Type::f32),
                        .output = builder_.value_as(fused_layer_.output, output_)};
    builder_.choose_own(fused_layer_, "forward", "own:avx512_bf16");
    calls.emplace_back(
        OwnWork{{call.input, call.weights, call.packed, call.padded_bias, call.output, call.bias}, std::move(call)});
  }

  void forward_of_one_channel_f32(Calls& calls) {
    const memory kept = stored_output(), wide = builder_.result(kept);
    const OneChannelConvolution of = one_channel();
    OneChannelForwardCall call{
        .kernel = usable_one_channel_forward(),
        .of = of,
        .images = builder_.rows(),
        .threads = usable_threads(),
        .input = operand_input(calls),
        .weights = operand_weights(calls),
        .bias = bias(),
        .packed = builder_.places().take(builder_.matrix(1, OneChannelForward::packed_floats(of), Type::f32)),
        .output = wide};
    builder_.choose_own(fused_layer_, "forward", call.kernel->name);
    calls.emplace_back(OwnWork{{call.input, call.weights, call.packed, call.output, call.bias}, std::move(call)});
    finish_own_forward(calls, wide, kept);
  }

  /// `Passes`, here and below: LanePasses or PatchPasses.
  template <class Passes>
  void forward_by(const Passes& passes, Calls& calls) {
    builder_.choose_own(fused_layer_, "forward", passes.name());
    const memory kept = stored_output(), wide = builder_.result(kept);
    const memory input = operand_input(calls), weights = operand_weights(calls);
    passes.forward(calls, input, weights, bias(), wide);
    finish_own_forward(calls, wide, kept);
  }

  /// What kernels of our own do not do.
  void finish_own_forward(Calls& calls, const memory& wide, const memory& kept) {
    if (!LanePasses::takes(fused_layer_.activation)) add_activation(builder_, calls, fused_layer_.activation, wide);
    builder_.convert(calls, wide, kept);
  }

  template <class Passes>
  void to_weights_by(const Passes& passes, Calls& calls, const memory& gradient) {
    builder_.choose_own(fused_layer_, "gradient of the weights", passes.name());
    passes.to_weights(calls, operand_input(calls), gradient, weights_gradient(), bias_gradient());
  }

  void to_input_in_lanes(Calls& calls, const memory& gradient, const memory& input_gradient) {
    builder_.choose_own(fused_layer_, "gradient of the input", lanes_.name());
    const memory kept{builder_.as_stored(input_), builder_.engine(), input_gradient.get_data_handle()};
    const memory wide = builder_.result(kept);
    lanes_.to_input(calls, gradient, operand_weights(calls), wide);
    builder_.convert(calls, wide, kept);
  }

  /// `image`: of the gradient to the input.
  void to_input_by_patches(Calls& calls, const memory& gradient, const memory& input_gradient,
                           const memory::desc& image) {
    builder_.choose_own(fused_layer_, "gradient of the input", patches_.name());
    const memory::desc written = conv_.kernel.height == 1 ? plain_image(image) : image;
    const Output to =
        output_of({builder_.as_stored(image), builder_.engine(), input_gradient.get_data_handle()}, written);
    patches_.to_input(calls, gradient, operand_weights(calls), to.written);
    keep(calls, to);
  }
  static memory::desc plain_image(const memory::desc& image) {
    return {dims_of(image), type_of(image), memory::format_tag::nhwc};
  }

  /// With images as they lie, or where oneDNN has no more than reference code for that, in a layout of its own; by
  /// Winograd's algorithm where that gains.
  template <class Make>
  auto best(const memory::desc& read, Make&& make) const {
    const auto any = [](const memory::desc& desc) {
      return memory::desc{dims_of(desc), type_of(desc), memory::format_tag::any};
    };
    if (winograd_) return make(dnnl::algorithm::convolution_winograd, any(read), any(output_));
    auto direct = make(dnnl::algorithm::convolution_direct, read, output_);
    if (!is_reference_code(direct.impl_info_str())) return direct;
    return make(dnnl::algorithm::convolution_direct, any(read), any(output_));
  }

  Described<convolution_forward> forward_descriptor(const Read& read, Activation activation) const {
    return best(read.image, [&](dnnl::algorithm algorithm, const memory::desc& input, const memory::desc& output) {
      return describe<convolution_forward>(
          builder_.engine(), builder_.attributes(activation), dnnl::prop_kind::forward_training, algorithm, input,
          weights_in(builder_.computed()), bias_, output, read.strides, dilations(), padding(), padding());
    });
  }

  /// oneDNN lists its convolution by products of small matrices first. The direct one is faster where sums are short,
  /// and in bf16 where a kernel of one element leaves out elements.
  Described<convolution_forward> fastest_forward() const {
    auto first = forward_descriptor({input_, strides()}, fused_layer_.activation);
    const std::string name = first.impl_info_str();
    const bool bf16 = name.ends_with("avx512_core_bf16");
    if (!name.starts_with("brgconv") || !(bf16 || name.ends_with("avx512_core"))) return first;
    const std::uint64_t few_channels = bf16 ? 16 : 8;
    if (channels() > few_channels && !(bf16 && leaves_out_pixels())) return first;
    auto direct = forward_descriptor({input_, strides()}, fused_layer_.activation);
    while (direct.next_impl())
      if (std::string_view{direct.impl_info_str()}.starts_with(bf16 ? "jit_bf16:" : "jit:avx512_core")) return direct;
    return first;
  }

  /// Whether oneDNN computes the gradient to the weights faster from images that are described as blocks of channels.
  /// Of one block these are the same bytes.
  bool is_faster_in_blocks() const {
    return channels() == kBlockChannels && conv_.filters == kBlockChannels && builder_.computed() == Type::bf16 &&
           !has_amx_instructions();
  }

  void to_weights(Calls& calls, const memory& gradient) {
    const auto hint = forward_descriptor({input_, strides()}, Activation::none);
    const auto described = [&](bool in_blocks) {
      const auto layout = [&](const memory::desc& image) {
        return in_blocks ? memory::desc{dims_of(image), type_of(image), memory::format_tag::nChw16c} : image;
      };
      return best(input_, [&](dnnl::algorithm algorithm, const memory::desc& input, const memory::desc& output) {
        return describe_backward<convolution_backward_weights>(
            hint, builder_.engine(), builder_.attributes(), algorithm, layout(input), weights_in(Type::f32), bias_,
            layout(output), strides(), dilations(), padding(), padding());
      });
    };
    bool in_blocks = is_faster_in_blocks();
    auto descriptor = described(in_blocks);
    if (in_blocks && is_reference_code(descriptor.impl_info_str())) descriptor = described(in_blocks = false);
    builder_.choose(descriptor, fused_layer_, "gradient of the weights");
    const memory input = in_blocks ? builder_.value_as(fused_layer_.inputs.front(), descriptor.src_desc())
                                   : arranged_input(calls, descriptor.src_desc());
    const memory from = in_blocks ? builder_.places().alias(gradient, descriptor.diff_dst_desc())
                                  : builder_.arranged(calls, gradient, descriptor.diff_dst_desc());
    const Output to = output_of(weights_gradient(), descriptor.diff_weights_desc());
    BoundArguments arguments{{DNNL_ARG_SRC, input},
                             {DNNL_ARG_DIFF_DST, from},
                             {DNNL_ARG_DIFF_WEIGHTS, to.written},
                             {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}};
    if (conv_.bias) {
      arguments.emplace_back(DNNL_ARG_DIFF_BIAS,
                             builder_.gradient(fused_layer_.first_parameter + 1, descriptor.diff_bias_desc()));
    }
    calls.emplace_back(Product{{convolution_backward_weights{descriptor}, arguments}});
    keep(calls, to);
  }

  /// `read`: the image of `input_gradient`, which may have only the pixels that are read.
  void to_input(Calls& calls, const memory& gradient, const memory& input_gradient, const Read& read) {
    const auto hint = forward_descriptor(read, Activation::none);
    auto descriptor =
        best(read.image, [&](dnnl::algorithm algorithm, const memory::desc& input, const memory::desc& output) {
          return describe_backward<convolution_backward_data>(hint, builder_.engine(), builder_.attributes(), algorithm,
                                                              input, weights_in(builder_.computed()), output,
                                                              read.strides, dilations(), padding(), padding());
        });
    builder_.choose(descriptor, fused_layer_, "gradient of the input");
    const memory from = builder_.arranged(calls, gradient, descriptor.diff_dst_desc());
    const memory weights = packed_weights(calls, descriptor.weights_desc());
    const Output to = output_of({builder_.as_stored(read.image), builder_.engine(), input_gradient.get_data_handle()},
                                descriptor.diff_src_desc());
    calls.emplace_back(Product{{convolution_backward_data{descriptor},
                                {{DNNL_ARG_DIFF_DST, from},
                                 {DNNL_ARG_WEIGHTS, weights},
                                 {DNNL_ARG_DIFF_SRC, to.written},
                                 {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}}}});
    keep(calls, to);
  }

  memory arranged_input(Calls& calls, const memory::desc& wanted) {
    return builder_.arranged(calls, operand_input(calls), wanted);
  }
  memory operand_input(Calls& calls) const {
    return builder_.operand(calls, builder_.value_as(fused_layer_.inputs.front(), builder_.as_stored(input_)));
  }
  memory stored_output() const { return builder_.value_as(fused_layer_.output, builder_.as_stored(output_)); }
  /// Empty if there is none.
  memory bias() const { return conv_.bias ? builder_.bias(fused_layer_.first_parameter + 1, bias_) : memory{}; }
  memory weights_gradient() const { return builder_.gradient(fused_layer_.first_parameter, plain_weights(Type::f32)); }
  /// Empty if there is none.
  memory bias_gradient() const {
    return conv_.bias ? builder_.gradient(fused_layer_.first_parameter + 1, bias_) : memory{};
  }
  memory packed_weights(Calls& calls, const memory::desc& wanted) {
    return builder_.arranged(calls, operand_weights(calls), wanted);
  }
  memory operand_weights(Calls& calls) const {
    return builder_.operand(calls, builder_.weights(fused_layer_.first_parameter, plain_weights(builder_.computed())));
  }
  Output output_of(const memory& kept, const memory::desc& written) const {
    const memory wide = builder_.result(kept);
    return {wide.get_desc() == written ? wide : builder_.places().take(written), wide, kept};
  }
  void keep(Calls& calls, const Output& to) {
    builder_.arrange(calls, to.written, to.wide);
    builder_.convert(calls, to.wide, to.kept);
  }

  std::uint32_t channels() const { return fused_layer_.input_shape.extents[2]; }
  dims weights_dims() const {
    const auto of_group = static_cast<memory::dim>(channels() / conv_.groups);
    if (conv_.groups == 1) return {conv_.filters, of_group, conv_.kernel.height, conv_.kernel.width};
    return {conv_.groups, conv_.filters / conv_.groups, of_group, conv_.kernel.height, conv_.kernel.width};
  }
  /// The layout of the parameter.
  memory::desc plain_weights(Type type) const {
    return {weights_dims(), type, conv_.groups == 1 ? memory::format_tag::abcd : memory::format_tag::abcde};
  }
  memory::desc weights_in(Type type) const { return {weights_dims(), type, memory::format_tag::any}; }
  dims strides() const { return {conv_.stride.height, conv_.stride.width}; }
  /// oneDNN counts the elements that lie between two that are read.
  dims dilations() const { return {conv_.dilation.height - 1, conv_.dilation.width - 1}; }
  dims padding() const { return {conv_.padding.height, conv_.padding.width}; }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const Conv2d conv_;
  const memory::desc input_, output_, bias_;  // without a bias, bias_ has no dimensions
  const bool winograd_;
  const LanePasses lanes_;
  const PatchPasses patches_;
};

}  // namespace

std::unique_ptr<LayerCalls> make_convolution(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                             const Conv2d& conv) {
  return std::make_unique<ConvolutionCalls>(builder, fused_layer, conv);
}

}  // namespace troupe::cpu
