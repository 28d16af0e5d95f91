#include <immintrin.h>

#include "devices/cpu/kernels/weight_layouts.hpp"

namespace troupe::cpu {
namespace weight_layouts_avx512 {
namespace {

#include "devices/cpu/kernels/lanes_512.inc"

using Vector = Lanes512::Vector;
using Word = std::uint32_t;
using Of = ConvolutionWeights;
constexpr std::size_t kLanes = Lanes512::kLanes;
static_assert(kLanes == Of::kFilters);

/// to[i] = column i of 16 rows that are `next` words apart.
[[gnu::always_inline]] inline void load_columns(const Word* from, std::size_t next, Vector (&to)[kLanes]) {
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes; ++i) to[i] = Lanes512::load(from + i * next);
  Lanes512::transpose(to);
}

/// The elements `low` and `high` of a column's words, one of which is an even and one an odd element.
inline __m512i pair_of(const Vector* words, std::size_t low, std::size_t high) {
  const __m512i a = _mm512_castps_si512(words[low / 2]), b = _mm512_castps_si512(words[high / 2]);
  if (low % 2 == 0) return _mm512_mask_mov_epi16(a, 0xaaaaaaaaU, b);
  return _mm512_or_si512(_mm512_srli_epi32(a, 16), _mm512_slli_epi32(b, 16));
}

/// Two channels have a whole number of words, whose first half the taps of the first channel are: their pairs are one
/// even and one odd element, since the number of taps is odd.
void to_pairs_of_channels(const Of& of, std::size_t group, std::size_t block, const std::uint16_t* from,
                          std::uint16_t* to) {
  constexpr std::size_t kPairs = Of::kChannels / 2;
  const std::size_t taps = of.taps, pairs = of.channels / 2, row = of.row / 2, filter = group * kLanes;
  const auto* const rows = reinterpret_cast<const Word*>(from + filter * of.row);
  Word* const first = reinterpret_cast<Word*>(to) + filter / block * block * pairs * taps + filter % block;
  Vector words[kPairs * Of::kMostTaps];
  for (std::size_t pair = 0; pair < pairs; pair += kPairs) {
    for (std::size_t tile = 0; tile < taps; ++tile) {
      Vector columns[kLanes];
      load_columns(rows + pair * taps + tile * kLanes, row, columns);
      for (std::size_t i = 0; i < kLanes; ++i) words[tile * kLanes + i] = columns[i];
    }
    for (std::size_t p = 0; p < kPairs; ++p)
      for (std::size_t t = 0; t < taps; ++t)
        _mm512_storeu_si512(first + (t * pairs + pair + p) * block, pair_of(words + p * taps, t, taps + t));
  }
}

void to_pairs_of_filters(const Of& of, std::size_t group, bool channels_first, const std::uint16_t* from,
                         std::uint16_t* to) {
  constexpr std::size_t kPairs = Of::kFilters / 2, kRoom = kLanes * (Of::kMostTaps + 1);
  const std::size_t taps = of.taps, row = of.channels * taps, blocks = of.channels / kLanes;
  const std::uint16_t* const rows = from + group * kLanes * row;
  const auto halves = [](const std::uint16_t* at) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  };
  // 16 channels of two filters, in the order of the channels; what is behind them is read and not used.
  alignas(64) Word room[kPairs][kRoom] = {};
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t place = channels_first ? block * (of.filters / kLanes) + group : group * blocks + block;
    Word* const first = reinterpret_cast<Word*>(to) + place * taps * kPairs * kLanes;
    for (std::size_t p = 0; p < kPairs; ++p) {
      const std::uint16_t* const at = rows + 2 * p * row + block * kLanes * taps;
      for (std::size_t i = 0; i < taps * kLanes; i += kLanes)
        _mm512_store_si512(room[p] + i, _mm512_or_si512(halves(at + i), _mm512_slli_epi32(halves(at + row + i), 16)));
    }
    for (std::size_t p = 0; p < kPairs; ++p) {
      if (taps == 1) {
        Lanes512::store(first + p * kLanes, Lanes512::load(room[p]));
        continue;
      }
      Vector columns[kLanes];
      load_columns(room[p], taps, columns);
      for (std::size_t t = 0; t < taps; ++t) Lanes512::store(first + (t * kPairs + p) * kLanes, columns[t]);
    }
  }
}

/// The weights of a filter are words in the order of channels and, of each of these, taps.
void to_filters(const Of& of, std::size_t group, const FilterBlocks& blocks, const float* from, float* to) {
  const std::size_t taps = of.taps, words = of.channels * taps, filter = group * kLanes;
  const auto* const rows = reinterpret_cast<const Word*>(from) + filter * of.row;
  float* block = to + filter / blocks.filters * blocks.filters * words + filter % blocks.filters;
  std::size_t channel = 0, tap = 0;  // of the block
  for (std::size_t word = 0; word < words; word += kLanes) {
    Vector columns[kLanes];
    load_columns(rows + word, of.row, columns);
    for (const Vector& column : columns) {
      Lanes512::store(block + (tap * blocks.channels + channel) * blocks.filters, column);
      if (++tap < taps) continue;
      tap = 0;
      if (++channel < blocks.channels) continue;
      channel = 0;
      block += blocks.channels * taps * blocks.filters;
    }
  }
}

void to_channels(const Of& of, std::size_t group, bool channels_first, const float* from, float* to) {
  const std::size_t taps = of.taps, row = of.channels * taps, blocks = of.channels / kLanes;
  const float* const rows = from + group * kLanes * row;
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t place = channels_first ? block * of.groups() + group : group * blocks + block;
    float* const first = to + place * taps * kLanes * kLanes;
    for (std::size_t filter = 0; filter < kLanes; ++filter) {
      const float* const at = rows + filter * row + block * kLanes * taps;
      if (taps == 1) {
        Lanes512::store(first + filter * kLanes, Lanes512::load(at));
        continue;
      }
      Vector columns[kLanes];
      for (std::size_t c = 0; c < kLanes; ++c) columns[c] = Lanes512::load_part(at + c * taps, taps);
      Lanes512::transpose(columns);
      for (std::size_t t = 0; t < taps; ++t) Lanes512::store(first + (t * kLanes + filter) * kLanes, columns[t]);
    }
  }
}

void from_blocks(const Of& of, std::size_t group, const float* from, float* to) {
  const std::size_t taps = of.taps, row = of.channels * taps;
  float* const rows = to + group * kLanes * row;
  const float* block = from + group * kLanes * row;
  for (std::size_t c = 0; c < of.channels; c += kLanes, block += taps * kLanes * kLanes) {
    std::size_t channel = 0, tap = 0;
    for (std::size_t tile = 0; tile < taps; ++tile) {
      Vector columns[kLanes];
      for (std::size_t i = 0; i < kLanes; ++i) {
        columns[i] = Lanes512::load(block + (tap * kLanes + channel) * kLanes);
        if (++tap == taps) tap = 0, ++channel;
      }
      Lanes512::transpose(columns);
      for (std::size_t i = 0; i < kLanes; ++i) Lanes512::store(rows + i * row + c * taps + tile * kLanes, columns[i]);
    }
  }
}

constexpr WeightLayoutKernels kTable{to_pairs_of_channels, to_pairs_of_filters, to_filters, to_channels, from_blocks};

}  // namespace
}  // namespace weight_layouts_avx512

const WeightLayoutKernels kAvx512WeightLayouts = weight_layouts_avx512::kTable;

}  // namespace troupe::cpu
