#include "runtime/compute/text_generation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "apps/models/models.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "tests/contracts/golden_files.hpp"

namespace troupe {
namespace {

using contracts::GoldenCase;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::uint32_t kLength = 12;

const auto kAlways = [] { return true; };

std::vector<Field> bytes(std::uint32_t classes = 256) {
  return {{std::string{kTokens}, Shape{{kLength}}, DType::i32, classes},
          {std::string{kLabel}, Shape{{kLength}}, DType::i32, classes}};
}

/// A small GPT of bytes with large random weights, so that its predictions depend on every position.
struct Model {
  Graph graph;
  Layout layout{graph};
  std::vector<float> parameters;

  Model() : graph(make()) {
    for (std::uint64_t i = 0; i < layout.count_elements(); ++i)
      parameters.push_back(0.3F * static_cast<float>(random_normal(5, i)));
  }
  static Graph make() {
    Settings settings;
    settings.model.name = "gpt";
    settings.model.depth = 2;
    settings.model.width = 24;
    settings.model.heads = 3;
    return build_model(settings, bytes());
  }
  Decoder decoder() const { return {graph, layout, parameters}; }
};

std::string generate(const TextSettings& settings, std::uint64_t key) {
  const Model model;
  Decoder decoder = model.decoder();
  return generate_text(decoder, settings, key, kAlways);
}

GoldenCase golden_gpt() {
  for (GoldenCase& one : contracts::read_golden_cases(TROUPE_GOLDEN_FOLDER))
    if (one.name == "net_gpt") return std::move(one);
  fail(Code::invalid, "there is no net_gpt.json");
}

TEST(Decoder, HasTheLossOfPyTorchForEachTokenAfterTheOther) {
  const GoldenCase golden = golden_gpt();
  const Graph graph = golden.graph(DType::f32);
  const Layout layout{graph};
  const std::vector<double> start = golden.in_layout(graph, layout, &GoldenCase::Values::start);
  const std::vector<float> parameters(start.begin(), start.end());
  Decoder decoder{graph, layout, parameters};
  const std::vector<double>&tokens = golden.batches.front().at(golden.fields[0].name),
        &labels = golden.batches.front().at(golden.fields[1].name);
  ASSERT_EQ(tokens.size(), std::size_t{golden.rows} * decoder.length());
  double loss = 0;
  std::uint64_t correct = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i % decoder.length() == 0) decoder.restart();
    const std::span<const float> logits = decoder.add(static_cast<std::uint32_t>(tokens[i]));
    if (labels[i] < 0) continue;
    const auto label = static_cast<std::size_t>(labels[i]);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit});
    loss += std::log(sum) - logits[label];
    correct += std::ranges::max_element(logits) - logits.begin() == std::ptrdiff_t(label) ? 1 : 0;
  }
  EXPECT_NEAR(loss, golden.evaluation.loss, 1e-5 * golden.evaluation.loss);
  EXPECT_EQ(correct, golden.evaluation.correct);
}

TEST(Decoder, RefusesTokensWithoutAPositionOrOutsideOfTheVocabulary) {
  const Model model;
  Decoder decoder = model.decoder();
  EXPECT_THROW(decoder.add(256), Error);
  for (std::uint32_t i = 0; i < kLength; ++i) decoder.add(i);
  EXPECT_THROW(decoder.add(0), Error);
  decoder.restart();
  EXPECT_NO_THROW(decoder.add(0));
}

TEST(Decoder, NamesTheLayerThatReadsLaterPositions) {
  const auto refusal = [](std::vector<Layer> layers) {
    layers.insert(layers.begin(), {"bytes", Embedding{.vocabulary = 256, .width = 12}});
    return text_refusal({"net", bytes(), DType::f32, std::move(layers)});
  };
  const Layer logits{"logits", Dense{.units = 256, .flatten = false}}, loss{"loss", SoftmaxCrossEntropy{}};
  const Layer wide{"wide", Dense{.units = 36, .flatten = false}};
  EXPECT_EQ(refusal({wide, {"look", Attention{.heads = 3, .causal = true}}, logits, loss}), "");
  EXPECT_THAT(refusal({wide, {"look", Attention{.heads = 3}}, logits, loss}), StartsWith("layer look (attention(3))"));
  EXPECT_THAT(refusal({{"turn", Transpose{.order = {1, 0}}}, {"back", Transpose{.order = {1, 0}}}, logits, loss}),
              StartsWith("layer turn (transpose"));
  EXPECT_THAT(text_refusal({"net",
                            bytes(100),
                            DType::f32,
                            {{"bytes", Embedding{.vocabulary = 256, .width = 12}},
                             {"logits", Dense{.units = 100, .flatten = false}},
                             loss}}),
              HasSubstr("100 classes"));
  EXPECT_THAT(text_refusal({"net", Shape{{20}}, DType::f32, {{"a", Dense{256}}, loss}}),
              StartsWith("layer a (dense(256)) reads numbers"));
  Settings settings;
  settings.evaluate.text.bytes = 200;
  EXPECT_NO_THROW(check_generates(settings, Model{}.graph));
  try {
    check_generates(settings, {"net", Shape{{20}}, DType::f32, {{"a", Dense{256}}, loss}});
    ADD_FAILURE() << "a model of images generates no text";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("evaluate.text_bytes = 200: model net cannot generate text: layer a"));
  }
}

TEST(DrawByte, DrawsEachByteAsOftenAsTheModelPredicts) {
  std::vector<float> logits(256, -30.0F);
  logits['a'] = 1;
  logits['b'] = 2;
  logits['c'] = 0;
  const auto shares = [&](const TextSettings& settings) {
    constexpr std::uint32_t kDrawn = 3000;
    std::array<double, 256> found{};
    for (std::uint32_t i = 0; i < kDrawn; ++i) found[draw_byte(logits, settings, (i + 0.5) / kDrawn)] += 1.0 / kDrawn;
    return std::array{found['a'], found['b'], found['c']};
  };
  const auto expect = [&](const TextSettings& settings, double a, double b, double c) {
    const double sum = a + b + c;
    EXPECT_THAT(shares(settings), ::testing::Pointwise(::testing::DoubleNear(1e-3), {a / sum, b / sum, c / sum}));
  };
  expect({.temperature = 1}, std::exp(1), std::exp(2), std::exp(0));
  expect({.temperature = 2}, std::exp(0.5), std::exp(1), std::exp(0));
  expect({.temperature = 1, .most_likely = 2}, std::exp(1), std::exp(2), 0);
  expect({.temperature = 0}, 0, 1, 0);
  logits['a'] = std::nanf("");
  expect({.temperature = 1}, 0, std::exp(2), std::exp(0));
}

TEST(GenerateText, DependsOnTheKeyAloneAndPastTheLastPositionToo) {
  const TextSettings settings{.bytes = 4 * kLength, .prompt = "The ", .temperature = 1};
  const std::string text = generate(settings, 1);
  EXPECT_EQ(text.size(), settings.prompt.size() + settings.bytes);
  EXPECT_THAT(text, StartsWith(settings.prompt));
  EXPECT_EQ(generate(settings, 1), text);
  EXPECT_NE(generate(settings, 2), text);
  TextSettings fewer = settings;
  fewer.bytes = kLength;
  EXPECT_EQ(generate(fewer, 1), text.substr(0, settings.prompt.size() + kLength));
}

TEST(GenerateText, ReadsTheLastBytesOfALongPrompt) {
  const TextSettings whole{.bytes = 8, .prompt = "bytes before, and the last", .temperature = 1};
  TextSettings last = whole;
  last.prompt = whole.prompt.substr(whole.prompt.size() - kLength);
  EXPECT_EQ(generate(whole, 3).substr(whole.prompt.size()), generate(last, 3).substr(kLength));
  last.prompt.front() ^= 1;
  EXPECT_NE(generate(whole, 3).substr(whole.prompt.size()), generate(last, 3).substr(kLength));
}

TEST(GenerateText, EndsWhenItIsToldTo) {
  const Model model;
  Decoder decoder = model.decoder();
  int asked = 0;
  const std::string text = generate_text(decoder, {.bytes = 100, .prompt = "x"}, 1, [&] { return ++asked <= 5; });
  EXPECT_EQ(text.size(), 6U);
}

}  // namespace
}  // namespace troupe
