#include <gtest/gtest.h>

#include <cmath>

#include "devices/reference/reference_device.hpp"
#include "devices/reference/reference_model.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "tests/contracts/device_contract.hpp"
#include "tests/contracts/layer_graphs.hpp"
#include "tests/contracts/replica_contract.hpp"
#include "tests/contracts/stream_contract.hpp"

namespace troupe::contracts {

DeviceCase reference_case() { return {"reference", make_reference_device}; }

INSTANTIATE_TEST_SUITE_P(Reference, StreamContract, ::testing::Values(reference_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Reference, ReplicaContract, ::testing::Values(reference_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Reference, DeviceContract, ::testing::Values(reference_case()), case_name);

}  // namespace troupe::contracts

namespace troupe::reference {
namespace {

Graph chain() {
  return {"g",
          Shape{{8}},
          DType::f32,
          {{"a", Dense{12}},
           {"r", Relu{}},
           {"b", Dense{10}},
           {"s", Relu{}},
           {"c", Dense{4}},
           {"loss", SoftmaxCrossEntropy{}}}};
}

/// Two fields of numbers, a sum around a layer, a tensor with three readers and one that is added to itself, two
/// losses.
Graph branches() {
  return {
      "branches",
      {{"image", {{8}}, DType::f32}, {"more", {{3}}, DType::f32}, {"kind", {}, DType::i32}, {"label", {}, DType::i32}},
      DType::f32,
      {{"a", Dense{6}, {"image"}},
       {"m", Dense{6}, {"more"}},
       {"stem", Add{}, {"a", "m"}},
       {"r", Relu{}, {"stem"}},
       {"b", Dense{6}, {"r"}},
       {"round", Add{}, {"stem", "b", "r"}},
       {"twice", Add{}, {"round", "round"}},
       {"k", Dense{3}, {"twice"}},
       {"kind loss", SoftmaxCrossEntropy{0.3}, {"k", "kind"}},
       {"c", Dense{4}, {"twice"}},
       {"loss", SoftmaxCrossEntropy{}}}};
}

struct Problem {
  Graph graph;
  Layout layout{graph};
  Model model{graph, layout};
  std::vector<double> parameters = std::vector<double>(layout.count_elements());
  std::vector<FieldValues> fields;

  explicit Problem(std::uint64_t key, Graph of = chain()) : graph(std::move(of)) {
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] = 0.4 * random_normal(key, i);
    for (const Field& field : graph.fields()) {
      FieldValues& values = fields.emplace_back();
      if (field.dtype == DType::i32) {
        const std::uint32_t classes = field.classes == 0 ? contracts::kLayerClasses : field.classes;
        for (std::uint64_t i = 0; i < 7 * field.shape.count_elements(); ++i)
          values.labels.push_back(static_cast<std::int32_t>(random_below(sub_key(key, 31), i, classes + 1)) - 1);
        if (!field.shape.extents.empty()) continue;
        values.labels = field.name == "kind" ? std::vector{2, 0, -1, 1, 1, 0, 2} : std::vector{0, 3, 1, -1, 2, 2, 0};
        continue;
      }
      values.numbers.resize(7 * field.shape.count_elements());
      for (std::size_t i = 0; i < values.numbers.size(); ++i)
        values.numbers[i] = random_normal(sub_key(key, fields.size()), i);
    }
  }
  Result run(bool with_gradients = true) const { return model.run(parameters, fields, 7, with_gradients); }
  double loss() const { return run(false).loss; }
};

/// `most`: of each parameter, as many elements are looked at.
void expect_central_differences(Problem problem, std::uint64_t most = 1000) {
  const Result found = problem.run();
  double difference = 0, size = 0;
  constexpr double kStep = 1e-5;
  for (const Layout::Entry& entry : problem.layout.entries()) {
    for (std::uint64_t i = entry.first; i < entry.first + entry.count; i += 1 + entry.count / most) {
      const double at = problem.parameters[i];
      problem.parameters[i] = at + kStep;
      const double above = problem.loss();
      problem.parameters[i] = at - kStep;
      const double below = problem.loss();
      problem.parameters[i] = at;
      const double slope = (above - below) / (2 * kStep);
      EXPECT_NEAR(found.gradients[i], slope, 1e-6 * std::max(1.0, std::abs(slope))) << "element " << i;
      difference += std::pow(found.gradients[i] - slope, 2);
      size += slope * slope;
    }
  }
  EXPECT_LT(std::sqrt(difference / size), 1e-6);
}

TEST(ReferenceModel, HasTheGradientsThatCentralDifferencesGive) {
  for (std::uint64_t key = 0; key < 3; ++key) {
    SCOPED_TRACE(::testing::Message() << "key " << key);
    expect_central_differences(Problem{key});
    expect_central_differences(Problem{key, branches()});
  }
}

/// A test for each, since under a sanitizer all of them together take a minute.
class ReferenceLayer : public ::testing::TestWithParam<const LayerKind*> {};
INSTANTIATE_TEST_SUITE_P(EachKind, ReferenceLayer, ::testing::ValuesIn(contracts::kinds_of_layers()),
                         [](const auto& kind) { return std::string{kind.param->name}; });

TEST_P(ReferenceLayer, HasTheGradientsThatCentralDifferencesGive) {
  for (std::uint64_t key = 0; key < 4; ++key) {
    SCOPED_TRACE(::testing::Message() << "key " << key);
    expect_central_differences(Problem{key, contracts::graph_with(*GetParam(), key, DType::f32, 6)}, 10);
  }
}

TEST(ReferenceModel, LeavesOutRowsWithoutALabel) {
  Problem problem{5};
  const Result with = problem.run();
  EXPECT_EQ(with.samples, 6U);
  for (std::size_t i = 3 * 8; i < 4 * 8; ++i) problem.fields[0].numbers[i] = 1000;
  const Result changed = problem.run();
  EXPECT_EQ(with.loss, changed.loss);
  EXPECT_EQ(with.gradients, changed.gradients);
}

TEST(ReferenceModel, AddsUpItsLossesAndCountsTheSamplesOfTheLast) {
  Problem problem{5, branches()};
  std::fill(problem.parameters.begin(), problem.parameters.end(), 0.0);
  const Result found = problem.run(false);
  EXPECT_DOUBLE_EQ(found.loss, 6 * std::log(4.0) + 0.3 * 6 * std::log(3.0));
  EXPECT_EQ(found.samples, 6U);
  problem.fields[2].labels.assign(7, -1);
  EXPECT_DOUBLE_EQ(problem.loss(), 6 * std::log(4.0));
  EXPECT_EQ(problem.run(false).samples, 6U);
}

TEST(ReferenceModel, HasTheLossOfEqualChancesWhenAllLogitsAreEqual) {
  Problem problem{1};
  std::fill(problem.parameters.begin(), problem.parameters.end(), 0.0);
  EXPECT_DOUBLE_EQ(problem.loss(), 6 * std::log(4.0));
}

TEST(ReferenceModel, RefusesALabelThatIsNoClass) {
  Problem problem{1};
  problem.fields[1].labels[2] = 4;
  EXPECT_THROW(problem.loss(), Error);
}

}  // namespace
}  // namespace troupe::reference
