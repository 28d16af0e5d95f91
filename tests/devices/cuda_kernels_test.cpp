#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/random.hpp"
#include "runtime/compute/rules/gradient_check.hpp"
#include "runtime/compute/rules/tensor_norms.hpp"
#include "tests/devices/cuda_kernel_launch.hpp"
#include "tests/support/random_numbers.hpp"

// The kernels' host forms against the definitions of runtime/compute, on sizes that no block of threads divides.
namespace troupe::cuda {
namespace {

using testing::launch;

constexpr std::size_t kSizes[]{0, 1, 31, 33, 4097, (std::size_t{1} << 20) + 3};

/// In as many blocks as a stream launches: at most one for each piece.
void launch_check(const CheckGradientArgs& args) {
  launch("check_gradient", args,
         static_cast<std::uint32_t>(std::min<std::uint64_t>(count_square_pieces(args.count), kGradientBlocks)));
}

std::vector<std::uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<std::uint16_t> all;
  for (const float value : values) all.push_back(to_bf16(value));
  return all;
}

TEST(CudaKernels, CopyAndClearAllBytesAndNoMore) {
  for (const std::size_t size : kSizes) {
    SCOPED_TRACE(size);
    std::vector<std::byte> from(size + 1), to(size + 1, std::byte{9});
    for (std::size_t i = 0; i < size; ++i) from[i] = static_cast<std::byte>(i * 7);
    launch("copy", CopyArgs{nullptr, to.data(), from.data(), size});
    EXPECT_TRUE(std::equal(to.begin(), to.end() - 1, from.begin()));
    EXPECT_EQ(to.back(), std::byte{9});
    launch("clear", ClearArgs{nullptr, to.data(), size});
    EXPECT_EQ(std::count(to.begin(), to.end() - 1, std::byte{}), static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(to.back(), std::byte{9});
  }
}

TEST(CudaKernels, ReduceWithNormWithTheBitsOfTheDefinition) {
  std::vector<std::size_t> sizes(std::begin(kSizes), std::end(kSizes));
  sizes.push_back(kSquarePiece * kGradientStrands + 5000);  // the first strands have a second piece
  for (const std::size_t count : sizes) {
    SCOPED_TRACE(count);
    std::array<std::vector<float>, 3> parts{random_numbers(1, count), random_numbers(2, count),
                                            random_numbers(3, count)};
    std::vector<float> expected = parts[0];
    for (std::size_t i = 0; i < count; ++i) expected[i] = expected[i] + parts[1][i] + parts[2][i];
    ReduceArgs args{};
    args.to = parts[1].data(), args.count = count, args.count_parts = 3;
    CheckGradientArgs measure{};
    for (std::size_t p = 0; p < 3; ++p) args.parts[p] = measure.parts[p] = parts[p].data(), measure.ranks[p] = 5;
    launch("reduce", args);
    EXPECT_EQ(parts[1], expected);
    StepSums sums{.gradient_squares = 0.5}, wanted = sums;
    check_gradient(wanted, expected.data(), {}, count, {{}, 70});
    measure.sum = parts[1].data(), measure.count = count, measure.first_element = 70, measure.count_parts = 3;
    const auto scratch = std::make_unique<SquareScratch>();
    measure.squares = 1, measure.given.own.sums = &sums, measure.scratch = scratch.get();
    launch_check(measure);
    EXPECT_EQ(sums.gradient_squares, wanted.gradient_squares);
    EXPECT_EQ(sums.bad_gradient, 0U);
    if (count < 33) continue;
    parts[1][31] = parts[2][31] = NAN;
    parts[1][count - 1] = INFINITY;
    launch_check(measure);
    EXPECT_EQ(sums.bad_gradient, bad_at(70 + 31, 5));
    EXPECT_EQ(std::count(std::begin(scratch->arrived), std::end(scratch->arrived), 0U), scratch->kMostArrivals);
  }
}

TEST(CudaKernels, ConvertAsTheRuntimeDoes) {
  for (const std::size_t count : kSizes) {
    SCOPED_TRACE(count);
    std::vector<float> from = random_numbers(4, count), kept = random_numbers(5, count);
    constexpr float kSpecial[]{NAN, INFINITY, -INFINITY, 1.00390625F, 1.01171875F, 3.4e38F, -0.0F};
    for (std::size_t i = 0; i < std::size(kSpecial) && i < count; ++i) from[i] = kSpecial[i];
    std::vector<std::uint16_t> to(count);
    launch("convert", ConvertArgs{nullptr, to.data(), from.data(), count, Stored::bf16, Stored::f32});
    EXPECT_EQ(to, bf16_of(from));
    std::vector<float> back(count), sum = kept, wanted = kept, residual = kept;
    launch("convert", ConvertArgs{nullptr, back.data(), to.data(), count, Stored::f32, Stored::bf16});
    for (std::size_t i = 0; i < count; ++i) ASSERT_TRUE(back[i] == from_bf16(to[i]) || std::isnan(from[i])) << i;
    launch("add_converted", AddConvertedArgs{nullptr, sum.data(), to.data(), count, Stored::bf16, 0});
    add_converted_elements(wanted.data(), reinterpret_cast<std::byte*>(to.data()), DType::bf16, count);
    for (std::size_t i = 0; i < count; ++i) ASSERT_TRUE(sum[i] == wanted[i] || std::isnan(from[i])) << i;
    std::vector<std::uint16_t> expected(count);
    wanted = kept;
    convert_elements_with_residual(reinterpret_cast<std::byte*>(expected.data()), DType::bf16, from.data(),
                                   wanted.data(), count);
    launch("convert_with_residual",
           ConvertWithResidualArgs{nullptr, to.data(), from.data(), residual.data(), count, Stored::bf16, 0});
    EXPECT_EQ(to, expected);
    EXPECT_EQ(residual, wanted);
  }
}

TEST(CudaKernels, DigestAsTheHostDoes) {
  std::vector<std::byte> bytes((std::size_t{1} << 20) + 3 + 1);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random_bits(6, i));
  std::vector<std::size_t> sizes(std::begin(kSizes), std::end(kSizes));
  for (std::size_t size = 0; size < 300; ++size) sizes.push_back(size);
  for (const std::size_t block : {1, 2, 31, 32, 33, 65})
    for (const std::size_t more : {0, 1, 63, 64, 65, 1023}) sizes.push_back(block * 1024 + more);
  for (const std::size_t size : sizes) {
    for (const std::size_t offset : {0, 1}) {  // aligned and not
      std::uint64_t found = 0;
      DigestArgs args{nullptr, bytes.data() + offset, size, {}};
      args.given.own.to = &found;
      launch("digest", args, 1);
      ASSERT_EQ(found, xxh3({bytes.data() + offset, size})) << size << " bytes from " << offset;
    }
  }
}

TEST(CudaKernels, UpdateWithTheBitsOfTheDefinition) {
  for (const RuleKind kind : kRuleKinds) {
    for (const std::size_t count : kSizes) {
      if (count > 5000 && kind != RuleKind::adamw) continue;  // the same loop
      SCOPED_TRACE(text(name_of(kind), ", ", count, " elements"));
      const RuleStep rule = rule_step({.kind = kind, .rate = 0.01, .weight_decay = 0.1, .look_ahead = 0.8}, 3);
      std::vector<float> p = random_numbers(7, count), gradient = random_numbers(8, count),
                         s0 = random_numbers(9, count);
      for (float& value : s0) value = value * value + 0.01F;
      std::vector<float> s1 = s0, wanted_p = p, wanted_s0 = s0, wanted_s1 = s1;
      std::vector<std::uint16_t> image(count);
      StepSums total{.samples = 37};
      UpdateArgs args{};
      args.parameters = p.data(), args.half = image.data(), args.count = count;
      if (state_slots(kind) > 0) args.state[0] = s0.data();
      if (state_slots(kind) > 1) args.state[1] = s1.data();
      args.count_parts = 1, args.parts[0] = gradient.data();
      args.given.own = {rule, 3, &total};
      launch("update", args);
      float none = 0;
      for (std::size_t i = 0; i < count; ++i) {
        update_element(rule, gradient_scale(rule, total), gradient[i], wanted_p[i],
                       state_slots(kind) > 0 ? wanted_s0[i] : none, state_slots(kind) > 1 ? wanted_s1[i] : none);
      }
      EXPECT_EQ(p, wanted_p);
      EXPECT_EQ(s0, wanted_s0);
      EXPECT_EQ(s1, wanted_s1);
      EXPECT_EQ(image, bf16_of(wanted_p));
    }
  }
}

/// Arrays that begin before or behind a multiple of 16 bytes, together or not, and ranges without weight decay.
TEST(CudaKernels, UpdateAnyStripeAndAnyRangesWithTheBitsOfTheDefinition) {
  constexpr std::size_t kCount = 4097, kFirst = 70;
  const Layout::Entry no_decay[]{{71, 3}, {100, 1}, {104, 8}, {120, 2001}};
  for (std::size_t shift = 0; shift < 8; ++shift) {
    SCOPED_TRACE(shift);
    const std::size_t of_gradient = shift % 2 == 0 ? shift : 0;
    const RuleStep rule = rule_step({.kind = RuleKind::adam, .rate = 0.01, .weight_decay = 0.1, .ema_decay = 0.9}, 3);
    std::vector<float> p = random_numbers(7, kCount + 8), m = random_numbers(8, kCount + 8);
    const std::vector<float> gradient = random_numbers(9, kCount + 8), more = random_numbers(10, kCount + 8);
    std::vector<float> v(kCount + 8, 0.5F), average = p, wanted_p = p, wanted_m = m, wanted_v = v, wanted_average = p;
    std::vector<std::uint16_t> half(kCount + 8);
    const StepSums total{.samples = 37};
    UpdateArgs args{};
    args.parameters = p.data() + shift, args.half = half.data() + shift, args.copy_type = Stored::bf16;
    args.state[0] = m.data() + shift, args.state[1] = v.data() + shift, args.state[2] = average.data() + shift;
    args.average = args.state[2], args.count = kCount, args.first_element = kFirst;
    args.no_decay = no_decay, args.count_no_decay = std::size(no_decay);
    args.count_parts = 2, args.parts[0] = gradient.data() + of_gradient, args.parts[1] = more.data() + of_gradient;
    args.given.own = {rule, 3, &total};
    launch("update", args);
    for (std::size_t i = 0; i < kCount; ++i) {
      RuleStep own = rule;
      for (const Layout::Entry& range : no_decay)
        if (kFirst + i >= range.first && kFirst + i < range.first + range.count) own.decay = 0;
      const std::size_t at = i + shift;
      update_element(own, gradient_scale(rule, total), gradient[i + of_gradient] + more[i + of_gradient], wanted_p[at],
                     wanted_m[at], wanted_v[at]);
      average_element(own, wanted_p[at], wanted_average[at]);
      ASSERT_EQ(half[at], to_bf16(wanted_p[at])) << i;
    }
    EXPECT_EQ(p, wanted_p);
    EXPECT_EQ(m, wanted_m);
    EXPECT_EQ(v, wanted_v);
    EXPECT_EQ(average, wanted_average);
  }
}

TEST(CudaKernels, MultiplyMatricesOfOddExtentsInBothOrders) {
  for (const auto& [rows, columns, inner] :
       {std::array<std::size_t, 3>{1, 1, 1}, {31, 33, 17}, {16, 16, 16}, {33, 1, 4097}, {5, 70, 0}}) {
    SCOPED_TRACE(text(rows, " x ", columns, " over ", inner));
    const std::vector<float> a = random_numbers(10, rows * inner), b = random_numbers(11, columns * inner),
                             bias = random_numbers(12, columns);
    std::vector<float> to(rows * columns, NAN);
    MultiplyArgs args{};
    args.to.at = to.data(), args.to.bias = bias.data(), args.to.parts = 1, args.to.scale = 1;
    args.place = {nullptr, columns, 1, 0, 0, Stored::f32, 0};
    args.a = {a.data(), inner, 1, 0, 0, Stored::f32, 0};
    args.b = {b.data(), 1, inner, 0, 0, Stored::f32, 0};  // [columns, inner]: transposed
    args.extents = {1, rows, columns, inner};
    launch("multiply", args, 3);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        double sum = static_cast<double>(bias[j]), size = std::abs(sum);
        for (std::size_t k = 0; k < inner; ++k) {
          const double product = static_cast<double>(a[i * inner + k]) * static_cast<double>(b[j * inner + k]);
          sum += product, size += std::abs(product);
        }
        ASSERT_NEAR(static_cast<double>(to[i * columns + j]), sum, 1e-6 * size) << i << ", " << j;
      }
    }
  }
}

TEST(CudaKernels, AddUpAProductThatWasCutIntoParts) {
  for (const std::uint32_t parts : {2U, 7U, 8U, 31U, 32U, 130U}) {
    SCOPED_TRACE(parts);
    constexpr std::size_t kRows = 65, kColumns = 31, kInner = 333;
    const std::vector<float> a = random_numbers(10, kRows * kInner), b = random_numbers(11, kInner * kColumns),
                             bias = random_numbers(12, kColumns);
    std::vector<float> whole(kRows * kColumns), cut(kRows * kColumns, 2), partial(parts * cut.size(), NAN);
    MultiplyArgs args{};
    args.to = {whole.data(), bias.data(), nullptr, whole.size(), Stored::f32, 0, 1, 0.5F};
    args.place = {nullptr, kColumns, 1, 0, 0, Stored::f32, 0};
    args.a = {a.data(), kInner, 1, 0, 0, Stored::f32, 0};
    args.b = {b.data(), kColumns, 1, 0, 0, Stored::f32, 0};
    args.extents = {1, kRows, kColumns, kInner};
    launch("multiply", args, 3);
    args.to.at = cut.data(), args.to.partial = partial.data(), args.to.parts = parts, args.to.adds = 1;
    launch("multiply", args, 4);
    launch("add_parts", AddPartsArgs{nullptr, args.to, kColumns});
    for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(cut[i], whole[i] + 2, 1e-4) << i;
  }
}

TEST(CudaKernels, SumColumnsAndNormalizeRowsOfOddExtents) {
  for (const auto& [rows, columns] : {std::array<std::size_t, 2>{0, 1},
                                      {1, 1},
                                      {31, 33},
                                      {33, 31},
                                      {4097, 3},
                                      {3, 4097},
                                      {5, 516},
                                      {70, 8},
                                      {3, 4}}) {
    SCOPED_TRACE(text(rows, " x ", columns));
    const std::vector<float> from = random_numbers(20, rows * columns), scale = random_numbers(21, columns);
    std::vector<float> summed(columns + 1, 9.0F), to(rows * columns + 1, 9.0F);
    std::vector<SlopeSums> partial(3 * columns, {NAN, NAN});
    std::vector<RowMoments> moments(rows + 1);
    StreamState state;
    SumColumnsArgs sums{};
    sums.stream = &state, sums.to = summed.data(), sums.partial = partial.data(), sums.from = from.data();
    sums.sums = {rows, columns, 3, 0};
    launch("sum_columns", sums);
    EXPECT_EQ(summed.back(), 9.0F);
    NormalizeRowsArgs norm{};
    norm.to = to.data(), norm.moments = moments.data(), norm.from = from.data(), norm.scale = scale.data();
    norm.count_rows = rows, norm.width = columns, norm.epsilon = 1e-5F, norm.is_layer_norm = 1;
    launch("normalize_rows", norm, 2);
    EXPECT_EQ(to.back(), 9.0F);
    for (std::size_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::size_t r = 0; r < rows; ++r) sum += static_cast<double>(from[r * columns + c]);
      ASSERT_NEAR(static_cast<double>(summed[c]), sum, 1e-3) << c;
    }
    for (std::size_t r = 0; r < rows; ++r) {
      double mean = 0, variance = 0;
      for (std::size_t c = 0; c < columns; ++c) mean += static_cast<double>(from[r * columns + c]);
      mean /= static_cast<double>(columns);
      for (std::size_t c = 0; c < columns; ++c)
        variance += std::pow(static_cast<double>(from[r * columns + c]) - mean, 2);
      variance /= static_cast<double>(columns);
      for (std::size_t c = 0; c < columns; ++c) {
        const double normal = (static_cast<double>(from[r * columns + c]) - mean) / std::sqrt(variance + 1e-5);
        ASSERT_NEAR(static_cast<double>(to[r * columns + c]), normal * static_cast<double>(scale[c]), 2e-5)
            << r << ", " << c;
      }
    }
  }
}

/// Random numbers of a type, many of them equal, which begin `shift` elements behind a multiple of 16 bytes.
class Tensor {
 public:
  Tensor(std::uint32_t seed, std::size_t count, Stored type, std::size_t shift)
      : bytes_((count + kRoom + shift) * bytes_of(type)), count_(count), type_(type), shift_(shift) {
    const std::vector<float> drawn = random_numbers(seed, count + kRoom);
    for (std::size_t i = 0; i < drawn.size(); ++i)
      store(at(), type, i, std::round(drawn[i] * 8) / 8);  // some behind the end
  }
  void* at() { return bytes_.data() + shift_ * bytes_of(type_); }
  Stored type() const { return type_; }
  GradientTo added() { return {at(), type_, 1}; }
  /// With what stands behind the end.
  std::vector<float> values() {
    std::vector<float> all;
    for (std::size_t i = 0; i < count_ + kRoom; ++i) all.push_back(load(at(), type_, i));
    return all;
  }

 private:
  static constexpr std::size_t kRoom = 5;
  std::vector<std::byte> bytes_;
  std::size_t count_;
  Stored type_;
  std::size_t shift_;
};

/// What act(to, a, b) makes of `to`, where all begin in packs, and where none does.
template <class Act>
void expect_same_in_packs(std::size_t count, Stored type, Act&& act) {
  std::vector<float> found[2];
  for (std::size_t shift = 0; shift < 2; ++shift) {
    Tensor to{1, count, type, shift}, a{2, count, type, shift}, b{3, count, type, shift};
    act(to, a, b);
    found[shift] = to.values();
  }
  const std::vector<float> before = Tensor{1, count, type, 0}.values();
  EXPECT_EQ(found[0], found[1]);
  EXPECT_TRUE(std::equal(before.end() - 5, before.end(), found[0].end() - 5)) << "written behind the end";
  EXPECT_TRUE(count == 0 || found[0] != before) << "nothing was written";
}

TEST(CudaKernels, GiveTheSameBitsInPacksAndOneByOne) {
  for (const Stored type : {Stored::f32, Stored::bf16, Stored::f16}) {
    for (const std::size_t count : kSizes) {
      if (count > 5000 && type != Stored::bf16) continue;  // the same loop
      SCOPED_TRACE(text(count, " elements of type ", static_cast<std::uint32_t>(type)));
      for (const Curve curve : {Curve::relu, Curve::tanh, Curve::sigmoid, Curve::gelu}) {
        if (count > 5000 && curve != Curve::relu) continue;
        expect_same_in_packs(count, type, [&](Tensor& to, Tensor& a, Tensor&) {
          launch("activate", ActivateArgs{nullptr, to.at(), a.at(), count, curve, type, type, 0});
        });
        expect_same_in_packs(count, type, [&](Tensor& to, Tensor& a, Tensor& b) {
          launch("activate_back", ActivateBackArgs{nullptr, to.added(), a.at(), b.at(), count, curve, type, type, 0});
        });
      }
      expect_same_in_packs(count, type, [&](Tensor& to, Tensor& a, Tensor& b) {
        CombineArgs args{};
        args.to = to.at(), args.to_type = type, args.count = count, args.count_inputs = 2;
        args.from[0] = a.at(), args.from[1] = b.at(), args.from_types[0] = args.from_types[1] = type;
        launch("combine", args);
      });
      expect_same_in_packs(count, type, [&](Tensor& to, Tensor& a, Tensor& b) {
        FactorBackArgs args{};
        args.to = to.added(), args.gradient = a.at(), args.gradient_type = type, args.count = count;
        args.count_inputs = 2, args.factor = 1, args.from[0] = b.at(), args.from_types[0] = type;
        args.from[1] = b.at(), args.from_types[1] = type;
        launch("factor_back", args);
      });
      expect_same_in_packs(count, type, [&](Tensor& to, Tensor& a, Tensor&) {
        launch("move_columns", MoveColumnsArgs{nullptr, to.added(), a.at(), 1, count, 0, count, 0, count, type, 0});
      });
      const std::vector<std::int32_t> keys(2 * (count / 12 + 1), 7);
      expect_same_in_packs(count / 12 * 12, type, [&](Tensor& to, Tensor& a, Tensor&) {
        launch("drop", DropArgs{nullptr, to.added(), a.at(), keys.data(), count / 12 * 12, 12, 0.5, 3, type});
      });
    }
  }
}

TEST(CudaKernels, MoveColumnsInPacksOrNotWhateverTheirDistances) {
  for (const auto& [width, to_stride, from_stride, first] :
       {std::array<std::size_t, 4>{8, 24, 8, 8}, {8, 8, 20, 4}, {8, 9, 8, 0}, {7, 28, 7, 4}, {8, 16, 16, 3}}) {
    SCOPED_TRACE(text(width, " of ", to_stride, " from ", from_stride, ", first ", first));
    constexpr std::size_t kRows = 33;
    const std::vector<float> from = random_numbers(3, kRows * from_stride + first + width);
    std::vector<float> to(kRows * to_stride + first + width, 9), wanted = to;
    const float factor = 0.5F;
    launch("move_columns", MoveColumnsArgs{nullptr,
                                           {to.data(), Stored::f32, 0},
                                           from.data(),
                                           kRows,
                                           width,
                                           first,
                                           to_stride,
                                           first,
                                           from_stride,
                                           Stored::f32,
                                           0,
                                           {&factor, 4}});
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t c = 0; c < width; ++c) wanted[first + r * to_stride + c] = 2 * from[first + r * from_stride + c];
    EXPECT_EQ(to, wanted);
  }
}

TEST(CudaKernels, DivideAsDivisionsDo) {
  for (const std::uint32_t divisor : {1U, 2U, 3U, 7U, 28U, 784U, 1000U, 65537U, 0x7fffffffU}) {
    const Divisor by = divisor_of(divisor);
    for (std::uint64_t key = 0; key < 200; ++key) {
      const auto number = static_cast<std::uint32_t>(random_below(7, key, std::uint64_t{1} << (1 + key % 31)));
      std::uint32_t rest = number;
      ASSERT_EQ(divide(rest, by), number / divisor) << number << " / " << divisor;
      ASSERT_EQ(rest, number % divisor) << number << " % " << divisor;
    }
    for (const std::uint32_t number : {0U, divisor - 1, divisor, 0x7fffffffU})
      ASSERT_EQ(quotient(number, by), number / divisor) << number << " / " << divisor;
  }
}

TEST(CudaKernels, DoNothingOnAStreamThatHasFailed) {
  StreamState state{.failed = static_cast<std::uint32_t>(StreamFault::overdue)};
  std::vector<std::byte> bytes(100, std::byte{5});
  const ClearArgs args{&state, bytes.data(), bytes.size()};
  launch("clear", args);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{5}), 100);
  state.failed = 0;
  launch("clear", args);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{5}), 0);
}

TEST(CudaKernels, AWaitEndsItsStreamAndTellsWhy) {
  const auto waited = [](std::uint64_t word, std::uint64_t value, std::uint64_t end,
                         std::uint64_t deadline_ns = 60'000'000'000) {
    StreamState state;
    StreamReport report;
    report.end = end;
    WaitArgs args{&state, &report, {}, deadline_ns, {}};
    args.given.own = {&word, value};
    launch("wait", args, 1);
    EXPECT_EQ(state.failed, report.fault);
    return static_cast<StreamFault>(report.fault);
  };
  EXPECT_EQ(waited(5, 5, 0), StreamFault::none);
  EXPECT_EQ(waited(5 | kPoisonedBit, 5, 0), StreamFault::none);
  EXPECT_EQ(waited(4 | kPoisonedBit, 5, 0), StreamFault::poisoned);
  EXPECT_EQ(waited(4, 5, 1), StreamFault::ended);
  EXPECT_EQ(waited(4, 5, 0, /*deadline_ns=*/1000), StreamFault::overdue);
}

ShortWork short_work(ShortWork::Kind kind, const auto& args) {
  ShortWork work{.kind = kind};
  std::memcpy(work.args, &args, sizeof args);
  return work;
}

/// A step's first kernel: it loads values, copies sums whose places are among these, waits, and signals a line.
TEST(CudaKernels, DoShortWorksInTheirOrderUntilAWaitFails) {
  for (const std::uint64_t reached : {4U, 5U}) {
    SCOPED_TRACE(reached);
    StreamState state;
    StreamReport report{.end = 1};
    StepSums from{.loss = 7}, to;
    std::uint64_t waited = reached, raised = 0;
    const CopySumsValues places{&to, &from};
    std::array<std::uint64_t, 4> ring{}, words{};  // two slots
    std::memcpy(ring.data() + 2, &places, sizeof places);
    ReplayCount count{.begun = 1};
    ShortWorksArgs args{.stream = &state, .load = {&state, &count, ring.data(), words.data(), 2, 2}, .count = 3};
    CopySumsArgs copy{};
    copy.given.block = reinterpret_cast<const CopySumsValues*>(words.data());
    WaitArgs wait{.stream = &state, .report = &report, .deadline_ns = 60'000'000'000};
    wait.given.own = {&waited, 5};
    SignalArgs signal{.stream = &state};
    signal.given.own = {&raised, 9};
    args.works[0] = short_work(ShortWork::Kind::copy_sums, copy);
    args.works[1] = short_work(ShortWork::Kind::wait, wait);
    args.works[2] = short_work(ShortWork::Kind::signal, signal);
    launch("short_works", args, 1);
    EXPECT_EQ(count.begun, 2);
    EXPECT_EQ(to.loss, 7);
    EXPECT_EQ(raised, reached == 5 ? 9 : 0);
    EXPECT_EQ(static_cast<StreamFault>(state.failed), reached == 5 ? StreamFault::none : StreamFault::ended);
  }
}

}  // namespace
}  // namespace troupe::cuda
