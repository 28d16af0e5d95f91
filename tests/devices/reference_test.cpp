#include <gtest/gtest.h>

#include <cmath>

#include "devices/reference/reference_device.hpp"
#include "devices/reference/reference_model.hpp"
#include "runtime/data/random.hpp"
#include "runtime/error.hpp"
#include "tests/contracts/device_contract.hpp"
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

struct Problem {
  Graph graph{"g",
              Shape{{8}},
              DType::f32,
              {{"a", Dense{12}},
               {"r", Relu{}},
               {"b", Dense{10}},
               {"s", Relu{}},
               {"c", Dense{4}},
               {"loss", SoftmaxCrossEntropy{}}}};
  Layout layout{graph};
  Model model{graph, layout};
  std::vector<double> parameters = std::vector<double>(layout.count_elements());
  std::vector<double> inputs = std::vector<double>(7 * 8);
  std::vector<std::int32_t> labels{0, 3, 1, -1, 2, 2, 0};

  explicit Problem(std::uint64_t key) {
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] = 0.4 * random_normal(key, i);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = random_normal(sub_key(key, 1), i);
  }
  double loss() const { return model.run(parameters, inputs, labels, false).loss; }
};

TEST(ReferenceModel, HasTheGradientsThatCentralDifferencesGive) {
  for (std::uint64_t key = 0; key < 3; ++key) {
    Problem problem{key};
    const Result found = problem.model.run(problem.parameters, problem.inputs, problem.labels, true);
    double difference = 0, size = 0;
    constexpr double kStep = 1e-5;
    for (const Layout::Entry& entry : problem.layout.entries()) {
      for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) {
        const double at = problem.parameters[i];
        problem.parameters[i] = at + kStep;
        const double above = problem.loss();
        problem.parameters[i] = at - kStep;
        const double below = problem.loss();
        problem.parameters[i] = at;
        const double slope = (above - below) / (2 * kStep);
        EXPECT_NEAR(found.gradients[i], slope, 1e-6 * std::max(1.0, std::abs(slope)))
            << "element " << i << " of key " << key;
        difference += std::pow(found.gradients[i] - slope, 2);
        size += slope * slope;
      }
    }
    EXPECT_LT(std::sqrt(difference / size), 1e-6) << "key " << key;
  }
}

TEST(ReferenceModel, LeavesOutRowsWithoutALabel) {
  Problem problem{5};
  const Result with = problem.model.run(problem.parameters, problem.inputs, problem.labels, true);
  EXPECT_EQ(with.samples, 6U);
  for (std::size_t i = 3 * 8; i < 4 * 8; ++i) problem.inputs[i] = 1000;
  const Result changed = problem.model.run(problem.parameters, problem.inputs, problem.labels, true);
  EXPECT_EQ(with.loss, changed.loss);
  EXPECT_EQ(with.gradients, changed.gradients);
}

TEST(ReferenceModel, HasTheLossOfEqualChancesWhenAllLogitsAreEqual) {
  Problem problem{1};
  std::fill(problem.parameters.begin(), problem.parameters.end(), 0.0);
  EXPECT_DOUBLE_EQ(problem.loss(), 6 * std::log(4.0));
}

TEST(ReferenceModel, RefusesALabelThatIsNoClass) {
  Problem problem{1};
  problem.labels[2] = 4;
  EXPECT_THROW(problem.loss(), Error);
}

}  // namespace
}  // namespace troupe::reference
