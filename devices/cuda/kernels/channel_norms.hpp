#pragma once

#include "devices/cuda/kernels/column_sums.hpp"
#include "devices/cuda/kernels/elements.hpp"

// Norms over the channels of a batch.
namespace troupe::cuda {

/// Count, mean and the squares of distances from it, of numbers that come one by one or in parts. Source: Chan, Golub,
/// LeVeque 1979 (Updating formulae and a pairwise algorithm for computing sample variances).
struct Moments {
  float count, mean, squares;

  TROUPE_KERNEL_MEMBER void take(float x) {
    count += 1;
    const float distance = x - mean;
    mean += distance / count;
    squares += distance * (x - mean);
  }
  TROUPE_KERNEL_MEMBER void add(const Moments& other) {
    if (other.count == 0) return;
    const float both = count + other.count, distance = other.mean - mean, part = other.count / both;
    squares += other.squares + distance * distance * count * part;
    mean += distance * part;
    count = both;
  }
};

struct ChannelMoments {
  float mean, variance, inverse;  // the variance over the count; 1 / sqrt(variance + epsilon)
};

struct SumChannelsArgs {
  const StreamState* stream;
  Moments* partial;  // [parts, channels]
  const void* from;  // [rows, channels]
  ColumnSums sums;
  Stored from_type;
  std::uint32_t reserved;
};
TROUPE_KERNEL_BODY void sum_channels(const Block& block, const SumChannelsArgs& args) {
  const void* const from = block.at(args.from);
  sum_columns_in_parts(block, args.sums, block.at(args.partial),
                       [&](Moments& sum, std::uint64_t row, std::uint64_t column) {
                         sum.take(load(from, args.from_type, row * args.sums.count_columns + column));
                       });
}

/// The moments of each channel: those of a batch, or the running ones.
struct ChannelMomentsArgs {
  const StreamState* stream;
  ChannelMoments* to;      // [channels]
  const Moments* partial;  // null: the running ones
  const float* running_mean;
  const float* running_variance;
  ColumnSums sums;
  float epsilon;
  std::uint32_t reserved;
};
TROUPE_KERNEL_BODY void channel_moments(const Block& block, const ChannelMomentsArgs& args) {
  ChannelMoments* const to = block.at(args.to);
  const Moments* const partial = block.at(args.partial);
  const float* const mean = block.at(args.running_mean);
  const float* const variance = block.at(args.running_variance);
  block.for_each(args.sums.count_columns, [&](std::uint64_t c) {
    ChannelMoments found{};
    if (partial == nullptr) {
      found.mean = mean[c], found.variance = variance[c];
    } else {
      const Moments sum = sum_of_parts(args.sums, partial, c);
      found.mean = sum.mean, found.variance = sum.squares / sum.count;
    }
    found.inverse = 1 / ::sqrtf(found.variance + args.epsilon);
    to[c] = found;
  });
}

struct NormalizeChannelsArgs {
  const StreamState* stream;
  void* to;
  const void* from;
  const ChannelMoments* moments;  // [channels]
  const float* scale;
  const float* shift;
  std::uint64_t count;
  std::uint64_t channels;
  Stored to_type;
  Stored from_type;
};
TROUPE_KERNEL_BODY void normalize_channels(const Block& block, const NormalizeChannelsArgs& args) {
  void* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  const ChannelMoments* const moments = block.at(args.moments);
  const float* const scale = block.at(args.scale);
  const float* const shift = block.at(args.shift);
  block.for_each(args.count, [&](std::uint64_t i) {
    const std::uint64_t c = i % args.channels;
    const float normal = (load(from, args.from_type, i) - moments[c].mean) * moments[c].inverse;
    store(to, args.to_type, i, scale[c] * normal + shift[c]);
  });
}

/// Of the gradients to a channel's output, and of these times the normalized input.
struct SlopeSums {
  float slopes, by_normal;
  TROUPE_KERNEL_MEMBER void add(const SlopeSums& other) {
    slopes += other.slopes;
    by_normal += other.by_normal;
  }
};

struct SumChannelSlopesArgs {
  const StreamState* stream;
  SlopeSums* partial;    // [parts, channels]
  const void* gradient;  // [rows, channels]
  const void* from;      // likewise
  const ChannelMoments* moments;
  ColumnSums sums;
  Stored gradient_type;
  Stored from_type;
};
TROUPE_KERNEL_BODY void sum_channel_slopes(const Block& block, const SumChannelSlopesArgs& args) {
  const void* const gradient = block.at(args.gradient);
  const void* const from = block.at(args.from);
  const ChannelMoments* const moments = block.at(args.moments);
  sum_columns_in_parts(
      block, args.sums, block.at(args.partial), [&](SlopeSums& sum, std::uint64_t row, std::uint64_t c) {
        const std::uint64_t i = row * args.sums.count_columns + c;
        const float slope = load(gradient, args.gradient_type, i);
        sum.slopes += slope;
        sum.by_normal += slope * (load(from, args.from_type, i) - moments[c].mean) * moments[c].inverse;
      });
}

/// The gradients to a batch norm's parameters, and the batch's statistics in the place of the running ones'.
struct ChannelGradientsArgs {
  const StreamState* stream;
  SlopeSums* sums_to;  // [channels]
  float* scale_to;
  float* shift_to;
  float* mean_to;      // minus the samples times the mean
  float* variance_to;  // likewise, of the variance over the count less one
  const SlopeSums* partial;
  const ChannelMoments* moments;
  const std::uint64_t* samples;
  ColumnSums sums;
  Factor factor{};  // of what goes to scale_to and shift_to
};
TROUPE_KERNEL_BODY void channel_gradients(const Block& block, const ChannelGradientsArgs& args) {
  SlopeSums* const sums_to = block.at(args.sums_to);
  float* const scale_to = block.at(args.scale_to);
  float* const shift_to = block.at(args.shift_to);
  float* const mean_to = block.at(args.mean_to);
  float* const variance_to = block.at(args.variance_to);
  const SlopeSums* const partial = block.at(args.partial);
  const ChannelMoments* const moments = block.at(args.moments);
  const auto samples = static_cast<float>(*block.at(args.samples));
  const float factor = value_of(block, args.factor);
  const auto rows = static_cast<float>(args.sums.count_rows);
  const float unbiased = args.sums.count_rows > 1 ? rows / (rows - 1) : 1.0F;
  block.for_each(args.sums.count_columns, [&](std::uint64_t c) {
    const SlopeSums sum = sum_of_parts(args.sums, partial, c);
    sums_to[c] = sum;
    scale_to[c] = sum.by_normal * factor;
    shift_to[c] = sum.slopes * factor;
    mean_to[c] = -samples * moments[c].mean;
    variance_to[c] = -samples * (unbiased * moments[c].variance);
  });
}

/// The same, of sums and statistics that a library has found.
struct BringChannelGradientsArgs {
  const StreamState* stream;
  float* scale_to;
  float* shift_to;
  float* mean_to;      // minus the samples times the mean
  float* variance_to;  // likewise, of the variance over the count less one
  const float* to_scale;
  const float* to_shift;
  const float* mean;
  const float* variance;  // over the count less one
  const std::uint64_t* samples;
  std::uint64_t channels;
  Factor factor{};  // of what goes to scale_to and shift_to
};
TROUPE_KERNEL_BODY void bring_channel_gradients(const Block& block, const BringChannelGradientsArgs& args) {
  float* const scale_to = block.at(args.scale_to);
  float* const shift_to = block.at(args.shift_to);
  float* const mean_to = block.at(args.mean_to);
  float* const variance_to = block.at(args.variance_to);
  const float* const to_scale = block.at(args.to_scale);
  const float* const to_shift = block.at(args.to_shift);
  const float* const mean = block.at(args.mean);
  const float* const variance = block.at(args.variance);
  const auto samples = static_cast<float>(*block.at(args.samples));
  const float factor = value_of(block, args.factor);
  block.for_each(args.channels, [&](std::uint64_t c) {
    scale_to[c] = to_scale[c] * factor;
    shift_to[c] = to_shift[c] * factor;
    mean_to[c] = -samples * mean[c];
    variance_to[c] = -samples * variance[c];
  });
}

/// Source: Ioffe, Szegedy 2015, section 3, with terms combined.
struct NormalizeChannelsBackArgs {
  const StreamState* stream;
  GradientTo to;
  const void* gradient;
  const void* from;
  const ChannelMoments* moments;
  const SlopeSums* sums;
  const float* scale;
  std::uint64_t count;
  std::uint64_t channels;
  Stored gradient_type;
  Stored from_type;
};
TROUPE_KERNEL_BODY void normalize_channels_back(const Block& block, const NormalizeChannelsBackArgs& args) {
  void* const to = block.at(args.to.at);
  const void* const gradient = block.at(args.gradient);
  const void* const from = block.at(args.from);
  const ChannelMoments* const moments = block.at(args.moments);
  const SlopeSums* const sums = block.at(args.sums);
  const float* const scale = block.at(args.scale);
  const float share = 1 / static_cast<float>(args.count / args.channels);
  block.for_each(args.count, [&](std::uint64_t i) {
    const std::uint64_t c = i % args.channels;
    const float normal = (load(from, args.from_type, i) - moments[c].mean) * moments[c].inverse;
    const float slope = load(gradient, args.gradient_type, i);
    const float rest = slope - share * sums[c].slopes - normal * (share * sums[c].by_normal);
    put_gradient(args.to, to, i, scale[c] * moments[c].inverse * rest);
  });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const SumChannelsArgs& args) {
  touched.reads(args.from, args.sums.count_rows * args.sums.count_columns * bytes_of(args.from_type));
  touched.writes(args.partial, args.sums.parts * args.sums.count_columns * sizeof(Moments));
}
inline void declare(Accesses& touched, const ChannelMomentsArgs& args) {
  touched.reads(args.partial, args.sums.parts * args.sums.count_columns * sizeof(Moments));
  touched.reads(args.running_mean, args.sums.count_columns * sizeof(float));
  touched.reads(args.running_variance, args.sums.count_columns * sizeof(float));
  touched.writes(args.to, args.sums.count_columns * sizeof(ChannelMoments));
}
inline void declare(Accesses& touched, const NormalizeChannelsArgs& args) {
  touched.reads(args.from, args.count * bytes_of(args.from_type));
  touched.reads(args.moments, args.channels * sizeof(ChannelMoments));
  touched.reads(args.scale, args.channels * sizeof(float));
  touched.reads(args.shift, args.channels * sizeof(float));
  touched.writes(args.to, args.count * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const SumChannelSlopesArgs& args) {
  const std::uint64_t count = args.sums.count_rows * args.sums.count_columns;
  touched.reads(args.gradient, count * bytes_of(args.gradient_type));
  touched.reads(args.from, count * bytes_of(args.from_type));
  touched.reads(args.moments, args.sums.count_columns * sizeof(ChannelMoments));
  touched.writes(args.partial, args.sums.parts * args.sums.count_columns * sizeof(SlopeSums));
}
inline void declare(Accesses& touched, const ChannelGradientsArgs& args) {
  const std::uint64_t channels = args.sums.count_columns;
  touched.reads(args.partial, args.sums.parts * channels * sizeof(SlopeSums));
  touched.reads(args.moments, channels * sizeof(ChannelMoments));
  touched.reads(args.samples, sizeof *args.samples);
  touched.reads(args.factor.at, sizeof(float));
  touched.writes(args.sums_to, channels * sizeof(SlopeSums));
  for (float* const to : {args.scale_to, args.shift_to, args.mean_to, args.variance_to})
    touched.writes(to, channels * sizeof(float));
}
inline void declare(Accesses& touched, const BringChannelGradientsArgs& args) {
  for (const float* const from : {args.to_scale, args.to_shift, args.mean, args.variance})
    touched.reads(from, args.channels * sizeof(float));
  touched.reads(args.samples, sizeof *args.samples);
  touched.reads(args.factor.at, sizeof(float));
  for (float* const to : {args.scale_to, args.shift_to, args.mean_to, args.variance_to})
    touched.writes(to, args.channels * sizeof(float));
}
inline void declare(Accesses& touched, const NormalizeChannelsBackArgs& args) {
  touched.reads(args.gradient, args.count * bytes_of(args.gradient_type));
  touched.reads(args.from, args.count * bytes_of(args.from_type));
  touched.reads(args.moments, args.channels * sizeof(ChannelMoments));
  touched.reads(args.sums, args.channels * sizeof(SlopeSums));
  touched.reads(args.scale, args.channels * sizeof(float));
  touched.writes(args.to.at, args.count * bytes_of(args.to.type));
}
#endif

}  // namespace troupe::cuda
