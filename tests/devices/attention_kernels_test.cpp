#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "devices/cpu/kernels/attention.hpp"
#include "runtime/base/random.hpp"
#include "runtime/model/layout.hpp"

namespace troupe::cpu {
namespace {

constexpr std::size_t kHeads = 3, kHead = 1;  // a head between others, whose numbers must stay

struct Case {
  std::size_t length, part;
  bool causal;
  double factor = 1;  // of queries: how far apart scores are

  std::size_t width() const { return kHeads * part; }
  AttentionHead head() const { return {length, part, 3 * width(), width(), causal}; }
  std::size_t count_read(std::size_t query) const { return causal ? query + 1 : length; }
  /// The first element of a vector of the head, in tensors [length, 3, heads, part] and [length, heads, part].
  std::size_t of_input(std::size_t place, std::size_t which) const {
    return (3 * place + which) * width() + kHead * part;
  }
  std::size_t of_output(std::size_t place) const { return place * width() + kHead * part; }
};

/// The same head by the formulas, in f64.
struct Expected {
  std::vector<double> output, to_input;  // like the tensors
};

double product(const double* a, const double* b, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

Expected expected(const Case& of, const std::vector<double>& input, const std::vector<double>& gradient) {
  Expected made{std::vector<double>(of.length * of.width()), std::vector<double>(input.size())};
  const double scale = 1 / std::sqrt(static_cast<double>(of.part));
  const auto add = [&](std::vector<double>& to, std::size_t at, double factor, const double* from) {
    for (std::size_t c = 0; c < of.part; ++c) to[at + c] += factor * from[c];
  };
  for (std::size_t q = 0; q < of.length; ++q) {
    const double *query = &input[of.of_input(q, 0)], *slope = &gradient[of.of_output(q)];
    std::vector<double> weights(of.count_read(q)), slopes(of.count_read(q));
    for (std::size_t k = 0; k < weights.size(); ++k)
      weights[k] = scale * product(query, &input[of.of_input(k, 1)], of.part);
    const double largest = *std::ranges::max_element(weights);
    double sum = 0, mean = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (std::size_t k = 0; k < weights.size(); ++k) {
      const double* const value = &input[of.of_input(k, 2)];
      weights[k] /= sum;
      add(made.output, of.of_output(q), weights[k], value);
      add(made.to_input, of.of_input(k, 2), weights[k], slope);
      slopes[k] = product(slope, value, of.part);
      mean += weights[k] * slopes[k];
    }
    for (std::size_t k = 0; k < weights.size(); ++k) {
      const double to_score = scale * weights[k] * (slopes[k] - mean);
      add(made.to_input, of.of_input(q, 0), to_score, &input[of.of_input(k, 1)]);
      add(made.to_input, of.of_input(k, 1), to_score, query);
    }
  }
  return made;
}

template <class Element>
struct Numbers {
  std::vector<Element> stored;
  std::vector<double> exact;  // the stored numbers

  Numbers(std::uint64_t key, std::size_t count) : stored(count), exact(count) {
    for (std::size_t i = 0; i < count; ++i) set(i, random_normal(key, i));
  }
  void set(std::size_t i, double number) {
    if constexpr (sizeof(Element) == 2) {
      stored[i] = to_bf16(static_cast<float>(number));
      exact[i] = from_bf16(stored[i]);
    } else {
      exact[i] = stored[i] = static_cast<float>(number);
    }
  }
};

double number(float value) { return value; }
double number(std::uint16_t value) { return from_bf16(value); }

/// The largest difference, as a part of the largest number that is expected.
template <class Element>
double distance(const std::vector<Element>& found, const std::vector<double>& expected) {
  double most = 1e-3, farthest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double apart = std::abs(number(found[i]) - expected[i]);
    farthest = std::isnan(apart) ? apart : std::max(farthest, apart);
    if (std::isnan(farthest)) return farthest;
    most = std::max(most, std::abs(expected[i]));
  }
  return farthest / most;
}

template <class Element>
struct Computed {
  std::vector<Element> output, to_input;
};

template <class Element>
Computed<Element> computed(const AttentionKernels& kernels, const Case& of, const Numbers<Element>& input,
                           const Numbers<Element>& gradient) {
  Computed<Element> made{std::vector<Element>(of.length * of.width()), std::vector<Element>(input.stored.size())};
  std::vector<float> logarithms(of.length);
  const auto in = [&](auto& tensor, std::size_t which) { return tensor.data() + of.of_input(0, which); };
  const HeadTensors<Element> tensors{in(input.stored, 0),  in(input.stored, 1),
                                     in(input.stored, 2),  made.output.data() + of.of_output(0),
                                     logarithms.data(),    gradient.stored.data() + of.of_output(0),
                                     in(made.to_input, 0), in(made.to_input, 1),
                                     in(made.to_input, 2)};
  for (const bool backward : {false, true}) {
    // What scratch memory has before must not matter.
    std::vector<float> room(kernels.room_elements(of.head(), backward), NAN);
    const HeadKernels<Element>& passes = kernels.of<Element>();
    (backward ? passes.backward : passes.forward)(best_kernels(), of.head(), tensors, room.data());
  }
  return made;
}

template <class Element>
void compare(const Case& of) {
  Numbers<Element> input(1, 3 * of.length * of.width()), gradient(2, of.length * of.width());
  for (std::size_t place = 0; place < of.length; ++place) {
    for (std::size_t c = 0; c < of.part; ++c) {
      const std::size_t at = of.of_input(place, 0) + c;
      input.set(at, of.factor * input.exact[at]);
    }
  }
  const Expected right = expected(of, input.exact, gradient.exact);
  const double output_limit = sizeof(Element) == 2 ? 4e-3 : 5e-6, gradient_limit = sizeof(Element) == 2 ? 1e-2 : 2e-5;
  for (const AttentionKernels* kernels : usable_attention_kernels()) {
    SCOPED_TRACE(testing::Message() << kernels->name << (sizeof(Element) == 2 ? ", bf16, " : ", f32, ") << of.length
                                    << " places, " << of.part << " elements" << (of.causal ? ", causal" : ""));
    const Computed<Element> found = computed<Element>(*kernels, of, input, gradient);
    EXPECT_LT(distance(found.output, right.output), of.factor * output_limit);
    EXPECT_LT(distance(found.to_input, right.to_input), of.factor * gradient_limit);
  }
}

void compare_all(std::size_t length, std::size_t part) {
  for (const bool causal : {false, true}) {
    compare<float>({length, part, causal});
    compare<std::uint16_t>({length, part, causal});
  }
}

TEST(AttentionKernels, ComputeWhatTheFormulasGiveForAnyNumberOfPlaces) {
  for (const std::size_t length : {1U, 2U, 6U, 15U, 16U, 17U, 31U, 33U, 63U, 64U, 65U, 128U, 255U, 257U})
    compare_all(length, 20);
}

TEST(AttentionKernels, ComputeWhatTheFormulasGiveForAnySizeOfAHead) {
  for (const std::size_t part : {1U, 2U, 8U, 15U, 16U, 17U, 20U, 32U, 33U, 48U, 64U, 128U, 130U}) compare_all(70, part);
}

TEST(AttentionKernels, ComputeWhatTheFormulasGiveWhereOneWeightOutweighsAllOthers) {
  for (const bool causal : {false, true}) compare<float>({200, 16, causal, 40});
}

TEST(AttentionKernels, CarryNaNsToTheOutputsThatReadThem) {
  const Case of{100, 8, false};
  Numbers<float> input(1, 3 * of.length * of.width());
  const Numbers<float> gradient(2, of.length * of.width());
  input.set(of.of_input(70, 1), NAN);
  for (const AttentionKernels* kernels : usable_attention_kernels()) {
    const Computed<float> found = computed<float>(*kernels, of, input, gradient);
    for (std::size_t place = 0; place < of.length; ++place)
      EXPECT_TRUE(std::isnan(found.output[of.of_output(place)])) << kernels->name << ", place " << place;
  }
}

TEST(GeluKernels, ComputeItAndItsSlopeWithTheSameBitsOnEveryInstructionSet) {
  std::vector<float> values(1003);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 50 - 10;
  std::vector<std::uint16_t> half(values.size());
  std::ranges::transform(values, half.begin(), to_bf16);
  for (const Kernels* kernels : usable_kernels()) {
    SCOPED_TRACE(kernels->name);
    const std::size_t count = values.size();
    std::vector<float> alone(count), found(count), wanted(count), back(count), wanted_back(count);
    std::vector<std::uint16_t> half_alone(count), half_found(count), half_back(count);
    kernels->gelu_f32(alone.data(), values.data(), count);
    kernels->gelu_with_slope_f32(found.data(), back.data(), values.data(), count);
    kernels->gelu_bf16(half_alone.data(), half.data(), count);
    kernels->gelu_with_slope_bf16(half_found.data(), half_back.data(), half.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto distribution = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
      const auto slope = [&](double x) {
        return distribution(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
      };
      const double x = values[i], rounded = from_bf16(half[i]);
      EXPECT_NEAR(found[i], x * distribution(x), 1e-6) << x;
      EXPECT_NEAR(back[i], slope(x), 1e-6) << x;
      const double expected = rounded * distribution(rounded), of = slope(rounded);
      EXPECT_NEAR(from_bf16(half_found[i]), expected, 1e-6 + 4e-3 * std::abs(expected)) << rounded;
      EXPECT_NEAR(from_bf16(half_back[i]), of, 1e-6 + 4e-3 * std::abs(of)) << rounded;
    }
    kBaselineKernels.gelu_with_slope_f32(wanted.data(), wanted_back.data(), values.data(), count);
    EXPECT_EQ(alone, wanted);
    EXPECT_EQ(found, wanted);
    EXPECT_EQ(back, wanted_back);
    EXPECT_EQ(half_alone, half_found);
  }
}

TEST(GeluKernels, MultiplyGradientsBySlopes) {
  const std::vector<float> values{1.5F, -2, 0, 3}, by{2, 0.25F, 7, -0.5F}, wanted{3, -0.5F, 0, -1.5F};
  const auto rounded = [](const std::vector<float>& numbers) {
    std::vector<std::uint16_t> half(numbers.size());
    std::ranges::transform(numbers, half.begin(), to_bf16);
    return half;
  };
  for (const Kernels* kernels : usable_kernels()) {
    std::vector<float> found = values;
    kernels->multiply_f32(found.data(), by.data(), found.size());
    EXPECT_EQ(found, wanted) << kernels->name;
    std::vector<std::uint16_t> half = rounded(values);
    kernels->multiply_bf16(half.data(), rounded(by).data(), half.size());
    EXPECT_EQ(half, rounded(wanted)) << kernels->name;
  }
}

}  // namespace
}  // namespace troupe::cpu
