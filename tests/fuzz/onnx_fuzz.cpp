#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/model/layer_list.hpp"
#include "runtime/onnx/onnx_export.hpp"
#include "runtime/onnx/onnx_import.hpp"
#include "tests/fuzz/allocation_watch.hpp"
#include "tests/fuzz/damage.hpp"
#include "tests/fuzz/seed.hpp"

namespace troupe {
namespace {

Graph network() {
  LayerList net;
  net.add(Conv2d{.filters = 4, .kernel = {3, 3}, .padding = {1, 1}});
  net.add(BatchNorm{});
  const std::string stem = net.add(Relu{});
  net.add(Conv2d{.filters = 4});
  net.add(Add{}, {stem, net.last()});
  net.add(L2Norm{});
  net.add(MaxPool{});
  net.add(Dense{3});
  return {"net", Shape{{6, 4, 2}}, DType::f32, net.finish()};
}

Graph decoder() {
  LayerList net;
  net.add(Embedding{.vocabulary = 7, .width = 6});
  net.add(Position{});
  net.add(LayerNorm{});
  net.add(Dense{.units = 18, .flatten = false});
  net.add(Attention{.heads = 2, .causal = true});
  net.add(Gelu{});
  net.add(Dense{.units = 7, .flatten = false});
  return {"decoder",
          {{"tokens", Shape{{5}}, DType::i32, 7}, {"label", Shape{{5}}, DType::i32, 7}},
          DType::f32,
          net.finish()};
}

std::vector<std::byte> file_of(const Graph& graph) {
  std::vector<std::byte> bytes;
  write_onnx(
      graph, [](std::size_t, std::span<float> to) { std::ranges::fill(to, 0.5F); },
      [&](std::span<const std::byte> part) { bytes.insert(bytes.end(), part.begin(), part.end()); });
  return bytes;
}

TEST(OnnxFuzz, EndsWithAModelOrAnErrorAndAllocatesNoMoreThanTheBytesCanHold) {
  const std::uint32_t seed = testing::chosen_seed();
  std::mt19937 dice{seed};
  const Deadline end = Deadline::after(std::chrono::seconds{1});
  const std::vector<Graph> graphs{network(), decoder()};
  const std::vector<std::vector<std::byte>> good{file_of(graphs[0]), file_of(graphs[1])};
  std::uint64_t read = 0, refused = 0;
  while (!end.passed()) {
    const std::size_t which = dice() % 2;
    std::vector<std::byte> bytes = good[which];
    if (dice() % 64 != 0) testing::damage(bytes, 0, dice);
    testing::reset_largest_allocation();
    try {
      const OnnxModel model = read_onnx(bytes, graphs[which].fields(), {}, "fuzz");
      ASSERT_FALSE(model.layers.empty());
      ++read;
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Code::invalid || error.code() == Code::unsupported) << error.what();
      ++refused;
    }
    // A number takes a byte at least, and 8 in memory, of which a vector that grows has twice as many.
    ASSERT_LE(testing::largest_allocation(), 16 * bytes.size() + (1 << 16))
        << "file " << read + refused << " of seed " << seed;
  }
  std::cout << read << " files read, " << refused << " refused\n";
  EXPECT_GT(read, 0U);
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace troupe
