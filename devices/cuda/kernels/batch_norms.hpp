#pragma once

#include "devices/cuda/kernels/column_sums.hpp"
#include "devices/cuda/kernels/elements.hpp"
#include "devices/cuda/kernels/moments.hpp"

// Batch norms, with a ReLU or a sum and a ReLU behind them. They wait for memory, so a thread handles a pack of
// neighbouring channels that it brings by one access, and has those of several rows on their way. One pass over a batch
// sums up numbers of each channel, in parts that the last block to come joins; a second one uses the sums. It goes
// through the rows in the other direction, since the caches still have what the first pass has read last.
namespace troupe::cuda {

/// How the rows and channels of a batch are divided: a block has tiles of `across` packs of channels and as many rows
/// as its threads then suffice for. Rows are dealt out to the parts in turn.
struct ChannelTiles {
  std::uint64_t count_rows;
  std::uint32_t channels;
  std::uint32_t pack;    // neighbouring channels of a thread: 1, 4, or of 16 bits each 8
  std::uint32_t across;  // packs
  std::uint32_t parts;   // that the rows are cut into; none is empty
  std::uint32_t rounds;  // in which a block meets all rows of a part
  std::uint32_t reserved;
};
/// At most: 128 bytes side by side are enough for memory, and leave several threads for each channel where parts are
/// joined.
inline constexpr unsigned kMostAcross = 8;
/// Rows that a thread has on their way at once; parts have at least so many for each thread.
inline constexpr unsigned kRowsAtOnce = 4;
/// Parts that a thread has on their way at once when it joins them.
inline constexpr unsigned kPartsAtOnce = 8;

constexpr std::uint32_t rows_of_block(const ChannelTiles& of) noexcept { return kBlockThreads / of.across; }
constexpr std::uint32_t tiles_across(const ChannelTiles& of) noexcept {
  return (of.channels / of.pack + of.across - 1) / of.across;
}
constexpr std::uint32_t count_blocks(const ChannelTiles& of) noexcept { return tiles_across(of) * of.parts; }
/// For about `blocks` blocks. `are_short`: all tensors have 16 bits an element.
constexpr ChannelTiles channel_tiles(std::uint64_t rows, std::uint32_t channels, bool are_short, std::uint32_t blocks) {
  ChannelTiles tiles{rows, channels, 1, 1, 1, 1, 0};
  if (channels % 4 == 0) tiles.pack = are_short && channels % kShortPack == 0 ? kShortPack : 4;
  const std::uint32_t packs = channels / tiles.pack;
  tiles.across = packs < kMostAcross ? packs : kMostAcross;
  const std::uint64_t most = rows / (std::uint64_t{rows_of_block(tiles)} * kRowsAtOnce);
  const std::uint64_t wanted = blocks / tiles_across(tiles), parts = wanted < most ? wanted : most;
  tiles.parts = parts > 1 && tiles_across(tiles) <= kMostArrivals ? static_cast<std::uint32_t>(parts) : 1;
  const std::uint64_t rows_of_round = std::uint64_t{tiles.parts} * rows_of_block(tiles);
  tiles.rounds = static_cast<std::uint32_t>((rows + rows_of_round - 1) / rows_of_round);
  return tiles;
}

/// Like widened(), of short packs, too. With a loop for each type the compiler unrolls the loops around it, so that the
/// rows on their way stay in registers.
template <unsigned kCount>
TROUPE_KERNEL_BODY Numbers<kCount> numbers_of(const StoredNumbers<kCount>& stored, Stored type) {
  Numbers<kCount> found{};
  if (kCount != kShortPack && type == Stored::f32) {
    for (unsigned k = 0; k < kCount; ++k) found.of[k] = float_of(stored.words[kCount == kShortPack ? 0 : k]);
  } else if (type == Stored::f16) {
    for (unsigned k = 0; k < kCount; ++k)
      found.of[k] = from_f16(static_cast<std::uint16_t>(stored.words[k / 2] >> 16 * (k % 2)));
  } else {
    for (unsigned k = 0; k < kCount; ++k)
      found.of[k] = float_of(k % 2 == 0 ? stored.words[k / 2] << 16 : stored.words[k / 2] & 0xffff0000U);
  }
  return found;
}
/// Of f32 numbers of channels, from `channel` on.
template <unsigned kCount>
TROUPE_KERNEL_BODY Numbers<kCount> of_channels(const float* from, std::uint32_t channel) {
  Numbers<kCount> found{};
  if constexpr (kCount == 1) {
    found.of[0] = from[channel];
  } else {
    for (unsigned first = 0; first < kCount; first += 4) {
      const auto words = word_at<Words<4>>(from, (channel + first) / 4);
      for (unsigned w = 0; w < 4; ++w) found.of[first + w] = float_of(words.of[w]);
    }
  }
  return found;
}

/// What a thread of a block has: a pack of channels in each of some rows.
struct ChannelThread {
  std::uint32_t channel;  // the first
  std::uint32_t lane;     // which of the rows of the block
  bool is_idle;
};
TROUPE_KERNEL_BODY ChannelThread channel_thread(const ChannelTiles& tiles, std::uint32_t tile, unsigned t) {
  const std::uint32_t lane = t / tiles.across;
  const std::uint32_t channel = (tile % tiles_across(tiles) * tiles.across + t % tiles.across) * tiles.pack;
  return {channel, lane, lane >= rows_of_block(tiles) || channel >= tiles.channels};
}
TROUPE_KERNEL_BODY std::uint64_t row_of(const ChannelTiles& tiles, std::uint32_t part, std::uint32_t lane,
                                        std::uint32_t round) {
  return (std::uint64_t{round} * tiles.parts + part) * rows_of_block(tiles) + lane;
}
/// For each row of a thread: use(row, what bring(row) gave), in order, or from the last one to the first.
template <class Bring, class Use>
TROUPE_KERNEL_BODY void for_each_row(const ChannelTiles& tiles, std::uint32_t part, std::uint32_t lane, bool from_last,
                                     Bring&& bring, Use&& use) {
  for (std::uint32_t round = 0; round < tiles.rounds; round += kRowsAtOnce) {
    decltype(bring(std::uint64_t{})) found[kRowsAtOnce]{};
    std::uint64_t rows[kRowsAtOnce];
    for (unsigned n = 0; n < kRowsAtOnce; ++n) {
      const std::uint32_t own = round + n;
      const bool is_there = own < tiles.rounds;
      rows[n] = is_there ? row_of(tiles, part, lane, from_last ? tiles.rounds - 1 - own : own) : tiles.count_rows;
      if (rows[n] < tiles.count_rows) found[n] = bring(rows[n]);
    }
    for (unsigned n = 0; n < kRowsAtOnce; ++n)
      if (rows[n] < tiles.count_rows) use(rows[n], found[n]);
  }
}
/// Calls act(part, tile) for each tile of this block.
template <class Act>
TROUPE_KERNEL_BODY void for_each_tile(const Block& block, const ChannelTiles& tiles, Act&& act) {
  for (std::uint32_t tile = block.index(); tile < count_blocks(tiles); tile += block.count())
    act(tile / tiles_across(tiles), tile);
}
/// act(Pack's width).
template <class Act>
TROUPE_KERNEL_BODY void with_pack(const ChannelTiles& tiles, Act&& act) {
  if (tiles.pack == kShortPack) return act(Width<kShortPack>{});
  if (tiles.pack == kPack) return act(Width<kPack>{});
  act(Width<1>{});
}

/// act(kept, left) while more than one of `count` are left, of which those from `kept` on are then added to the others.
template <class Act>
TROUPE_KERNEL_BODY void for_each_halving(std::uint32_t count, Act&& act) {
  for (std::uint32_t left = count; left > 1;) {
    const std::uint32_t kept = (left + 1) / 2;
    act(kept, left);
    left = kept;
  }
}

/// Two sums of a channel.
struct SumPair {
  float first, second;
};
/// finish(channel, Sum) for each channel, once: over all rows, what sum(sums, thread, part) adds to empty sums in each
/// thread, of which end(sums, channel, part) makes a Sum for each part. Sums of parts are joined by Sum::add. All is in
/// one order.
template <class Sum, unsigned kCount, class Add, class End, class Finish>
TROUPE_KERNEL_BODY void sum_tiles(const Block& block, const ChannelTiles& tiles, const StreamState* stream,
                                  Sum* partial, Add&& add, End&& end, Finish&& finish) {
  SumPair* const pairs = block.shared<SumPair, kShortPack * kBlockThreads>();
  Sum* const sums = block.shared<Sum, kBlockThreads>();
  const std::uint32_t channels = tiles.across * kCount, lanes = kBlockThreads / channels;
  for_each_tile(block, tiles, [&](std::uint32_t part, std::uint32_t tile) {
    block.for_each_thread([&](unsigned t) {
      const ChannelThread thread = channel_thread(tiles, tile, t);
      SumPair own[kCount]{};
      if (!thread.is_idle) add(own, thread, part);
      for (unsigned k = 0; k < kCount; ++k) pairs[k * kBlockThreads + t] = own[k];
    });
    block.barrier();
    for_each_halving(rows_of_block(tiles), [&](std::uint32_t kept, std::uint32_t left) {
      const std::uint32_t distance = kept * tiles.across;
      block.for_each_thread([&](unsigned t) {
        if (t >= (left - kept) * tiles.across) return;
        for (unsigned k = 0; k < kCount; ++k) {
          SumPair& to = pairs[k * kBlockThreads + t];
          const SumPair& from = pairs[k * kBlockThreads + t + distance];
          to.first += from.first, to.second += from.second;
        }
      });
      block.barrier();
    });
    block.for_each_thread([&](unsigned t) {
      const ChannelThread thread = channel_thread(tiles, tile, t);
      if (thread.lane != 0 || thread.is_idle) return;
      SumPair own[kCount];
      for (unsigned k = 0; k < kCount; ++k) own[k] = pairs[k * kBlockThreads + t];
      end(own, thread.channel, part);
    });
    const std::uint32_t column = tile % tiles_across(tiles), first = column * channels;
    if (tiles.parts == 1)
      block.barrier();
    else if (!block.comes_last(const_cast<StreamState*>(block.at(stream))->arrived + column, tiles.parts))
      return;
    block.for_each_thread([&](unsigned t) {
      const std::uint32_t channel = first + t % channels;
      Sum sum{};
      const bool is_idle = t >= lanes * channels || channel >= tiles.channels;
      for (std::uint32_t p = t / channels; !is_idle && p < tiles.parts; p += kPartsAtOnce * lanes) {
        Sum brought[kPartsAtOnce]{};
        for (unsigned n = 0; n < kPartsAtOnce; ++n)
          if (p + n * lanes < tiles.parts)
            brought[n] = partial[std::uint64_t{p + n * lanes} * tiles.channels + channel];
        for (unsigned n = 0; n < kPartsAtOnce; ++n) sum.add(brought[n]);
      }
      sums[t] = sum;
    });
    block.barrier();
    for_each_halving(lanes, [&](std::uint32_t kept, std::uint32_t left) {
      block.for_each_thread([&](unsigned t) {
        if (t < (left - kept) * channels) sums[t].add(sums[t + kept * channels]);
      });
      block.barrier();
    });
    block.for_each_thread([&](unsigned t) {
      if (t < channels && first + t < tiles.channels) finish(first + t, sums[t]);
    });
    block.barrier();
  });
}

/// What a batch norm knows of its channels: [channels] each, one behind the other.
struct NormMoments {
  float* mean;
  float* inverse;   // 1 / sqrt(variance + epsilon)
  float* variance;  // over the count
};
TROUPE_KERNEL_BODY NormMoments norm_moments(float* at, std::uint64_t channels) {
  return {at, at + channels, at + 2 * channels};
}
TROUPE_KERNEL_BODY void put_moments(const NormMoments& to, std::uint64_t c, float mean, float variance, float epsilon) {
  to.mean[c] = mean, to.variance[c] = variance, to.inverse[c] = 1 / ::sqrtf(variance + epsilon);
}

/// The moments of each channel of a batch, in each part by sums of distances from its first row: numbers that are far
/// from zero, or from the other parts', lose nothing.
struct SumMomentsArgs {
  const StreamState* stream;
  float* to;         // NormMoments
  Moments* partial;  // [parts, channels]
  const void* from;  // [rows, channels]
  ChannelTiles tiles;
  Stored from_type;
  float epsilon;
};
TROUPE_KERNEL_BODY std::uint64_t count_rows(const ChannelTiles& tiles, std::uint32_t part) {
  const std::uint32_t lanes = rows_of_block(tiles);
  const std::uint64_t before = (std::uint64_t{tiles.rounds} - 1) * tiles.parts * lanes;  // all rounds but the last one
  const std::uint64_t first = before + std::uint64_t{part} * lanes, all = (std::uint64_t{tiles.rounds} - 1) * lanes;
  if (first >= tiles.count_rows) return all;
  return all + (tiles.count_rows - first < lanes ? tiles.count_rows - first : lanes);
}
template <unsigned kCount>
TROUPE_KERNEL_BODY void sum_moments_of(const Block& block, const SumMomentsArgs& args) {
  constexpr Width<kCount> width{};
  const void* const from = block.at(args.from);
  Moments* const partial = block.at(args.partial);
  const ChannelTiles& tiles = args.tiles;
  const NormMoments to = norm_moments(block.at(args.to), tiles.channels);
  const auto at = [&](std::uint32_t channel) {
    return
        [&, channel](std::uint64_t row) { return bring(width, from, args.from_type, row * tiles.channels + channel); };
  };
  const auto first_row = [&](std::uint32_t channel, std::uint32_t part) {
    return numbers_of(at(channel)(row_of(tiles, part, 0, 0)), args.from_type);
  };
  sum_tiles<Moments, kCount>(
      block, tiles, args.stream, partial,
      [&](SumPair(&sums)[kCount], const ChannelThread& thread, std::uint32_t part) {
        const Numbers<kCount> origin = first_row(thread.channel, part);
        for_each_row(tiles, part, thread.lane, /*from_last=*/false, at(thread.channel),
                     [&](std::uint64_t, const StoredNumbers<kCount>& stored) {
                       const Numbers<kCount> x = numbers_of(stored, args.from_type);
                       for (unsigned k = 0; k < kCount; ++k) {
                         const float distance = x.of[k] - origin.of[k];
                         sums[k].first += distance, sums[k].second += distance * distance;
                       }
                     });
      },
      [&](const SumPair(&sums)[kCount], std::uint32_t channel, std::uint32_t part) {
        const Numbers<kCount> origin = first_row(channel, part);
        const auto count = static_cast<float>(count_rows(tiles, part));
        for (unsigned k = 0; k < kCount; ++k) {
          const float distance = sums[k].first / count, squares = sums[k].second - sums[k].first * distance;
          partial[std::uint64_t{part} * tiles.channels + channel + k] = {count, origin.of[k] + distance,
                                                                         squares > 0 ? squares : 0.0F};
        }
      },
      [&](std::uint32_t c, const Moments& sum) {
        put_moments(to, c, sum.mean, sum.squares / sum.count, args.epsilon);
      });
}
TROUPE_KERNEL_BODY void sum_moments(const Block& block, const SumMomentsArgs& args) {
  with_pack(args.tiles, [&](auto pack) { sum_moments_of<pack()>(block, args); });
}

/// The running moments of each channel.
struct RunningMomentsArgs {
  const StreamState* stream;
  float* to;  // NormMoments
  const float* mean;
  const float* variance;
  std::uint64_t channels;
  float epsilon;
  std::uint32_t reserved;
};
TROUPE_KERNEL_BODY void running_moments(const Block& block, const RunningMomentsArgs& args) {
  const NormMoments to = norm_moments(block.at(args.to), args.channels);
  const float* const mean = block.at(args.mean);
  const float* const variance = block.at(args.variance);
  block.for_each(args.channels, [&](std::uint64_t c) { put_moments(to, c, mean[c], variance[c], args.epsilon); });
}

/// How a thread normalizes its channels: both passes alike, so that both know where a ReLU lets numbers pass.
template <unsigned kCount>
struct Normalizer {
  Numbers<kCount> mean, factor, shift;

  TROUPE_KERNEL_MEMBER float operator()(unsigned k, float x) const {
    return (x - mean.of[k]) * factor.of[k] + shift.of[k];
  }
};
template <unsigned kCount>
TROUPE_KERNEL_BODY Normalizer<kCount> normalizer(const NormMoments& moments, const float* scale, const float* shift,
                                                 std::uint32_t channel) {
  Normalizer<kCount> found{of_channels<kCount>(moments.mean, channel), of_channels<kCount>(scale, channel),
                           of_channels<kCount>(shift, channel)};
  const Numbers<kCount> inverse = of_channels<kCount>(moments.inverse, channel);
  for (unsigned k = 0; k < kCount; ++k) found.factor.of[k] *= inverse.of[k];
  return found;
}

struct NormalizeBatchArgs {
  const StreamState* stream;
  void* to;
  const void* from;
  const void* added;  // to what is normalized; null: nothing
  const float* moments;
  const float* scale;
  const float* shift;
  ChannelTiles tiles;
  Stored to_type;
  Stored from_type;
  Stored added_type;
  std::uint32_t with_relu;
};
template <unsigned kCount>
TROUPE_KERNEL_BODY void normalize_batch_of(const Block& block, const NormalizeBatchArgs& args) {
  constexpr Width<kCount> width{};
  struct Brought {
    StoredNumbers<kCount> from, added;
  };
  void* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  const void* const added = block.at(args.added);
  const ChannelTiles& tiles = args.tiles;
  const NormMoments moments = norm_moments(const_cast<float*>(block.at(args.moments)), tiles.channels);
  const float* const scale = block.at(args.scale);
  const float* const shift = block.at(args.shift);
  for_each_tile(block, tiles, [&](std::uint32_t part, std::uint32_t tile) {
    block.for_each_thread([&](unsigned t) {
      const ChannelThread thread = channel_thread(tiles, tile, t);
      if (thread.is_idle) return;
      const auto normal = normalizer<kCount>(moments, scale, shift, thread.channel);
      const auto bring_row = [&](std::uint64_t row) {
        const std::uint64_t i = row * tiles.channels + thread.channel;
        Brought found{bring(width, from, args.from_type, i), {}};
        if (added != nullptr) found.added = bring(width, added, args.added_type, i);
        return found;
      };
      for_each_row(tiles, part, thread.lane, /*from_last=*/true, bring_row,
                   [&](std::uint64_t row, const Brought& brought) {
                     Numbers<kCount> y = numbers_of(brought.from, args.from_type);
                     for (unsigned k = 0; k < kCount; ++k) y.of[k] = normal(k, y.of[k]);
                     if (added != nullptr) {
                       const Numbers<kCount> other = numbers_of(brought.added, args.added_type);
                       for (unsigned k = 0; k < kCount; ++k) y.of[k] += other.of[k];
                     }
                     if (args.with_relu != 0)
                       for (unsigned k = 0; k < kCount; ++k) y.of[k] = y.of[k] > 0 ? y.of[k] : 0.0F;
                     store(width, to, args.to_type, row * tiles.channels + thread.channel, y);
                   });
    });
  });
}
TROUPE_KERNEL_BODY void normalize_batch(const Block& block, const NormalizeBatchArgs& args) {
  with_pack(args.tiles, [&](auto pack) { normalize_batch_of<pack()>(block, args); });
}

/// A ReLU behind a batch norm, and where its backward pass is done.
enum class NormRelu : std::uint32_t {
  none,
  again,  // the gradient is to what the ReLU has put out, and what it has read is computed again
  kept,   // likewise; what the ReLU has put out was kept, of a sum
};

/// Sums of the gradients to each channel's output, and of these times the normalized input; with them the gradients to
/// a batch norm's parameters, and the batch's statistics in the place of the running ones'.
struct SumSlopesArgs {
  const StreamState* stream;
  float* sums_to;  // [channels] of slopes, and behind them [channels] of slopes times the normalized input
  float* scale_to;
  float* shift_to;
  float* mean_to;        // minus the samples times the mean
  float* variance_to;    // likewise, of the variance over the count less one
  SlopeSums* partial;    // [parts, channels]
  const void* gradient;  // [rows, channels]
  const void* from;      // likewise
  const void* kept;      // NormRelu::kept: what the ReLU has put out
  void* to;              // NormRelu::kept: the gradient to what the ReLU has read; may be `gradient`
  const float* moments;
  const float* scale;
  const float* shift;
  const std::uint64_t* samples;
  ChannelTiles tiles;
  Stored gradient_type;
  Stored from_type;
  Stored kept_type;
  NormRelu relu;
  Factor factor{};  // of what goes to scale_to and shift_to
};
TROUPE_KERNEL_BODY void end_slopes(const Block& block, const SumSlopesArgs& args, std::uint32_t c,
                                   const SlopeSums& sum) {
  const std::uint32_t channels = args.tiles.channels;
  const NormMoments moments = norm_moments(const_cast<float*>(block.at(args.moments)), channels);
  const auto samples = static_cast<float>(*block.at(args.samples));
  const float factor = value_of(block, args.factor);
  const auto rows = static_cast<float>(args.tiles.count_rows);
  const float unbiased = args.tiles.count_rows > 1 ? rows / (rows - 1) : 1.0F;
  block.at(args.sums_to)[c] = sum.slopes, block.at(args.sums_to)[channels + c] = sum.by_normal;
  block.at(args.scale_to)[c] = sum.by_normal * factor;
  block.at(args.shift_to)[c] = sum.slopes * factor;
  block.at(args.mean_to)[c] = -samples * moments.mean[c];
  block.at(args.variance_to)[c] = -samples * (unbiased * moments.variance[c]);
}
template <unsigned kCount>
TROUPE_KERNEL_BODY void sum_slopes_of(const Block& block, const SumSlopesArgs& args) {
  constexpr Width<kCount> width{};
  struct Brought {
    StoredNumbers<kCount> gradient, from, kept;
  };
  const void* const gradient = block.at(args.gradient);
  const void* const from = block.at(args.from);
  const void* const kept = block.at(args.kept);
  void* const to = block.at(args.to);
  SlopeSums* const partial = block.at(args.partial);
  const ChannelTiles& tiles = args.tiles;
  const NormMoments moments = norm_moments(const_cast<float*>(block.at(args.moments)), tiles.channels);
  const float* const scale = block.at(args.scale);
  const float* const shift = block.at(args.shift);
  sum_tiles<SlopeSums, kCount>(
      block, tiles, args.stream, partial,
      [&](SumPair(&sums)[kCount], const ChannelThread& thread, std::uint32_t part) {
        const auto normal = normalizer<kCount>(moments, scale, shift, thread.channel);
        const auto bring_row = [&](std::uint64_t row) {
          const std::uint64_t i = row * tiles.channels + thread.channel;
          Brought found{bring(width, gradient, args.gradient_type, i), bring(width, from, args.from_type, i), {}};
          if (args.relu == NormRelu::kept) found.kept = bring(width, kept, args.kept_type, i);
          return found;
        };
        for_each_row(tiles, part, thread.lane, /*from_last=*/false, bring_row,
                     [&](std::uint64_t row, const Brought& brought) {
                       Numbers<kCount> slope = numbers_of(brought.gradient, args.gradient_type);
                       const Numbers<kCount> x = numbers_of(brought.from, args.from_type);
                       if (args.relu == NormRelu::kept) {
                         const Numbers<kCount> y = numbers_of(brought.kept, args.kept_type);
                         for (unsigned k = 0; k < kCount; ++k) slope.of[k] = y.of[k] > 0 ? slope.of[k] : 0.0F;
                         store(width, to, args.gradient_type, row * tiles.channels + thread.channel, slope);
                       } else if (args.relu == NormRelu::again) {
                         for (unsigned k = 0; k < kCount; ++k)
                           slope.of[k] = normal(k, x.of[k]) > 0 ? slope.of[k] : 0.0F;
                       }
                       for (unsigned k = 0; k < kCount; ++k) {
                         sums[k].first += slope.of[k];
                         sums[k].second += slope.of[k] * (x.of[k] - normal.mean.of[k]);
                       }
                     });
      },
      [&](const SumPair(&sums)[kCount], std::uint32_t channel, std::uint32_t part) {
        const Numbers<kCount> inverse = of_channels<kCount>(moments.inverse, channel);
        for (unsigned k = 0; k < kCount; ++k)
          partial[std::uint64_t{part} * tiles.channels + channel + k] = {sums[k].first, sums[k].second * inverse.of[k]};
      },
      [&](std::uint32_t c, const SlopeSums& sum) { end_slopes(block, args, c, sum); });
}
TROUPE_KERNEL_BODY void sum_slopes(const Block& block, const SumSlopesArgs& args) {
  with_pack(args.tiles, [&](auto pack) { sum_slopes_of<pack()>(block, args); });
}

/// Source: Ioffe, Szegedy 2015, section 3, with terms combined.
struct NormalizeBatchBackArgs {
  const StreamState* stream;
  GradientTo to;
  const void* gradient;
  const void* from;
  const float* moments;
  const float* sums;  // of sum_slopes
  const float* scale;
  const float* shift;
  ChannelTiles tiles;
  Stored gradient_type;
  Stored from_type;
  NormRelu relu;  // none, or again
  std::uint32_t reserved;
};
template <unsigned kCount>
TROUPE_KERNEL_BODY void normalize_batch_back_of(const Block& block, const NormalizeBatchBackArgs& args) {
  constexpr Width<kCount> width{};
  struct Brought {
    StoredNumbers<kCount> gradient, from, to;
  };
  void* const to = block.at(args.to.at);
  const void* const gradient = block.at(args.gradient);
  const void* const from = block.at(args.from);
  const ChannelTiles& tiles = args.tiles;
  const NormMoments moments = norm_moments(const_cast<float*>(block.at(args.moments)), tiles.channels);
  const float* const sums = block.at(args.sums);
  const float* const scale = block.at(args.scale);
  const float* const shift = block.at(args.shift);
  const float share = 1 / static_cast<float>(tiles.count_rows);
  for_each_tile(block, tiles, [&](std::uint32_t part, std::uint32_t tile) {
    block.for_each_thread([&](unsigned t) {
      const ChannelThread thread = channel_thread(tiles, tile, t);
      if (thread.is_idle) return;
      const auto normal = normalizer<kCount>(moments, scale, shift, thread.channel);
      Numbers<kCount> slopes = of_channels<kCount>(sums, thread.channel);
      Numbers<kCount> by_distance = of_channels<kCount>(sums + tiles.channels, thread.channel);
      const Numbers<kCount> inverse = of_channels<kCount>(moments.inverse, thread.channel);
      for (unsigned k = 0; k < kCount; ++k) slopes.of[k] *= share, by_distance.of[k] *= share * inverse.of[k];
      const auto bring_row = [&](std::uint64_t row) {
        const std::uint64_t i = row * tiles.channels + thread.channel;
        Brought found{bring(width, gradient, args.gradient_type, i), bring(width, from, args.from_type, i), {}};
        if (args.to.adds != 0) found.to = bring(width, to, args.to.type, i);
        return found;
      };
      for_each_row(
          tiles, part, thread.lane, /*from_last=*/true, bring_row, [&](std::uint64_t row, const Brought& brought) {
            Numbers<kCount> slope = numbers_of(brought.gradient, args.gradient_type);
            const Numbers<kCount> x = numbers_of(brought.from, args.from_type);
            if (args.relu == NormRelu::again)
              for (unsigned k = 0; k < kCount; ++k) slope.of[k] = normal(k, x.of[k]) > 0 ? slope.of[k] : 0.0F;
            for (unsigned k = 0; k < kCount; ++k) {
              const float rest = slope.of[k] - slopes.of[k] - (x.of[k] - normal.mean.of[k]) * by_distance.of[k];
              slope.of[k] = normal.factor.of[k] * rest;
            }
            if (args.to.adds != 0) {
              const Numbers<kCount> before = numbers_of(brought.to, args.to.type);
              for (unsigned k = 0; k < kCount; ++k) slope.of[k] += before.of[k];
            }
            store(width, to, args.to.type, row * tiles.channels + thread.channel, slope);
          });
    });
  });
}
TROUPE_KERNEL_BODY void normalize_batch_back(const Block& block, const NormalizeBatchBackArgs& args) {
  with_pack(args.tiles, [&](auto pack) { normalize_batch_back_of<pack()>(block, args); });
}

#if !defined(__CUDACC__)
constexpr std::uint64_t count_elements(const ChannelTiles& of) noexcept { return of.count_rows * of.channels; }

inline void declare(Accesses& touched, const SumMomentsArgs& args) {
  touched.reads(args.from, count_elements(args.tiles) * bytes_of(args.from_type));
  touched.writes(args.partial, std::uint64_t{args.tiles.parts} * args.tiles.channels * sizeof(Moments));
  touched.writes(args.to, 3 * std::uint64_t{args.tiles.channels} * sizeof(float));
}
inline void declare(Accesses& touched, const RunningMomentsArgs& args) {
  touched.reads(args.mean, args.channels * sizeof(float));
  touched.reads(args.variance, args.channels * sizeof(float));
  touched.writes(args.to, 3 * args.channels * sizeof(float));
}
inline void declare(Accesses& touched, const NormalizeBatchArgs& args) {
  const std::uint64_t count = count_elements(args.tiles), channels = args.tiles.channels;
  touched.reads(args.from, count * bytes_of(args.from_type));
  touched.reads(args.added, count * bytes_of(args.added_type));
  touched.reads(args.moments, 3 * channels * sizeof(float));
  touched.reads(args.scale, channels * sizeof(float));
  touched.reads(args.shift, channels * sizeof(float));
  touched.writes(args.to, count * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const SumSlopesArgs& args) {
  const std::uint64_t count = count_elements(args.tiles), channels = args.tiles.channels;
  touched.reads(args.gradient, count * bytes_of(args.gradient_type));
  touched.reads(args.from, count * bytes_of(args.from_type));
  touched.reads(args.kept, count * bytes_of(args.kept_type));
  touched.reads(args.moments, 3 * channels * sizeof(float));
  touched.reads(args.scale, channels * sizeof(float));
  touched.reads(args.shift, channels * sizeof(float));
  touched.writes(args.to, count * bytes_of(args.gradient_type));
  touched.writes(args.partial, args.tiles.parts * channels * sizeof(SlopeSums));
  touched.reads(args.samples, sizeof *args.samples);
  touched.reads(args.factor.at, sizeof(float));
  touched.writes(args.sums_to, 2 * channels * sizeof(float));
  for (float* const to : {args.scale_to, args.shift_to, args.mean_to, args.variance_to})
    touched.writes(to, channels * sizeof(float));
}
inline void declare(Accesses& touched, const NormalizeBatchBackArgs& args) {
  const std::uint64_t count = count_elements(args.tiles), channels = args.tiles.channels;
  touched.reads(args.gradient, count * bytes_of(args.gradient_type));
  touched.reads(args.from, count * bytes_of(args.from_type));
  touched.reads(args.moments, 3 * channels * sizeof(float));
  touched.reads(args.sums, 2 * channels * sizeof(float));
  touched.reads(args.scale, channels * sizeof(float));
  touched.reads(args.shift, channels * sizeof(float));
  touched.writes(args.to.at, count * bytes_of(args.to.type));
}
#endif

}  // namespace troupe::cuda
