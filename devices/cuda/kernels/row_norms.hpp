#pragma once

#include "devices/cuda/kernels/column_sums.hpp"
#include "devices/cuda/kernels/elements.hpp"
#include "devices/cuda/kernels/moments.hpp"

// Norms over the last extent, at each position of the others.
namespace troupe::cuda {

/// A layer norm (the mean is taken off, squares are averaged), or an L2 norm (neither).
struct NormalizeRowsArgs {
  const StreamState* stream;
  void* to;
  RowMoments* moments;  // [count_rows], kept
  const void* from;
  const float* scale;  // [width]
  const float* shift;  // null: none
  std::uint64_t count_rows;
  std::uint64_t width;
  float epsilon;
  std::uint32_t is_layer_norm;
  Stored to_type;
  Stored from_type;
};
TROUPE_KERNEL_BODY RowMoments row_moments(const NormalizeRowsArgs& args, const Moments& sums) {
  if (args.is_layer_norm == 0) {
    const float squares = sums.squares + sums.count * sums.mean * sums.mean;
    return {0.0F, 1 / ::sqrtf(squares + args.epsilon)};
  }
  return {sums.mean, 1 / ::sqrtf(sums.squares / sums.count + args.epsilon)};
}
TROUPE_KERNEL_BODY void normalize_rows(const Block& block, const NormalizeRowsArgs& args) {
  void* const to = block.at(args.to);
  RowMoments* const moments = block.at(args.moments);
  const void* const from = block.at(args.from);
  const float* const scale = block.at(args.scale);
  const float* const shift = block.at(args.shift);
  const bool in_packs = has_packs(from, args.from_type, args.width) && is_in_packs(to, args.to_type) &&
                        is_in_packs(scale, Stored::f32) && is_in_packs(shift, Stored::f32);
  with_row_sums<Moments, NearSums>(
      block, args.count_rows, args.width, in_packs,
      [&](auto width, std::uint64_t row, std::uint64_t c) {
        return bring(width, from, args.from_type, row * args.width + c);
      },
      [&](NearSums& own, const auto& brought, std::uint64_t, std::uint64_t) {
        for (const float x : widened(brought, args.from_type).of) own.take(x);
      },
      [&](const Moments& sums) { return row_moments(args, sums); },
      [&](auto width, const RowMoments& found, const auto& brought, std::uint64_t row, std::uint64_t c) {
        if (c == 0) moments[row] = found;
        auto x = widened(brought, args.from_type);
        const auto by = load(width, scale, Stored::f32, c);
        for (unsigned k = 0; k < width(); ++k) x.of[k] = (x.of[k] - found.mean) * found.inverse * by.of[k];
        if (shift != nullptr) {
          const auto more = load(width, shift, Stored::f32, c);
          for (unsigned k = 0; k < width(); ++k) x.of[k] += more.of[k];
        }
        store(width, to, args.to_type, row * args.width + c, x);
      });
}

struct NormalizeRowsBackArgs {
  const StreamState* stream;
  GradientTo to;
  const void* gradient;
  const void* from;
  const RowMoments* moments;
  const float* scale;
  std::uint64_t count_rows;
  std::uint64_t width;
  std::uint32_t is_layer_norm;
  Stored gradient_type;
  Stored from_type;
  std::uint32_t reserved;
};
TROUPE_KERNEL_BODY void normalize_rows_back(const Block& block, const NormalizeRowsBackArgs& args) {
  void* const to = block.at(args.to.at);
  const void* const gradient = block.at(args.gradient);
  const void* const from = block.at(args.from);
  const RowMoments* const moments = block.at(args.moments);
  const float* const scale = block.at(args.scale);
  const float share = args.is_layer_norm != 0 ? 1 / static_cast<float>(args.width) : 1.0F;
  const bool in_packs = has_packs(from, args.from_type, args.width) && is_in_packs(to, args.to.type) &&
                        is_in_packs(gradient, args.gradient_type) && is_in_packs(scale, Stored::f32);
  const auto normal = [](float x, const RowMoments& of) { return (x - of.mean) * of.inverse; };
  with_row_sums<SlopeSums, SlopeSums>(
      block, args.count_rows, args.width, in_packs,
      [&](auto width, std::uint64_t row, std::uint64_t c) {
        const std::uint64_t i = row * args.width + c;
        return BroughtPair<width.value>{bring(width, gradient, args.gradient_type, i),
                                        bring(width, from, args.from_type, i), moments[row]};
      },
      [&](SlopeSums& own, const auto& brought, std::uint64_t, std::uint64_t c) {
        const auto slope = widened(brought.first, args.gradient_type), x = widened(brought.second, args.from_type);
        for (unsigned k = 0; k < sizeof x / sizeof(float); ++k) {
          const float by = slope.of[k] * scale[c + k];
          own.add({by, by * normal(x.of[k], brought.moments)});
        }
      },
      AsItIs{},
      [&](auto width, const SlopeSums& sums, const auto& brought, std::uint64_t row, std::uint64_t c) {
        const float mean = args.is_layer_norm != 0 ? share * sums.slopes : 0.0F;
        const auto x = widened(brought.second, args.from_type), by = load(width, scale, Stored::f32, c);
        auto slope = widened(brought.first, args.gradient_type);
        for (unsigned k = 0; k < width(); ++k) {
          const float rest =
              slope.of[k] * by.of[k] - mean - normal(x.of[k], brought.moments) * (share * sums.by_normal);
          slope.of[k] = brought.moments.inverse * rest;
        }
        put_gradient(width, args.to, to, row * args.width + c, slope);
      });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const NormalizeRowsArgs& args) {
  touched.reads(args.from, args.count_rows * args.width * bytes_of(args.from_type));
  touched.reads(args.scale, args.width * sizeof(float));
  touched.reads(args.shift, args.width * sizeof(float));
  touched.writes(args.moments, args.count_rows * sizeof(RowMoments));
  touched.writes(args.to, args.count_rows * args.width * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const NormalizeRowsBackArgs& args) {
  touched.reads(args.gradient, args.count_rows * args.width * bytes_of(args.gradient_type));
  touched.reads(args.from, args.count_rows * args.width * bytes_of(args.from_type));
  touched.reads(args.moments, args.count_rows * sizeof(RowMoments));
  touched.reads(args.scale, args.width * sizeof(float));
  touched.writes(args.to.at, args.count_rows * args.width * bytes_of(args.to.type));
}
#endif

}  // namespace troupe::cuda
