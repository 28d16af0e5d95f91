#include "devices/cpu/layers/patch_convolution.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "devices/cpu/kernels/patches.hpp"
#include "devices/cpu/kernels/weight_layouts.hpp"
#include "devices/cpu/layers/lane_convolution.hpp"
#include "devices/cpu/parallel.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;
using Type = ProgramBuilder::Type;

/// Where patches are in images [count, height, width, channels], for kernels of one element or of 3 x 3.
struct PatchPlaces {
  LaneConvolution of;
  std::size_t images;

  std::size_t taps() const { return of.kernel_height * of.kernel_width; }
  std::size_t columns() const { return of.channels * taps(); }
  std::size_t rows() const { return images * of.output_height(); }
  std::size_t pixels() const { return rows() * of.output_width(); }
  std::size_t input_pixels() const { return images * of.height * of.width; }

  /// The places of a patch: its output pixel is the `x`-th of row `row` of all images. `channels`: elements of a pixel
  /// of `images`. Places outside of the image are at `outside`.
  template <class Element>
  std::array<Element*, kPatchTaps> find(std::size_t row, std::size_t x, Element* all, std::size_t channels,
                                        Element* outside) const {
    std::array<Element*, kPatchTaps> found{};
    Element* const image = all + row / of.output_height() * of.height * of.width * channels;
    const std::size_t top = row % of.output_height() * of.stride_height, left = x * of.stride_width;
    for (std::size_t t = 0; t < taps(); ++t) {
      // Below 0 these become very large.
      const std::size_t at_y = top + t / of.kernel_width - of.padding_height;
      const std::size_t at_x = left + t % of.kernel_width - of.padding_width;
      found[t] = at_y < of.height && at_x < of.width ? image + (at_y * of.width + at_x) * channels : outside;
    }
    return found;
  }
};

/// Copies the patches of all images, in the order of the weights.
template <class Element>
struct GatherPatches {
  const PatchKernels<Element>* kernels;
  PatchPlaces places;
  std::size_t threads;
  memory input, patches, zeros;  // zeros: [channels]

  void operator()(const Kernels&) const {
    const std::size_t channels = places.of.channels;
    auto* const outside = data_of<Element>(zeros);
    std::fill_n(outside, channels, Element{});
    for_each_in_parallel(threads, places.rows(), [&](std::size_t row, std::size_t) {
      auto* to = data_of<Element>(patches) + row * places.of.output_width() * places.columns();
      for (std::size_t x = 0; x < places.of.output_width(); ++x, to += places.columns()) {
        const auto from = places.find<const Element>(row, x, data_of<Element>(input), channels, outside);
        if (places.taps() == 1)
          std::memcpy(to, from[0], channels * sizeof(Element));
        else
          kernels->gather(from.data(), channels, to);
      }
    });
  }
};

/// The gradient to the input of a kernel of 3 x 3, some channels at a time: gradients to their patches, which stay in
/// the second-level cache, are added up where they came from. Some channels are one thread's work, so that no sum
/// depends on the number of threads.
struct PatchesToInput {
  const PanelKernels* panels;
  const PatchKernels<float>* patches;
  PatchPlaces places;
  std::size_t filters, element_bytes, threads;
  memory gradient, weights, input_gradient, of_patches, sums, room;

  static constexpr std::size_t kColumns = 576;  // of patches, at once
  static constexpr std::size_t kTerms = 1024;   // of a sum, at once
  std::size_t channels() const { return std::min(places.of.channels, kColumns / kPatchTaps); }
  std::size_t parts() const { return (places.of.channels + channels() - 1) / channels(); }
  std::size_t patch_elements() const { return places.pixels() * channels() * kPatchTaps; }
  /// With the places outside of images.
  std::size_t sum_elements() const { return (places.input_pixels() + 1) * channels(); }
  std::size_t room_words() const { return PanelKernels::room_words(std::min(filters, kTerms)); }

  void operator()(const Kernels& kernels) const {
    for_each_in_parallel(std::min(threads, parts()), parts(), [&](std::size_t part, std::size_t thread) {
      const std::size_t first = part * channels(), count = std::min(channels(), places.of.channels - first);
      auto* const columns = data_of<float>(of_patches) + thread * patch_elements();
      auto* const to = data_of<float>(sums) + thread * sum_elements();
      multiply(first, count, columns, data_of<std::uint32_t>(room) + thread * room_words());
      add_up(count, columns, to);
      keep(kernels, first, count, to);
    });
  }

  void multiply(std::size_t first, std::size_t count, float* columns, std::uint32_t* words) const {
    PanelProduct product{.end_row = places.pixels(),
                         .end_column = count * kPatchTaps,
                         .a_row = filters / panels->terms_of_word,
                         .a_term = 1,
                         .b_row = places.columns(),
                         .to_row = count * kPatchTaps};
    const auto* const from = data_of<const std::byte>(weights) + first * kPatchTaps * element_bytes;
    for (std::size_t term = 0; term < filters; term += kTerms) {
      product.first_term = term;
      product.end_term = std::min(filters, term + kTerms);
      product.adds = term > 0;
      panels->multiply(product, {data_of<const void>(gradient), from, columns, nullptr, words});
    }
  }

  void add_up(std::size_t count, const float* columns, float* to) const {
    std::fill_n(to, (places.input_pixels() + 1) * count, 0.0F);
    float* const outside = to + places.input_pixels() * count;
    for (std::size_t row = 0; row < places.rows(); ++row) {
      for (std::size_t x = 0; x < places.of.output_width(); ++x, columns += count * kPatchTaps)
        patches->scatter(columns, count, places.find<float>(row, x, to, count, outside).data());
    }
  }

  void keep(const Kernels& kernels, std::size_t first, std::size_t count, const float* from) const {
    const bool f32 = is_f32(input_gradient);
    for (std::size_t pixel = 0; pixel < places.input_pixels(); ++pixel, from += count) {
      const std::size_t at = pixel * places.of.channels + first;
      if (f32)
        std::memcpy(data_of<float>(input_gradient) + at, from, count * sizeof(float));
      else
        kernels.round(data_of<std::uint16_t>(input_gradient) + at, from, count);
    }
  }
};

/// The outputs, of a row or a column of them, for which an element of a kernel without stride is inside of the image.
struct Inside {
  std::size_t first, end;

  Inside(std::size_t element, std::size_t padding, std::size_t inputs, std::size_t outputs)
      : first(element < padding ? padding - element : 0),
        end(std::max(first, std::min(outputs, inputs + padding - element))) {}
  std::size_t count() const { return end - first; }
};

/// The forward pass in bf16 of a kernel of 3 x 3 without stride, some filters at a time, whose weights stay in the
/// second-level cache. The elements of the kernel are added one after another, each to the pixels for which it is
/// inside of the image: of an image of 7 x 7 with padding, a fifth of the products are with zeros.
struct PanelConvolution {
  const PanelKernels* panels;
  const WeightLayoutKernels* layouts;
  PatchPlaces places;
  std::size_t threads;
  memory input, weights, output, packed, sums;

  static constexpr std::size_t kFilters = PanelKernels::kMostColumns;  // at once
  std::size_t parts() const { return places.of.filters / kFilters; }
  std::size_t tap_words() const { return places.of.channels / 2 * kFilters; }
  std::size_t packed_words() const { return places.taps() * tap_words(); }
  std::size_t sum_elements() const { return places.pixels() * kFilters; }

  void operator()(const Kernels& kernels) const {
    for_each_in_parallel(std::min(threads, parts()), parts(), [&](std::size_t part, std::size_t thread) {
      auto* const words = data_of<std::uint32_t>(packed) + thread * packed_words();
      auto* const to = data_of<float>(sums) + thread * sum_elements();
      pack(part * kFilters, words);
      std::fill_n(to, sum_elements(), 0.0F);
      for (std::size_t tap = 0; tap < places.taps(); ++tap) add_tap(tap, words + tap * tap_words(), to);
      auto* const outputs = data_of<std::uint16_t>(output) + part * kFilters;
      for (std::size_t pixel = 0; pixel < places.pixels(); ++pixel)
        kernels.round(outputs + pixel * places.of.filters, to + pixel * kFilters, kFilters);
    });
  }

  void pack(std::size_t filter, std::uint32_t* to) const {
    const ConvolutionWeights of{kFilters, places.of.channels, places.taps()};
    const auto* const from = data_of<const std::uint16_t>(weights) + filter * places.columns();
    for (std::size_t group = 0; group < of.groups(); ++group)
      layouts->to_pairs_of_channels(of, group, kFilters, from, reinterpret_cast<std::uint16_t*>(to));
  }

  void add_tap(std::size_t tap, const std::uint32_t* b, float* to) const {
    const LaneConvolution& of = places.of;
    const std::size_t top = tap / of.kernel_width, left = tap % of.kernel_width, width = of.output_width();
    const Inside rows{top, of.padding_height, of.height, of.output_height()};
    const Inside columns{left, of.padding_width, of.width, width};
    // Whole rows lie one after another, if they are whole in the input too.
    const bool whole = columns.count() == width && columns.count() == of.width;
    const std::size_t at_once = whole ? std::max<std::size_t>(1, rows.count()) : 1;
    const PanelProduct product{.end_row = at_once * columns.count(),
                               .end_column = kFilters,
                               .end_term = of.channels,
                               .a_row = of.channels / 2,
                               .a_term = 1,
                               .to_row = kFilters,
                               .b_is_packed = true,
                               .adds = true};
    for (std::size_t image = 0; image < places.images; ++image) {
      for (std::size_t y = rows.first; y < rows.end; y += at_once) {
        const std::size_t from_y = y + top - of.padding_height, from_x = columns.first + left - of.padding_width;
        const std::size_t from = (image * of.height + from_y) * of.width + from_x;
        const std::size_t pixel = (image * of.output_height() + y) * width + columns.first;
        panels->multiply(product, {data_of<const std::uint16_t>(input) + from * of.channels, b, to + pixel * kFilters,
                                   nullptr, nullptr});
      }
    }
  }
};

template <class Element>
void add_gathering(Calls& calls, const PatchPlaces& places, std::size_t threads, const memory& input,
                   const memory& patches, const memory& zeros) {
  calls.emplace_back(
      OwnWork{{input, patches, zeros},
              GatherPatches<Element>{usable_patch_kernels<Element>().back(), places, threads, input, patches, zeros}});
}

DenseShape dense_shape(const ProgramBuilder& builder, const LaneConvolution& of) {
  return {.rows = builder.rows() * of.output_height() * of.output_width(),
          .inputs = of.count_weights() / of.filters,
          .units = of.filters,
          .relu = of.relu};
}

bool has_patch_kernels(bool bf16) {
  return bf16 ? !usable_patch_kernels<std::uint16_t>().empty() : !usable_patch_kernels<float>().empty();
}

// The rule of PatchPasses, read off measurements on a Zen 5 with AVX-512 and with AVX2 alone. With more pixels the
// copies of weights that oneDNN's convolutions need take little beside the products. Of the output, for kernels of one
// element and of 3 x 3.
constexpr std::size_t kMostPixels = 1023, kMostPixelsOfPatches = 255;
constexpr std::size_t kLeastInputs = 512;  // of a sum; the weights of shorter ones are small

}  // namespace

PatchPasses::PatchPasses(ProgramBuilder& builder, const FusedLayer& fused_layer, const Conv2d& conv)
    : builder_(builder),
      of_(lane_convolution(fused_layer, conv)),
      shape_(dense_shape(builder, of_)),
      threads_(usable_threads()),
      panels_(builder, shape_) {
  const bool bf16 = builder.computed() == Type::bf16;
  if (usable_panel_kernels(bf16).empty() || !has_patch_kernels(bf16)) return;
  if (bf16 && (has_amx_instructions() || conv.filters % 2 != 0 || shape_.inputs % 2 != 0)) return;
  const bool is_simple = conv.groups == 1 && conv.dilation.height == 1 && conv.dilation.width == 1 &&
                         !builder.in_blocks(fused_layer.inputs.front()) && !builder.in_blocks(fused_layer.output);
  const bool has_kernel =
      (of_.kernel_height == 1 && of_.kernel_width == 1 && of_.padding_height == 0 && of_.padding_width == 0) ||
      (of_.kernel_height == 3 && of_.kernel_width == 3);
  const std::size_t most_pixels = of_.kernel_height == 1 ? kMostPixels : kMostPixelsOfPatches;
  gain_ = is_simple && has_kernel && shape_.rows <= most_pixels && shape_.inputs >= kLeastInputs;
  const bool has_whole_blocks =
      conv.filters % PanelConvolution::kFilters == 0 && of_.channels % ConvolutionWeights::kChannels == 0;
  takes_taps_ = gain_ && bf16 && of_.kernel_height == 3 && of_.stride_height * of_.stride_width == 1 &&
                has_whole_blocks && !conv.bias && fused_layer.activation == Activation::none &&
                usable_weight_layouts() != nullptr;
}

bool PatchPasses::is_plain() const noexcept {
  return shape_.inputs == of_.channels && of_.stride_height == 1 && of_.stride_width == 1;
}

memory PatchPasses::patches(Calls& calls, const memory& input) const {
  if (is_plain()) return input;
  const Type type = builder_.computed();
  const memory made = builder_.places().take(builder_.matrix(shape_.rows, shape_.inputs, type));
  const memory zeros = builder_.places().take(builder_.matrix(1, of_.channels, type));
  const PatchPlaces places{of_, builder_.rows()};
  if (type == Type::bf16)
    add_gathering<std::uint16_t>(calls, places, threads_, input, made, zeros);
  else
    add_gathering<float>(calls, places, threads_, input, made, zeros);
  return made;
}

void PatchPasses::forward(Calls& calls, const memory& input, const memory& weights, const memory& bias,
                          const memory& output) const {
  if (takes_taps_) return forward_by_taps(calls, input, weights, output);
  panels_.forward_of_rows(calls, patches(calls, input), weights, bias, output);
}

void PatchPasses::forward_by_taps(Calls& calls, const memory& input, const memory& weights,
                                  const memory& output) const {
  PanelConvolution call{.panels = usable_panel_kernels(true).back(),
                        .layouts = usable_weight_layouts(),
                        .places = {of_, builder_.rows()},
                        .threads = threads_,
                        .input = input,
                        .weights = weights,
                        .output = output,
                        .packed = {},
                        .sums = {}};
  call.packed = builder_.places().take(builder_.matrix(threads_, call.packed_words(), Type::s32));
  call.sums = builder_.places().take(builder_.matrix(threads_, call.sum_elements(), Type::f32));
  calls.emplace_back(OwnWork{{input, weights, output, call.packed, call.sums}, call, /*is_product=*/true});
}

void PatchPasses::to_weights(Calls& calls, const memory& input, const memory& gradient, const memory& weights,
                             const memory& bias) const {
  panels_.to_weights(calls, patches(calls, input), gradient, weights, bias);
}

void PatchPasses::to_input(Calls& calls, const memory& gradient, const memory& weights,
                           const memory& input_gradient) const {
  if (shape_.inputs == of_.channels) return panels_.to_input(calls, gradient, weights, input_gradient);
  const bool bf16 = builder_.computed() == Type::bf16;
  PatchesToInput call{.panels = usable_panel_kernels(bf16).back(),
                      .patches = usable_patch_kernels<float>().back(),
                      .places = {of_, builder_.rows()},
                      .filters = of_.filters,
                      .element_bytes = bf16 ? sizeof(std::uint16_t) : sizeof(float),
                      .threads = threads_,
                      .gradient = gradient,
                      .weights = weights,
                      .input_gradient = input_gradient,
                      .of_patches = {},
                      .sums = {},
                      .room = {}};
  const auto take = [&](std::size_t elements) {
    return builder_.places().take(builder_.matrix(threads_, elements, Type::f32));
  };
  call.of_patches = take(call.patch_elements());
  call.sums = take(call.sum_elements());
  call.room = take(call.room_words());
  calls.emplace_back(
      OwnWork{{gradient, weights, input_gradient, call.of_patches, call.sums, call.room}, call, /*is_product=*/true});
}

}  // namespace troupe::cpu
