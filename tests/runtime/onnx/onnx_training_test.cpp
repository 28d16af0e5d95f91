#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "devices/reference/reference_device.hpp"
#include "runtime/model/layout.hpp"
#include "tests/contracts/device_world.hpp"
#include "tests/runtime/onnx/hand_made_file.hpp"

namespace troupe {
namespace {

/// Models of files on the device that defines what layers compute.
class OnnxTraining : public contracts::DeviceWorld {
 protected:
  struct NoSink final : BucketSink {
    void ready(const Bucket&, Stream&) noexcept override {}
  };

  static std::vector<std::byte> drawn_batch(const BatchLayout& layout) {
    std::vector<std::byte> rows(layout.size_bytes());
    for (const BatchLayout::Entry& entry : layout.entries()) {
      std::byte* const to = rows.data() + entry.offset;
      const std::size_t count = layout.rows() * entry.field.shape.count_elements();
      for (std::size_t i = 0; i < count; ++i) {
        if (entry.field.dtype == DType::i32)
          reinterpret_cast<std::int32_t*>(to)[i] = static_cast<std::int32_t>(i % std::max(entry.field.classes, 1U));
        else
          reinterpret_cast<float*>(to)[i] = static_cast<float>(random_normal(5, i));
      }
    }
    return rows;
  }

  /// The losses of a batch before and after a step against its gradient that should take a hundredth of the loss.
  std::pair<double, double> losses_of(const OnnxModel& model, const std::vector<Field>& fields) {
    std::vector<Layer> layers = model.layers;
    layers.push_back({"loss", SoftmaxCrossEntropy{}, {model.output, "label"}});
    const Graph graph{model.name, fields, DType::f32, std::move(layers)};
    const Layout layout{graph};
    const BatchLayout batch{2, graph.fields()};
    std::vector<float> numbers(layout.count_elements());
    for (std::size_t p = 0; p < graph.parameters().size(); ++p)
      std::ranges::copy(model.parameters.at(graph.parameters()[p].name),
                        numbers.begin() + static_cast<std::ptrdiff_t>(layout.entries()[p].first));
    ReplicaMemory memory;
    memory.parameters = put(numbers);
    memory.gradients = put(std::vector<float>(numbers.size()));
    const Memory rows = put(std::span<const std::byte>{drawn_batch(batch)});
    const auto replica = device().compile(graph, layout, batch, make_buckets(GroupId{}, graph, layout, 0), memory);
    const auto stream = device().stream();
    NoSink sink;
    const auto step = [&] {
      const Memory sums = put_sums({});
      replica->step(*stream, rows, 2, sums, sink);
      finish(*stream);
      return value<StepSums>(sums).loss;
    };
    const double before = step();
    const std::vector<float> gradient = get(memory.gradients);
    double squares = 0;
    for (std::size_t p = 0; p < graph.parameters().size(); ++p)
      for (std::uint64_t i = 0; i < layout.entries()[p].count && !graph.parameters()[p].is_statistic(); ++i)
        squares += std::pow(gradient[layout.entries()[p].first + i], 2);
    for (std::size_t p = 0; p < graph.parameters().size(); ++p)
      for (std::uint64_t i = 0; i < layout.entries()[p].count && !graph.parameters()[p].is_statistic(); ++i) {
        const std::size_t at = layout.entries()[p].first + i;
        numbers[at] -= static_cast<float>(0.01 * before / squares * gradient[at]);
      }
    write(memory.parameters, std::span<const float>{numbers});
    return {before, step()};
  }
};

TEST_P(OnnxTraining, GoesOnFromTheNumbersOfAFile) {
  const testing::File file = testing::File{}
                                 .input("x", {0, 2, 3, 4})
                                 .f32("c.weight", {3, 2, 1, 1}, {1, -1, 0.5F, 2, -0.5F, 1})
                                 .f32("fc.weight", {2, 36}, random_floats(3, 72))
                                 .node("Conv", {"x", "c.weight"}, "c")
                                 .node("Tanh", {"c"}, "t")
                                 .node("Flatten", {"t"}, "f")
                                 .node("Gemm", {"f", "fc.weight"}, "y", {testing::number("transB", 1)})
                                 .output("y");
  const std::vector<Field> fields = testing::image_and_label(Shape{{3, 4, 2}});
  const auto [before, after] = losses_of(testing::read_model(file.bytes(), fields), fields);
  EXPECT_NEAR(after, 0.99 * before, 0.005 * before);
}

/// Those of the folder that onnx_torch_test.py has made.
TEST_P(OnnxTraining, GoesOnFromWhatOtherProgramsWrote) {
  const char* const folder = std::getenv("TROUPE_ONNX_FOLDER");
  if (folder == nullptr) GTEST_SKIP() << "onnx_torch_test.py runs this";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().stem());
    const testing::FileFacts facts{entry.path()};
    const auto [before, after] = losses_of(read_onnx_file(facts.file, facts.fields, facts.output), facts.fields);
    EXPECT_LT(after, before);
    EXPECT_GT(after, 0.95 * before);
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, OnnxTraining,
                         ::testing::Values(contracts::DeviceCase{"reference", make_reference_device}),
                         contracts::case_name);

}  // namespace
}  // namespace troupe
