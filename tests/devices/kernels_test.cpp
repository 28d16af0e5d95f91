#include "devices/cpu/kernels/kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <span>

#include "devices/cpu/kernels/image_lanes.hpp"
#include "devices/cpu/kernels/norms.hpp"
#include "devices/cpu/kernels/one_channel.hpp"
#include "devices/cpu/kernels/weight_layouts.hpp"
#include "devices/cpu/update.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/model/layout.hpp"
#include "tests/support/random_numbers.hpp"

namespace troupe::cpu {
namespace {

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> found;
  for (const float value : values) found.push_back(std::bit_cast<std::uint32_t>(value));
  return found;
}

struct Updated {
  std::vector<float> p, s0, s1, average, undo0, undo1, undo2, undo3;
  std::vector<std::uint16_t> half;
};
Updated updated(const Kernels& kernels, RuleKind kind, std::size_t count, std::size_t undo_count, bool two) {
  Updated made{random_numbers(1, count),
               random_numbers(2, count),
               random_numbers(3, count),
               random_numbers(7, count),
               {},
               {},
               {},
               {},
               {}};
  for (float& v : reads(kind, &Rule::beta1) ? made.s1 : made.s0) v *= v;
  made.half.resize(count);
  for (auto* undo : {&made.undo0, &made.undo1, &made.undo2, &made.undo3}) undo->resize(undo_count);
  const std::vector<float> first = random_numbers(4, count), second = random_numbers(5, count),
                           next = random_numbers(6, undo_count);
  const RuleStep rule = rule_step({.kind = kind, .rate = 0.01, .weight_decay = 0.1, .ema_decay = 0.9}, 4);
  UndoCopy undo{{next.data(), next.data(), next.data(), next.data()},
                {made.undo0.data(), made.undo1.data(), made.undo2.data(), made.undo3.data()},
                undo_count};
  kernels.update({&rule, 1.0F / 3, first.data(), two ? second.data() : nullptr, made.p.data(), made.s0.data(),
                  made.s1.data(), made.average.data(), made.half.data(), count},
                 undo);
  return made;
}

TEST(Kernels, GiveTheSameBitsOfAnUpdateOnEveryInstructionSet) {
  for (const Kernels* kernels : usable_kernels()) {
    for (const RuleKind kind : kRuleKinds) {
      for (const std::size_t count :
           {std::size_t{1}, std::size_t{7}, std::size_t{63}, std::size_t{130}, std::size_t{1024}}) {
        for (const bool two : {false, true}) {
          SCOPED_TRACE(testing::Message() << kernels->name << ' ' << name_of(kind) << ' ' << count);
          const Updated expected = updated(kBaselineKernels, kind, count, 0, two),
                        found = updated(*kernels, kind, count, 0, two);
          EXPECT_EQ(bits(found.p), bits(expected.p));
          EXPECT_EQ(bits(found.s0), bits(expected.s0));
          EXPECT_EQ(bits(found.s1), bits(expected.s1));
          EXPECT_EQ(bits(found.average), bits(expected.average));
          EXPECT_EQ(found.half, expected.half);
        }
      }
    }
  }
}

TEST(Kernels, WidenEveryBf16AndRoundItBackOnEveryInstructionSet) {
  std::vector<std::uint16_t> all(1U << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const Kernels* kernels : usable_kernels()) {
    std::vector<float> wide(all.size());
    kernels->widen(wide.data(), all.data(), all.size());
    std::vector<std::uint16_t> back(all.size());
    kernels->round(back.data(), wide.data(), wide.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto expected = static_cast<std::uint32_t>(i << 16);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), expected) << kernels->name;
      ASSERT_EQ(back[i], to_bf16(wide[i])) << kernels->name << ", of bits " << i;
    }
    const std::vector<float> values = random_numbers(8, 1001);
    kernels->round(back.data(), values.data(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(back[i], to_bf16(values[i])) << kernels->name;
  }
}

TEST(Kernels, RoundWithAResidualAndAddWidenedAsTheRuntimeDoesOnEveryInstructionSet) {
  for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 1001U}) {
    std::vector<float> from = random_numbers(8, count);
    for (std::size_t i = 5; i < count; i += 7) from[i] = i % 2 == 0 ? INFINITY : 3.4e38F;
    const std::vector<float> kept = random_numbers(9, count), sums = random_numbers(10, count);
    std::vector<std::uint16_t> expected(count);
    std::vector<float> left = kept, added = sums;
    convert_elements_with_residual(std::as_writable_bytes(std::span(expected)).data(), DType::bf16, from.data(),
                                   left.data(), count);
    add_converted_elements(added.data(), std::as_bytes(std::span(expected)).data(), DType::bf16, count);
    for (const Kernels* kernels : usable_kernels()) {
      SCOPED_TRACE(testing::Message() << kernels->name << ' ' << count);
      std::vector<std::uint16_t> packed(count);
      std::vector<float> residual = kept, sum = sums;
      kernels->round_with_residual(packed.data(), from.data(), residual.data(), count);
      kernels->add_widened(sum.data(), packed.data(), count);
      EXPECT_EQ(packed, expected);
      EXPECT_EQ(bits(residual), bits(left));
      EXPECT_EQ(bits(sum), bits(added));
    }
  }
}

TEST(Kernels, AreLimitedToTheInstructionSetsThatTheEnvironmentAllows) {
  EXPECT_EQ(parse_max_cpu_isa(nullptr), MaxCpuIsa::all);
  EXPECT_EQ(parse_max_cpu_isa(""), MaxCpuIsa::all);
  EXPECT_EQ(parse_max_cpu_isa("avx2"), MaxCpuIsa::avx2);
  EXPECT_EQ(parse_max_cpu_isa("baseline"), MaxCpuIsa::baseline);
  EXPECT_EQ(parse_max_cpu_isa("avx512"), MaxCpuIsa::avx512);
  EXPECT_THROW(parse_max_cpu_isa("AVX9"), Error);
  // What this process was started with holds.
  const char* const most = std::getenv("TROUPE_MAX_CPU_ISA");
  if (parse_max_cpu_isa(most) <= MaxCpuIsa::avx2) {
    EXPECT_STRNE(best_kernels().name, "AVX-512");
  }
}

TEST(Kernels, WriteTheImageOfTheUpdatedParametersRoundedAsTheRuntimeDoes) {
  std::vector<float> values = random_numbers(3, 500);
  for (std::uint32_t i = 0; i < 500; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(9, i))));
  }
  for (const float special :
       {0.0F, -0.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::max(), 1.0F + 0x1p-8F, 1.0F + 3 * 0x1p-8F}) {
    values.push_back(special);
  }
  const std::vector<float> none(values.size());
  const RuleStep nothing = rule_step({.kind = RuleKind::sgd, .rate = 0}, 1);
  for (const Kernels* kernels : usable_kernels()) {
    std::vector<float> p = values;
    std::vector<std::uint16_t> half(p.size());
    kernels->update({&nothing, 1, none.data(), nullptr, p.data(), nullptr, nullptr, nullptr, half.data(), p.size()},
                    UndoCopy{});
    for (std::size_t i = 0; i < p.size(); ++i) ASSERT_EQ(half[i], to_bf16(p[i])) << kernels->name << ' ' << p[i];
  }
}

TEST(Kernels, CopyTheUndoBlockOfWhateverSizeWhileTheyUpdate) {
  for (const Kernels* kernels : usable_kernels()) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{512}, std::size_t{1000}}) {
      for (const std::size_t undo :
           {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{300}, std::size_t{1024}}) {
        const Updated found = updated(*kernels, RuleKind::adam, count, undo, true);
        EXPECT_EQ(found.undo0, random_numbers(6, undo)) << kernels->name << ' ' << count << ' ' << undo;
        EXPECT_EQ(found.undo1, found.undo0);
        EXPECT_EQ(found.undo2, found.undo0);
        EXPECT_EQ(found.undo3, found.undo0) << "of the average";
      }
    }
  }
}

TEST(Kernels, AddElementByElementAlsoInPlace) {
  for (const Kernels* kernels : usable_kernels()) {
    std::vector<float> a = random_numbers(1, 77), expected(77);
    const std::vector<float> b = random_numbers(2, 77);
    for (std::size_t i = 0; i < 77; ++i) expected[i] = a[i] + b[i];
    kernels->add(a.data(), a.data(), b.data(), 77);
    EXPECT_EQ(a, expected) << kernels->name;
  }
}

TEST(Kernels, AddBf16AlsoInPlaceAndRoundEachSumOnce) {
  const std::vector<float> a = random_numbers(1, 77), b = random_numbers(2, 77);
  for (const Kernels* kernels : usable_kernels()) {
    std::vector<std::uint16_t> sum(77), other(77), expected(77);
    kernels->round(sum.data(), a.data(), 77);
    kernels->round(other.data(), b.data(), 77);
    sum[4] = to_bf16(NAN);
    other[5] = to_bf16(-NAN);
    sum[6] = to_bf16(INFINITY);
    sum[7] = other[7] = to_bf16(3e38F);
    for (std::size_t i = 0; i < 77; ++i) expected[i] = to_bf16(from_bf16(sum[i]) + from_bf16(other[i]));
    kernels->add_bf16(sum.data(), sum.data(), other.data(), 77);
    EXPECT_EQ(sum, expected) << kernels->name;
  }
}

TEST(Kernels, AddBf16OfEveryKindWhateverIsBesideIt) {
  constexpr std::uint16_t kNaN = 0x7f81;  // becomes infinite if it is rounded as a number
  const std::vector<std::uint16_t> kinds{0,      0x8000, 0x3f80, 0xbf80, 0x3f81, 0x7f7f,
                                         0xff7f, 0x7f80, 0xff80, kNaN,   0xffc1};
  std::vector<std::uint16_t> a, b;
  for (const std::uint16_t one : kinds)
    for (const std::uint16_t other : kinds) a.push_back(one), b.push_back(other);
  const auto is_nan = [](std::uint16_t bits) { return std::isnan(from_bf16(bits)); };
  for (const Kernels* kernels : usable_kernels()) {
    for (std::size_t first = 0; first < 2; ++first) {
      std::vector<std::uint16_t> sum(a.size() - first, 0x1234);
      kernels->add_bf16(sum.data(), a.data() + first, b.data() + first, sum.size());
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const std::uint16_t wanted = to_bf16(from_bf16(a[first + i]) + from_bf16(b[first + i]));
        EXPECT_TRUE(sum[i] == wanted || (is_nan(sum[i]) && is_nan(wanted)))
            << kernels->name << ": " << a[first + i] << " + " << b[first + i] << " is " << sum[i];
      }
    }
  }
}

TEST(Kernels, AddGroupsOfElementsThatLieApart) {
  constexpr std::size_t kCount = 5;
  for (const Kernels* kernels : usable_kernels()) {
    for (const std::size_t elements : {1U, 7U, 16U, 37U}) {
      const std::size_t step = elements + 3;
      std::vector<float> sum = random_numbers(1, kCount * step), expected = sum;
      const std::vector<float> part = random_numbers(2, kCount * elements);
      std::vector<std::uint16_t> half(sum.size()), half_expected(sum.size()), half_part(part.size());
      kernels->round(half.data(), sum.data(), sum.size());
      kernels->round(half_part.data(), part.data(), part.size());
      half_expected = half;
      for (std::size_t i = 0; i < part.size(); ++i) {
        const std::size_t at = i / elements * step + i % elements;
        expected[at] += part[i];
        half_expected[at] = to_bf16(from_bf16(half[at]) + from_bf16(half_part[i]));
      }
      kernels->add_apart_f32(sum.data(), step, part.data(), elements, kCount);
      kernels->add_apart_bf16(half.data(), step, half_part.data(), elements, kCount);
      EXPECT_EQ(sum, expected) << kernels->name << ", " << elements << " elements";
      EXPECT_EQ(half, half_expected) << kernels->name << ", " << elements << " elements";
    }
  }
}

TEST(Kernels, AverageRows) {
  for (const std::size_t count_rows : {1U, 3U, 8U, 49U, 64U}) {
    for (const std::size_t width : {1U, 16U, 35U, 300U}) {
      const std::vector<float> rows = random_numbers(1, count_rows * width);
      std::vector<std::uint16_t> half_rows(rows.size()), half(width);
      std::vector<float> mean(width);
      for (const Kernels* kernels : usable_kernels()) {
        kernels->round(half_rows.data(), rows.data(), rows.size());
        kernels->average_f32(mean.data(), rows.data(), count_rows, width);
        kernels->average_bf16(half.data(), half_rows.data(), count_rows, width);
        for (std::size_t c = 0; c < width; ++c) {
          double sum = 0, half_sum = 0;
          for (std::size_t i = c; i < rows.size(); i += width) {
            sum += rows[i];
            half_sum += from_bf16(half_rows[i]);
          }
          const auto count = static_cast<double>(count_rows);
          ASSERT_NEAR(mean[c], sum / count, 1e-6) << kernels->name;
          ASSERT_NEAR(from_bf16(half[c]), half_sum / count, 1e-6 + std::abs(half_sum / count) / 256) << kernels->name;
        }
      }
    }
  }
}

TEST(Kernels, SpreadTheGradientOfAnAverageOverItsRows) {
  for (const std::size_t count_rows : {1U, 3U, 64U, 300U}) {
    for (const std::size_t width : {1U, 16U, 35U, 2100U}) {
      const float part = 1 / static_cast<float>(count_rows);
      const std::vector<float> mean = random_numbers(1, width);
      std::vector<std::uint16_t> half(width), half_rows(count_rows * width);
      std::vector<float> rows(count_rows * width);
      for (const Kernels* kernels : usable_kernels()) {
        kernels->round(half.data(), mean.data(), width);
        kernels->spread_average_f32(rows.data(), mean.data(), count_rows, width);
        kernels->spread_average_bf16(half_rows.data(), half.data(), count_rows, width);
        for (std::size_t i = 0; i < rows.size(); ++i) {
          ASSERT_EQ(rows[i], mean[i % width] * part) << kernels->name;
          ASSERT_EQ(half_rows[i], to_bf16(from_bf16(half[i % width]) * part)) << kernels->name;
        }
      }
    }
  }
}

TEST(Kernels, RectifyWhatIsBelowZeroAndKeepNaN) {
  std::vector<float> values = random_numbers(1, 77);
  values[5] = std::numeric_limits<float>::quiet_NaN();
  values[6] = std::numeric_limits<float>::infinity();
  for (const Kernels* kernels : usable_kernels()) {
    std::vector<float> found(77);
    kernels->relu_f32(found.data(), values.data(), 77);
    std::vector<std::uint16_t> half(77), half_found(77);
    kernels->round(half.data(), values.data(), 77);
    kernels->relu_bf16(half_found.data(), half.data(), 77);
    for (std::size_t i = 0; i < 77; ++i) {
      const float expected = values[i] < 0 ? 0 : values[i];
      EXPECT_EQ(bits({found[i]}), bits({expected})) << kernels->name << ' ' << i;
      EXPECT_EQ(half_found[i], to_bf16(expected)) << kernels->name << ' ' << i;
    }
  }
}

TEST(Kernels, MaskGradientsWhereTheActivationIsNotAboveZero) {
  const std::vector<float> activation{1.0F, 0.0F, -0.0F, -2.0F, 1e-30F, 3.0F, 0.5F};
  const std::vector<float> expected{1, 0, 0, 0, 5, 6, 7};
  for (const Kernels* kernels : usable_kernels()) {
    std::vector<float> gradient{1, 2, 3, 4, 5, 6, 7};
    kernels->mask_f32(gradient.data(), activation.data(), 7);
    EXPECT_EQ(gradient, expected) << kernels->name;
    std::vector<std::uint16_t> half_gradient, half_activation, half_expected;
    for (std::size_t i = 0; i < 7; ++i) {
      half_gradient.push_back(to_bf16(static_cast<float>(i + 1)));
      half_activation.push_back(to_bf16(activation[i]));
      half_expected.push_back(to_bf16(expected[i]));
    }
    kernels->mask_bf16(half_gradient.data(), half_activation.data(), 7);
    EXPECT_EQ(half_gradient, half_expected) << kernels->name;
  }
}

TEST(Kernels, AddGradientsAndMaskThemWhereTheActivationIsNotAboveZero) {
  std::vector<float> activation = random_numbers(1, 77);
  activation[4] = 0.0F;
  activation[5] = -0.0F;
  const std::vector<float> part = random_numbers(2, activation.size());
  for (const Kernels* kernels : usable_kernels()) {
    std::vector<float> sum = random_numbers(3, activation.size()), expected(sum.size());
    std::vector<std::uint16_t> half(sum.size()), half_part(sum.size()), half_activation(sum.size()),
        half_expected(sum.size());
    kernels->round(half.data(), sum.data(), sum.size());
    kernels->round(half_part.data(), part.data(), sum.size());
    kernels->round(half_activation.data(), activation.data(), sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      if (activation[i] <= 0) continue;
      expected[i] = sum[i] + part[i];
      half_expected[i] = to_bf16(from_bf16(half[i]) + from_bf16(half_part[i]));
    }
    kernels->add_masked_f32(sum.data(), part.data(), activation.data(), sum.size());
    kernels->add_masked_bf16(half.data(), half_part.data(), half_activation.data(), sum.size());
    EXPECT_EQ(sum, expected) << kernels->name;
    EXPECT_EQ(half, half_expected) << kernels->name;
  }
}

TEST(Kernels, MultiplyByTheSlopesOfTanhAndTheLogisticFunctionAtAnOutput) {
  const std::vector<float> outputs = random_numbers(21, 37);
  for (const Kernels* kernels : usable_kernels()) {
    std::vector<float> by_tanh = random_numbers(22, outputs.size()), by_sigmoid = by_tanh;
    const std::vector<float> gradient = by_tanh;
    std::vector<std::uint16_t> half_outputs, half_by_tanh, half_by_sigmoid;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      half_outputs.push_back(to_bf16(outputs[i]));
      half_by_tanh.push_back(to_bf16(gradient[i]));
    }
    half_by_sigmoid = half_by_tanh;
    kernels->tanh_slope_f32(by_tanh.data(), outputs.data(), outputs.size());
    kernels->sigmoid_slope_f32(by_sigmoid.data(), outputs.data(), outputs.size());
    kernels->tanh_slope_bf16(half_by_tanh.data(), half_outputs.data(), outputs.size());
    kernels->sigmoid_slope_bf16(half_by_sigmoid.data(), half_outputs.data(), outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const float y = outputs[i], half = from_bf16(half_outputs[i]), slope = from_bf16(to_bf16(gradient[i]));
      EXPECT_EQ(by_tanh[i], gradient[i] * (1 - y * y)) << kernels->name;
      EXPECT_EQ(by_sigmoid[i], gradient[i] * (y * (1 - y))) << kernels->name;
      EXPECT_EQ(half_by_tanh[i], to_bf16(slope * (1 - half * half))) << kernels->name;
      EXPECT_EQ(half_by_sigmoid[i], to_bf16(slope * (half * (1 - half)))) << kernels->name;
    }
  }
}

TEST(Kernels, ExponentiateNearlyExactlyWithTheSameBitsOnEveryInstructionSet) {
  std::vector<float> values = random_numbers(9, 1003);
  for (float& value : values) value = -std::abs(value) * 20;
  values[5] = 0, values[900] = -1e30F, values[1001] = -std::numeric_limits<float>::infinity();
  std::vector<float> wanted = values;
  const float wanted_sum = kBaselineKernels.exp_sum(wanted.data(), 0.5F, wanted.size());
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double exact = std::exp(static_cast<double>(values[i] - 0.5F));
    EXPECT_NEAR(wanted[i], exact, 3e-7 * exact + 1e-37) << values[i];
    sum += wanted[i];
  }
  EXPECT_NEAR(wanted_sum, sum, 1e-5 * sum);
  for (const Kernels* kernels : usable_kernels()) {
    std::vector<float> found = values;
    EXPECT_EQ(kernels->exp_sum(found.data(), 0.5F, found.size()), wanted_sum) << kernels->name;
    EXPECT_EQ(bits(found), bits(wanted)) << kernels->name;
    float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(kernels->exp_sum(&nan, 0, 1))) << kernels->name;
  }
}

TEST(Kernels, IncludeTheOnesForThisMachineAsTheBest) {
  EXPECT_EQ(&best_kernels(), usable_kernels().back());
  EXPECT_EQ(usable_kernels().front(), &kBaselineKernels);
}

/// As convolve_one_channel, one output element after the other.
std::vector<float> convolved(const OneChannelConvolution& of, const std::vector<std::uint16_t>& image,
                             const std::vector<std::uint16_t>& weights, const std::vector<float>& bias) {
  std::vector<float> to;
  for (std::size_t y = 0; y < of.output_height(); ++y)
    for (std::size_t x = 0; x < of.output_width(); ++x)
      for (std::size_t f = 0; f < of.filters; ++f) {
        float sum = bias[f];
        for (std::size_t i = 0; i < of.kernel_height; ++i)
          for (std::size_t j = 0; j < of.kernel_width; ++j)
            sum += from_bf16(image[(y + i) * of.width + x + j]) *
                   from_bf16(weights[(f * of.kernel_height + i) * of.kernel_width + j]);
        to.push_back(of.relu ? std::max(sum, 0.0F) : sum);
      }
  return to;
}

TEST(OneChannelConvolution, IsThatOfALoopForAnySize) {
  if (!may_convolve_one_channel()) GTEST_SKIP() << "needs the AVX-512 instructions for bf16";
  constexpr std::uint16_t kUntouched = 0x1234;
  for (const std::size_t filters : {1U, 7U, 16U, 17U, 20U, 23U, 24U, 27U, 32U}) {
    for (const std::size_t kernel : {2U, 3U, 5U}) {
      for (const std::size_t width : {5U, 12U, 14U, 21U}) {
        const OneChannelConvolution of{6, width, 2 + kernel % 4, kernel, filters, (filters + width) % 2 == 0};
        const auto image = random_numbers<std::uint16_t>(filters, of.height * of.width);
        const auto weights = random_numbers<std::uint16_t>(kernel, filters * of.kernel_height * kernel);
        const auto bias = random_numbers(width, OneChannelConvolution::kLanes);
        const auto wanted = convolved(of, image, weights, bias);
        std::vector<std::uint32_t> packed(of.packed_words());
        pack_one_channel(of, weights.data(), packed.data());
        std::vector<std::uint16_t> found(wanted.size() + 32, kUntouched);
        convolve_one_channel(of, image.data(), packed.data(), bias.data(), found.data());
        for (std::size_t i = 0; i < wanted.size(); ++i)
          ASSERT_NEAR(from_bf16(found[i]), wanted[i], 0.004 * (1 + std::abs(wanted[i])))
              << filters << " filters, kernel " << kernel << ", width " << width << ", element " << i;
        for (std::size_t i = wanted.size(); i < found.size(); ++i) ASSERT_EQ(found[i], kUntouched);
      }
    }
  }
}

/// The passes of a convolution, sums in f64.
struct Convolved {
  std::vector<double> output, input_gradient, weights, biases;
};
Convolved convolved(const LaneConvolution& of, std::size_t images, const std::vector<float>& input,
                    const std::vector<float>& gradient, const std::vector<float>& weights,
                    const std::vector<float>& bias) {
  Convolved made{std::vector<double>(gradient.size()), std::vector<double>(input.size()),
                 std::vector<double>(weights.size()), std::vector<double>(of.filters)};
  const auto add = [&](std::size_t image, std::size_t y, std::size_t x, std::size_t f) {
    const std::size_t o = ((image * of.output_height() + y) * of.output_width() + x) * of.filters + f;
    double sum = bias[f];
    for (std::size_t k = 0; k < of.channels * of.kernel_height * of.kernel_width; ++k) {
      const std::size_t c = k / of.kernel_height / of.kernel_width, ky = k / of.kernel_width % of.kernel_height;
      const std::size_t row = y * of.stride_height + ky - of.padding_height;  // wraps around above the image
      const std::size_t column = x * of.stride_width + k % of.kernel_width - of.padding_width;
      if (row >= of.height || column >= of.width) continue;
      const std::size_t i = ((image * of.height + row) * of.width + column) * of.channels + c;
      const std::size_t w = f * of.channels * of.kernel_height * of.kernel_width + k;
      sum += static_cast<double>(input[i]) * weights[w];
      made.input_gradient[i] += static_cast<double>(gradient[o]) * weights[w];
      made.weights[w] += static_cast<double>(gradient[o]) * input[i];
    }
    made.output[o] = of.relu ? std::max(sum, 0.0) : sum;
    made.biases[f] += gradient[o];
  };
  for (std::size_t image = 0; image < images; ++image)
    for (std::size_t y = 0; y < of.output_height(); ++y)
      for (std::size_t x = 0; x < of.output_width(); ++x)
        for (std::size_t f = 0; f < of.filters; ++f) add(image, y, x, f);
  return made;
}

/// `values` as images of the kernels' type; they are rounded to what that type can hold.
std::vector<std::byte> stored(const LaneKernels& kernels, std::vector<float>& values) {
  if (kernels.elements_of_word == 1) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }
  std::vector<std::uint16_t> half(values.size());
  std::ranges::transform(values, half.begin(), to_bf16);
  std::ranges::transform(half, values.begin(), from_bf16);
  const auto bytes = std::as_bytes(std::span(half));
  return {bytes.begin(), bytes.end()};
}
std::vector<float> numbers(const LaneKernels& kernels, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / (kernels.elements_of_word == 1 ? 4 : 2));
  if (kernels.elements_of_word == 1) {
    std::ranges::copy(bytes, std::as_writable_bytes(std::span(values)).begin());
  } else {
    std::vector<std::uint16_t> half(values.size());
    std::ranges::copy(bytes, std::as_writable_bytes(std::span(half)).begin());
    std::ranges::transform(half, values.begin(), from_bf16);
  }
  return values;
}

void expect_near(const std::vector<float>& found, const std::vector<double>& expected, double tolerance) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  EXPECT_LT(std::sqrt(difference), tolerance * std::sqrt(size));
}

/// All passes of `images` images, group by group.
void compare_lanes(const LaneKernels& kernels, const LaneConvolution& of, std::size_t images) {
  SCOPED_TRACE(testing::Message() << kernels.name << ", " << of.channels << " channels, " << of.filters << " filters");
  std::vector<float> input = random_numbers(1, images * of.input_elements());
  std::vector<float> gradient = random_numbers(2, images * of.output_elements());
  std::vector<float> weights = random_numbers(3, of.count_weights());
  const std::vector<float> bias = random_numbers(4, of.filters);
  const auto in = stored(kernels, input), slope = stored(kernels, gradient), kept = stored(kernels, weights);
  const Convolved expected = convolved(of, images, input, gradient, weights, bias);
  const double rounding = kernels.elements_of_word == 1 ? 1e-6 : 4e-3;

  const std::size_t element = kernels.elements_of_word == 1 ? 4 : 2;
  const std::size_t in_bytes = of.input_elements() * element, out_bytes = of.output_elements() * element;
  std::vector<std::byte> output(slope.size()), back(in.size());
  std::vector<std::uint32_t> packed(of.count_weights()), packed_back(of.count_weights()),
      scratch(std::max(kernels.forward_words(of), kernels.to_input_words(of)));
  kernels.pack_forward(of, kept.data(), packed.data());
  kernels.pack_to_input(of, kept.data(), packed_back.data());
  for (std::size_t i = 0; i < images; i += kernels.lanes) {
    const std::size_t count = std::min(kernels.lanes, images - i);
    kernels.forward(of, count, in.data() + i * in_bytes, packed.data(), bias.data(), output.data() + i * out_bytes,
                    scratch.data());
    kernels.to_input(of, count, slope.data() + i * out_bytes, packed_back.data(), back.data() + i * in_bytes,
                     scratch.data());
  }
  expect_near(numbers(kernels, output), expected.output, rounding);
  expect_near(numbers(kernels, back), expected.input_gradient, rounding);

  const std::size_t each = kernels.lanes * kernels.elements_of_word, groups = (images + each - 1) / each;
  std::vector<std::uint32_t> in_lanes(groups * kernels.input_words(of)), slopes(groups * kernels.gradient_words(of)),
      sums(kernels.to_weights_words(of));
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t count = std::min(each, images - g * each);
    kernels.arrange_input(of, count, in.data() + g * each * in_bytes, in_lanes.data() + g * kernels.input_words(of));
    kernels.arrange_gradient(of, count, slope.data() + g * each * out_bytes,
                             slopes.data() + g * kernels.gradient_words(of));
  }
  std::vector<float> to_weights(of.count_weights()), to_biases(of.filters);
  for (std::size_t block = 0; block < kernels.filter_blocks(of); ++block)
    kernels.to_weights(of, groups, in_lanes.data(), slopes.data(), block, to_weights.data(), to_biases.data(),
                       sums.data());
  expect_near(to_weights, expected.weights, 3e-6);
  expect_near(to_biases, expected.biases, 3e-6);
}

TEST(LaneKernels, ConvolveAsSumsInF64OnEveryInstructionSet) {
  const LaneConvolution shapes[]{
      {.height = 6, .width = 7, .channels = 20, .kernel_height = 5, .kernel_width = 5, .filters = 50},
      {.height = 7,
       .width = 9,
       .channels = 6,
       .kernel_height = 3,
       .kernel_width = 2,
       .stride_height = 2,
       .stride_width = 3,
       .padding_height = 1,
       .padding_width = 1,
       .filters = 10,
       .relu = true},
      {.height = 4,
       .width = 37,
       .channels = 2,
       .kernel_height = 1,
       .kernel_width = 3,
       .padding_width = 2,
       .filters = 28},
      // Places of the input that no window covers.
      {.height = 9,
       .width = 9,
       .channels = 4,
       .kernel_height = 2,
       .kernel_width = 2,
       .stride_height = 3,
       .stride_width = 3,
       .filters = 2}};
  for (const bool bf16 : {false, true})
    for (const LaneKernels* kernels : usable_lane_kernels(bf16))
      for (const LaneConvolution& of : shapes)
        for (const std::size_t images : {std::size_t{37}, kernels->lanes}) compare_lanes(*kernels, of, images);
}

TEST(LaneKernels, KeepNaNsBehindARelu) {
  const LaneConvolution of{
      .height = 1, .width = 1, .channels = 2, .kernel_height = 1, .kernel_width = 1, .filters = 2, .relu = true};
  for (const bool bf16 : {false, true}) {
    for (const LaneKernels* kernels : usable_lane_kernels(bf16)) {
      std::vector<float> input{NAN, 1}, weights(4, 1.0F);
      const auto in = stored(*kernels, input), kept = stored(*kernels, weights);
      std::vector<std::byte> output(in.size());
      std::vector<std::uint32_t> packed(of.count_weights()), scratch(kernels->forward_words(of));
      kernels->pack_forward(of, kept.data(), packed.data());
      kernels->forward(of, 1, in.data(), packed.data(), nullptr, output.data(), scratch.data());
      EXPECT_TRUE(std::isnan(numbers(*kernels, output)[0])) << kernels->name;
    }
  }
}

/// A matrix [rows, width], as f32 and as it is stored.
template <class Element>
struct Stored {
  std::vector<Element> elements;
  std::vector<float> values;
  explicit Stored(std::vector<float> of) : values(std::move(of)) {
    for (float& value : values) {
      if constexpr (sizeof(Element) == 2)
        value = from_bf16(elements.emplace_back(to_bf16(value)));
      else
        elements.push_back(value);
    }
  }
};
std::vector<float> wide(const std::vector<float>& from) { return from; }
std::vector<float> wide(const std::vector<std::uint16_t>& from) {
  std::vector<float> values(from.size());
  std::ranges::transform(from, values.begin(), from_bf16);
  return values;
}

/// All loops of a batch norm against sums in f64.
template <class Element>
void compare_norms(const NormKernels<Element>& kernels, std::size_t rows, std::size_t width, bool relu) {
  SCOPED_TRACE(testing::Message() << kernels.name << ", " << rows << " x " << width << (relu ? ", ReLU" : ""));
  const Stored<Element> x{random_numbers(1, rows * width)}, gradient{random_numbers(2, rows * width)};
  const Stored<Element> other{random_numbers(8, rows * width)};
  const std::vector<float> means = random_numbers(3, width), factors = random_numbers(4, width),
                           shifts = random_numbers(5, width), sums = random_numbers(6, width),
                           products = random_numbers(7, width);
  const NormColumns by{means.data(), factors.data(), shifts.data(), relu, false};
  std::vector<double> mean(width), squares(width), output(x.values.size()), added(output), sum(width), product(width),
      back(x.values.size());
  for (std::size_t i = 0; i < x.values.size(); ++i) mean[i % width] += x.values[i] / static_cast<double>(rows);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const std::size_t c = i % width;
    squares[c] += (x.values[i] - mean[c]) * (x.values[i] - mean[c]);
    const double distance = static_cast<double>(x.values[i]) - means[c], value = distance * factors[c] + shifts[c];
    output[i] = relu ? std::max(value, 0.0) : value;
    added[i] = relu ? std::max(value + other.values[i], 0.0) : value + other.values[i];
    const double slope = relu && value <= 0 ? 0.0 : gradient.values[i];
    sum[c] += slope;
    product[c] += slope * distance;
    back[i] = factors[c] * (slope - sums[c] - distance * products[c]);
  }
  std::vector<float> first(width), second(width);
  kernels.moments(x.elements.data(), rows, width, first.data(), second.data());
  expect_near(first, mean, 1e-6);
  if (rows > 1) expect_near(second, squares, 1e-6);
  kernels.gradient_sums(x.elements.data(), gradient.elements.data(), by, rows, width, first.data(), second.data());
  expect_near(first, sum, 1e-6);
  expect_near(second, product, 1e-6);
  const double rounding = sizeof(Element) == 2 ? 4e-3 : 1e-6;
  std::vector<Element> y(x.elements.size()), dx = gradient.elements;
  kernels.normalize(x.elements.data(), nullptr, y.data(), by, rows, width);
  expect_near(wide(y), output, rounding);
  kernels.normalize(x.elements.data(), other.elements.data(), y.data(), by, rows, width);
  expect_near(wide(y), added, rounding);
  constexpr std::size_t kAlign = 64 / sizeof(Element);
  std::vector<Element> room(y.size() + kAlign);
  Element* const aligned =
      room.data() + (kAlign - reinterpret_cast<std::uintptr_t>(room.data()) % 64 / sizeof(Element));
  NormColumns past_caches = by;
  past_caches.streams = true;
  kernels.normalize(x.elements.data(), other.elements.data(), aligned, past_caches, rows, width);
  EXPECT_TRUE(std::ranges::equal(y, std::span{aligned, y.size()}));
  kernels.to_input(x.elements.data(), dx.data(), y.data(), by, sums.data(), products.data(), rows, width);
  expect_near(wide(y), back, rounding);
  EXPECT_EQ(dx, gradient.elements);
  kernels.to_input(x.elements.data(), dx.data(), dx.data(), by, sums.data(), products.data(), rows, width);
  EXPECT_EQ(dx, y) << "in the gradient's place";
}

TEST(NormKernels, ComputeAsSumsInF64OnEveryInstructionSet) {
  for (const NormKernelSet* set : usable_norm_kernels()) {
    for (const std::size_t width : {1U, 5U, 8U, 16U, 20U, 31U, 32U, 48U, 64U, 107U, 128U}) {
      for (const std::size_t rows : {1U, 2U, 7U, 64U}) {
        for (const bool relu : {false, true}) {
          compare_norms(set->f32, rows, width, relu);
          compare_norms(set->bf16, rows, width, relu);
        }
      }
    }
  }
}

TEST(NormKernels, ComputeWideRowsAsSumsInF64) {
  for (const NormKernelSet* set : usable_norm_kernels()) {
    for (const std::size_t width : {200U, 1000U, 2071U, 2240U}) {
      for (const bool relu : {false, true}) {
        compare_norms(set->f32, 29, width, relu);
        compare_norms(set->bf16, 29, width, relu);
      }
    }
  }
}

TEST(NormKernels, ComputeMomentsFarFromZero) {
  constexpr std::size_t kRows = 64, kWidth = 80;
  std::vector<float> x = random_numbers(1, kRows * kWidth);
  std::vector<double> mean(kWidth), squares(kWidth);
  for (float& value : x) value += 1000;
  for (std::size_t i = 0; i < x.size(); ++i) mean[i % kWidth] += x[i] / static_cast<double>(kRows);
  for (std::size_t i = 0; i < x.size(); ++i) squares[i % kWidth] += std::pow(x[i] - mean[i % kWidth], 2);
  for (const NormKernelSet* set : usable_norm_kernels()) {
    std::vector<float> means(kWidth), found(kWidth);
    set->f32.moments(x.data(), kRows, kWidth, means.data(), found.data());
    expect_near(means, mean, 1e-6);
    expect_near(found, squares, 1e-6);
  }
}

TEST(NormKernels, KeepNaNsAndRoundAsTheRuntimeDoes) {
  for (const NormKernelSet* set : usable_norm_kernels()) {
    for (const std::size_t width : {3U, 8U, 16U, 64U}) {
      SCOPED_TRACE(testing::Message() << set->bf16.name << ' ' << width);
      Stored<std::uint16_t> x{random_numbers(1, 2 * width)};
      x.elements[1] = to_bf16(NAN);
      const std::vector<float> zeros(width), factors(width, 1.01F);
      std::vector<std::uint16_t> y(2 * width);
      set->bf16.normalize(x.elements.data(), nullptr, y.data(),
                          {zeros.data(), factors.data(), zeros.data(), true, false}, 2, width);
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (i == 1)
          EXPECT_TRUE(std::isnan(from_bf16(y[i])));
        else
          EXPECT_EQ(y[i], to_bf16(std::max(0.0F, x.values[i] * 1.01F)));
      }
    }
  }
}

/// Calls see(filter, channel, tap, index in the plain layout) for all weights.
template <class See>
void for_weights(const ConvolutionWeights& of, See&& see) {
  std::size_t index = 0;
  for (std::size_t filter = 0; filter < of.filters; ++filter)
    for (std::size_t channel = 0; channel < of.channels; ++channel)
      for (std::size_t tap = 0; tap < of.taps; ++tap) see(filter, channel, tap, index++);
}

TEST(WeightLayouts, HaveEachWeightInItsPlace) {
  const WeightLayoutKernels* const kernels = usable_weight_layouts();
  if (kernels == nullptr) GTEST_SKIP() << "this processor has no such kernels";
  for (const ConvolutionWeights& of : {ConvolutionWeights{64, 32, 1}, {64, 96, 3}, {128, 64, 9}}) {
    SCOPED_TRACE(testing::Message() << of.filters << " x " << of.channels << " x " << of.taps);
    const std::size_t c = of.channels, t = of.taps, count = of.filters * c * t;
    std::vector<std::uint16_t> plain(count), pairs(count), expected(count);
    std::vector<float> blocks(count), gradient(count), expected_gradient(count);
    for (std::size_t i = 0; i < count; ++i) {
      plain[i] = static_cast<std::uint16_t>(mix(i));
      blocks[i] = static_cast<float>(i);
    }
    const auto each_group = [&](auto&& act) {
      for (std::size_t group = 0; group < of.groups(); ++group) act(group);
    };
    for (const std::size_t block : {16U, 32U, 64U}) {
      each_group([&](std::size_t g) { kernels->to_pairs_of_channels(of, g, block, plain.data(), pairs.data()); });
      for_weights(of, [&](std::size_t filter, std::size_t channel, std::size_t tap, std::size_t index) {
        const std::size_t place = ((filter / block * t + tap) * (c / 2) + channel / 2) * block + filter % block;
        expected[2 * place + channel % 2] = plain[index];
      });
      EXPECT_TRUE(pairs == expected) << "blocks of " << block;
    }
    const auto block_of = [&](std::size_t filter, std::size_t channel) {
      return filter / 16 * (c / 16) + channel / 16;
    };
    for (const bool channels_first : {false, true}) {
      each_group(
          [&](std::size_t g) { kernels->to_pairs_of_filters(of, g, channels_first, plain.data(), pairs.data()); });
      for_weights(of, [&](std::size_t filter, std::size_t channel, std::size_t tap, std::size_t index) {
        const std::size_t block = channels_first ? channel / 16 * of.groups() + filter / 16 : block_of(filter, channel);
        const std::size_t place = ((block * t + tap) * 8 + filter % 16 / 2) * 16 + channel % 16;
        expected[2 * place + filter % 2] = plain[index];
      });
      EXPECT_TRUE(pairs == expected) << (channels_first ? "channels first" : "filters first");
    }
    for (const FilterBlocks& by : {FilterBlocks{16, 16}, {16, c}, {32, c}, {64, c}, {64, 32}}) {
      each_group([&](std::size_t g) { kernels->to_filters(of, g, by, blocks.data(), gradient.data()); });
      for_weights(of, [&](std::size_t filter, std::size_t channel, std::size_t tap, std::size_t index) {
        const std::size_t block = filter / by.filters * (c / by.channels) + channel / by.channels;
        const std::size_t place = (block * t + tap) * by.channels + channel % by.channels;
        expected_gradient[place * by.filters + filter % by.filters] = blocks[index];
      });
      EXPECT_TRUE(gradient == expected_gradient) << "blocks of " << by.filters << " filters, " << by.channels;
    }
    for (const bool channels_first : {false, true}) {
      each_group([&](std::size_t g) { kernels->to_channels(of, g, channels_first, blocks.data(), gradient.data()); });
      for_weights(of, [&](std::size_t filter, std::size_t channel, std::size_t tap, std::size_t index) {
        const std::size_t block = channels_first ? channel / 16 * of.groups() + filter / 16 : block_of(filter, channel);
        expected_gradient[((block * t + tap) * 16 + filter % 16) * 16 + channel % 16] = blocks[index];
      });
      EXPECT_TRUE(gradient == expected_gradient) << (channels_first ? "channels first" : "filters first");
    }
    each_group([&](std::size_t g) { kernels->from_blocks(of, g, blocks.data(), gradient.data()); });
    for_weights(of, [&](std::size_t filter, std::size_t channel, std::size_t tap, std::size_t index) {
      const std::size_t place = ((block_of(filter, channel) * t + tap) * 16 + channel % 16) * 16 + filter % 16;
      expected_gradient[index] = blocks[place];
    });
    EXPECT_TRUE(gradient == expected_gradient);
  }
}

}  // namespace
}  // namespace troupe::cpu
