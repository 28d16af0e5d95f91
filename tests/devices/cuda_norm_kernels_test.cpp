#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/devices/cuda_kernel_launch.hpp"
#include "tests/support/random_numbers.hpp"

// Kernels of batch norms against sums in f64.
namespace troupe::cuda {
namespace {

using testing::launch;

/// Numbers as a tensor stores them.
class Stores {
 public:
  Stores(Stored type, const std::vector<float>& values) : type_(type), bytes_(values.size() * bytes_of(type)) {
    for (std::size_t i = 0; i < values.size(); ++i) store(bytes_.data(), type, i, values[i]);
  }
  std::byte* at() { return bytes_.data(); }
  double operator[](std::size_t i) const { return double{load(bytes_.data(), type_, i)}; }

 private:
  Stored type_;
  std::vector<std::byte> bytes_;
};

struct Extents {
  std::size_t rows;
  std::uint32_t channels;
};
/// Channels one by one and in packs, tiles that are not full, and rows of one part and of several.
constexpr Extents kExtents[] = {{1, 1},     {31, 33},   {33, 31},  {4097, 3}, {67, 8},
                                {2000, 12}, {1031, 24}, {3, 4096}, {600, 200}};

/// A batch norm with a ReLU behind it, or with a sum and a ReLU.
class BatchNormOf {
 public:
  BatchNormOf(Extents of, Stored type, NormRelu relu, float distance = 0)
      : rows_(of.rows),
        channels_(of.channels),
        type_(type),
        relu_(relu),
        tiles_(channel_tiles(rows_, channels_, type != Stored::f32, 5)),
        x_(type, moved(1, distance)),
        added_(type, moved(2, 0)),
        gradient_(type, moved(3, 0)),
        y_(type, std::vector<float>(count(), 9)),
        to_(type, std::vector<float>(count(), 2)),
        scale_(random_numbers(4, channels_)),
        shift_(random_numbers(5, channels_)),
        moments_(3 * std::size_t{channels_}),
        sums_(2 * std::size_t{channels_}) {
    for (std::vector<float>& one : gradients_) one.assign(channels_, 9);
  }

  void run() {
    std::vector<Moments> moments_of_parts(std::size_t{tiles_.parts} * channels_, {NAN, NAN, NAN});
    launch("sum_moments",
           SumMomentsArgs{&state_, moments_.data(), moments_of_parts.data(), x_.at(), tiles_, type_, 1e-5F});
    NormalizeBatchArgs forward{};
    forward.to = y_.at(), forward.from = x_.at(), forward.moments = moments_.data();
    forward.to_type = forward.from_type = forward.added_type = type_;
    forward.added = relu_ == NormRelu::kept ? added_.at() : nullptr, forward.with_relu = relu_ != NormRelu::none;
    forward.scale = scale_.data(), forward.shift = shift_.data(), forward.tiles = tiles_;
    launch("normalize_batch", forward);
    const Stores before = gradient_;
    std::vector<SlopeSums> slopes_of_parts(std::size_t{tiles_.parts} * channels_, {NAN, NAN});
    SumSlopesArgs sum{};
    sum.stream = &state_, sum.sums_to = sums_.data(), sum.partial = slopes_of_parts.data();
    sum.scale_to = gradients_[0].data(), sum.shift_to = gradients_[1].data();
    sum.mean_to = gradients_[2].data(), sum.variance_to = gradients_[3].data();
    sum.gradient = gradient_.at(), sum.from = x_.at(), sum.gradient_type = sum.from_type = sum.kept_type = type_;
    if (relu_ == NormRelu::kept) sum.kept = y_.at(), sum.to = gradient_.at();
    sum.moments = moments_.data(), sum.scale = scale_.data(), sum.shift = shift_.data();
    sum.samples = &kSamples, sum.tiles = tiles_, sum.relu = relu_, sum.factor = {&kHalf, 1};
    launch("sum_slopes", sum);
    NormalizeBatchBackArgs back{};
    back.to = {to_.at(), type_, 1}, back.gradient = gradient_.at(), back.from = x_.at();
    back.gradient_type = back.from_type = type_, back.moments = moments_.data(), back.sums = sums_.data();
    back.scale = scale_.data(), back.shift = shift_.data(), back.tiles = tiles_;
    back.relu = relu_ == NormRelu::again ? relu_ : NormRelu::none;
    launch("normalize_batch_back", back);
    for (std::uint32_t c = 0; c < channels_; ++c) compare(c, before);
    for (const std::uint32_t arrived : state_.arrived) ASSERT_EQ(arrived, 0U);
  }

 private:
  std::size_t count() const { return rows_ * channels_; }
  std::vector<float> moved(std::uint64_t key, float by) const {
    std::vector<float> values = random_numbers(key, count());
    for (float& value : values) value += by;
    return values;
  }
  void compare(std::uint32_t c, const Stores& before) {
    const auto rows = static_cast<double>(rows_);
    const double within = type_ == Stored::f32 ? 2e-5 : 0.02, scale = double{scale_[c]}, shift = double{shift_[c]};
    double mean = 0, variance = 0;
    for (std::size_t i = c; i < count(); i += channels_) mean += x_[i] / rows;
    for (std::size_t i = c; i < count(); i += channels_) variance += std::pow(x_[i] - mean, 2) / rows;
    const double inverse = 1 / std::sqrt(variance + 1e-5), of_mean = std::abs(mean * scale * inverse) * 0x1p-23;
    ASSERT_NEAR(double{moments_[c]}, mean, 1e-6 * (1 + std::abs(mean)));
    ASSERT_NEAR(double{moments_[2 * channels_ + c]}, variance, 1e-4 * (variance + 1e-6));
    double slopes = 0, by_normal = 0;
    const auto slope_at = [&](std::size_t i) { return relu_ == NormRelu::none || y_[i] > 0 ? before[i] : 0; };
    for (std::size_t i = c; i < count(); i += channels_) {
      const double normal = (x_[i] - mean) * inverse;
      const double y = scale * normal + shift + (relu_ == NormRelu::kept ? added_[i] : 0);
      ASSERT_NEAR(y_[i], relu_ == NormRelu::none || y > 0 ? y : 0, within * (1 + std::abs(y)) + of_mean) << i;
      ASSERT_EQ(gradient_[i], relu_ == NormRelu::kept ? slope_at(i) : before[i]) << i;
      slopes += slope_at(i), by_normal += slope_at(i) * normal;
    }
    const double sum_within = 1e-5 * rows + 1e-5;
    ASSERT_NEAR(double{gradients_[0][c]}, by_normal / 2, sum_within);
    ASSERT_NEAR(double{gradients_[1][c]}, slopes / 2, sum_within);
    ASSERT_NEAR(double{gradients_[2][c]}, -3 * mean, 1e-5 * (1 + std::abs(mean)));
    ASSERT_NEAR(double{gradients_[3][c]}, -3 * variance * (rows_ > 1 ? rows / (rows - 1) : 1),
                1e-3 * (variance + 1e-6));
    for (std::size_t i = c; i < count(); i += channels_) {
      const double normal = (x_[i] - mean) * inverse;
      const double to = 2 + scale * inverse * (slope_at(i) - slopes / rows - normal * by_normal / rows);
      ASSERT_NEAR(to_[i], to, within * (1 + std::abs(to) + std::abs(scale) * inverse)) << i;
    }
  }

  static constexpr std::uint64_t kSamples = 3;
  static constexpr float kHalf = 0.5F;
  const std::size_t rows_;
  const std::uint32_t channels_;
  const Stored type_;
  const NormRelu relu_;
  const ChannelTiles tiles_;
  Stores x_, added_, gradient_, y_, to_;
  const std::vector<float> scale_, shift_;
  std::vector<float> moments_, sums_;
  std::array<std::vector<float>, 4> gradients_;
  StreamState state_;
};

TEST(CudaNormKernels, NormalizeBatchesOfOddExtentsAndGiveGradientsWithWhatFollows) {
  for (const Extents& of : kExtents)
    for (const Stored type : {Stored::f32, Stored::bf16, Stored::f16})
      for (const NormRelu relu : {NormRelu::none, NormRelu::again, NormRelu::kept}) {
        SCOPED_TRACE(
            text(of.rows, " x ", of.channels, ", type ", static_cast<int>(type), ", relu ", static_cast<int>(relu)));
        BatchNormOf{of, type, relu}.run();
        if (::testing::Test::HasFatalFailure()) return;
      }
}

TEST(CudaNormKernels, LoseNothingOfNumbersFarFromZero) {
  for (const Extents& of : {Extents{4097, 3}, Extents{2000, 12}})
    BatchNormOf{of, Stored::f32, NormRelu::none, 300}.run();
}

TEST(CudaNormKernels, CutRowsIntoPartsOfWhichNoneIsEmpty) {
  for (const std::uint64_t rows : {1U, 7U, 64U, 1000U, 65536U, 802816U})
    for (const std::uint32_t channels : {1U, 3U, 16U, 64U, 200U, 2048U, 40000U})
      for (const std::uint32_t blocks : {1U, 5U, 264U}) {
        SCOPED_TRACE(text(rows, " x ", channels, " for ", blocks));
        const ChannelTiles tiles = channel_tiles(rows, channels, /*are_short=*/true, blocks);
        EXPECT_EQ(channels % tiles.pack, 0U);
        EXPECT_LT(row_of(tiles, tiles.parts - 1, 0, 0), rows);
        EXPECT_TRUE(tiles.parts == 1 || tiles_across(tiles) <= kMostArrivals);
        std::uint64_t all = 0;
        for (std::uint32_t part = 0; part < tiles.parts; ++part) all += count_rows(tiles, part);
        EXPECT_EQ(all, rows);
      }
}

}  // namespace
}  // namespace troupe::cuda
