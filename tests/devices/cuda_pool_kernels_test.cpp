#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "tests/contracts/layer_graphs.hpp"
#include "tests/devices/cuda_kernel_launch.hpp"

// The host forms of kernels for pools against plain loops: random shapes, types, addresses and numbers of blocks.
namespace troupe::cuda {
namespace {

template <class Args>
void run(const std::string& name, Args& args, std::uint32_t blocks) {
  divide_among_threads(args);
  testing::launch(name, args, blocks);
}

/// Numbers of a type behind `skipped` others, so that vectors of them may not begin there.
class TestTensor {
 public:
  TestTensor(Stored type, std::size_t skipped, std::size_t count)
      : type_(type),
        skipped_(skipped),
        count_(count),
        bytes_((skipped + count + 1) * bytes_of(type), std::byte{0x3f}) {}
  /// Multiples of an eighth from -2 to 2: many are equal, and sums of them are exact.
  TestTensor(Stored type, std::size_t skipped, std::size_t count, std::uint64_t key)
      : TestTensor(type, skipped, count) {
    for (std::size_t i = 0; i < count; ++i) set(i, static_cast<float>(random_below(key, i, 33)) / 8 - 2);
  }
  void* at() { return bytes_.data() + skipped_ * bytes_of(type_); }
  float get(std::size_t i) const { return load(bytes_.data(), type_, skipped_ + i); }
  void set(std::size_t i, float value) { store(bytes_.data(), type_, skipped_ + i, value); }
  Stored type() const { return type_; }
  std::size_t count() const { return count_; }
  /// As `type` stores it.
  float rounded_as_here(float value) const {
    std::uint32_t stored = 0;
    store(&stored, type_, 0, value);
    return load(&stored, type_, 0);
  }
  bool is_all_within() const {
    const auto around = [this](std::size_t first, std::size_t count) {
      return std::all_of(bytes_.begin() + static_cast<std::ptrdiff_t>(first * bytes_of(type_)),
                         bytes_.begin() + static_cast<std::ptrdiff_t>((first + count) * bytes_of(type_)),
                         [](std::byte byte) { return byte == std::byte{0x3f}; });
    };
    return around(0, skipped_) && around(skipped_ + count_, 1);
  }

 private:
  Stored type_;
  std::size_t skipped_, count_;
  std::vector<std::byte> bytes_;
};

using contracts::Draws;

template <class T, std::size_t kCount>
T one_of(const T (&all)[kCount], Draws& draws) {
  return all[draws.number(0, kCount - 1)];
}

constexpr Stored kTypes[]{Stored::f32, Stored::bf16, Stored::f16};
constexpr Curve kCurves[]{Curve::relu, Curve::tanh, Curve::sigmoid};

/// A pool with the addresses and types of its tensors.
struct Case {
  PoolShape shape{};
  Stored input_type, output_type;
  std::size_t skipped_in, skipped_out;
  std::uint32_t blocks;
  std::uint64_t key;  // of its numbers

  Case(std::uint64_t number_key, Draws& draws) : key(number_key) {
    constexpr std::uint32_t kChannels[]{1, 2, 3, 4, 5, 8, 12, 16, 20, 40};
    PoolShape& s = shape;
    s.images = draws.number(1, 3), s.channels = one_of(kChannels, draws);
    const auto side = [&](std::uint32_t& in, std::uint32_t& out, std::uint32_t& kernel, std::uint32_t& stride,
                          std::uint32_t& padding) {
      in = draws.number(1, 9), kernel = draws.number(1, 4), stride = draws.number(1, 3);
      padding = draws.number(0, kernel - 1);
      if (in + 2 * padding < kernel) in = kernel;
      out = (in + 2 * padding - kernel) / stride + 1;
    };
    side(s.height, s.out_height, s.kernel_height, s.stride_height, s.padding_height);
    side(s.width, s.out_width, s.kernel_width, s.stride_width, s.padding_width);
    if (draws.number(0, 7) == 0) make_global(draws.number(1, 9), draws.number(1, 9));
    if (draws.number(0, 15) == 0) make_global(17, 18);  // places in its window do not fit into a byte
    find_divisors(s);
    input_type = one_of(kTypes, draws);
    output_type = draws.number(0, 4) == 0 ? Stored::f32 : input_type;
    skipped_in = draws.number(0, 1) * draws.number(0, 5), skipped_out = draws.number(0, 1) * draws.number(0, 5);
    blocks = draws.number(1, 4);
  }
  void make_global(std::uint32_t height, std::uint32_t width) {
    PoolShape& s = shape;
    s.height = s.kernel_height = height, s.width = s.kernel_width = width;
    s.out_height = s.out_width = s.stride_height = s.stride_width = 1, s.padding_height = s.padding_width = 0;
  }
  std::string said() const {
    return text(shape.images, 'x', shape.height, 'x', shape.width, 'x', shape.channels, " to ", shape.out_height, 'x',
                shape.out_width, " window ", shape.kernel_height, 'x', shape.kernel_width, " stride ",
                shape.stride_height, 'x', shape.stride_width, " padding ", shape.padding_height, 'x',
                shape.padding_width, " types ", static_cast<int>(input_type), " and ", static_cast<int>(output_type),
                " behind ", skipped_in, " and ", skipped_out);
  }
  /// Calls act(output, its window: pairs of a place and an element of the input) in the order of outputs.
  template <class Act>
  void for_each_window(Act&& act) const {
    struct Element {
      std::uint32_t place;
      std::size_t at;
    };
    const PoolShape& s = shape;
    std::size_t output = 0;
    for (std::uint32_t image = 0; image < s.images; ++image)
      for (std::uint32_t h = 0; h < s.out_height; ++h)
        for (std::uint32_t w = 0; w < s.out_width; ++w)
          for (std::uint32_t c = 0; c < s.channels; ++c, ++output) {
            std::vector<Element> window;
            for (std::uint32_t place = 0; place < s.count_window(); ++place) {
              const std::int64_t y = std::int64_t{h} * s.stride_height - s.padding_height + place / s.kernel_width;
              const std::int64_t x = std::int64_t{w} * s.stride_width - s.padding_width + place % s.kernel_width;
              if (y < 0 || x < 0 || y >= s.height || x >= s.width) continue;
              window.push_back(
                  {place, ((image * s.height + static_cast<std::size_t>(y)) * s.width + static_cast<std::size_t>(x)) *
                                  s.channels +
                              c});
            }
            act(output, window);
          }
  }
};

template <class Check>
void for_each_case(Check&& check) {
  const char* const chosen = std::getenv("TROUPE_TEST_SEED");
  const std::uint64_t seed = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : std::random_device{}();
  for (std::uint64_t n = seed; n < seed + 400; ++n) {
    Draws draws{n};
    const Case one{n, draws};
    SCOPED_TRACE(text("TROUPE_TEST_SEED=", n, ": ", one.said()));
    check(one, draws);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(CudaPoolKernels, TakeTheFirstLargestElementAndGiveTheGradientToIt) {
  for_each_case([](const Case& one, Draws& draws) {
    const PoolShape& s = one.shape;
    TestTensor input{one.input_type, one.skipped_in, s.count_in(), one.key},
        output{one.output_type, one.skipped_out, s.count_out()},
        slopes{one.output_type, one.skipped_out, s.count_out(), one.key + 1};
    if (draws.number(0, 3) == 0)
      for (std::size_t i = 0; i < input.count(); ++i) input.set(i, -INFINITY);
    if (draws.number(0, 3) == 0) input.set(draws.number(0, static_cast<std::uint32_t>(input.count() - 1)), NAN);
    std::vector<std::uint32_t> index(s.count_out() + 1, 0x77777777U);
    MaxPoolArgs args{};
    args.shape = s, args.index = reinterpret_cast<std::byte*>(index.data());
    args.to = output.at(), args.to_type = output.type(), args.from = input.at(), args.from_type = input.type();
    if (draws.one_in(2)) args.has_curve = 1, args.curve = one_of(kCurves, draws);
    run("max_pool", args, one.blocks);

    const bool adds = draws.number(0, 1) == 1;
    TestTensor to = adds ? TestTensor{one.input_type, one.skipped_in, s.count_in(), one.key + 2}
                         : TestTensor{one.input_type, one.skipped_in, s.count_in()};
    std::vector<float> sums(s.count_in());
    std::vector<std::uint32_t> places;
    one.for_each_window([&](std::size_t o, const auto& window) {
      auto largest = window.front();
      for (const auto& element : window) {
        const float value = input.get(element.at);
        if (value > input.get(largest.at) || std::isnan(value)) largest = element;
      }
      places.push_back(largest.place);
      float value = input.get(largest.at), gradient = slopes.get(o);
      if (args.has_curve != 0) {
        value = value_of(args.curve, value);
        const float slope = slope_of(args.curve, output.rounded_as_here(value));
        gradient = slope == 0 ? 0.0F : gradient * slope;
      }
      sums[largest.at] += gradient;
      ASSERT_TRUE(output.get(o) == output.rounded_as_here(value) || std::isnan(value)) << o;
    });
    const bool is_wide = s.count_window() > 256;
    for (std::size_t o = 0; o < places.size(); ++o)
      ASSERT_EQ(is_wide ? index[o] : static_cast<std::uint32_t>(args.index[o]), places[o]) << o;
    EXPECT_EQ(is_wide ? index[places.size()] : static_cast<std::uint32_t>(args.index[places.size()]),
              is_wide ? 0x77777777U : 0x77U);
    EXPECT_TRUE(output.is_all_within());

    MaxPoolBackArgs back{};
    if (args.has_curve != 0) back.slopes = {output.at(), output.type(), args.curve};
    std::vector<float> wanted(s.count_in());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      wanted[i] = to.rounded_as_here(adds ? to.get(i) + sums[i] : sums[i]);
    back.shape = s, back.index = args.index;
    back.to = {to.at(), to.type(), adds ? 1U : 0U}, back.gradient = slopes.at(), back.gradient_type = slopes.type();
    run("max_pool_back", back, one.blocks);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      ASSERT_TRUE(to.get(i) == wanted[i] || (std::isnan(to.get(i)) && std::isnan(wanted[i]))) << i;
    EXPECT_TRUE(to.is_all_within());
  });
}

TEST(CudaPoolKernels, WriteNoIndexWhereThereIsNone) {
  for_each_case([](const Case& one, Draws&) {
    const PoolShape& s = one.shape;
    TestTensor input{one.input_type, one.skipped_in, s.count_in(), one.key},
        output{one.output_type, one.skipped_out, s.count_out()};
    MaxPoolArgs args{};
    args.shape = s;
    args.to = output.at(), args.to_type = output.type(), args.from = input.at(), args.from_type = input.type();
    run("max_pool", args, one.blocks);
    one.for_each_window([&](std::size_t o, const auto& window) {
      float largest = -INFINITY;
      for (const auto& element : window) largest = std::max(largest, input.get(element.at));
      ASSERT_EQ(output.get(o), output.rounded_as_here(largest)) << o;
    });
  });
}

TEST(CudaPoolKernels, AverageTheElementsOfTheImageAlone) {
  for_each_case([](const Case& one, Draws& draws) {
    const PoolShape& s = one.shape;
    TestTensor input{one.input_type, one.skipped_in, s.count_in(), one.key},
        output{one.output_type, one.skipped_out, s.count_out()},
        slopes{one.output_type, one.skipped_out, s.count_out(), one.key + 1};
    AveragePoolArgs args{};
    args.shape = s;
    args.to = output.at(), args.to_type = output.type(), args.from = input.at(), args.from_type = input.type();
    run("average_pool", args, one.blocks);

    const bool adds = draws.number(0, 1) == 1;
    TestTensor to = adds ? TestTensor{one.input_type, one.skipped_in, s.count_in(), one.key + 2}
                         : TestTensor{one.input_type, one.skipped_in, s.count_in()};
    std::vector<float> sums(s.count_in());
    const auto tolerance = [](Stored type) {
      return type == Stored::f32 ? 1e-5F : type == Stored::f16 ? 4e-3F : 0.03F;
    };
    one.for_each_window([&](std::size_t o, const auto& window) {
      float sum = 0;
      for (const auto& element : window) {
        sum += input.get(element.at);
        sums[element.at] += slopes.get(o) / static_cast<float>(window.size());
      }
      ASSERT_NEAR(output.get(o), sum / static_cast<float>(window.size()), tolerance(output.type())) << o;
    });
    EXPECT_TRUE(output.is_all_within());

    std::vector<float> wanted(s.count_in());
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = adds ? to.get(i) + sums[i] : sums[i];
    AveragePoolBackArgs back{};
    back.shape = s;
    back.to = {to.at(), to.type(), adds ? 1U : 0U}, back.gradient = slopes.at(), back.gradient_type = slopes.type();
    run("average_pool_back", back, one.blocks);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      ASSERT_NEAR(to.get(i), wanted[i], tolerance(to.type()) * (1 + std::abs(wanted[i]))) << i;
    EXPECT_TRUE(to.is_all_within());
  });
}

/// How a pool is divided among threads depends on addresses and types, and its results must not.
TEST(CudaPoolKernels, HaveTheSameBitsHoweverTheyAreDividedAmongThreads) {
  for_each_case([](const Case& one, Draws&) {
    const PoolShape& s = one.shape;
    std::vector<std::vector<float>> results;
    for (const std::size_t skipped : {0, 1, 4}) {
      TestTensor input{Stored::f32, skipped, s.count_in()}, output{Stored::f32, skipped, s.count_out()};
      for (std::size_t i = 0; i < input.count(); ++i)
        input.set(i, static_cast<float>(random_normal(one.key, i)));  // their sums depend on the order
      AveragePoolArgs args{};
      args.shape = s, args.to = output.at(), args.from = input.at();
      run("average_pool", args, static_cast<std::uint32_t>(skipped + 1));
      AveragePoolBackArgs back{};
      back.shape = s, back.to = {input.at(), Stored::f32, 0}, back.gradient = output.at();
      run("average_pool_back", back, static_cast<std::uint32_t>(skipped + 1));
      auto& all = results.emplace_back();
      for (std::size_t i = 0; i < output.count(); ++i) all.push_back(output.get(i));
      for (std::size_t i = 0; i < input.count(); ++i) all.push_back(input.get(i));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  });
}

}  // namespace
}  // namespace troupe::cuda
