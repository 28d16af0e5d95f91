#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "devices/reference/reference_device.hpp"
#include "devices/reference/reference_model.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/model/dropout.hpp"
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
      if (field.name == kSampleKey) {
        for (std::int32_t half = 0; half < 14; ++half) values.labels.push_back(half * 12345);
        continue;
      }
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
        values.numbers[i] = field.name == contracts::kTarget ? contracts::drawn_target(key, i)
                                                             : random_normal(sub_key(key, fields.size()), i);
    }
  }
  Result run(bool with_gradients = true) const { return model.run(parameters, fields, 7, with_gradients); }
  double loss() const { return run(false).loss; }
  /// What the gradients are of.
  double training_loss() const { return run(std::ranges::any_of(graph.parameters(), &Parameter::is_statistic)).loss; }
};

/// `most`: of each parameter, as many elements are looked at.
void expect_central_differences(Problem problem, std::uint64_t most = 1000) {
  const Result found = problem.run();
  double difference = 0, size = 0;
  constexpr double kStep = 1e-5;
  for (std::size_t p = 0; p < problem.layout.entries().size(); ++p) {
    if (problem.graph.parameters()[p].is_statistic()) continue;
    const Layout::Entry entry = problem.layout.entries()[p];
    for (std::uint64_t i = entry.first; i < entry.first + entry.count; i += 1 + entry.count / most) {
      const double at = problem.parameters[i];
      problem.parameters[i] = at + kStep;
      const double above = problem.training_loss();
      problem.parameters[i] = at - kStep;
      const double below = problem.training_loss();
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

TEST_P(ReferenceLayer, HasNoGradientsOfAStepWithoutRows) {
  for (std::uint64_t key = 0; key < 4; ++key) {
    Problem problem{key, contracts::graph_with(*GetParam(), key, DType::f32, 6)};
    for (FieldValues& values : problem.fields) values = {};
    const Result found = problem.model.run(problem.parameters, problem.fields, 0, true);
    EXPECT_EQ(found.samples, 0U);
    EXPECT_EQ(found.loss, 0);
    EXPECT_EQ(found.gradients, std::vector<double>(problem.layout.count_elements()));
  }
}

class ReferenceLoss : public ReferenceLayer {};
INSTANTIATE_TEST_SUITE_P(EachKind, ReferenceLoss, ::testing::ValuesIn(contracts::kinds_of_losses()),
                         [](const auto& kind) { return std::string{kind.param->name}; });

TEST_P(ReferenceLoss, HasTheGradientsThatCentralDifferencesGive) {
  for (std::uint64_t key = 0; key < 12; ++key) {
    SCOPED_TRACE(::testing::Message() << "key " << key);
    expect_central_differences(Problem{key, contracts::graph_with_loss(*GetParam(), key, DType::f32)}, 10);
  }
}

/// What a loss says of numbers that a dense layer passes on as its bias, which is all that it has.
Result result_of(Operation loss, const std::vector<double>& numbers, const FieldValues& targets) {
  const auto count = static_cast<std::uint32_t>(numbers.size());
  Field field{"target", {}, DType::i32};
  if (targets.labels.empty()) field = {"target", {{count}}, DType::f32};
  const Graph graph{"g",
                    {{"image", {{1}}, DType::f32}, field},
                    DType::f32,
                    {{"a", Dense{count}, {"image"}}, {"loss", std::move(loss), {"a", "target"}}}};
  const Layout layout{graph};
  std::vector<double> parameters(layout.count_elements());
  std::copy(numbers.begin(), numbers.end(),
            parameters.begin() + static_cast<std::ptrdiff_t>(layout.entries()[1].first));
  const std::vector<FieldValues> fields{{{0.0}, {}}, targets};
  return Model{graph, layout}.run(parameters, fields, 1, false);
}

TEST(ReferenceModel, SharesASmoothedTargetAmongAllClasses) {
  const std::vector<double> logits{1, 2, 4};
  const double sum = std::log(std::exp(1) + std::exp(2) + std::exp(4));
  const double target = 0.1 * 1 + 0.8 * 2 + 0.1 * 4;
  EXPECT_NEAR(result_of(SoftmaxCrossEntropy{.smoothing = 0.3}, logits, {{}, {1}}).loss, sum - target, 1e-12);
  const Result ignored = result_of(SoftmaxCrossEntropy{.ignore = 1}, logits, {{}, {1}});
  EXPECT_EQ(ignored.samples, 0U);
  EXPECT_EQ(ignored.loss, 0);
  EXPECT_EQ(result_of(SoftmaxCrossEntropy{.ignore = 255}, logits, {{}, {255}}).samples, 0U);
  EXPECT_EQ(result_of(SoftmaxCrossEntropy{.smoothing = 0.3}, logits, {{}, {2}}).correct, 1U);
}

TEST(ReferenceModel, HasASmoothL1LossThatIsSquareNearTheTargetAndLinearAwayFromIt) {
  // Distances of 0.25 and 2 with a beta of 0.5.
  EXPECT_NEAR(result_of(SmoothL1{2, 0.5}, {1.25, -2}, {{1, 0}, {}}).loss, 2 * (0.0625 + 1.75) / 2, 1e-12);
}

TEST(ReferenceModel, HasASigmoidCrossEntropyOfTheClassesThatAreKnown) {
  const Result found = result_of(SigmoidCrossEntropy{}, {0, 3, -1}, {{0.5, -1, 0}, {}});
  EXPECT_NEAR(found.loss, (std::log(2) + std::log1p(std::exp(-1))) / 2, 1e-12);
  EXPECT_EQ(found.samples, 1U);
  EXPECT_EQ(found.correct, 1U);
  EXPECT_EQ(result_of(SigmoidCrossEntropy{}, {0, 3, 1}, {{0.5, -1, 0}, {}}).correct, 0U);
  EXPECT_EQ(result_of(SigmoidCrossEntropy{}, {0, 3}, {{-1, -1}, {}}).samples, 0U);
  try {
    result_of(SigmoidCrossEntropy{}, {0, 3}, {{0, 2}, {}});
    FAIL() << "a target of 2 was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::corrupt);
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

/// Of two channels in three rows, 1 2 3 and 0 0 6, of which two rows count.
TEST(ReferenceModel, GivesWhatABatchHasOfRunningStatisticsTimesItsSamples) {
  const Graph graph{
      "g", Shape{{2}}, DType::f32, {{"n", BatchNorm{}}, {"c", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  const Model model{graph, layout};
  std::vector<double> parameters(layout.count_elements(), 0.5);
  const std::vector<FieldValues> fields{{{1, 0, 2, 0, 3, 6}, {}}, {{}, {0, -1, 2}}};
  const Result found = model.run(parameters, fields, 3, true);
  const auto of = [&](std::size_t parameter, std::size_t channel) {
    return found.gradients[layout.entries()[parameter].first + channel];
  };
  EXPECT_DOUBLE_EQ(of(2, 0), -2 * 2);
  EXPECT_DOUBLE_EQ(of(2, 1), -2 * 2);
  EXPECT_DOUBLE_EQ(of(3, 0), -2 * 1);
  EXPECT_DOUBLE_EQ(of(3, 1), -2 * 12);
}

/// The running mean and variance are 1 and 4: normalized inputs of 0 and 2 for the inputs 1 and 5.
TEST(ReferenceModel, EvaluatesABatchNormByItsRunningStatistics) {
  const Graph graph{"g",
                    Shape{{1}},
                    DType::f32,
                    {{"n", BatchNorm{.epsilon = 1e-9}}, {"c", Dense{2}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  const Model model{graph, layout};
  std::vector<double> parameters(layout.count_elements());
  const auto set = [&](std::size_t parameter, double value) { parameters[layout.entries()[parameter].first] = value; };
  set(0, 1);
  set(2, 1);
  set(3, 4);
  set(4, 1);  // the logits are the normalized input and 0
  const Result found = model.run(parameters, std::vector<FieldValues>{{{1, 5}, {}}, {{}, {0, 0}}}, 2, false);
  EXPECT_NEAR(found.loss, std::log(2.0) + std::log(1 + std::exp(-2.0)), 1e-8);
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
