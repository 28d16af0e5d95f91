#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <span>

#include "devices/cpu/kernels/dense.hpp"
#include "runtime/model/layout.hpp"
#include "tests/support/random_numbers.hpp"

namespace troupe::cpu {
namespace {

float value_of(float stored) { return stored; }
float value_of(std::uint16_t stored) { return from_bf16(stored); }

template <class Element>
struct DenseCase {
  DenseProduct of;
  std::vector<Element> input, weights;
  std::vector<float> bias;

  DenseCase(std::size_t rows, std::size_t inputs, std::size_t units, bool relu)
      : of{rows, inputs, units, 0, units, relu},
        input(random_numbers<Element>(1, rows * inputs)),
        weights(random_numbers<Element>(2, units * inputs)),
        bias(random_numbers<float>(3, units)) {}

  /// In parts of `units_of_part` units, behind which nothing may be written. `Output`: f32, or bf16 of bf16 operands.
  template <class Output>
  std::vector<Output> forward(const DenseKernels& kernels, std::size_t units_of_part, bool has_bias) const {
    constexpr std::size_t kGuard = 16;
    std::vector<Output> output(of.rows * of.units + kGuard, Output{77});
    std::vector<float> sums(of.rows * of.units);
    std::vector<std::byte> room(DenseKernels::room_bytes(of.rows));
    DenseOperands on{input.data(), weights.data(), has_bias ? bias.data() : nullptr, sums.data(), nullptr, room.data()};
    if constexpr (sizeof(Output) == sizeof(float))
      on.sums = output.data();
    else
      on.bf16 = output.data();
    for (std::size_t unit = 0; unit < of.units; unit += units_of_part) {
      DenseProduct part = of;
      part.first_unit = unit;
      part.end_unit = std::min(of.units, unit + units_of_part);
      kernels.forward(part, on);
    }
    EXPECT_EQ(std::count(output.end() - kGuard, output.end(), Output{77}), kGuard);
    output.resize(of.rows * of.units);
    return output;
  }

  template <class Output>
  void compare(const DenseKernels& kernels, bool has_bias) const {
    const std::vector<Output> output = forward<Output>(kernels, of.units, has_bias);
    for (std::size_t row = 0; row < of.rows; ++row) {
      for (std::size_t unit = 0; unit < of.units; ++unit) {
        double sum = has_bias ? bias[unit] : 0, sizes = 1;
        for (std::size_t i = 0; i < of.inputs; ++i) {
          const double product = double{value_of(input[row * of.inputs + i])} * value_of(weights[unit * of.inputs + i]);
          sum += product;
          sizes += std::abs(product);
        }
        if (of.relu) sum = std::max(sum, 0.0);
        const double rounding = sizeof(Output) == sizeof(float) ? 0 : std::abs(sum) / 256;
        ASSERT_NEAR(value_of(output[row * of.units + unit]), sum, 1e-6 * sizes + rounding)
            << kernels.name << ": " << of.rows << " rows, " << of.inputs << " inputs, unit " << unit << " of "
            << of.units;
      }
    }
  }
};

template <class Element>
class DenseKernelsOf : public testing::Test {
 protected:
  const std::vector<const DenseKernels*> usable_ = usable_dense_kernels(sizeof(Element) != sizeof(float));
  void SetUp() override {
    if (usable_.empty()) GTEST_SKIP() << "this processor has no such kernels";
  }
};
using Elements = testing::Types<float, std::uint16_t>;
TYPED_TEST_SUITE(DenseKernelsOf, Elements);

TYPED_TEST(DenseKernelsOf, ComputeTheProductOfEachNumberOfRowsInputsAndUnits) {
  using Sizes = std::initializer_list<std::size_t>;
  for (const DenseKernels* kernels : this->usable_)
    for (const std::size_t rows : Sizes{0, 1, 5, 6, 31, 64})
      for (const std::size_t inputs : Sizes{1, 7, 16, 33, 500, 4099})
        for (const std::size_t units : Sizes{1, 7, 10, 33}) {
          const DenseCase<TypeParam> one{rows, inputs, units, /*relu=*/(rows + units) % 2 != 0};
          one.template compare<float>(*kernels, /*has_bias=*/inputs % 2 == 0);
          one.template compare<TypeParam>(*kernels, /*has_bias=*/inputs % 2 != 0);
        }
}

TYPED_TEST(DenseKernelsOf, GiveTheSameBitsInPartsOfUnitsAndForARowAlone) {
  for (const DenseKernels* kernels : this->usable_) {
    const DenseCase<TypeParam> whole{9, 4099, 30, false}, first{1, 4099, 30, false};
    const auto output = whole.template forward<TypeParam>(*kernels, 30, true);
    EXPECT_EQ(whole.template forward<TypeParam>(*kernels, 2 * DenseKernels::kUnits, true), output) << kernels->name;
    const auto alone = first.template forward<TypeParam>(*kernels, 30, true);
    EXPECT_TRUE(std::ranges::equal(alone, std::span{output}.first(30))) << kernels->name;
  }
}

TYPED_TEST(DenseKernelsOf, KeepNanBehindARelu) {
  for (const DenseKernels* kernels : this->usable_) {
    DenseCase<TypeParam> of{2, 20, 5, true};
    of.bias[3] = std::nanf("");
    EXPECT_TRUE(std::isnan(of.template forward<float>(*kernels, 5, true)[8])) << kernels->name;
    EXPECT_TRUE(std::isnan(value_of(of.template forward<TypeParam>(*kernels, 5, true)[8]))) << kernels->name;
  }
}

}  // namespace
}  // namespace troupe::cpu
