#pragma once

#include "devices/cuda/kernels/numbers.hpp"

// Pools: windows over images [image, height, width, channels]. A thread for each pack of channels that is written,
// neighbours in memory by neighbouring threads.
namespace troupe::cuda {

struct PoolShape {
  std::uint32_t images, height, width, channels, out_height, out_width;
  std::uint32_t kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width;

  constexpr std::uint64_t count_in() const noexcept { return std::uint64_t{images} * height * width * channels; }
  constexpr std::uint64_t count_out() const noexcept {
    return std::uint64_t{images} * out_height * out_width * channels;
  }
};

/// An element of images.
struct PoolPlace {
  std::uint64_t image;
  std::uint32_t y, x, channel;
};
TROUPE_KERNEL_BODY PoolPlace place_of(std::uint64_t index, std::uint32_t height, std::uint32_t width,
                                      std::uint32_t channels) {
  const RowPlace pixel = place_in_rows(index, channels), line = place_in_rows(pixel.row, width),
                 image = place_in_rows(line.row, height);
  return {image.row, static_cast<std::uint32_t>(image.column), static_cast<std::uint32_t>(line.column),
          static_cast<std::uint32_t>(pixel.column)};
}

/// The part of a side that window `index` covers.
struct PoolSpan {
  std::uint32_t first, end;
};
TROUPE_KERNEL_BODY PoolSpan covered(std::uint32_t index, std::uint32_t side, std::uint32_t kernel, std::uint32_t stride,
                                    std::uint32_t padding) {
  const std::uint32_t first = index * stride, end = first + kernel;  // from the padding's start
  return {first > padding ? first - padding : 0, end - padding < side ? end - padding : side};
}
/// The windows that cover place `at` of a side.
TROUPE_KERNEL_BODY PoolSpan covering(std::uint32_t at, std::uint32_t count, std::uint32_t kernel, std::uint32_t stride,
                                     std::uint32_t padding) {
  const std::uint32_t from = at + padding, last = from / stride;
  return {from < kernel ? 0 : (from - kernel) / stride + 1, last < count ? last + 1 : count};
}

enum class PoolKind : std::uint32_t { max, average };

struct PoolArgs {
  const StreamState* stream;
  void* to;
  const void* from;
  PoolShape shape;
  PoolKind kind;
  Stored to_type;
  Stored from_type;
  std::uint32_t reserved;
};
TROUPE_KERNEL_BODY void pool(const Block& block, const PoolArgs& args) {
  void* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  const PoolShape& s = args.shape;
  const bool in_packs = has_packs(from, args.from_type, s.channels) && is_in_packs(to, args.to_type);
  for_each_pack(block, s.count_out(), in_packs, [&](auto width, std::uint64_t i) {
    const PoolPlace at = place_of(i, s.out_height, s.out_width, s.channels);
    const PoolSpan rows = covered(at.y, s.height, s.kernel_height, s.stride_height, s.padding_height);
    const PoolSpan columns = covered(at.x, s.width, s.kernel_width, s.stride_width, s.padding_width);
    Numbers<width.value> found{};
    if (args.kind == PoolKind::max)
      for (float& one : found.of) one = -INFINITY;
    for (std::uint32_t y = rows.first; y < rows.end; ++y) {
      for (std::uint32_t x = columns.first; x < columns.end; ++x) {
        const auto values =
            load(width, from, args.from_type, ((at.image * s.height + y) * s.width + x) * s.channels + at.channel);
        for (unsigned k = 0; k < width(); ++k) {
          const float value = values.of[k];
          if (args.kind == PoolKind::average)
            found.of[k] += value;
          else if (value > found.of[k] || value != value)
            found.of[k] = value;
        }
      }
    }
    if (args.kind == PoolKind::average)
      for (float& one : found.of) one /= static_cast<float>((rows.end - rows.first) * (columns.end - columns.first));
    store(width, to, args.to_type, i, found);
  });
}

struct PoolBackArgs {
  const StreamState* stream;
  void* to;              // gradient to the input
  const void* gradient;  // to the output
  const void* input;     // of a max pool; else null
  const void* output;    // likewise
  PoolShape shape;
  PoolKind kind;
  Stored to_type;
  Stored gradient_type;
  Stored input_type;
  Stored output_type;
  std::uint32_t adds;
};

/// Of channels of a pack, the bits of `open` whose value no element before (y, x) in the window has.
template <unsigned kCount>
TROUPE_KERNEL_BODY unsigned without_equal_before(Width<kCount> width, const PoolBackArgs& args, const void* input,
                                                 const PoolPlace& at, const PoolSpan& rows, const PoolSpan& columns,
                                                 const Numbers<kCount>& values, unsigned open) {
  const PoolShape& s = args.shape;
  for (std::uint32_t y = rows.first; y <= at.y; ++y) {
    const std::uint32_t end = y == at.y ? at.x : columns.end;
    for (std::uint32_t x = columns.first; x < end && open != 0; ++x) {
      const std::uint64_t other = ((at.image * s.height + y) * s.width + x) * s.channels + at.channel;
      const auto before = load(width, input, args.input_type, other);
      for (unsigned k = 0; k < kCount; ++k)
        if (before.of[k] == values.of[k]) open &= ~(1U << k);
    }
  }
  return open;
}

/// Each element of the input takes from all windows that cover it.
TROUPE_KERNEL_BODY void pool_back(const Block& block, const PoolBackArgs& args) {
  void* const to = block.at(args.to);
  const void* const gradient = block.at(args.gradient);
  const void* const input = block.at(args.input);
  const void* const output = block.at(args.output);
  const PoolShape& s = args.shape;
  const bool in_packs = has_packs(to, args.to_type, s.channels) && is_in_packs(gradient, args.gradient_type) &&
                        is_in_packs(input, args.input_type) && is_in_packs(output, args.output_type);
  for_each_pack(block, s.count_in(), in_packs, [&](auto width, std::uint64_t i) {
    const PoolPlace at = place_of(i, s.height, s.width, s.channels);
    const PoolSpan down = covering(at.y, s.out_height, s.kernel_height, s.stride_height, s.padding_height);
    const PoolSpan across = covering(at.x, s.out_width, s.kernel_width, s.stride_width, s.padding_width);
    Numbers<width.value> sum{}, values{};
    if (args.kind == PoolKind::max) values = load(width, input, args.input_type, i);
    for (std::uint32_t h = down.first; h < down.end; ++h) {
      const PoolSpan rows = covered(h, s.height, s.kernel_height, s.stride_height, s.padding_height);
      for (std::uint32_t w = across.first; w < across.end; ++w) {
        const PoolSpan columns = covered(w, s.width, s.kernel_width, s.stride_width, s.padding_width);
        const std::uint64_t o = ((at.image * s.out_height + h) * s.out_width + w) * s.channels + at.channel;
        const auto brought = bring(width, gradient, args.gradient_type, o);
        if (args.kind == PoolKind::average) {
          const auto slopes = widened(brought, args.gradient_type);
          const auto count = static_cast<float>((rows.end - rows.first) * (columns.end - columns.first));
          for (unsigned k = 0; k < width(); ++k) sum.of[k] += slopes.of[k] / count;
          continue;
        }
        // As it was stored: a max pool's output is the value itself.
        const auto best = load(width, output, args.output_type, o);
        unsigned open = 0;  // channels whose value the window may have put out
        for (unsigned k = 0; k < width(); ++k) open |= values.of[k] == best.of[k] ? 1U << k : 0U;
        if (open == 0) continue;
        open = without_equal_before(width, args, input, at, rows, columns, values, open);
        const auto slopes = widened(brought, args.gradient_type);
        for (unsigned k = 0; k < width(); ++k)
          if ((open >> k & 1U) != 0) sum.of[k] += slopes.of[k];
      }
    }
    if (args.adds != 0) {
      const auto before = load(width, to, args.to_type, i);
      for (unsigned k = 0; k < width(); ++k) sum.of[k] += before.of[k];
    }
    store(width, to, args.to_type, i, sum);
  });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const PoolArgs& args) {
  touched.reads(args.from, args.shape.count_in() * bytes_of(args.from_type));
  touched.writes(args.to, args.shape.count_out() * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const PoolBackArgs& args) {
  touched.reads(args.gradient, args.shape.count_out() * bytes_of(args.gradient_type));
  touched.reads(args.input, args.shape.count_in() * bytes_of(args.input_type));
  touched.reads(args.output, args.shape.count_out() * bytes_of(args.output_type));
  touched.writes(args.to, args.shape.count_in() * bytes_of(args.to_type));
}
#endif

}  // namespace troupe::cuda
