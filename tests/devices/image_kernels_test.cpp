#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "devices/cpu/kernels/max_pool.hpp"
#include "devices/cpu/kernels/one_channel_forward.hpp"
#include "devices/cpu/kernels/one_channel_gradient.hpp"
#include "devices/cpu/kernels/patches.hpp"
#include "runtime/model/layout.hpp"
#include "tests/support/random_numbers.hpp"

namespace troupe::cpu {
namespace {

/// The sums of one image in f64, [kernel elements + 1, filters].
std::vector<double> weight_sums(const OneChannelConvolution& of, const std::vector<float>& image,
                                const std::vector<float>& gradient) {
  const std::size_t taps = of.kernel_height * of.kernel_width;
  std::vector<double> sums((taps + 1) * of.filters);
  for (std::size_t o = 0; o < gradient.size(); ++o) {
    const std::size_t f = o % of.filters, x = o / of.filters % of.output_width();
    const std::size_t y = o / of.filters / of.output_width();
    sums[taps * of.filters + f] += gradient[o];
    for (std::size_t t = 0; t < taps; ++t) {
      const std::size_t element = (y + t / of.kernel_width) * of.width + x + t % of.kernel_width;
      sums[t * of.filters + f] += static_cast<double>(gradient[o]) * image[element];
    }
  }
  return sums;
}

void compare_one_channel(const OneChannelGradient& kernel, const OneChannelConvolution& of) {
  SCOPED_TRACE(testing::Message() << kernel.name << ", " << of.filters << " filters of " << of.kernel_height << " x "
                                  << of.kernel_width);
  const auto image = random_numbers(1, of.height * of.width);
  const auto gradient = random_numbers(2, of.output_height() * of.output_width() * of.filters);
  const auto wanted = weight_sums(of, image, gradient);
  const auto before = random_numbers(3, wanted.size());
  std::vector<float> sums = before;
  kernel.add(of, image.data(), gradient.data(), sums.data());
  for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(sums[i], before[i] + wanted[i], 2e-4) << "sum " << i;
}

TEST(OneChannelGradient, AddsTheSumsOfF64ForAnySizeOnEveryInstructionSet) {
  if (usable_one_channel_gradients().empty()) GTEST_SKIP() << "needs AVX2";
  for (const OneChannelGradient* kernel : usable_one_channel_gradients())
    for (const std::size_t filters : {4U, 8U, 16U, 20U, 28U, 36U})
      for (const std::size_t kernel_width : {1U, 3U, 5U, 8U})
        compare_one_channel(*kernel, {9, 12, 1 + filters % 5, kernel_width, filters});
}

/// One output element in f64.
double convolved(const OneChannelConvolution& of, const std::vector<float>& image, const std::vector<float>& weights,
                 const std::vector<float>& bias, std::size_t output) {
  const std::size_t f = output % of.filters, x = output / of.filters % of.output_width();
  const std::size_t y = output / of.filters / of.output_width(), taps = of.kernel_height * of.kernel_width;
  double sum = bias[f];
  for (std::size_t t = 0; t < taps; ++t)
    sum += static_cast<double>(weights[f * taps + t]) *
           image[(y + t / of.kernel_width) * of.width + x + t % of.kernel_width];
  return of.relu ? std::max(sum, 0.0) : sum;
}

TEST(OneChannelForward, HasTheSumsOfF64ForAnySize) {
  const OneChannelForward* const kernel = usable_one_channel_forward();
  if (kernel == nullptr) GTEST_SKIP() << "needs AVX-512";
  constexpr float kUntouched = 1234;
  for (const std::size_t filters : {17U, 18U, 20U, 21U, 23U, 24U}) {
    for (const std::size_t kernel_width : {1U, 3U, 5U, 8U}) {
      for (const std::size_t more : {0U, 1U, 11U, 12U, 13U}) {
        const OneChannelConvolution of{7,
                                       OneChannelForward::kLeastWidth + kernel_width - 1 + more,
                                       1 + filters % 5,
                                       kernel_width,
                                       filters,
                                       more % 2 == 0};
        ASSERT_TRUE(OneChannelForward::suits(of));
        const auto image = random_numbers(1, of.height * of.width), bias = random_numbers(3, filters);
        const auto weights = random_numbers(2, filters * of.kernel_height * of.kernel_width);
        std::vector<float> packed(OneChannelForward::packed_floats(of));
        std::vector<float> found(of.output_height() * of.output_width() * filters + 16, kUntouched);
        for (const bool biased : {true, false}) {
          kernel->pack(of, weights.data(), biased ? bias.data() : nullptr, packed.data());
          kernel->convolve(of, image.data(), packed.data(), found.data());
          for (std::size_t i = 0; i + 16 < found.size(); ++i)
            ASSERT_NEAR(found[i], convolved(of, image, weights, biased ? bias : std::vector<float>(filters), i), 1e-4)
                << filters << " filters of " << of.kernel_height << " x " << kernel_width << ", element " << i;
          for (std::size_t i = found.size() - 16; i < found.size(); ++i) ASSERT_EQ(found[i], kUntouched);
        }
      }
    }
  }
}

float value_in(float of) { return of; }
float value_in(std::uint16_t of) { return from_bf16(of); }

/// The place of the first largest element of an output element's window.
template <class Element>
std::size_t largest_of(const PooledImage& of, const std::vector<Element>& image, std::size_t output) {
  const std::size_t c = output % of.channels, x = output / of.channels % of.output_width();
  const std::size_t y = output / of.channels / of.output_width();
  const std::size_t padding = of.overlaps ? 1 : 0, kernel = of.overlaps ? 3 : 2;
  std::optional<std::size_t> largest;
  for (std::size_t row = 2 * y; row < 2 * y + kernel; ++row) {  // counted with the padding
    for (std::size_t column = 2 * x; column < 2 * x + kernel; ++column) {
      if (row < padding || column < padding || row - padding >= of.height || column - padding >= of.width) continue;
      const std::size_t at = ((row - padding) * of.width + column - padding) * of.channels + c;
      if (!largest || value_in(image[at]) > value_in(image[*largest])) largest = at;
    }
  }
  return largest.value();
}

template <class Element>
void compare_pool(const MaxPoolKernels<Element>& kernels, const PooledImage& of) {
  SCOPED_TRACE(testing::Message() << kernels.name << ", " << of.height << " x " << of.width << " x " << of.channels);
  constexpr Element kUntouched{77};
  constexpr std::size_t kGuard = 32;
  const auto image = whole_numbers<Element>(1, of.input_elements());
  const auto gradient = whole_numbers<Element>(2, of.output_elements());
  std::vector<float> to_input(of.input_elements());
  std::vector<Element> output(of.output_elements() + kGuard, kUntouched), found(to_input.size() + kGuard, kUntouched);
  std::vector<std::uint16_t> choices(kernels.choice_words(of));
  kernels.forward(of, image.data(), output.data(), choices.data());
  kernels.backward(of, gradient.data(), choices.data(), found.data());
  for (std::size_t o = 0; o < of.output_elements(); ++o) {
    const std::size_t largest = largest_of(of, image, o);
    const float value = value_in(image[largest]);
    ASSERT_EQ(value_in(output[o]), of.relu ? std::max(value, 0.0F) : value) << "output " << o;
    to_input[largest] += value_in(gradient[o]);
  }
  for (std::size_t i = 0; i < to_input.size(); ++i) ASSERT_EQ(value_in(found[i]), to_input[i]) << "gradient " << i;
  for (std::size_t i = 0; i < kGuard; ++i) {
    ASSERT_EQ(output[of.output_elements() + i], kUntouched);
    ASSERT_EQ(found[to_input.size() + i], kUntouched);
  }
}

template <class Element>
void compare_pools() {
  for (const MaxPoolKernels<Element>* kernels : usable_max_pools<Element>())
    for (const std::size_t channels : {1U, 7U, 8U, 16U, 20U, 33U})
      for (const std::size_t height : {2U, 5U})
        for (const std::size_t width : {2U, 7U})
          compare_pool(*kernels, {height, width, channels, (channels + width) % 2 == 0});
}

TEST(MaxPoolKernels, ChooseTheFirstLargestElementOfEachWindowForAnySizeOnEveryInstructionSet) {
  compare_pools<float>();
  compare_pools<std::uint16_t>();
}

TEST(MaxPoolKernels, ChooseAndAddUpForWindowsThatOverlapToo) {
  for (const MaxPoolKernels<float>* kernels : usable_overlapping_max_pools())
    for (const std::size_t channels : {16U, 20U, 32U, 39U})
      for (const std::size_t height : {1U, 2U, 3U, 8U})
        for (const std::size_t width : {1U, 2U, 4U, 7U})
          compare_pool(*kernels, {height, width, channels, (height + width) % 2 == 0, /*overlaps=*/true});
}

/// Windows of elements that are all `value`, with ReLU.
template <class Element>
void expect_nan_to_stay(const MaxPoolKernels<Element>& kernels, const PooledImage& of, Element value) {
  const std::vector<Element> image(of.input_elements(), value);
  std::vector<Element> output(of.output_elements());
  std::vector<std::uint16_t> choices(kernels.choice_words(of));
  kernels.forward(of, image.data(), output.data(), choices.data());
  for (const Element element : output) EXPECT_TRUE(std::isnan(value_in(element))) << kernels.name;
}

template <class Element>
void expect_nan_to_stay(Element value) {
  for (const MaxPoolKernels<Element>* kernels : usable_max_pools<Element>())
    expect_nan_to_stay(*kernels, {2, 2, 3, true}, value);
}

TEST(MaxPoolKernels, KeepNaNsBehindARelu) {
  for (const float nan : {std::nanf(""), -std::nanf("")}) {
    expect_nan_to_stay(nan);
    expect_nan_to_stay(to_bf16(nan));
    for (const MaxPoolKernels<float>* kernels : usable_overlapping_max_pools())
      expect_nan_to_stay(*kernels, {5, 4, 39, true, /*overlaps=*/true}, nan);
  }
}

template <class Element>
class PatchKernelsOf : public ::testing::Test {
 protected:
  void SetUp() override {
    if (usable_.empty()) GTEST_SKIP() << "this processor has no such kernels";
  }
  const std::vector<const PatchKernels<Element>*> usable_ = usable_patch_kernels<Element>();
};
using PatchElements = ::testing::Types<float, std::uint16_t>;
TYPED_TEST_SUITE(PatchKernelsOf, PatchElements);

TYPED_TEST(PatchKernelsOf, GatherElementsInTheOrderOfWeights) {
  for (const auto* kernels : this->usable_) {
    for (std::size_t channels = 1; channels < 70; ++channels) {
      std::vector<TypeParam> image(kPatchTaps * channels), patch(image.size());
      std::array<const TypeParam*, kPatchTaps> places{};
      for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<TypeParam>(i);
      for (std::size_t t = 0; t < kPatchTaps; ++t) places[t] = image.data() + t * channels;
      kernels->gather(places.data(), channels, patch.data());
      for (std::size_t i = 0; i < patch.size(); ++i)
        ASSERT_EQ(patch[i], places[i % kPatchTaps][i / kPatchTaps]) << kernels->name << ", " << channels << " channels";
    }
  }
}

TYPED_TEST(PatchKernelsOf, AddGradientsUpWhereTheirElementsCameFrom) {
  for (const auto* kernels : this->usable_) {
    for (std::size_t channels = 1; channels < 70; ++channels) {
      std::vector<float> patch(kPatchTaps * channels), sums(kPatchTaps * channels, 0.5F);
      std::array<float*, kPatchTaps> places{};
      for (std::size_t i = 0; i < patch.size(); ++i) patch[i] = static_cast<float>(i);
      for (std::size_t t = 0; t < kPatchTaps; ++t)
        places[t] = sums.data() + t / 2 * 2 * channels;  // two have one place
      kernels->scatter(patch.data(), channels, places.data());
      for (std::size_t c = 0; c < channels; ++c) {
        const float* const of_channel = patch.data() + c * kPatchTaps;
        ASSERT_EQ(sums[c], 0.5F + of_channel[0] + of_channel[1]) << kernels->name << ", " << channels << " channels";
        ASSERT_EQ(sums[channels + c], 0.5F) << "no place";
        ASSERT_EQ(sums[6 * channels + c], 0.5F + of_channel[6] + of_channel[7]);
      }
    }
  }
}

}  // namespace
}  // namespace troupe::cpu
