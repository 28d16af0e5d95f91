#include "devices/cpu/layers/patch_convolution.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "devices/cpu/image_layouts.hpp"
#include "devices/cpu/kernels/patches.hpp"
#include "devices/cpu/kernels/weight_layouts.hpp"
#include "devices/cpu/layers/lane_convolution.hpp"
#include "devices/cpu/parallel.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;
using Type = ProgramBuilder::Type;

/// Where patches are in images [count, height, width, channels], or in images in blocks of channels
/// (image_layouts.hpp), for kernels of one element or of 3 x 3.
struct PatchPlaces {
  LaneConvolution of;
  std::size_t images;
  std::size_t block;  // neighbouring channels of an input pixel: all of them, or those of a block

  std::size_t taps() const { return of.kernel_height * of.kernel_width; }
  std::size_t columns() const { return of.channels * taps(); }
  std::size_t rows() const { return images * of.output_height(); }
  std::size_t pixels() const { return rows() * of.output_width(); }
  std::size_t image_pixels() const { return of.height * of.width; }
  std::size_t input_pixels() const { return images * image_pixels(); }
  std::size_t image_of(std::size_t row) const { return row / of.output_height(); }
  /// The element of an input pixel, counted over all images.
  std::size_t place(std::size_t pixel, std::size_t channel) const {
    const std::size_t plane = pixel / image_pixels() * (of.channels / block) + channel / block;
    return (plane * image_pixels() + pixel % image_pixels()) * block + channel % block;
  }

  /// The places of a patch: its output pixel is the `x`-th of row `row` of all images, `image` the first element of its
  /// image, whose pixels have `channels` elements. Places outside of the image are at `outside`.
  template <class Element>
  std::array<Element*, kPatchTaps> find(std::size_t row, std::size_t x, Element* image, std::size_t channels,
                                        Element* outside) const {
    std::array<Element*, kPatchTaps> found{};
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
    auto* const outside = data_of<Element>(zeros);
    std::fill_n(outside, places.of.channels, Element{});
    for_each_in_parallel(threads, places.rows(), [&](std::size_t row, std::size_t) {
      const auto* image = data_of<const Element>(input) + places.image_of(row) * places.of.input_elements();
      auto* to = data_of<Element>(patches) + row * places.of.output_width() * places.columns();
      for (std::size_t x = 0; x < places.of.output_width(); ++x, to += places.columns())
        gather(places.find<const Element>(row, x, image, places.block, outside), outside, to);
    });
  }

  void gather(std::array<const Element*, kPatchTaps> from, const Element* outside, Element* to) const {
    const std::size_t plane = places.image_pixels() * places.block;
    for (std::size_t channel = 0; channel < places.of.channels; channel += places.block) {
      if (places.taps() == 1)
        std::memcpy(to + channel, from[0], places.block * sizeof(Element));
      else
        kernels->gather(from.data(), places.block, to + channel * kPatchTaps);
      for (std::size_t t = 0; t < places.taps(); ++t)
        if (from[t] != outside) from[t] += plane;
    }
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
  static constexpr std::size_t kTerms = 256;    // of a sum, at once
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
      float* const image = to + places.image_of(row) * places.image_pixels() * count;
      for (std::size_t x = 0; x < places.of.output_width(); ++x, columns += count * kPatchTaps)
        patches->scatter(columns, count, places.find<float>(row, x, image, count, outside).data());
    }
  }

  void keep(const Kernels& kernels, std::size_t first, std::size_t count, const float* from) const {
    const bool f32 = is_f32(input_gradient);
    const std::size_t each = std::min(count, places.block);
    for (std::size_t pixel = 0; pixel < places.input_pixels(); ++pixel) {
      for (std::size_t channel = 0; channel < count; channel += each, from += each) {
        const std::size_t at = places.place(pixel, first + channel);
        if (f32)
          std::memcpy(data_of<float>(input_gradient) + at, from, each * sizeof(float));
        else
          kernels.round(data_of<std::uint16_t>(input_gradient) + at, from, each);
      }
    }
  }
};

/// The outputs, of a row or a column of them, for which an element of a kernel is inside of the image.
struct Inside {
  std::size_t first, end;

  Inside(std::size_t element, std::size_t padding, std::size_t stride, std::size_t inputs, std::size_t outputs)
      : first(element < padding ? (padding - element + stride - 1) / stride : 0),
        end(std::max(first, std::min(outputs, (inputs + padding - element + stride - 1) / stride))) {}
  std::size_t count() const { return end - first; }
};

/// An element of a kernel, and the outputs of an image for which it is inside of it.
struct Tap {
  std::size_t top, left;
  Inside rows, columns;

  Tap(const LaneConvolution& of, std::size_t tap)
      : top(tap / of.kernel_width),
        left(tap % of.kernel_width),
        rows(top, of.padding_height, of.stride_height, of.height, of.output_height()),
        columns(left, of.padding_width, of.stride_width, of.width, of.output_width()) {}
  std::size_t pixels() const { return rows.count() * columns.count(); }
  /// The pixel of an image that output (y, x) reads.
  std::size_t read_by(const LaneConvolution& of, std::size_t y, std::size_t x) const {
    return (y * of.stride_height + top - of.padding_height) * of.width + x * of.stride_width + left - of.padding_width;
  }
};

/// For each element of a kernel of 3 x 3 the pixels that it reads, one after another: [images, outputs for which it is
/// inside of the image, channels]. `place(tap)`: the first element of those of a tap.
template <class Element>
struct GatherTaps {
  PatchPlaces places;
  std::size_t threads;
  memory input, pixels;

  static std::size_t place(const PatchPlaces& places, std::size_t tap) {
    std::size_t before = 0;
    for (std::size_t t = 0; t < tap; ++t) before += Tap{places.of, t}.pixels();
    return before * places.images * places.of.channels;
  }

  void operator()(const Kernels&) const {
    for_each_in_parallel(threads, places.taps() * places.images, [&](std::size_t index, std::size_t) {
      const std::size_t number = index / places.images, image = index % places.images;
      const Tap tap{places.of, number};
      const std::size_t channels = places.of.channels;
      auto* to = data_of<Element>(pixels) + place(places, number) + image * tap.pixels() * channels;
      for (std::size_t y = tap.rows.first; y < tap.rows.end; ++y)
        for (std::size_t x = tap.columns.first; x < tap.columns.end; ++x, to += channels)
          copy(image * places.image_pixels() + tap.read_by(places.of, y, x), to);
    });
  }

  void copy(std::size_t pixel, Element* to) const {
    for (std::size_t channel = 0; channel < places.of.channels; channel += places.block)
      std::memcpy(to + channel, data_of<const Element>(input) + places.place(pixel, channel),
                  places.block * sizeof(Element));
  }
};

/// The forward pass of a kernel of 3 x 3, some filters and some channels at a time, whose weights stay in the
/// second-level cache. The elements of the kernel are added one after another, each to the pixels for which it is
/// inside of the image: of an image of 7 x 7 with padding, a fifth of the products are with zeros.
template <class Element>
struct TapConvolution {
  const PanelKernels* panels;
  const WeightLayoutKernels* layouts;
  PatchPlaces places;
  std::size_t threads;
  bool gathered;  // the input is that of GatherTaps
  memory input, weights, output, packed, sums;

  static constexpr std::size_t kFilters = PanelKernels::kMostColumns;  // at once
  /// Words of channels at once. The pixels that GatherTaps has copied are nine times as many as those of the input: so
  /// many that fewer of their channels stay in the second-level cache.
  static constexpr std::size_t kWords = 256, kGatheredWords = 128;
  std::size_t parts() const { return places.of.filters / kFilters; }
  std::size_t parts_at_once() const { return std::min(threads, parts()); }
  std::size_t channels_at_once() const {
    return std::min((gathered ? kGatheredWords : kWords) * panels->terms_of_word, places.of.channels);
  }
  std::size_t tap_words(std::size_t channels) const { return channels / panels->terms_of_word * kFilters; }
  std::size_t packed_words() const { return places.taps() * tap_words(channels_at_once()); }
  std::size_t sum_elements() const { return places.pixels() * kFilters; }

  void operator()(const Kernels& kernels) const {
    for_each_in_parallel(parts_at_once(), parts_at_once(), [&](std::size_t thread, std::size_t) {
      const std::size_t first_part = parts() * thread / parts_at_once(),
                        end_part = parts() * (thread + 1) / parts_at_once();
      float* const all = data_of<float>(sums);
      std::fill(all + first_part * sum_elements(), all + end_part * sum_elements(), 0.0F);
      for (std::size_t channel = 0; channel < places.of.channels; channel += channels_at_once())
        for (std::size_t part = first_part; part < end_part; ++part)
          add_channels(part, channel, data_of<std::uint32_t>(packed) + thread * packed_words());
      for (std::size_t part = first_part; part < end_part; ++part) keep(kernels, part);
    });
  }

  void add_channels(std::size_t part, std::size_t first, std::uint32_t* words) const {
    const std::size_t count = std::min(channels_at_once(), places.of.channels - first);
    pack(part * kFilters, first, count, words);
    for (std::size_t tap = 0; tap < places.taps(); ++tap)
      add_tap(tap, first, count, words + tap * tap_words(count), data_of<float>(sums) + part * sum_elements());
  }

  void pack(std::size_t filter, std::size_t channel, std::size_t channels, std::uint32_t* to) const {
    const ConvolutionWeights of{kFilters, channels, places.taps(), places.columns()};
    const auto* const from = data_of<const Element>(weights) + filter * places.columns() + channel * places.taps();
    for (std::size_t group = 0; group < of.groups(); ++group) {
      if constexpr (sizeof(Element) == sizeof(float))
        layouts->to_filters(of, group, {kFilters, channels}, from, reinterpret_cast<float*>(to));
      else
        layouts->to_pairs_of_channels(of, group, kFilters, from, reinterpret_cast<std::uint16_t*>(to));
    }
  }

  void add_tap(std::size_t number, std::size_t channel, std::size_t channels, const std::uint32_t* b, float* to) const {
    const LaneConvolution& of = places.of;
    const Tap tap{of, number};
    const std::size_t width = of.output_width(), words = of.channels / panels->terms_of_word;
    // Whole rows lie one after another, if they are whole in the input too.
    const bool whole = tap.columns.count() == width && (gathered || of.width == width);
    const std::size_t at_once = whole ? std::max<std::size_t>(1, tap.rows.count()) : 1;
    const PanelProduct product{.end_row = at_once * tap.columns.count(),
                               .end_column = kFilters,
                               .end_term = channels,
                               .a_row = words,
                               .a_term = 1,
                               .to_row = kFilters,
                               .b_is_packed = true,
                               .adds = true};
    const auto* from = data_of<const Element>(input) + channel;
    if (gathered) from += GatherTaps<Element>::place(places, number);
    for (std::size_t image = 0; image < places.images; ++image) {
      for (std::size_t y = tap.rows.first; y < tap.rows.end; y += at_once) {
        const std::size_t read = gathered ? image * tap.pixels() + (y - tap.rows.first) * tap.columns.count()
                                          : image * places.image_pixels() + tap.read_by(of, y, tap.columns.first);
        const std::size_t pixel = (image * of.output_height() + y) * width + tap.columns.first;
        panels->multiply(product, {from + read * of.channels, b, to + pixel * kFilters, nullptr, nullptr});
      }
    }
  }

  void keep(const Kernels& kernels, std::size_t part) const {
    auto* to = data_of<Element>(output) + part * kFilters;
    const float* from = data_of<float>(sums) + part * sum_elements();
    for (std::size_t pixel = 0; pixel < places.pixels(); ++pixel, to += places.of.filters, from += kFilters) {
      if constexpr (sizeof(Element) == sizeof(float))
        std::memcpy(to, from, kFilters * sizeof(float));
      else
        kernels.round(to, from, kFilters);
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

PatchPlaces places_of(const ProgramBuilder& builder, const LaneConvolution& of, bool in_blocks) {
  return {of, builder.rows(), in_blocks ? kBlockChannels : of.channels};
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
      in_blocks_(builder.in_blocks(fused_layer.inputs.front())),
      panels_(builder, shape_) {
  const bool bf16 = builder.computed() == Type::bf16;
  if (usable_panel_kernels(bf16).empty() || !has_patch_kernels(bf16)) return;
  if (bf16 && (has_amx_instructions() || conv.filters % 2 != 0 || shape_.inputs % 2 != 0)) return;
  const bool is_simple = conv.groups == 1 && conv.dilation.height == 1 && conv.dilation.width == 1 &&
                         !builder.in_blocks(fused_layer.output);
  const bool has_kernel =
      (of_.kernel_height == 1 && of_.kernel_width == 1 && of_.padding_height == 0 && of_.padding_width == 0) ||
      (of_.kernel_height == 3 && of_.kernel_width == 3);
  const std::size_t most_pixels = of_.kernel_height == 1 ? kMostPixels : kMostPixelsOfPatches;
  gain_ = is_simple && has_kernel && shape_.rows <= most_pixels && shape_.inputs >= kLeastInputs;
  const bool strides = of_.stride_height * of_.stride_width > 1;  // in bf16 patches are faster then
  const bool has_whole_blocks =
      conv.filters % PanelKernels::kMostColumns == 0 && of_.channels % ConvolutionWeights::kChannels == 0;
  takes_taps_ = gain_ && of_.kernel_height == 3 && has_whole_blocks && !conv.bias && (!bf16 || !strides) &&
                fused_layer.activation == Activation::none && usable_weight_layouts() != nullptr;
}

bool PatchPasses::is_plain() const noexcept {
  return shape_.inputs == of_.channels && of_.stride_height == 1 && of_.stride_width == 1 && !in_blocks_;
}

memory PatchPasses::patches(Calls& calls, const memory& input) const {
  if (is_plain()) return input;
  const Type type = builder_.computed();
  const memory made = builder_.places().take(builder_.matrix(shape_.rows, shape_.inputs, type));
  const memory zeros = builder_.places().take(builder_.matrix(1, of_.channels, type));
  if (type == Type::bf16)
    add_gathering<std::uint16_t>(calls, places_of(builder_, of_, in_blocks_), threads_, input, made, zeros);
  else
    add_gathering<float>(calls, places_of(builder_, of_, in_blocks_), threads_, input, made, zeros);
  return made;
}

void PatchPasses::forward(Calls& calls, const memory& input, const memory& weights, const memory& bias,
                          const memory& output) const {
  if (!takes_taps_) return panels_.forward_of_rows(calls, patches(calls, input), weights, bias, output);
  if (builder_.computed() == Type::bf16)
    forward_by_taps<std::uint16_t>(calls, input, weights, output);
  else
    forward_by_taps<float>(calls, input, weights, output);
}

template <class Element>
void PatchPasses::forward_by_taps(Calls& calls, const memory& input, const memory& weights,
                                  const memory& output) const {
  const bool gathered = in_blocks_ || of_.stride_height * of_.stride_width > 1;
  TapConvolution<Element> call{.panels = usable_panel_kernels(sizeof(Element) == 2).back(),
                               .layouts = usable_weight_layouts(),
                               .places = places_of(builder_, of_, in_blocks_),
                               .threads = threads_,
                               .gathered = gathered,
                               .input = gathered ? taps<Element>(calls, input) : input,
                               .weights = weights,
                               .output = output,
                               .packed = {},
                               .sums = {}};
  call.packed = builder_.places().take(builder_.matrix(threads_, call.packed_words(), Type::s32));
  call.sums = builder_.places().take(builder_.matrix(call.parts(), call.sum_elements(), Type::f32));
  calls.emplace_back(OwnWork{{call.input, weights, output, call.packed, call.sums}, call, /*is_product=*/true});
}

template <class Element>
memory PatchPasses::taps(Calls& calls, const memory& input) const {
  using Gather = GatherTaps<Element>;
  const PatchPlaces places = places_of(builder_, of_, in_blocks_);
  const std::size_t elements = Gather::place(places, places.taps());
  const memory made = builder_.places().take(builder_.matrix(1, elements, builder_.computed()));
  calls.emplace_back(OwnWork{{input, made}, Gather{places, threads_, input, made}});
  return made;
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
                      .places = places_of(builder_, of_, in_blocks_),
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
