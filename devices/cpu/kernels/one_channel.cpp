#include "devices/cpu/kernels/one_channel.hpp"

#include "runtime/base/cpu_isa.hpp"

#if defined(TROUPE_KERNELS_X86)
#include <immintrin.h>
#endif

namespace troupe::cpu {

bool may_convolve_one_channel() { return may_use(CpuIsa::avx512_bf16); }

/// [kernel row, pair, lane]: the weights of a pair's two elements in one word. Where pairs overlap, the element that
/// both have counts in the first one.
void pack_one_channel(const OneChannelConvolution& of, const std::uint16_t* weights, std::uint32_t* packed) {
  const std::size_t pairs = of.pairs_of_row();
  for (std::size_t row = 0; row < of.kernel_height; ++row) {
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const bool overlaps = 2 * pair + 2 > of.kernel_width;
      const std::size_t first = overlaps ? of.kernel_width - 2 : 2 * pair;
      for (std::size_t lane = 0; lane < OneChannelConvolution::kLanes; ++lane) {
        const std::uint16_t* const of_lane = weights + (lane * of.kernel_height + row) * of.kernel_width;
        const std::uint32_t low = lane >= of.filters || overlaps ? 0U : of_lane[first];
        const std::uint32_t high = lane >= of.filters ? 0U : of_lane[first + 1];
        packed[(row * pairs + pair) * OneChannelConvolution::kLanes + lane] = low | high << 16;
      }
    }
  }
}

#if defined(TROUPE_KERNELS_X86)

namespace {

#define TROUPE_BF16_CODE [[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]]

/// Output elements of a row that are computed at a time: their sums stay in registers.
constexpr std::size_t kPixels = 8;

/// `kTail`: how many filters the second vector has room for: 0, 4, 8 or 16.
template <std::size_t kTail>
struct TailVector {
  using Sum = __m512;
  TROUPE_BF16_CODE static Sum load(const void* from) { return _mm512_loadu_ps(from); }
  TROUPE_BF16_CODE static Sum add(Sum sum, __m512i pair, const std::uint32_t* weights) {
    return _mm512_dpbf16_ps(sum, (__m512bh)pair, (__m512bh)_mm512_loadu_si512(weights));
  }
  TROUPE_BF16_CODE static void store(std::uint16_t* to, Sum sum, std::size_t count, bool relu) {
    if (relu) sum = _mm512_max_ps(sum, _mm512_setzero_ps());
    _mm256_mask_storeu_epi16(to, static_cast<__mmask16>((1U << count) - 1), (__m256i)_mm512_cvtneps_pbh(sum));
  }
};
template <>
struct TailVector<8> {
  using Sum = __m256;
  TROUPE_BF16_CODE static Sum load(const void* from) { return _mm256_loadu_ps(static_cast<const float*>(from)); }
  TROUPE_BF16_CODE static Sum add(Sum sum, __m512i pair, const std::uint32_t* weights) {
    return _mm256_dpbf16_ps(sum, (__m256bh)_mm512_castsi512_si256(pair),
                            (__m256bh)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)));
  }
  TROUPE_BF16_CODE static void store(std::uint16_t* to, Sum sum, std::size_t count, bool relu) {
    if (relu) sum = _mm256_max_ps(sum, _mm256_setzero_ps());
    _mm_mask_storeu_epi16(to, static_cast<__mmask8>((1U << count) - 1), (__m128i)_mm256_cvtneps_pbh(sum));
  }
};
template <>
struct TailVector<4> {
  using Sum = __m128;
  TROUPE_BF16_CODE static Sum load(const void* from) { return _mm_loadu_ps(static_cast<const float*>(from)); }
  TROUPE_BF16_CODE static Sum add(Sum sum, __m512i pair, const std::uint32_t* weights) {
    return _mm_dpbf16_ps(sum, (__m128bh)_mm512_castsi512_si128(pair),
                         (__m128bh)_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights)));
  }
  TROUPE_BF16_CODE static void store(std::uint16_t* to, Sum sum, std::size_t count, bool relu) {
    if (relu) sum = _mm_max_ps(sum, _mm_setzero_ps());
    _mm_mask_storeu_epi16(to, static_cast<__mmask8>((1U << count) - 1), (__m128i)_mm_cvtneps_pbh(sum));
  }
};

/// `count` output elements of a row, from that of which `image` is the first element under the kernel. Where a row has
/// fewer than kPixels left, the last of them is computed again in their place, and stored once.
template <std::size_t kTail>
TROUPE_BF16_CODE void convolve_pixels(const OneChannelConvolution& of, const std::uint16_t* image, std::size_t count,
                                      const std::uint32_t* packed, const float* bias, std::uint16_t* to) {
  using Tail = TailVector<kTail>;
  __m512 head[kPixels];
  typename Tail::Sum tail[kPixels];
  for (std::size_t p = 0; p < kPixels; ++p) {
    head[p] = _mm512_loadu_ps(bias);
    if constexpr (kTail > 0) tail[p] = Tail::load(bias + 16);
  }
  const std::size_t pairs = of.pairs_of_row(), last = count - 1;
  for (std::size_t row = 0; row < of.kernel_height; ++row, image += of.width) {
    for (std::size_t pair = 0; pair < pairs; ++pair, packed += OneChannelConvolution::kLanes) {
      const std::uint16_t* const at = image + (2 * pair + 2 > of.kernel_width ? of.kernel_width - 2 : 2 * pair);
      const __m512bh weights = (__m512bh)_mm512_loadu_si512(packed);
#pragma GCC unroll 8
      for (std::size_t p = 0; p < kPixels; ++p) {
        std::int32_t two;
        __builtin_memcpy(&two, at + (p < last ? p : last), sizeof two);
        const __m512i elements = _mm512_set1_epi32(two);
        head[p] = _mm512_dpbf16_ps(head[p], (__m512bh)elements, weights);
        if constexpr (kTail > 0) tail[p] = Tail::add(tail[p], elements, packed + 16);
      }
    }
  }
  const std::size_t of_head = of.filters < 16 ? of.filters : 16;
  for (std::size_t p = 0; p < count; ++p, to += of.filters) {
    TailVector<16>::store(to, head[p], of_head, of.relu);
    if constexpr (kTail > 0) Tail::store(to + 16, tail[p], of.filters - 16, of.relu);
  }
}

template <std::size_t kTail>
TROUPE_BF16_CODE void convolve_image(const OneChannelConvolution& of, const std::uint16_t* image,
                                     const std::uint32_t* packed, const float* bias, std::uint16_t* to) {
  for (std::size_t y = 0; y < of.output_height(); ++y, image += of.width) {
    for (std::size_t x = 0; x < of.output_width(); x += kPixels) {
      const std::size_t left = of.output_width() - x, count = left < kPixels ? left : kPixels;
      convolve_pixels<kTail>(of, image + x, count, packed, bias, to);
      to += count * of.filters;
    }
  }
}

}  // namespace

void convolve_one_channel(const OneChannelConvolution& of, const std::uint16_t* image, const std::uint32_t* packed,
                          const float* bias, std::uint16_t* to) {
  if (of.filters <= 16) return convolve_image<0>(of, image, packed, bias, to);
  if (of.filters <= 20) return convolve_image<4>(of, image, packed, bias, to);
  if (of.filters <= 24) return convolve_image<8>(of, image, packed, bias, to);
  convolve_image<16>(of, image, packed, bias, to);
}

#else

void convolve_one_channel(const OneChannelConvolution&, const std::uint16_t*, const std::uint32_t*, const float*,
                          std::uint16_t*) {}

#endif

}  // namespace troupe::cpu
