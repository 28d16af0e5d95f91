#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "devices/cuda/kernels/list.hpp"
#include "runtime/compute/rules/gradient_check.hpp"
#include "runtime/compute/rules/tensor_norms.hpp"
#include "tests/support/random_numbers.hpp"

// Kernels with barriers, whose blocks have 256 threads of the host each (block_of_threads.hpp), against plain loops.
namespace troupe::cuda {
namespace {

template <class Args>
void run(void (*body)(const Block&, const Args&), const Args& args, std::uint32_t blocks) {
  for (std::uint32_t index = 0; index < blocks; ++index) {
    SharedByThreads shared;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kBlockThreads; ++t)
      threads.emplace_back([&, t] { body(Block{shared, t, index, blocks}, args); });
    for (std::thread& thread : threads) thread.join();
  }
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}
ProductTo written(std::vector<float>& to) { return {to.data(), nullptr, nullptr, to.size(), Stored::f32, 0, 1, 1}; }

TEST(CudaThreads, MultiplyInPartsAndWhole) {
  constexpr std::size_t kInner = 37;
  for (const auto& [rows, columns, parts] : {std::array<std::uint32_t, 3>{70, 66, 3}, {140, 20, 8}, {20, 25, 32}}) {
    SCOPED_TRACE(rows);
    const std::vector<float> a = random_numbers(1, rows * kInner), b = random_numbers(2, kInner * columns);
    std::vector<float> whole(std::size_t{rows} * columns), cut(whole.size()), partial(parts * whole.size());
    MultiplyArgs args{};
    args.to = written(whole);
    args.place = {nullptr, columns, 1, 0, 0, Stored::f32, 0};
    args.a = {a.data(), kInner, 1, 0, 0, Stored::f32, 0};
    args.b = {b.data(), columns, 1, 0, 0, Stored::f32, 0};
    args.extents = {1, rows, columns, kInner};
    run(multiply, args, 2);
    args.to = written(cut), args.to.partial = partial.data(), args.to.parts = parts;
    run(multiply, args, 3);
    run(add_parts, AddPartsArgs{nullptr, args.to, columns}, 2);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < kInner; ++k)
        sum += static_cast<double>(a[i / columns * kInner + k]) * static_cast<double>(b[k * columns + i % columns]);
      ASSERT_NEAR(static_cast<double>(whole[i]), sum, 1e-4) << i;
      ASSERT_NEAR(static_cast<double>(cut[i]), sum, 1e-4) << i;
    }
  }
}

/// The three products of a convolution belong to one trilinear form, which has one value.
TEST(CudaThreads, ConvolveAsOneForm) {
  ConvolutionShape s{};
  s.images = 2, s.height = 7, s.width = 6, s.channels = 4, s.out_height = 4, s.out_width = 3, s.filters = 6;
  s.kernel_height = s.kernel_width = 3, s.padding_height = s.padding_width = 1, s.groups = 2;
  s.dilation_height = s.dilation_width = 1, s.stride_height = s.stride_width = 2;
  s.by_image = divisor_of(42), s.by_width = divisor_of(6), s.by_out_image = divisor_of(12);
  s.by_out_width = divisor_of(3), s.by_kernel_width = divisor_of(3), s.by_channels = divisor_of(2);
  s.by_filters = divisor_of(3), s.by_stride_height = s.by_stride_width = divisor_of(2);
  const std::vector<float> x = random_numbers(3, s.count_in()), w = random_numbers(4, s.count_weights()),
                           g = random_numbers(5, s.count_out());
  std::vector<float> y(g.size()), to_x(x.size()), to_w(w.size());
  run(convolve, ConvolveArgs{{nullptr, written(y), x.data(), w.data(), nullptr, {}, {}, {}, s}}, 2);
  run(convolve_to_images, ConvolveToImagesArgs{{nullptr, written(to_x), nullptr, w.data(), g.data(), {}, {}, {}, s}},
      2);
  run(convolve_to_weights, ConvolveToWeightsArgs{{nullptr, written(to_w), x.data(), nullptr, g.data(), {}, {}, {}, s}},
      1);
  EXPECT_NE(dot(y, g), 0);
  EXPECT_NEAR(dot(to_x, x), dot(y, g), 1e-3);
  // Weights are read channels last, and their gradient is written channels first.
  double along = 0;
  for (std::size_t f = 0; f < 6; ++f)
    for (std::size_t i = 0; i < 18; ++i)
      along += static_cast<double>(to_w[f * 18 + i % 2 * 9 + i / 2]) * static_cast<double>(w[f * 18 + i]);
  EXPECT_NEAR(along, dot(y, g), 1e-3);
}

/// Two packs of 36 columns, or 35 columns one by one.
TEST(CudaThreads, SumColumns) {
  for (const std::size_t columns : {std::size_t{35}, std::size_t{36}}) {
    constexpr std::size_t kRows = 67;
    const std::vector<float> x = random_numbers(6, kRows * columns);
    std::vector<float> found(columns);
    std::vector<SlopeSums> partial(2 * columns);
    StreamState state;
    SumColumnsArgs args{};
    args.stream = &state, args.to = found.data(), args.partial = partial.data(), args.from = x.data();
    args.sums = {kRows, columns, 2, 0};
    run(sum_columns, args, 2);
    for (std::size_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::size_t r = 0; r < kRows; ++r) sum += static_cast<double>(x[r * columns + c]);
      EXPECT_NEAR(static_cast<double>(found[c]), sum, 1e-4);
    }
    for (const std::uint32_t arrived : state.arrived) ASSERT_EQ(arrived, 0U);
  }
}

/// Of 35 channels one by one, or of nine packs of 36, which are two tiles.
TEST(CudaThreads, NormalizeBatches) {
  for (const std::uint32_t channels : {35U, 36U}) {
    constexpr std::size_t kRows = 1100;
    const ChannelTiles tiles = channel_tiles(kRows, channels, /*are_short=*/false, 12);
    ASSERT_GT(tiles.parts, 1U);
    const std::vector<float> x = random_numbers(6, kRows * channels), slopes = random_numbers(7, x.size()),
                             ones(channels, 1.0F);
    std::vector<float> moments(3 * channels), sums(2 * channels), y(x.size()), to(x.size());
    std::vector<Moments> moments_of_parts(std::size_t{tiles.parts} * channels);
    std::vector<SlopeSums> slopes_of_parts(moments_of_parts.size());
    std::array<std::vector<float>, 4> gradients;
    for (std::vector<float>& one : gradients) one.resize(channels);
    const std::uint64_t samples = 3;
    StreamState state;
    run(sum_moments, SumMomentsArgs{&state, moments.data(), moments_of_parts.data(), x.data(), tiles, {}, 0}, 3);
    NormalizeBatchArgs forward{};
    forward.to = y.data(), forward.from = x.data(), forward.moments = moments.data(), forward.scale = ones.data();
    forward.shift = ones.data(), forward.tiles = tiles;
    run(normalize_batch, forward, 3);
    SumSlopesArgs sum{};
    sum.stream = &state, sum.sums_to = sums.data(), sum.partial = slopes_of_parts.data();
    sum.scale_to = gradients[0].data(), sum.shift_to = gradients[1].data(), sum.mean_to = gradients[2].data();
    sum.variance_to = gradients[3].data(), sum.gradient = slopes.data(), sum.from = x.data();
    sum.moments = moments.data(), sum.scale = sum.shift = ones.data(), sum.samples = &samples, sum.tiles = tiles;
    run(sum_slopes, sum, 3);
    NormalizeBatchBackArgs back{};
    back.to = {to.data(), Stored::f32, 0}, back.gradient = slopes.data(), back.from = x.data();
    back.moments = moments.data(), back.sums = sums.data(), back.scale = back.shift = ones.data(), back.tiles = tiles;
    run(normalize_batch_back, back, 3);
    for (std::uint32_t c = 0; c < channels; ++c) {
      double mean = 0, variance = 0, slope = 0, along = 0;
      for (std::size_t i = c; i < x.size(); i += channels) {
        mean += static_cast<double>(y[i]), variance += std::pow(static_cast<double>(y[i]) - 1, 2);
        slope += static_cast<double>(to[i]), along += static_cast<double>(to[i]) * static_cast<double>(y[i]);
      }
      EXPECT_NEAR(mean / kRows, 1, 1e-5);
      EXPECT_NEAR(variance / kRows, 1, 1e-4);
      EXPECT_NEAR(slope, 0, 1e-3);  // a norm does not see what all its numbers have in common
      EXPECT_NEAR(along, 0, 1e-3);  // nor their length
    }
    for (const std::uint32_t arrived : state.arrived) ASSERT_EQ(arrived, 0U);
  }
}

TEST(CudaThreads, AddUpWhatTokensGetInEachOrder) {
  constexpr std::size_t kPlaces = 70, kWidth = 130;
  std::vector<std::int32_t> tokens(kPlaces);
  for (std::size_t place = 0; place < kPlaces; ++place) tokens[place] = place % 9 == 0 ? -1 : place % 4 == 1 ? 5 : 3;
  const std::vector<float> gradient = random_numbers(12, kPlaces * kWidth);
  std::vector<TokenLink> links(kPlaces);
  std::vector<float> to(7 * kWidth, 9);
  run(link_tokens, LinkTokensArgs{nullptr, links.data(), tokens.data(), kPlaces}, 2);
  EmbedBackArgs back{};
  back.to = to.data(), back.gradient = gradient.data(), back.tokens = tokens.data(), back.links = links.data();
  back.count = kPlaces, back.width = kWidth, back.vocabulary = 7;
  run(embed_back, back, 3);
  for (const std::size_t token : {std::size_t{3}, std::size_t{5}}) {
    for (std::size_t c = 0; c < kWidth; ++c) {
      double sum = 0;
      for (std::size_t place = 0; place < kPlaces; ++place)
        if (tokens[place] == static_cast<std::int32_t>(token)) sum += static_cast<double>(gradient[place * kWidth + c]);
      ASSERT_NEAR(static_cast<double>(to[token * kWidth + c]), sum, 1e-4) << token << ", " << c;
    }
  }
  for (std::size_t c = 0; c < kWidth; ++c) ASSERT_EQ(to[4 * kWidth + c], 9) << "no place has this token";
}

TEST(CudaThreads, NormalizeRowsAndMakeWeightsOfThem) {
  constexpr std::size_t kRows = 19, kColumns = 35;
  const std::vector<float> x = random_numbers(7, kRows * kColumns), ones(kColumns, 1.0F);
  std::vector<float> y(x.size()), to_x(x.size()), weights = x, slopes = random_numbers(8, x.size());
  std::vector<RowMoments> moments(kRows);
  NormalizeRowsArgs norm{};
  norm.to = y.data(), norm.moments = moments.data(), norm.from = x.data(), norm.scale = ones.data();
  norm.count_rows = kRows, norm.width = kColumns, norm.is_layer_norm = 1;
  run(normalize_rows, norm, 2);
  NormalizeRowsBackArgs back{};
  back.to = {to_x.data(), Stored::f32, 0}, back.gradient = slopes.data(), back.from = x.data();
  back.moments = moments.data(), back.scale = ones.data();
  back.count_rows = kRows, back.width = kColumns, back.is_layer_norm = 1;
  run(normalize_rows_back, back, 2);
  run(softmax_rows, SoftmaxRowsArgs{nullptr, weights.data(), weights.data(), kRows, kColumns, 1, Stored::f32}, 2);
  run(softmax_rows_back,
      SoftmaxRowsBackArgs{nullptr, slopes.data(), slopes.data(), weights.data(), kRows, kColumns, 1, Stored::f32}, 2);
  for (std::size_t r = 0; r < kRows; ++r) {
    double sum = 0, squares = 0, back_sum = 0, weight = 0, slope = 0;
    for (std::size_t i = r * kColumns; i < (r + 1) * kColumns; ++i) {
      sum += static_cast<double>(y[i]), squares += std::pow(static_cast<double>(y[i]), 2);
      back_sum += static_cast<double>(to_x[i]);
      weight += static_cast<double>(weights[i]), slope += static_cast<double>(slopes[i]);
      EXPECT_EQ(weights[i] == 0, i % kColumns > r) << i;
    }
    EXPECT_NEAR(sum, 0, 1e-4);
    EXPECT_NEAR(squares, kColumns, 1e-3);
    EXPECT_NEAR(back_sum, 0, 1e-4);  // a layer norm does not see what all elements have in common
    EXPECT_NEAR(weight, 1, 1e-5);
    EXPECT_NEAR(slope, 0, 1e-5);  // nor does a softmax
  }
}

TEST(CudaThreads, AverageWholeImages) {
  constexpr std::size_t kImages = 3, kPixels = 35, kChannels = 44;
  const std::vector<float> x = random_numbers(10, kImages * kPixels * kChannels);
  std::vector<float> y(kImages * kChannels);
  AveragePoolArgs args{};
  args.to = y.data(), args.from = x.data();
  PoolShape& s = args.shape;
  s.images = kImages, s.height = s.kernel_height = 5, s.width = s.kernel_width = 7, s.channels = kChannels;
  s.out_height = s.out_width = s.stride_height = s.stride_width = 1;
  find_divisors(s);
  divide_among_threads(args);
  EXPECT_EQ(count_items(args), 2 * kBlockThreads);  // 33 groups of four channels
  run(average_pool, args, 1);
  for (std::size_t i = 0; i < y.size(); ++i) {
    double sum = 0;
    for (std::size_t p = 0; p < kPixels; ++p)
      sum += static_cast<double>(x[(i / kChannels * kPixels + p) * kChannels + i % kChannels]);
    EXPECT_NEAR(static_cast<double>(y[i]), sum / kPixels, 1e-6) << i;
  }
}

TEST(CudaThreads, AddUpLosses) {
  constexpr std::size_t kRows = 67, kClasses = 35;
  const std::vector<float> logits = random_numbers(9, kRows * kClasses), targets(logits.size(), 0.25F);
  std::vector<float> gradient(logits.size());
  std::vector<std::int32_t> labels(kRows, 3);
  labels[5] = -1;
  std::vector<RowLoss> rows(kRows);
  StreamState state;
  StreamReport report;
  CrossEntropyArgs entropy{};
  entropy.stream = &state, entropy.report = &report, entropy.rows = rows.data(), entropy.logits = logits.data();
  entropy.gradient = {gradient.data(), Stored::f32, 0}, entropy.labels = labels.data();
  entropy.count_rows = kRows, entropy.classes = kClasses, entropy.ignore = -1, entropy.weight = 1;
  StepSums sums{};
  entropy.total.weight = 1, entropy.total.counts = 1, entropy.given.own.sums = &sums;
  run(cross_entropy, entropy, 2);
  double loss = 0;
  for (std::size_t r = 0; r < kRows; ++r) {
    double exponentials = 0, slope = 0;
    for (std::size_t k = 0; k < kClasses; ++k) {
      exponentials += std::exp(static_cast<double>(logits[r * kClasses + k]));
      slope += static_cast<double>(gradient[r * kClasses + k]);
    }
    if (labels[r] >= 0) loss += std::log(exponentials) - static_cast<double>(logits[r * kClasses + 3]);
    EXPECT_NEAR(slope, 0, 1e-5);
  }
  EXPECT_NEAR(sums.loss, loss, 1e-4);
  EXPECT_EQ(sums.samples, kRows - 1);
  NumberLossArgs numbers{};
  numbers.stream = &state, numbers.report = &report, numbers.rows = rows.data(), numbers.numbers = logits.data();
  numbers.gradient = {gradient.data(), Stored::f32, 0}, numbers.targets = targets.data();
  numbers.count_rows = kRows, numbers.width = kClasses, numbers.weight = 1;
  numbers.total.weight = 1, numbers.given.own.sums = &sums;
  run(number_loss, numbers, 2);
  double mean = 0;
  for (std::size_t k = 0; k < kClasses; ++k) {
    const double z = static_cast<double>(logits[k]);
    mean += (std::log1p(std::exp(z)) - 0.25 * z) / static_cast<double>(kClasses);
  }
  EXPECT_NEAR(rows[0].loss, mean, 1e-5);
  double all = 0;
  for (const RowLoss& row : rows) all += row.loss;
  EXPECT_NEAR(sums.loss, all, 1e-9);
}

TEST(CudaThreads, AddUpSquaresAndNameTheFirstNumberThatIsNotFinite) {
  constexpr std::size_t kCount = 9 * kSquarePiece + 77;
  std::vector<float> values = random_numbers(11, kCount);
  const auto scratch = std::make_unique<SquareScratch>();
  StepSums sums{}, expected{};
  CheckGradientArgs args{};
  args.sum = args.parts[0] = values.data(), args.count = kCount, args.count_parts = 1, args.ranks[0] = 3;
  args.squares = 1, args.scratch = scratch.get(), args.given.own.sums = &sums;
  const std::array<const float*, 1> parts{values.data()};
  for (const bool is_finite : {true, false}) {
    sums = expected = {};
    if (!is_finite) values[5000] = values[5001] = values[9000] = INFINITY;
    check_gradient(expected, values.data(), parts, kCount, {{}, 0});
    run(check_gradient, args, 10);
    EXPECT_EQ(sums.gradient_squares, expected.gradient_squares);
    EXPECT_EQ(sums.bad_gradient, is_finite ? 0 : bad_at(5000, 3));
  }
}

TEST(CudaThreads, AddUpTheSquaresOfTensors) {
  const std::vector<Layout::Entry> tensors{{100, 5000}, {5100, 33}};
  const std::vector<float> sum = random_numbers(12, 5133), p = random_numbers(13, 5133), m = random_numbers(14, 5133);
  std::vector<float> v = random_numbers(15, 5133);
  for (float& value : v) value *= value;
  const StepSums total{.samples = 4};
  std::vector<TensorSquares> found(2), expected(2);
  const auto scratch = std::make_unique<SquareScratch>();
  AddUpdateSquaresArgs args{};
  args.sum = sum.data(), args.parameters = p.data(), args.state[0] = m.data(), args.state[1] = v.data();
  args.count = 5133, args.first_element = 0, args.scaled = tensors.data(), args.count_scaled = 2;
  args.squares = found.data(), args.scratch = scratch.get();
  const RuleStep rule = rule_step({.kind = RuleKind::lamb}, 2);
  args.given.own = {rule, 2, &total};
  run(add_update_squares, args, 2 * kTensorBlocks);
  UpdateAddresses at{.count = 5133};
  at.parameters = const_cast<float*>(p.data());
  at.state = {const_cast<float*>(m.data()), v.data()};
  at.scaled = tensors, at.squares = expected.data();
  add_tensor_squares(at, rule, 0.25F, sum.data());
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    EXPECT_EQ(found[t].weights, expected[t].weights);
    EXPECT_EQ(found[t].update, expected[t].update);
  }
}

}  // namespace
}  // namespace troupe::cuda
