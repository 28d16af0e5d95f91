#include <gtest/gtest.h>

#include "devices/cpu/kernels/one_channel_gradient.hpp"
#include "runtime/base/random.hpp"

namespace troupe::cpu {
namespace {

std::vector<float> normal_floats(std::uint64_t key, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(random_normal(key, i));
  return values;
}

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
  const auto image = normal_floats(1, of.height * of.width);
  const auto gradient = normal_floats(2, of.output_height() * of.output_width() * of.filters);
  const auto wanted = weight_sums(of, image, gradient);
  const auto before = normal_floats(3, wanted.size());
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

}  // namespace
}  // namespace troupe::cpu
