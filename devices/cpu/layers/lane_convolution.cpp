#include "devices/cpu/layers/lane_convolution.hpp"

#include <algorithm>

#include "devices/cpu/parallel.hpp"

namespace troupe::cpu {

/// The images of a pass, divided into groups. A group is one thread's work, in that thread's scratch memory.
struct LanePasses::Groups {
  const LaneKernels* kernels;
  LaneConvolution of;
  std::size_t images, threads, element_bytes;

  std::size_t count(std::size_t each) const { return (images + each - 1) / each; }

  /// Calls act(group, images of the group, thread).
  template <class Act>
  void for_each(std::size_t each, Act&& act) const {
    for_each_in_parallel(threads, count(each), [&](std::size_t group, std::size_t thread) {
      act(group, std::min(each, images - group * each), thread);
    });
  }
  std::byte* image(const dnnl::memory& images_at, std::size_t index, std::size_t elements) const {
    return static_cast<std::byte*>(images_at.get_data_handle()) + index * elements * element_bytes;
  }
};

namespace {

using dnnl::memory;
using Groups = LanePasses::Groups;

template <class T = std::uint32_t>
T* address(const memory& of) {
  return of ? static_cast<T*>(of.get_data_handle()) : nullptr;
}

struct Forward {
  Groups groups;
  memory input, weights, bias, output, packed, scratch;

  void operator()(const Kernels&) const {
    const LaneKernels& kernels = *groups.kernels;
    kernels.pack_forward(groups.of, address<>(weights), address<>(packed));
    const std::size_t each = kernels.lanes, words = kernels.forward_words(groups.of);
    groups.for_each(each, [&](std::size_t group, std::size_t count, std::size_t thread) {
      kernels.forward(groups.of, count, groups.image(input, group * each, groups.of.input_elements()),
                      address<>(packed), address<float>(bias),
                      groups.image(output, group * each, groups.of.output_elements()),
                      address<>(scratch) + thread * words);
    });
  }
};

struct ToInput {
  Groups groups;
  memory gradient, weights, input_gradient, packed, scratch;

  void operator()(const Kernels&) const {
    const LaneKernels& kernels = *groups.kernels;
    kernels.pack_to_input(groups.of, address<>(weights), address<>(packed));
    const std::size_t each = kernels.lanes, words = kernels.to_input_words(groups.of);
    groups.for_each(each, [&](std::size_t group, std::size_t count, std::size_t thread) {
      kernels.to_input(groups.of, count, groups.image(gradient, group * each, groups.of.output_elements()),
                       address<>(packed), groups.image(input_gradient, group * each, groups.of.input_elements()),
                       address<>(scratch) + thread * words);
    });
  }
};

/// A block of filters is one thread's work, so that a sum does not depend on the number of threads.
struct ToWeights {
  Groups groups;
  memory input, gradient, weights, bias, input_lanes, gradient_lanes, scratch;

  void operator()(const Kernels&) const {
    const LaneKernels& kernels = *groups.kernels;
    const LaneConvolution& of = groups.of;
    const std::size_t each = kernels.lanes * kernels.elements_of_word;
    groups.for_each(each, [&](std::size_t group, std::size_t count, std::size_t) {
      kernels.arrange_input(of, count, groups.image(input, group * each, of.input_elements()),
                            address<>(input_lanes) + group * kernels.input_words(of));
      kernels.arrange_gradient(of, count, groups.image(gradient, group * each, of.output_elements()),
                               address<>(gradient_lanes) + group * kernels.gradient_words(of));
    });
    const std::size_t words = kernels.to_weights_words(of), count = groups.count(each);
    for_each_in_parallel(groups.threads, kernels.filter_blocks(of), [&](std::size_t block, std::size_t thread) {
      kernels.to_weights(of, count, address<>(input_lanes), address<>(gradient_lanes), block, address<float>(weights),
                         address<float>(bias), address<>(scratch) + thread * words);
    });
  }
};

/// The part of `count` that is work where `each` are computed at a time.
double used_part(std::size_t count, std::size_t each) {
  return static_cast<double>(count) / static_cast<double>((count + each - 1) / each * each);
}

// The rule of LanePasses, read off measurements on a Zen 4 with AVX-512 and with AVX2 alone.
constexpr double kLeastFilled = 0.75;       // of lanes, with images
constexpr double kMostUsedForward = 0.8;    // of oneDNN's vectors; above that it is faster
constexpr double kMostUsedBackward = 0.9;   // likewise
constexpr std::size_t kLeastProducts = 25;  // of a sum; there must be enough to do for the way into lanes and back
// The same for gradients to weights, which need another copy of all images.
constexpr std::size_t kLeastToWeights = 64;
constexpr std::size_t kMost = 128;                // channels or filters
constexpr std::size_t kMostWords = 1U << 20;      // of the input of a group
constexpr std::size_t kMostToWeights = 1U << 19;  // of the input of all groups, which each block of filters reads again

}  // namespace

LaneConvolution lane_convolution(const FusedLayer& fused_layer, const Conv2d& conv) {
  return {.height = fused_layer.input_shape.extents[0],
          .width = fused_layer.input_shape.extents[1],
          .channels = fused_layer.input_shape.extents[2],
          .kernel_height = conv.kernel.height,
          .kernel_width = conv.kernel.width,
          .stride_height = conv.stride.height,
          .stride_width = conv.stride.width,
          .padding_height = conv.padding.height,
          .padding_width = conv.padding.width,
          .filters = conv.filters,
          .relu = fused_layer.activation == Activation::relu};
}

LanePasses::LanePasses(ProgramBuilder& builder, const FusedLayer& fused_layer, const Conv2d& conv)
    : builder_(builder), of_(lane_convolution(fused_layer, conv)), threads_(usable_threads()) {
  const bool bf16 = builder.computed() == ProgramBuilder::Type::bf16;
  const auto usable = usable_lane_kernels(bf16);
  const bool is_plain = conv.groups == 1 && conv.dilation.height == 1 && conv.dilation.width == 1 &&
                        !builder.in_blocks(fused_layer.inputs.front()) && !builder.in_blocks(fused_layer.output);
  if (usable.empty() || !is_plain || (bf16 && has_amx_instructions())) return;
  kernels_ = usable.back();
  const std::size_t lanes = kernels_->lanes, elements = kernels_->elements_of_word;
  const std::size_t places = of_.kernel_height * of_.kernel_width;
  if (of_.channels > kMost || of_.filters > kMost || kernels_->input_words(of_) > kMostWords) return;
  const bool has_words = of_.channels % elements == 0 && of_.filters % elements == 0;
  const bool has_images = used_part(builder.rows(), lanes) >= kLeastFilled;
  const double channels = used_part(of_.channels, lanes), filters = used_part(of_.filters, lanes);
  // oneDNN's vectors have filters in the forward pass and in gradients to weights, channels in gradients to the input.
  forward_ = has_words && has_images && filters <= kMostUsedForward && of_.channels * places >= kLeastProducts;
  to_input_ = has_words && has_images && channels <= kMostUsedBackward && of_.filters * places >= kLeastProducts;
  const std::size_t groups = this->groups().count(lanes * elements);
  to_weights_ = used_part(builder.rows(), lanes * elements) >= kLeastFilled && filters <= kMostUsedBackward &&
                groups * kernels_->input_words(of_) <= kMostToWeights && of_.channels * places >= kLeastToWeights &&
                of_.width * of_.channels % elements == 0 && of_.output_elements() % elements == 0;
}

bool LanePasses::takes(Activation activation) noexcept {
  return activation == Activation::none || activation == Activation::relu;
}

memory LanePasses::words(std::size_t count) const {
  return builder_.places().take(builder_.matrix(1, count, ProgramBuilder::Type::s32));
}

void LanePasses::forward(Calls& calls, const memory& input, const memory& weights, const memory& bias,
                         const memory& output) const {
  const memory packed = words(of_.count_weights()), scratch = words(threads_ * kernels_->forward_words(of_));
  calls.emplace_back(OwnWork{{input, weights, bias, output, packed, scratch},
                             Forward{groups(), input, weights, bias, output, packed, scratch}});
}

void LanePasses::to_input(Calls& calls, const memory& gradient, const memory& weights,
                          const memory& input_gradient) const {
  const memory packed = words(of_.count_weights()), scratch = words(threads_ * kernels_->to_input_words(of_));
  calls.emplace_back(OwnWork{{gradient, weights, input_gradient, packed, scratch},
                             ToInput{groups(), gradient, weights, input_gradient, packed, scratch}});
}

void LanePasses::to_weights(Calls& calls, const memory& input, const memory& gradient, const memory& weights,
                            const memory& bias) const {
  const std::size_t count = groups().count(kernels_->lanes * kernels_->elements_of_word);
  const memory input_lanes = words(count * kernels_->input_words(of_));
  const memory gradient_lanes = words(count * kernels_->gradient_words(of_));
  const memory scratch = words(threads_ * kernels_->to_weights_words(of_));
  calls.emplace_back(
      OwnWork{{input, gradient, weights, bias, input_lanes, gradient_lanes, scratch},
              ToWeights{groups(), input, gradient, weights, bias, input_lanes, gradient_lanes, scratch}});
}

LanePasses::Groups LanePasses::groups() const {
  const std::size_t element_bytes = builder_.computed() == ProgramBuilder::Type::bf16 ? 2 : 4;
  return {kernels_, of_, builder_.rows(), threads_, element_bytes};
}

}  // namespace troupe::cpu
