#pragma once

#include "devices/cuda/kernels/channel_norms.hpp"

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
  const auto element = [&](std::uint64_t row, std::uint64_t c) {
    return load(from, args.from_type, row * args.width + c);
  };
  with_row_sums<Moments>(
      block, args.count_rows, args.width,
      [&](Moments& sums, std::uint64_t row, std::uint64_t c) { sums.take(element(row, c)); },
      [&](const Moments& sums, std::uint64_t row, std::uint64_t c) {
        const RowMoments found = row_moments(args, sums);
        if (c == 0) moments[row] = found;
        const float value = (element(row, c) - found.mean) * found.inverse * scale[c];
        store(to, args.to_type, row * args.width + c, shift == nullptr ? value : value + shift[c]);
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
  const auto normal = [&](std::uint64_t row, std::uint64_t c) {
    return (load(from, args.from_type, row * args.width + c) - moments[row].mean) * moments[row].inverse;
  };
  const auto slope = [&](std::uint64_t row, std::uint64_t c) {
    return load(gradient, args.gradient_type, row * args.width + c) * scale[c];
  };
  with_row_sums<SlopeSums>(
      block, args.count_rows, args.width,
      [&](SlopeSums& sums, std::uint64_t row, std::uint64_t c) {
        sums.slopes += slope(row, c);
        sums.by_normal += slope(row, c) * normal(row, c);
      },
      [&](const SlopeSums& sums, std::uint64_t row, std::uint64_t c) {
        const float mean = args.is_layer_norm != 0 ? share * sums.slopes : 0.0F;
        const float rest = slope(row, c) - mean - normal(row, c) * (share * sums.by_normal);
        put_gradient(args.to, to, row * args.width + c, moments[row].inverse * rest);
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
