#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "devices/cpu/kernels/panels.hpp"
#include "runtime/base/random.hpp"
#include "runtime/model/layout.hpp"

namespace troupe::cpu {
namespace {

using Sizes = std::initializer_list<std::size_t>;

float number_of(float stored) { return stored; }
float number_of(std::uint16_t stored) { return from_bf16(stored); }

template <class Element>
constexpr bool kIsF32 = sizeof(Element) == sizeof(float);

/// A matrix [rows, columns], whose columns may be in blocks.
template <class Element>
struct Matrix {
  std::size_t rows, columns;
  ColumnOrder order;
  std::vector<Element> elements;

  Matrix(std::size_t rows, std::size_t columns, Element filled, const ColumnOrder& order = {})
      : rows(rows), columns(columns), order(order), elements(rows * columns, filled) {}
  static Matrix random(std::uint64_t key, std::size_t rows, std::size_t columns, const ColumnOrder& order = {}) {
    Matrix made{rows, columns, Element{}, order};
    for (std::size_t i = 0; i < made.elements.size(); ++i) {
      const auto value = static_cast<float>(random_normal(key, i));
      if constexpr (kIsF32<Element>)
        made.elements[i] = value;
      else
        made.elements[i] = to_bf16(value);
    }
    return made;
  }
  double at(std::size_t row, std::size_t column) const {
    constexpr std::size_t kBlock = ColumnOrder::kBlock;
    return number_of(elements[row * columns + order.place(column / kBlock * kBlock) + column % kBlock]);
  }
};

/// A sum of products in f64, and of their sizes, by which the tolerance grows.
struct Sum {
  double sum = 0, sizes = 1;
  void add(double a, double b) {
    sum += a * b;
    sizes += std::abs(a * b);
  }
  template <class Output>
  void expect(double found, const char* what) const {
    const double rounding = kIsF32<Output> ? 0 : std::abs(sum) / 256;
    ASSERT_NEAR(found, sum, 1e-6 * sizes + rounding) << what;
  }
};

template <class Element>
class PanelKernelsOf : public testing::Test {
 protected:
  using Room = std::vector<std::uint32_t>;
  const std::vector<const PanelKernels*> usable_ = usable_panel_kernels(!kIsF32<Element>);
  void SetUp() override {
    if (usable_.empty()) GTEST_SKIP() << "this processor has no such kernels";
  }
  static bool has_words(const PanelKernels& kernels, std::size_t terms) { return terms % kernels.terms_of_word == 0; }

  /// to = a times b, in parts of some rows and columns. What is not computed keeps its value.
  template <class Output>
  static void multiply_in_parts(const PanelKernels& kernels, const PanelProduct& all, PanelOperands on,
                                std::size_t rows, std::size_t columns) {
    Room room(PanelKernels::room_words(all.end_term));
    on.room = room.data();
    for (std::size_t row = 0; row < all.end_row; row += rows)
      for (std::size_t column = 0; column < all.end_column; column += columns) {
        PanelProduct part = all;
        part.first_row = row;
        part.end_row = std::min(all.end_row, row + rows);
        part.first_column = column;
        part.end_column = std::min(all.end_column, column + columns);
        kernels.multiply(part, on);
      }
  }
  static PanelOperands operands(const void* a, const void* b, Matrix<float>& to) {
    return {a, b, to.elements.data(), nullptr, nullptr};
  }
  static PanelOperands operands(const void* a, const void* b, Matrix<std::uint16_t>& to) {
    return {a, b, nullptr, to.elements.data(), nullptr};
  }

  /// As a dense layer's gradient to its input: both operands are rows in memory.
  template <class Output>
  static Matrix<Output> product(const PanelKernels& kernels, const Matrix<Element>& a, const Matrix<Element>& b,
                                const ColumnOrder& to_order, std::size_t rows, std::size_t columns) {
    Matrix<Output> to{a.rows, b.columns, Output{77}, to_order};
    multiply_in_parts<Output>(kernels,
                              {.end_row = a.rows,
                               .end_column = b.columns,
                               .end_term = a.columns,
                               .a_row = a.columns / kernels.terms_of_word,
                               .a_term = 1,
                               .b_row = b.columns,
                               .to_row = b.columns,
                               .b_order = b.order,
                               .to_order = to_order},
                              operands(a.elements.data(), b.elements.data(), to), rows, columns);
    return to;
  }
  /// As a dense layer's gradient to its weights: sums over the rows of both.
  static Matrix<float> product_over_rows(const PanelKernels& kernels, const Matrix<Element>& a,
                                         const Matrix<Element>& b) {
    Matrix<float> to{a.columns, b.columns, 77};
    Room pairs(a.rows / 2 * a.columns + a.columns);
    const void* words = a.elements.data();
    if constexpr (!kIsF32<Element>) {
      kernels.pair_rows(a.elements.data(), a.rows, a.columns, pairs.data());
      words = pairs.data();
    }
    multiply_in_parts<float>(kernels,
                             {.end_row = a.columns,
                              .end_column = b.columns,
                              .end_term = a.rows,
                              .a_row = 1,
                              .a_term = a.columns,
                              .b_row = b.columns,
                              .to_row = b.columns,
                              .b_order = b.order},
                             operands(words, b.elements.data(), to), 1000, 4096);
    return to;
  }
  /// As a dense layer's forward pass: weights and input are rows in memory. In blocks of `at_once` terms.
  static Matrix<float> output(const PanelKernels& kernels, const Matrix<float>& weights, const Matrix<float>& input,
                              const float* bias, bool relu, std::size_t at_once) {
    const std::size_t to_unit = input.rows + 3;
    std::vector<float> sums(weights.rows * to_unit);
    Room room(PanelKernels::room_words(input.columns));
    PanelProduct part{.end_row = weights.rows,
                      .end_column = input.rows,
                      .a_row = weights.columns,
                      .a_term = 1,
                      .b_row = input.columns,
                      .to_row = to_unit,
                      .b_is_transposed = true,
                      .b_order = input.order};
    for (; part.first_term < input.columns; part.first_term += at_once, part.adds = true) {
      part.end_term = std::min(input.columns, part.first_term + at_once);
      kernels.multiply(part, {weights.elements.data(), input.elements.data(), sums.data(), nullptr, room.data()});
    }
    Matrix<float> to{input.rows, weights.rows, 77};
    PanelOutputs outputs{input.rows, weights.rows, 0, 0, sums.data(), to_unit, bias, relu, to.elements.data(), nullptr};
    for (; outputs.first_unit < weights.rows; outputs.first_unit = outputs.end_unit) {
      outputs.end_unit = std::min(weights.rows, outputs.first_unit + 2 * kernels.lanes);
      kernels.finish(outputs);
    }
    return to;
  }

  template <class Output>
  static void expect_product(const Matrix<Output>& found, const Matrix<Element>& a, const Matrix<Element>& b,
                             const char* name) {
    for (std::size_t row = 0; row < a.rows; ++row)
      for (std::size_t column = 0; column < b.columns; ++column) {
        Sum sum;
        for (std::size_t term = 0; term < a.columns; ++term) sum.add(a.at(row, term), b.at(term, column));
        sum.expect<Output>(found.at(row, column), name);
      }
  }
};
using PanelElements = testing::Types<float, std::uint16_t>;
TYPED_TEST_SUITE(PanelKernelsOf, PanelElements);

TYPED_TEST(PanelKernelsOf, MultiplyMatricesOfEachSize) {
  for (const PanelKernels* kernels : this->usable_)
    for (const std::size_t rows : Sizes{1, 4, 6, 31})
      for (const std::size_t terms : Sizes{1, 2, 10, 130})
        for (const std::size_t columns : Sizes{1, 16, 33, 200}) {
          if (!this->has_words(*kernels, terms)) continue;
          const auto a = Matrix<TypeParam>::random(1, rows, terms), b = Matrix<TypeParam>::random(2, terms, columns);
          this->expect_product(this->template product<TypeParam>(*kernels, a, b, {}, rows, columns), a, b,
                               kernels->name);
        }
}

TYPED_TEST(PanelKernelsOf, GiveTheSameBitsInPartsOfRowsAndColumns) {
  for (const PanelKernels* kernels : this->usable_) {
    const auto a = Matrix<TypeParam>::random(1, 29, 130), b = Matrix<TypeParam>::random(2, 130, 700);
    const auto whole = this->template product<TypeParam>(*kernels, a, b, {}, 29, 700);
    const auto parts = this->template product<TypeParam>(*kernels, a, b, {}, 7, 5 * kernels->lanes);
    EXPECT_EQ(whole.elements, parts.elements) << kernels->name;
  }
}

TYPED_TEST(PanelKernelsOf, SumOverRowsOfEachNumber) {
  for (const PanelKernels* kernels : this->usable_)
    for (const std::size_t rows : Sizes{1, 4, 63, 64}) {
      const auto a = Matrix<TypeParam>::random(1, rows, 10), b = Matrix<TypeParam>::random(2, rows, 1100);
      const auto found = this->product_over_rows(*kernels, a, b);
      for (std::size_t i = 0; i < a.columns; ++i)
        for (std::size_t column = 0; column < b.columns; ++column) {
          Sum sum;
          for (std::size_t row = 0; row < rows; ++row) sum.add(a.at(row, i), b.at(row, column));
          sum.template expect<float>(found.at(i, column), kernels->name);
        }
    }
}

TYPED_TEST(PanelKernelsOf, AddABiasAndApplyAReluToWholeSums) {
  constexpr std::size_t kAtOnce = 64;  // terms
  for (const PanelKernels* kernels : this->usable_)
    for (const std::size_t rows : Sizes{1, 31})
      for (const std::size_t terms : Sizes{2, 64, 130})
        for (const std::size_t columns : Sizes{10, 64, 133}) {
          const auto a = Matrix<TypeParam>::random(1, rows, terms), b = Matrix<TypeParam>::random(2, columns, terms);
          const auto bias = Matrix<float>::random(3, 1, columns);
          Matrix<float> in_blocks{rows, columns, 77};
          Matrix<TypeParam> at_once{rows, columns, TypeParam{77}};
          PanelProduct of{.end_row = rows,
                          .end_column = columns,
                          .end_term = terms,
                          .a_row = terms / kernels->terms_of_word,
                          .a_term = 1,
                          .b_row = terms,
                          .to_row = columns,
                          .b_is_transposed = true,
                          .relu = true};
          const auto multiply = [&](auto& to) {
            PanelOperands on = this->operands(a.elements.data(), b.elements.data(), to);
            if (of.relu) on.bias = bias.elements.data();
            this->template multiply_in_parts<TypeParam>(*kernels, of, on, rows, columns);
          };
          multiply(at_once);
          for (; of.first_term < terms; of.first_term += kAtOnce, of.adds = true) {
            of.end_term = std::min(terms, of.first_term + kAtOnce);
            of.relu = of.end_term == terms;
            multiply(in_blocks);
          }
          for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t column = 0; column < columns; ++column) {
              Sum sum;
              sum.add(bias.at(0, column), 1);
              for (std::size_t term = 0; term < terms; ++term) sum.add(a.at(row, term), b.at(column, term));
              sum.sum = std::max(sum.sum, 0.0);
              sum.template expect<TypeParam>(at_once.at(row, column), kernels->name);
              sum.template expect<float>(in_blocks.at(row, column), kernels->name);
            }
        }
}

TYPED_TEST(PanelKernelsOf, AddUpRows) {
  for (const PanelKernels* kernels : this->usable_)
    for (const std::size_t columns : Sizes{1, 10, 64, 133}) {
      const auto of = Matrix<TypeParam>::random(1, 31, columns);
      std::vector<float> sums(columns + 1, 77);
      kernels->add_rows(of.elements.data(), of.rows, columns, sums.data());
      for (std::size_t column = 0; column < columns; ++column) {
        Sum sum;
        for (std::size_t row = 0; row < of.rows; ++row) sum.add(of.at(row, column), 1);
        sum.template expect<float>(sums[column], kernels->name);
      }
      EXPECT_EQ(sums.back(), 77) << kernels->name;
    }
}

using PanelKernelsOfF32 = PanelKernelsOf<float>;

TEST_F(PanelKernelsOfF32, MultiplyByTransposedMatricesInBlocksOfTerms) {
  for (const PanelKernels* kernels : usable_)
    for (const std::size_t rows : Sizes{1, 16, 64})
      for (const std::size_t inputs : Sizes{2, 34, 600})
        for (const std::size_t units : Sizes{1, 10, 33}) {
          const auto weights = Matrix<float>::random(1, units, inputs);
          const auto input = Matrix<float>::random(2, rows, inputs);
          const auto bias = Matrix<float>::random(3, 1, units);
          const bool relu = units > 1;
          const auto found = output(*kernels, weights, input, bias.elements.data(), relu, 256);
          for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t unit = 0; unit < units; ++unit) {
              Sum sum;
              sum.add(bias.at(0, unit), 1);
              for (std::size_t i = 0; i < inputs; ++i) sum.add(input.at(row, i), weights.at(unit, i));
              if (relu) sum.sum = std::max(sum.sum, 0.0);
              sum.expect<float>(found.at(row, unit), kernels->name);
            }
        }
}

TEST_F(PanelKernelsOfF32, KeepNanBehindARelu) {
  for (const PanelKernels* kernels : usable_) {
    const auto weights = Matrix<float>::random(1, 5, 20), input = Matrix<float>::random(2, 2, 20);
    const std::vector<float> bias{0, 0, 0, std::nanf(""), 0};
    EXPECT_TRUE(std::isnan(output(*kernels, weights, input, bias.data(), true, 20).at(1, 3)));
  }
}

TEST_F(PanelKernelsOfF32, ReadAndWriteImagesInBlocksOfChannels) {
  constexpr ColumnOrder kBlocks{.channels = 48, .pixels = 5};
  constexpr std::size_t kInputs = 240;
  for (const PanelKernels* kernels : usable_) {
    const auto gradient = Matrix<float>::random(1, 18, 12), weights = Matrix<float>::random(2, 12, kInputs);
    expect_product(product<float>(*kernels, gradient, weights, kBlocks, 18, kInputs), gradient, weights, kernels->name);

    const auto input = Matrix<float>::random(3, 18, kInputs, kBlocks);
    Matrix<float> plain{18, kInputs, 0};
    for (std::size_t row = 0; row < 18; ++row)
      for (std::size_t column = 0; column < kInputs; ++column)
        plain.elements[row * kInputs + column] = static_cast<float>(input.at(row, column));
    EXPECT_EQ(product_over_rows(*kernels, gradient, input).elements,
              product_over_rows(*kernels, gradient, plain).elements)
        << kernels->name;
    EXPECT_EQ(output(*kernels, weights, input, nullptr, false, 64).elements,
              output(*kernels, weights, plain, nullptr, false, 64).elements)
        << kernels->name;
  }
}

}  // namespace
}  // namespace troupe::cpu
