// Mutates files of measured figures and reports of runs for a second: whatever is read, the answer is a value that
// can be written and read again, or an Error that says what is wrong.

#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "apps/report/run_summary.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/topology/measurements.hpp"
#include "tests/fuzz/allocation_watch.hpp"
#include "tests/fuzz/damage.hpp"
#include "tests/fuzz/seed.hpp"

namespace troupe {
namespace {

constexpr std::size_t kLargestFigureBlock = std::size_t{8} << 20;

std::string some_measurements() {
  topology::Measurements figures;
  figures.date = "2026-01-31T09:05:00Z";
  figures.versions = {{"troupe", "1.0"}};
  figures.host = "node7";
  figures.copies = {{0, 1, 4, 1 << 28, {2e10, 1.5e10, 2.5e10}}};
  figures.compute = {{"bf16", 64, 1024, 8, 1, {1e12, 9e11, 1.1e12}}};
  figures.messages = {{"tcp", "node7", "node7", true, 1 << 20, {1e-5, 9e-6, 2e-5}, {1e10, 1e10, 1e10}}};
  figures.gpus = {{.bus = "0000:3b:00.0",
                   .model = "H100",
                   .products = "cuBLASLt 13.1.0",
                   .bytes_per_second = {3e12, 2.9e12, 3.1e12},
                   .launch_seconds = {1e-5, 9e-6, 2e-5},
                   .kernel_seconds = {2e-6, 1e-6, 3e-6},
                   .compute = {{"tf32", 512, 4096, 1, 1, {3e14, 2e14, 4e14}, 2}}}};
  figures.gpu_links = {{"host", "0000:3b:00.0", 1 << 28, {8e-6, 7e-6, 9e-6}, {5e10, 4e10, 6e10}}};
  return topology::to_json(figures);
}

std::string some_summary() {
  report::RunSummary summary;
  summary.state = report::RunState::finished;
  summary.model = "graph";
  summary.nodes = {{{"boot", 7}, "node7", 0}};
  summary.node_of_rank = {0, 0};
  summary.rows = 200;
  summary.samples = 20'000;
  summary.train_s = 1.5;
  summary.times.compute = std::chrono::milliseconds{1200};
  return report::to_json(summary);
}

std::string mutated(const std::string& whole, std::mt19937& dice) {
  static constexpr const char* kPieces[] = {"{",   "[", "}", "]", "\"", ",", "-1", "1e999", "99999999999999999999",
                                            "null"};
  std::string text = whole;
  for (std::uint32_t times = dice() % 4; times > 0; --times)
    text.insert(dice() % (text.size() + 1), kPieces[dice() % std::size(kPieces)]);
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  if (dice() % 4 != 0) testing::damage(bytes, 0, dice);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class Read, class Write>
void fuzz(const std::string& whole, Read read, Write write) {
  std::mt19937 dice{testing::chosen_seed()};
  std::uint64_t taken = 0, refused = 0;
  for (const testing::FuzzTime time{std::chrono::milliseconds{500}}; time.goes_on(taken > 0 && refused > 0);) {
    const std::string text = mutated(whole, dice);
    SCOPED_TRACE(text);
    testing::reset_largest_allocation();
    try {
      const auto value = read(text);
      ASSERT_FALSE(write(value).empty());
      ++taken;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::invalid) << error.what();
      ASSERT_LT(std::strlen(error.what()), 1000u);
      ++refused;
    }
    ASSERT_LT(testing::largest_allocation(), kLargestFigureBlock);
  }
  std::cout << taken << " taken, " << refused << " refused\n";
  EXPECT_GT(taken, 0u);
  EXPECT_GT(refused, 0u);
}

TEST(FiguresFuzz, MeasurementsAreTakenOrRefused) {
  fuzz(
      some_measurements(), [](const std::string& text) { return topology::measurements_from_json(text, "fuzz"); },
      [](const topology::Measurements& value) {
        const std::string text = topology::to_json(value);
        (void)topology::measurements_from_json(text, "again");
        return text;
      });
}

TEST(FiguresFuzz, ReportsAreTakenOrRefused) {
  fuzz(
      some_summary(), [](const std::string& text) { return report::summary_from_json(text, "fuzz"); },
      [](const report::RunSummary& value) {
        const std::string text = report::to_json(value);
        (void)report::summary_from_json(text, "again");
        return text;
      });
}

}  // namespace
}  // namespace troupe
