// The reference's mathematics, in f64, against what PyTorch computed in f64.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "devices/reference/reference_device.hpp"
#include "devices/reference/reference_model.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "tests/contracts/golden_contract.hpp"

namespace troupe::contracts {

INSTANTIATE_TEST_SUITE_P(Reference, GoldenContract, ::testing::Values(DeviceCase{"reference", make_reference_device}),
                         case_name);

}  // namespace troupe::contracts

namespace troupe::reference {
namespace {

using contracts::GoldenCase;

std::vector<FieldValues> first_batch(const GoldenCase& golden) {
  std::vector<FieldValues> found;
  for (const Field& field : golden.fields) {
    const std::vector<double>& values = golden.batches.front().at(field.name);
    FieldValues& of_field = found.emplace_back();
    if (field.dtype == DType::i32)
      of_field.labels.assign(values.begin(), values.end());
    else
      of_field.numbers = values;
  }
  return found;
}

void expect_sums(const char* what, const Result& found, const GoldenCase::Sums& wanted) {
  EXPECT_NEAR(found.loss, wanted.loss, 1e-10 * wanted.loss) << what;
  EXPECT_EQ(found.samples, wanted.samples) << what;
  EXPECT_EQ(found.correct, wanted.correct) << what;
}

TEST(ReferenceModel, HasTheLossesAndGradientsOfPyTorch) {
  for (const GoldenCase& golden : contracts::read_golden_cases(TROUPE_GOLDEN_FOLDER)) {
    SCOPED_TRACE(golden.name + ".json");
    const Graph graph = golden.graph(DType::f32);
    const Layout layout{graph};
    const Model model{graph, layout};
    const std::vector<double> start = golden.in_layout(graph, layout, &GoldenCase::Values::start);
    const std::vector<double> wanted = golden.in_layout(graph, layout, &GoldenCase::Values::gradient);
    const std::vector<FieldValues> batch = first_batch(golden);
    const Result stepped = model.run(start, batch, golden.rows, true);
    expect_sums("a step", stepped, golden.step);
    expect_sums("an evaluation", model.run(start, batch, golden.rows, false), golden.evaluation);
    for (std::size_t p = 0; p < layout.entries().size(); ++p) {
      EXPECT_LE(contracts::gradient_distance(std::span{stepped.gradients}, std::span{wanted}, layout.entries()[p]),
                1e-10)
          << graph.parameters()[p].name;
    }
  }
}

/// But dropout, which draws numbers of its own; and the rules of [optimizer] alone.
TEST(GoldenFiles, HaveEveryKindOfLayerAndEveryRule) {
  std::set<std::string_view> layers, rules;
  for (const GoldenCase& golden : contracts::read_golden_cases(TROUPE_GOLDEN_FOLDER)) {
    for (const Layer& layer : golden.layers) layers.insert(kind_of(layer.operation).name);
    if (golden.training) rules.insert(name_of(golden.training->rule.kind));
  }
  for (const LayerKind& kind : layer_kinds())
    EXPECT_TRUE(layers.contains(kind.name) || std::holds_alternative<Dropout>(kind.made)) << kind.name;
  for (const RuleEntry& rule : kRules) EXPECT_TRUE(rules.contains(rule.name) || rule.word.empty()) << rule.name;
}

}  // namespace
}  // namespace troupe::reference
