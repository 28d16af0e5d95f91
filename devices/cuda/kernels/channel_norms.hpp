#pragma once

#include "devices/cuda/kernels/column_sums.hpp"
#include "devices/cuda/kernels/elements.hpp"

// Norms over the channels of a batch.
namespace troupe::cuda {

/// Count, mean and the squares of distances from it, of numbers that come in parts. Source: Chan, Golub, LeVeque 1979
/// (Updating formulae and a pairwise algorithm for computing sample variances).
struct Moments {
  float count, mean, squares;

  TROUPE_KERNEL_MEMBER void add(const Moments& other) {
    if (other.count == 0) return;
    const float both = count + other.count, distance = other.mean - mean, part = other.count / both;
    squares += other.squares + distance * distance * count * part;
    mean += distance * part;
    count = both;
  }
};

/// The same of numbers that one thread takes one by one, by their distances from the first of them, which is as far
/// from the mean as they are: without a division for each.
struct NearSums {
  float count, first, distances, squares;

  TROUPE_KERNEL_MEMBER void take(float x) {
    if (count == 0) first = x;
    const float distance = x - first;
    count += 1;
    distances += distance;
    squares += distance * distance;
  }
  TROUPE_KERNEL_MEMBER explicit operator Moments() const {
    if (count == 0) return {0, 0, 0};
    const float mean = distances / count, left = squares - distances * mean;
    return {count, first + mean, left < 0 ? 0.0F : left};  // below 0 by rounding
  }
};

struct ChannelMoments {
  float mean, variance, inverse;  // the variance over the count; 1 / sqrt(variance + epsilon)
};

TROUPE_KERNEL_BODY ChannelMoments channel_moments_of(float mean, float variance, float epsilon) {
  return {mean, variance, 1 / ::sqrtf(variance + epsilon)};
}

/// The moments of each channel of a batch.
struct SumChannelsArgs {
  const StreamState* stream;
  ChannelMoments* to;  // [channels]
  Moments* partial;    // [parts, channels]
  const void* from;    // [rows, channels]
  ColumnSums sums;
  Stored from_type;
  float epsilon;
};
TROUPE_KERNEL_BODY void sum_channels(const Block& block, const SumChannelsArgs& args) {
  ChannelMoments* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  const std::uint64_t channels = args.sums.count_columns;
  sum_columns_in_parts<Moments, NearSums>(
      block, args.sums, block.at(args.partial), args.stream, has_packs(from, args.from_type, channels),
      [&](auto width, std::uint64_t row, std::uint64_t column) {
        return bring(width, from, args.from_type, row * channels + column);
      },
      [&](auto& own, const auto& brought, std::uint64_t, std::uint64_t) {
        const auto x = widened(brought, args.from_type);
        for (unsigned k = 0; k < sizeof own / sizeof own[0]; ++k) own[k].take(x.of[k]);
      },
      [&](std::uint64_t c, const Moments& sum) {
        to[c] = channel_moments_of(sum.mean, sum.squares / sum.count, args.epsilon);
      });
}

/// The running moments of each channel.
struct ChannelMomentsArgs {
  const StreamState* stream;
  ChannelMoments* to;  // [channels]
  const float* running_mean;
  const float* running_variance;
  std::uint64_t channels;
  float epsilon;
  std::uint32_t reserved;
};
TROUPE_KERNEL_BODY void channel_moments(const Block& block, const ChannelMomentsArgs& args) {
  ChannelMoments* const to = block.at(args.to);
  const float* const mean = block.at(args.running_mean);
  const float* const variance = block.at(args.running_variance);
  block.for_each(args.channels,
                 [&](std::uint64_t c) { to[c] = channel_moments_of(mean[c], variance[c], args.epsilon); });
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
  const bool in_packs = has_packs(from, args.from_type, args.channels) && is_in_packs(to, args.to_type);
  for_each_pack(block, args.count, in_packs, [&](auto width, std::uint64_t i) {
    const auto stored = bring(width, from, args.from_type, i);
    const std::uint64_t c = place_in_rows(i, args.channels).column;
    auto x = widened(stored, args.from_type);
    for (unsigned k = 0; k < width(); ++k) {
      const ChannelMoments of = moments[c + k];
      x.of[k] = scale[c + k] * ((x.of[k] - of.mean) * of.inverse) + shift[c + k];
    }
    store(width, to, args.to_type, i, x);
  });
}

/// The sums of the gradients to each channel's output and, with the batch's statistics in the place of the running
/// ones', the gradients to a batch norm's parameters.
struct SumChannelSlopesArgs {
  const StreamState* stream;
  SlopeSums* sums_to;  // [channels]
  float* scale_to;     // likewise; null: no gradients are wanted
  float* shift_to;
  float* mean_to;        // minus the samples times the mean
  float* variance_to;    // likewise, of the variance over the count less one
  SlopeSums* partial;    // [parts, channels]
  const void* gradient;  // [rows, channels]
  const void* from;      // likewise
  const ChannelMoments* moments;
  const std::uint64_t* samples;  // null if no gradients are wanted
  ColumnSums sums;
  Stored gradient_type;
  Stored from_type;
  Factor factor{};  // of what goes to scale_to and shift_to
};
TROUPE_KERNEL_BODY void sum_channel_slopes(const Block& block, const SumChannelSlopesArgs& args) {
  SlopeSums* const sums_to = block.at(args.sums_to);
  float* const scale_to = block.at(args.scale_to);
  float* const shift_to = block.at(args.shift_to);
  float* const mean_to = block.at(args.mean_to);
  float* const variance_to = block.at(args.variance_to);
  const void* const gradient = block.at(args.gradient);
  const void* const from = block.at(args.from);
  const ChannelMoments* const moments = block.at(args.moments);
  const auto samples = scale_to == nullptr ? 0.0F : static_cast<float>(*block.at(args.samples));
  const float factor = value_of(block, args.factor);
  const auto rows = static_cast<float>(args.sums.count_rows);
  const float unbiased = args.sums.count_rows > 1 ? rows / (rows - 1) : 1.0F;
  const std::uint64_t channels = args.sums.count_columns;
  sum_columns_in_parts<SlopeSums, SlopeSums>(
      block, args.sums, block.at(args.partial), args.stream,
      has_packs(gradient, args.gradient_type, channels) && has_packs(from, args.from_type, channels),
      [&](auto width, std::uint64_t row, std::uint64_t column) {
        const std::uint64_t i = row * channels + column;
        return BroughtPair<width.value>{
            bring(width, gradient, args.gradient_type, i), bring(width, from, args.from_type, i), {}};
      },
      [&](auto& own, const auto& brought, std::uint64_t, std::uint64_t column) {
        const auto slope = widened(brought.first, args.gradient_type), x = widened(brought.second, args.from_type);
        for (unsigned k = 0; k < sizeof own / sizeof own[0]; ++k)
          own[k].add({slope.of[k], slope.of[k] * ((x.of[k] - moments[column + k].mean) * moments[column + k].inverse)});
      },
      [&](std::uint64_t c, const SlopeSums& sum) {
        sums_to[c] = sum;
        if (scale_to == nullptr) return;
        scale_to[c] = sum.by_normal * factor;
        shift_to[c] = sum.slopes * factor;
        mean_to[c] = -samples * moments[c].mean;
        variance_to[c] = -samples * (unbiased * moments[c].variance);
      });
}

/// The gradients to a batch norm's parameters, likewise, of sums and statistics that a library has found.
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
  const bool in_packs = has_packs(from, args.from_type, args.channels) && is_in_packs(to, args.to.type) &&
                        is_in_packs(gradient, args.gradient_type);
  for_each_pack(block, args.count, in_packs, [&](auto width, std::uint64_t i) {
    const auto brought = bring(width, from, args.from_type, i), slopes = bring(width, gradient, args.gradient_type, i);
    const std::uint64_t c = place_in_rows(i, args.channels).column;
    const auto x = widened(brought, args.from_type);
    auto slope = widened(slopes, args.gradient_type);
    for (unsigned k = 0; k < width(); ++k) {
      const ChannelMoments of = moments[c + k];
      const SlopeSums sum = sums[c + k];
      const float normal = (x.of[k] - of.mean) * of.inverse;
      const float rest = slope.of[k] - share * sum.slopes - normal * (share * sum.by_normal);
      slope.of[k] = scale[c + k] * of.inverse * rest;
    }
    put_gradient(width, args.to, to, i, slope);
  });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const SumChannelsArgs& args) {
  const ColumnSums& sums = args.sums;
  touched.reads(args.from, sums.count_rows * sums.count_columns * bytes_of(args.from_type));
  if (sums.parts > 1) touched.writes(args.partial, sums.parts * sums.count_columns * sizeof(Moments));
  touched.writes(args.to, sums.count_columns * sizeof(ChannelMoments));
}
inline void declare(Accesses& touched, const ChannelMomentsArgs& args) {
  touched.reads(args.running_mean, args.channels * sizeof(float));
  touched.reads(args.running_variance, args.channels * sizeof(float));
  touched.writes(args.to, args.channels * sizeof(ChannelMoments));
}
inline void declare(Accesses& touched, const NormalizeChannelsArgs& args) {
  touched.reads(args.from, args.count * bytes_of(args.from_type));
  touched.reads(args.moments, args.channels * sizeof(ChannelMoments));
  touched.reads(args.scale, args.channels * sizeof(float));
  touched.reads(args.shift, args.channels * sizeof(float));
  touched.writes(args.to, args.count * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const SumChannelSlopesArgs& args) {
  const std::uint64_t channels = args.sums.count_columns, count = args.sums.count_rows * channels;
  touched.reads(args.gradient, count * bytes_of(args.gradient_type));
  touched.reads(args.from, count * bytes_of(args.from_type));
  touched.reads(args.moments, channels * sizeof(ChannelMoments));
  touched.reads(args.samples, sizeof *args.samples);
  touched.reads(args.factor.at, sizeof(float));
  if (args.sums.parts > 1) touched.writes(args.partial, args.sums.parts * channels * sizeof(SlopeSums));
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
