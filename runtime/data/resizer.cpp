#include "runtime/data/resizer.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.hpp"
#include "runtime/data/detail/pixel_kernels.hpp"

namespace troupe {
namespace {

constexpr std::size_t kTapStep = 8;                     // kernels may read so many weights at once
constexpr std::size_t kGroupResults = 16;               // results that are blended at once by kernels that permute
constexpr std::size_t kGroupSamples = 64;               // samples that such a kernel can choose from
constexpr std::size_t kRowPadding = 2 * kGroupSamples;  // elements that kernels may read or write behind a row

/// Weights in units of 2^-14, whose sum is exactly one: an area of one color keeps it.
void to_16_bits(const std::vector<double>& weights, std::size_t taps, std::int16_t* to) {
  double sum = 0;
  for (std::size_t k = 0; k < taps; ++k) sum += weights[k];
  int left = detail::kPixelWeightOne;
  std::size_t largest = 0;
  for (std::size_t k = 0; k < taps; ++k) {
    const auto weight = static_cast<int>(weights[k] / sum * detail::kPixelWeightOne + 0.5);
    to[k] = static_cast<std::int16_t>(weight);
    left -= weight;
    if (to[k] > to[largest]) largest = k;
  }
  to[largest] = static_cast<std::int16_t>(to[largest] + left);
}

std::size_t rounded_up(std::size_t count, std::size_t to) { return (count + to - 1) / to * to; }

}  // namespace

void Resizer::make_axis(const Stretch& stretch, std::uint32_t to, Axis& axis) {
  const double step = stretch.extent / to;
  const double reach = std::max(1.0, step);  // half of the filter's width
  const std::size_t fine = std::min<std::size_t>(static_cast<std::size_t>(std::ceil(2 * reach)) + 1, stretch.pixels);
  const std::uint32_t factor = stretch.factor;
  axis.taps = factor == 1 ? fine : std::min<std::size_t>((fine - 1) / factor + 3, stretch.samples);
  axis.distance = rounded_up(axis.taps, kTapStep);
  axis.first.resize(to);
  axis.weights.assign(axis.distance * to, 0);
  fine_.resize(fine);
  for (std::uint32_t i = 0; i < to; ++i) {
    const double center = stretch.first + (i + 0.5) * step;
    const std::int64_t begin = std::clamp(static_cast<std::int64_t>(std::floor(center - reach)), std::int64_t{0},
                                          static_cast<std::int64_t>(stretch.pixels - fine));
    for (std::size_t k = 0; k < fine; ++k) {
      const double distance = std::abs(static_cast<double>(begin) + static_cast<double>(k) + 0.5 - center) / reach;
      fine_[k] = std::max(0.0, 1.0 - distance);
    }
    std::int16_t* const weights = axis.weights.data() + axis.distance * i;
    if (factor == 1) {
      axis.first[i] = static_cast<std::uint32_t>(begin);
      to_16_bits(fine_, fine, weights);
      continue;
    }
    // A pixel lies between two samples, whose centers are `factor` pixels apart; at the edges there is only one.
    const auto place = [&](std::size_t k) {
      return (static_cast<double>(begin) + static_cast<double>(k) + 0.5) / factor - 0.5;
    };
    const auto last_first = static_cast<std::int64_t>(stretch.samples - axis.taps);
    const auto first = std::clamp(static_cast<std::int64_t>(std::floor(place(0))), std::int64_t{0}, last_first);
    coarse_.assign(axis.taps, 0.0);
    for (std::size_t k = 0; k < fine; ++k) {
      const double low = std::floor(place(k)), part = place(k) - low;
      const auto sample = [&](double at) {
        const double last = static_cast<double>(stretch.samples) - 1;
        return static_cast<std::size_t>(static_cast<std::int64_t>(std::clamp(at, 0.0, last)) - first);
      };
      coarse_[sample(low)] += fine_[k] * (1 - part);
      coarse_[sample(low + 1)] += fine_[k] * part;
    }
    axis.first[i] = static_cast<std::uint32_t>(first);
    to_16_bits(coarse_, axis.taps, weights);
  }
}

/// For kernels that blend kGroupResults results at once: which two samples of the group's window each of its lanes
/// takes, and their weights, pair after pair. Left out where the window is too small.
void Resizer::arrange_groups(Filter& filter) const {
  const Axis& across = filter.across;
  const std::size_t groups = rounded_up(width_, kGroupResults) / kGroupResults;
  filter.pairs = 0;
  filter.group_first.resize(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    const auto begin = across.first.begin() + static_cast<std::ptrdiff_t>(g * kGroupResults);
    const auto end =
        across.first.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>((g + 1) * kGroupResults, width_));
    const auto [least, most] = std::minmax_element(begin, end);
    if (*most - *least + rounded_up(across.taps, 2) > kGroupSamples) return;
    filter.group_first[g] = *least;
  }
  filter.pairs = rounded_up(across.taps, 2) / 2;
  filter.picks.assign(groups * filter.pairs * 2 * kGroupResults, 0);
  filter.pick_weights.assign(filter.picks.size(), 0);
  for (std::size_t x = 0; x < width_; ++x) {
    const std::size_t g = x / kGroupResults;
    for (std::size_t k = 0; k < 2 * filter.pairs; ++k) {
      const std::size_t at = (g * filter.pairs + k / 2) * 2 * kGroupResults + x % kGroupResults * 2 + k % 2;
      filter.picks[at] = static_cast<std::uint16_t>(across.first[x] - filter.group_first[g] + k);
      filter.pick_weights[at] = across.weights[x * across.distance + k];
    }
  }
}

void Resizer::make_filter(const PixelPlane& plane, const PixelWindow& window, Filter& filter) {
  make_axis({window.top, window.height, from_.height, plane.height, plane.down}, height_, filter.down);
  make_axis({window.left, window.width, from_.width, plane.width, plane.across}, width_, filter.across);
  TROUPE_CHECK(filter.down.first.front() >= plane.first_row &&
                   filter.down.first.back() + filter.down.taps <= std::min(plane.end_row, plane.height),
               Code::invalid, "rows ", filter.down.first.front(), " to ", filter.down.first.back() + filter.down.taps,
               " are needed, those from ", plane.first_row, " to ", plane.end_row, " are there");
  Axis& across = filter.across;
  filter.first_column = across.first.front();
  filter.columns = across.first.back() + static_cast<std::uint32_t>(across.taps) - filter.first_column;
  for (std::uint32_t& first : across.first) first -= filter.first_column;
  if (flipped_) {
    std::ranges::reverse(across.first);
    for (std::size_t x = 0; x < width_ / 2; ++x)
      std::swap_ranges(across.weights.begin() + static_cast<std::ptrdiff_t>(x * across.distance),
                       across.weights.begin() + static_cast<std::ptrdiff_t>((x + 1) * across.distance),
                       across.weights.begin() + static_cast<std::ptrdiff_t>((width_ - 1 - x) * across.distance));
  }
  if (detail::best_pixel_kernels().permutes) arrange_groups(filter);
}

void Resizer::begin(const PixelPlanes& from, const PixelWindow& window, std::uint32_t height, std::uint32_t width,
                    bool flipped) {
  from_ = from;
  height_ = height;
  width_ = width;
  flipped_ = flipped;
  std::size_t longest = 0;
  for (std::uint32_t c = 0; c < from.count; ++c) {
    const PixelPlane &plane = from.planes[c], &before = from.planes[c == 0 ? 0 : c - 1];
    const bool same = c > 0 && plane.down == before.down && plane.across == before.across &&
                      plane.height == before.height && plane.width == before.width;
    shared_[c] = same ? shared_[c - 1] : c;
    if (!same) make_filter(plane, window, filters_[c]);
    longest = std::max<std::size_t>(longest, filter_of(c).columns);
    rows_[c].resize(width + kRowPadding);
  }
  row_.resize(longest + kRowPadding);
}

void Resizer::begin(const PixelView& from, const PixelWindow& window, std::uint32_t height, std::uint32_t width,
                    std::uint32_t channels, bool flipped) {
  PixelPlanes planes{.count = channels, .height = from.height, .width = from.width};
  for (std::uint32_t c = 0; c < channels; ++c) {
    split_[c].resize(std::size_t{from.height} * from.width);
    for (std::uint32_t y = 0; y < from.height; ++y) {
      const std::uint8_t* const row = from.data + y * from.stride + c;
      std::uint8_t* const to = split_[c].data() + std::size_t{y} * from.width;
      for (std::uint32_t x = 0; x < from.width; ++x) to[x] = row[std::size_t{x} * from.channels];
    }
    planes.planes[c] = {.data = split_[c].data(),
                        .stride = from.width,
                        .end_row = from.height,
                        .height = from.height,
                        .width = from.width};
  }
  begin(planes, window, height, width, flipped);
}

void Resizer::write_row(std::uint32_t y, std::uint32_t channels, std::uint8_t* to) {
  const detail::PixelKernels& kernels = detail::best_pixel_kernels();
  for (std::uint32_t c = 0; c < from_.count; ++c) {
    const PixelPlane& plane = from_.planes[c];
    const Filter& filter = filter_of(c);
    const std::uint8_t* const rows =
        plane.data + (filter.down.first[y] - plane.first_row) * plane.stride + filter.first_column;
    kernels.blend_down(row_.data(), rows, plane.stride, filter.down.weights.data() + filter.down.distance * y,
                       filter.down.taps, filter.columns);
    kernels.blend_across(
        rows_[c].data(), row_.data(),
        {width_, filter.across.taps, filter.across.distance, filter.across.first.data(), filter.across.weights.data(),
         filter.pairs, filter.group_first.data(), filter.picks.data(), filter.pick_weights.data()});
  }
  const std::int16_t* const first = rows_[0].data();
  if (channels == 3) {
    const bool grey = from_.count == 1;
    const std::int16_t *const second = grey ? first : rows_[1].data(), *const third = grey ? first : rows_[2].data();
    return (from_.luma ? kernels.merge_luma : kernels.merge_colors)(to, first, second, third, width_);
  }
  for (std::uint32_t c = 0; c < channels; ++c)
    for (std::uint32_t x = 0; x < width_; ++x)
      to[std::size_t{x} * channels + c] = static_cast<std::uint8_t>((rows_[c][x] + 64) >> 7);
}

void Resizer::resize(const PixelView& from, const PixelWindow& window, std::uint32_t height, std::uint32_t width,
                     std::uint32_t channels, std::uint8_t* to) {
  begin(from, window, height, width, channels, /*flipped=*/false);
  for (std::uint32_t y = 0; y < height; ++y) write_row(y, channels, to + std::size_t{y} * width * channels);
}

}  // namespace troupe
