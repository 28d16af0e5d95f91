#include "runtime/topology/measurements.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <limits>

#include "runtime/base/error.hpp"

namespace troupe::topology {
namespace {

using ::testing::HasSubstr;

Measurements some_figures() {
  Measurements figures;
  figures.date = "2026-01-31T09:05:00Z";
  figures.versions = {{"troupe", "1.0"}, {"ucx", "1.13.1"}};
  figures.host = "node7";
  figures.cores = 8;
  figures.busy = 0.25;
  figures.winograd = true;
  figures.copies = {{0, 1, 4, 1 << 28, {2e10, 1.5e10, 2.5e10}}};
  figures.compute = {{"bf16", 64, 1024, 8, 1, {1e12, 9e11, 1.1e12}}};
  figures.messages = {
      {"network", "node7", "node8", false, 1 << 20, {1e-5, 9e-6, 2e-5}, {1e10, 1e10, 1e10}, {8e9, 7e9, 9e9}}};
  figures.gpus = {{.bus = "0000:3b:00.0",
                   .model = "H100",
                   .products = "cuBLASLt 13.1.0",
                   .bytes_per_second = {3e12, 2.9e12, 3.1e12},
                   .launch_seconds = {1e-5, 9e-6, 2e-5},
                   .kernel_seconds = {2e-6, 1e-6, 3e-6},
                   .compute = {{"tf32", 512, 4096, 1, 1, {3e14, 2e14, 4e14}, 2}},
                   .own = {{"f32", 64, 1024, 1, 1, {5e12, 4e12, 6e12}}}}};
  figures.gpu_links = {{"host", "0000:3b:00.0", 1 << 28, {8e-6, 7e-6, 9e-6}, {5e10, 4e10, 6e10}}};
  return figures;
}

std::string refusal(const std::string& text) {
  try {
    (void)measurements_from_json(text, "figures.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    return error.what();
  }
  return "no error";
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = to_json(some_figures());
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Measurements, ReadBackAsWhatWasWritten) {
  EXPECT_EQ(measurements_from_json(to_json(some_figures()), "x"), some_figures());
  EXPECT_EQ(measurements_from_json(to_json(Measurements{}), "x"), Measurements{});
}

TEST(Measurements, SkipFieldsOfLaterBuilds) {
  EXPECT_EQ(measurements_from_json(changed("\"host\"", "\"colour\": 7,\n \"host\""), "x"), some_figures());
}

TEST(Measurements, SayWhatIsWrongWithAFile) {
  EXPECT_THAT(refusal("{"), HasSubstr("figures.json: no JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("these are no measurements"));
  EXPECT_THAT(refusal(R"({"schema": "troupe.topology", "version": 1})"), HasSubstr("these are no measurements"));
  EXPECT_THAT(refusal(changed("\"version\": 1", "\"version\": 2")), HasSubstr("another version"));
  EXPECT_THAT(refusal(changed("\"busy\": 0.25", "\"busy\": -1")), HasSubstr("/busy is not a finite number"));
  EXPECT_THAT(refusal(changed("\"cores\": 8", "\"cores\": -8")), HasSubstr("/cores is not a whole number"));
  EXPECT_THAT(refusal(changed("\"cores\": 8", "\"cores\": 8000000000")), HasSubstr("/cores is not a whole number"));
  EXPECT_THAT(refusal(changed("\"bf16\"", "16")), HasSubstr("/compute/dtype is not a short text"));
  EXPECT_THAT(refusal(changed("\"same_node\": false", "\"same_node\": 0")), HasSubstr("is not true or false"));
  EXPECT_THAT(refusal(changed("\"least\": 15000000000.0", "\"least\": 90000000000.0")), HasSubstr("in no order"));
  EXPECT_THAT(refusal(changed("\"rows\": 64", "\"rows\": 0")), HasSubstr("no rows"));
  EXPECT_THAT(refusal(changed("\"rows\": 512", "\"rows\": 0")), HasSubstr("no rows")) << "of a GPU";
  EXPECT_THAT(refusal(changed("\"model\": \"H100\"", "\"model\": 100")), HasSubstr("/gpus/model is not a short text"));
  EXPECT_THAT(refusal(changed("\"gpu_links\": [", "\"gpu_links\": [{\"from\": \"a\"}, ")), HasSubstr("copies nothing"));
  EXPECT_THAT(refusal(std::string((4u << 20) + 1, ' ')), HasSubstr("at most"));
}

TEST(Measurements, AMedianIsTheOneInTheMiddle) {
  EXPECT_EQ(repeats_of({3, 1, 2}), (Repeats{2, 1, 3}));
  EXPECT_EQ(repeats_of({4, 1, 2, 3}), (Repeats{2.5, 1, 4}));
  EXPECT_EQ(repeats_of({}), Repeats{});
}

TEST(Measurements, LieInTheCacheUnderTheHostsName) {
  ::setenv("XDG_CACHE_HOME", "/some/cache", 1);
  EXPECT_EQ(measurements_file("node7"), "/some/cache/troupe/measurements/node7.json");
  EXPECT_EQ(measurements_file("a/../b"), "/some/cache/troupe/measurements/a_.._b.json");
  ::unsetenv("XDG_CACHE_HOME");
}

TEST(Measurements, AFileThatIsNotThereIsNoError) {
  EXPECT_FALSE(read_measurements(::testing::TempDir() + "/no/such/figures.json"));
  EXPECT_FALSE(read_measurements(""));
}

}  // namespace
}  // namespace troupe::topology
