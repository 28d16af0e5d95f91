#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
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
#include "tests/runtime/data/corpus.hpp"
#include "tests/runtime/onnx/hand_made_file.hpp"

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

constexpr std::size_t kMostComputed = std::size_t{64} << 20;  // bytes, of what a file computes of its numbers

TEST(OnnxFuzz, EndsWithAModelOrAnErrorAndAllocatesNoMoreThanTheBytesCanHold) {
  const std::uint32_t seed = testing::chosen_seed();
  std::mt19937 dice{seed};
  const testing::FuzzTime time{std::chrono::seconds{1}};
  const std::vector<Graph> graphs{network(), decoder()};
  const std::vector<std::vector<std::byte>> good{file_of(graphs[0]), file_of(graphs[1])};
  std::uint64_t read = 0, refused = 0;
  while (time.goes_on(read > 0 && refused > 0)) {
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
    ASSERT_LE(testing::largest_allocation(), 16 * bytes.size() + kMostComputed)
        << "file " << read + refused << " of seed " << seed;
  }
  std::cout << read << " files read, " << refused << " refused\n";
  EXPECT_GT(read, 0U);
  EXPECT_GT(refused, 0U);
}

/// A folder with the numbers of a model, beside a file that no model may read.
class OnnxFolderFuzz : public ::testing::Test {
 protected:
  OnnxFolderFuzz() {
    std::filesystem::create_directory(folder_.path() / "model");
    write(folder_.path() / "model" / "w.bin", 0.5F);
    write(folder_.path() / "s.bin", kSecret);
  }
  static void write(const std::filesystem::path& path, float number) {
    const std::vector<float> numbers(64, number);
    std::ofstream{path, std::ios::binary}.write(reinterpret_cast<const char*>(numbers.data()),
                                                static_cast<std::streamsize>(numbers.size() * sizeof(float)));
  }
  /// In a path of `location`, with a shape that the file computes of `dims`.
  static std::string file(std::string_view location, std::string_view offset, const std::vector<std::int64_t>& dims) {
    testing::File file;
    file.input("x", {0, 2, 2})
        .output("y")
        .whole("dims", dims)
        .whole("one", {1})
        .external("w", {2, 4}, location, offset);
    file.f32("never", {}, {-1e9F}).whole("first", {0}).whole("rest", {4}).whole("start", {0});
    file.node("ConstantOfShape", {"dims"}, "zeros").node("Expand", {"one", "dims"}, "ones");
    file.node("Shape", {"x"}, "shape").node("Gather", {"shape", "first"}, "rows");
    file.node("Slice", {"dims", "start", "one"}, "more").node("Concat", {"rows", "rest"}, "to");
    file.node("Trilu", {"ones"}, "seen", {testing::number("upper", 0)}).node("Transpose", {"seen"}, "turned");
    file.node("Mul", {"seen", "turned"}, "product").node("Cast", {"product"}, "real", {testing::number("to", 1)});
    file.node("Mul", {"real", "zeros"}, "nothing");
    file.node("Reshape", {"x", "to"}, "flat").node("Gemm", {"flat", "w"}, "z", {testing::number("transB", 1)});
    // The output needs all of them, of which only its second one has an end in a layer.
    return file.node("Relu", {"z", "nothing", "more"}, "y").bytes();
  }

  static constexpr float kSecret = 12345;
  testing::TempFolder folder_;
};

TEST_F(OnnxFolderFuzz, ReadsNoFileOutsideOfTheFolderAndComputesNoMoreThanItMay) {
  const std::uint32_t seed = testing::chosen_seed();
  std::mt19937 dice{seed};
  const testing::FuzzTime time{std::chrono::seconds{1}};
  const std::vector<Field> fields{{"x", Shape{{2, 2}}, DType::f32}, {"label", {}, DType::i32, 2}};
  const std::vector<std::string> parts{"w.bin", "s.bin", "..", ".", "/", "model", "", "a", "//", std::string(1, '\0')};
  const std::vector<std::string> offsets{"0", "8", "224", "225", "-1", "18446744073709551615", "x", ""};
  const std::vector<std::int64_t> sizes{0, 1, 2, 1 << 11, 1 << 20, std::int64_t{1} << 40, -1, INT64_MAX};
  std::uint64_t read = 0, refused = 0;
  while (time.goes_on(read > 0 && refused > 0)) {
    const bool is_good = dice() % 2 == 0;  // until it is damaged
    std::string location = "w.bin";
    std::vector<std::int64_t> dims{2, 2};
    if (!is_good) {
      location.clear();
      dims.clear();
      for (std::uint32_t i = dice() % 6; i > 0; --i)
        location += parts[dice() % parts.size()] + (dice() % 2 == 0 ? "/" : "");
      for (std::uint32_t i = dice() % 4; i > 0; --i) dims.push_back(sizes[dice() % sizes.size()]);
    }
    const std::string made = file(location, offsets[is_good ? 0 : dice() % offsets.size()], dims);
    std::vector<std::byte> bytes(made.size());
    std::ranges::transform(made, bytes.begin(), [](char one) { return static_cast<std::byte>(one); });
    if (dice() % 4 == 0) testing::damage(bytes, 0, dice);
    testing::reset_largest_allocation();
    try {
      const OnnxModel model = read_onnx(bytes, fields, {(folder_.path() / "model").string(), "y"}, "fuzz");
      for (const auto& [name, numbers] : model.parameters)
        ASSERT_EQ(std::ranges::find(numbers, kSecret), numbers.end()) << location;
      ++read;
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Code::invalid || error.code() == Code::unsupported) << error.what();
      ++refused;
    }
    ASSERT_LE(testing::largest_allocation(), 16 * bytes.size() + kMostComputed)
        << "file " << read + refused << " of seed " << seed;
  }
  std::cout << read << " files read, " << refused << " refused\n";
  EXPECT_GT(read, 0U);
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace troupe
