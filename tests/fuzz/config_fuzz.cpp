// Mutates configurations for a second: for every input the answer is a configuration or an Error with a text.

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "tests/fuzz/seed.hpp"
#include "tests/runtime/config/corpus.hpp"

namespace troupe {
namespace {

using Random = std::mt19937_64;

std::vector<std::string> corpus() {
  std::vector<std::string> all{
      "[data]\nbatch = 100\npath = \"a\"\n[model]\nunits = [1000, 1000]\ndtype = \"bf16\"\n[optimizer]\nrule = "
      "\"nesterov\"\n"
      "rate = 1e-3\nmomentum = 0.9\n[train]\ndeterministic = true\n[faults]\nstart_s = 2.5\n",
      "[cluster]\nnodes = [\"a\", \"b[01-04]:2\"]\nremote_shell = \"ssh -p 22\"\nport = 29500\n",
      "[cluster]\nnodes = \"hosts.txt\"\n",
      "cluster.nodes = \"local:2\"\ntrain = { epochs = 2, seed = 0x10 }\nreport.dir = '''run'''\n",
      "[report]\ndir = \"a \\\"b\\\" \\\\ \\t\\u00f6 c\"\n[checkpoint]\ndir = '\\\"'\n"};
  for (const WrongConfiguration& wrong : wrong_configurations()) all.emplace_back(wrong.toml);
  return all;
}

const std::vector<std::string_view>& tokens() {
  static const std::vector<std::string_view> kTokens{"[",
                                                     "]",
                                                     "[[",
                                                     "]]",
                                                     "{",
                                                     "}",
                                                     "=",
                                                     ".",
                                                     ",",
                                                     "\"",
                                                     "'",
                                                     "\"\"\"",
                                                     "'''",
                                                     "\\",
                                                     "\n",
                                                     "\r\n",
                                                     "#",
                                                     "\\u0000",
                                                     "\\U0010ffff",
                                                     "0x",
                                                     "1e999",
                                                     "-0",
                                                     "inf",
                                                     "nan",
                                                     "1979-05-27T07:32:00Z",
                                                     "true",
                                                     "data",
                                                     "batch",
                                                     "optimizer",
                                                     "rate",
                                                     "model.units",
                                                     "a.b.c.d.e.f.g.h",
                                                     "\xef\xbb\xbf",
                                                     "\xff",
                                                     "[[[[[[[[[[[[",
                                                     "[.",
                                                     "[1 }",
                                                     "\\\n",
                                                     "\u00f6",
                                                     "\u00a0",
                                                     "\u2028",
                                                     "9223372036854775808"};
  return kTokens;
}

std::string mutated(const std::vector<std::string>& seeds, Random& random) {
  std::string text = seeds[random() % seeds.size()];
  for (std::uint64_t rounds = 1 + random() % 6; rounds > 0; --rounds) {
    const std::size_t at = text.empty() ? 0 : random() % text.size();
    switch (random() % 6) {
      case 0: text.insert(at, 1, static_cast<char>(random())); break;
      case 1: text.erase(at, 1 + random() % 8); break;
      case 2: text.insert(at, tokens()[random() % tokens().size()]); break;
      case 3:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
        break;
      case 4: text.insert(at, seeds[random() % seeds.size()]); break;
      default: {
        const std::string part = text.substr(at, 1 + random() % 16);
        for (std::uint64_t copies = random() % 200; copies > 0; --copies) text.insert(at, part);
      }
    }
  }
  return text;
}

/// Reads it; what comes back is told by an Error with text, or reads back as itself.
void read(const std::string& toml, const std::vector<std::string>& overrides) {
  std::optional<Configuration> configuration;
  try {
    configuration = parse_configuration(toml, "fuzz.toml", overrides);
  } catch (const Error& error) {
    ASSERT_TRUE(error.code() == Code::invalid || error.code() == Code::unsupported) << error.what();
    ASSERT_GT(std::string_view{error.what()}.size(), 10u);
    ASSERT_LT(std::string_view{error.what()}.size(), 16384u);
    return;
  }
  std::string printed;
  for (const EffectiveValue& value : configuration->values) {
    if (value.origin != "default") printed += value.key + " = " + value.value + "\n";
  }
  SCOPED_TRACE(printed);
  ASSERT_EQ(parse_configuration(printed, "printed.toml", {}).hash(), configuration->hash());
}

TEST(ConfigFuzz, AnyBytesAreAnsweredWithAConfigurationOrAnError) {
  const std::uint32_t seed = testing::chosen_seed();
  const testing::FuzzTime time{std::chrono::seconds{1}};
  Random random{seed};
  const auto seeds = corpus();
  std::uint64_t runs = 0;
  for (; time.goes_on(runs > 0); ++runs) {
    const std::string toml = mutated(seeds, random);
    std::vector<std::string> overrides;
    if (random() % 4 == 0)
      overrides.push_back(
          mutated({"data.batch=10", "model.units=[5, 6]", "report.dir=x", "optimizer.rate={base=1}"}, random));
    SCOPED_TRACE(::testing::Message() << "TROUPE_FUZZ_SEED=" << seed << " run " << runs << " of\n" << toml);
    read(toml, overrides);
    if (::testing::Test::HasFatalFailure()) return;
  }
  std::cout << runs << " configurations\n";
  EXPECT_GT(runs, 0u);
}

}  // namespace
}  // namespace troupe
