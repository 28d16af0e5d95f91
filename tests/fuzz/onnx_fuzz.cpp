#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <sstream>

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

/// Operations by name; what shapes and numbers are made of comes twice.
const std::vector<std::string>& operations() {
  static const std::vector<std::string> all = [] {
    std::istringstream words{
        "Add Add Attention AveragePool BatchNormalization Cast Concat ConstantOfShape Conv Div Dropout Equal "
        "Erf Expand Flatten Gather Gelu Gemm GlobalAveragePool GlobalMaxPool GreaterOrEqual Identity IsNaN "
        "LayerNormalization MatMul MatMul Max MaxPool Mul Mul Pad Pow Range Reciprocal ReduceMean ReduceMean "
        "ReduceProd ReduceSum Relu Reshape Reshape Shape Shape Sigmoid Slice Slice Softmax Split Sqrt Squeeze "
        "Sub Sum Transpose Transpose Trilu Unsqueeze Unsqueeze Where"};
    return std::vector<std::string>{std::istream_iterator<std::string>{words}, {}};
  }();
  return all;
}

/// Files whose nodes are drawn: each is well formed, and reads what others put out, in ways that no program writes.
class DrawnFile {
 public:
  explicit DrawnFile(std::mt19937& dice) : dice_(dice) {
    const bool tokens = one_in(4);
    Shape shape = tokens ? Shape{{4}} : Shape{};
    for (std::uint32_t i = tokens ? 0 : 1 + dice_() % 3; i > 0; --i) shape.extents.push_back(1 + dice_() % 4);
    fields_ = {{"x", shape, tokens ? DType::i32 : DType::f32, tokens ? 7U : 0U}, {"label", {}, DType::i32, 2}};
    std::vector<std::int64_t> dims{one_in(4) ? static_cast<std::int64_t>(1 + dice_() % 3) : 0};
    dims.insert(dims.end(), shape.extents.begin(), shape.extents.end());
    if (shape.extents.size() == 3 && one_in(2)) std::rotate(dims.begin() + 1, dims.begin() + 3, dims.end());
    file_.input("x", dims, tokens ? 7 : 1);
    for (std::uint32_t i = 2 + dice_() % 6; i > 0; --i) add_numbers(text("c", i));
    for (std::uint32_t i = 1 + dice_() % 12; i > 0; --i) add_node(text("n", i));
    file_.output(one_in(8) ? name() : "n1");
  }
  std::string bytes() const { return file_.bytes(); }
  const std::vector<Field>& fields() const noexcept { return fields_; }

 private:
  bool one_in(std::uint32_t count) { return dice_() % count == 0; }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[dice_() % all.size()];
  }
  std::int64_t small() { return one_of<std::int64_t>({-2, -1, -1, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 4}); }
  std::int64_t whole() {
    return one_in(24) ? one_of<std::int64_t>({INT64_MIN, INT64_MAX, 1 << 16, std::int64_t{1} << 31}) : small();
  }
  std::vector<std::int64_t> wholes() {
    std::vector<std::int64_t> made(dice_() % 6);
    std::ranges::generate(made, [&] { return whole(); });
    return made;
  }
  std::string name() {
    return names_[one_in(2) ? names_.size() - 1 - dice_() % std::min<std::size_t>(3, names_.size())
                            : dice_() % names_.size()];
  }

  void add_numbers(const std::string& name) {
    names_.insert(names_.begin(), name);
    if (one_in(2)) return void(file_.whole(name, wholes()));
    std::vector<std::int64_t> dims(dice_() % 5);
    std::size_t count = 1;
    for (std::int64_t& dim : dims) count *= static_cast<std::size_t>(dim = one_in(12) ? 0 : 1 + dice_() % 4);
    std::vector<float> numbers(count);
    std::ranges::generate(numbers, [&] { return one_of({0.F, 0.5F, 1.F, 2.F, 1e-3F, -1e9F, std::sqrt(2.F), NAN}); });
    file_.f32(name, dims, numbers);
  }
  void add_node(const std::string& output) {
    std::vector<std::string> inputs(1 + dice_() % 3);
    std::ranges::generate(inputs, [&] { return one_in(16) ? std::string{} : name(); });
    std::vector<detail::ProtobufMessage> attributes;
    for (std::uint32_t i = dice_() % 3; i > 0; --i) attributes.push_back(attribute());
    file_.node(operations()[dice_() % operations().size()], inputs, output, attributes);
    names_.push_back(output);
  }
  detail::ProtobufMessage attribute() {
    if (one_in(2))
      return testing::list(one_of({"axes", "perm", "pads", "strides", "kernel_shape", "starts", "ends", "dilations"}),
                           wholes());
    if (one_in(6)) return testing::f32_attribute(one_of({"epsilon", "alpha", "beta", "ratio", "momentum"}), 0.5F);
    return testing::number(one_of({"axis", "keepdims", "transB", "to", "group", "allowzero", "upper", "q_num_heads",
                                   "is_causal", "start", "end", "ceil_mode"}),
                           whole());
  }

  std::mt19937& dice_;
  testing::File file_;
  std::vector<std::string> names_{"x"};
  std::vector<Field> fields_;
};

TEST(OnnxFuzz, EndsWithAModelOrAnErrorWhateverNodesRead) {
  const std::uint32_t seed = testing::chosen_seed();
  std::mt19937 dice{seed};
  const testing::FuzzTime time{std::chrono::seconds{1}};
  std::uint64_t read = 0, refused = 0;
  while (time.goes_on(read > 0 && refused > 0)) {
    const DrawnFile file{dice};
    testing::reset_largest_allocation();
    try {
      (void)testing::read_model(file.bytes(), file.fields());
      ++read;
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Code::invalid || error.code() == Code::unsupported) << error.what();
      ++refused;
    }
    ASSERT_LE(testing::largest_allocation(), kMostComputed) << "file " << read + refused << " of seed " << seed;
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
