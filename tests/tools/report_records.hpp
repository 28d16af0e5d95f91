#pragma once

#include <chrono>
#include <cmath>
#include <limits>
#include <string>

#include "apps/report/run_record.hpp"

namespace troupe::report::testing {

/// A run of two ranks whose loss falls and whose accuracy rises, as a page would show it at the end.
inline RunRecord run_of(std::uint32_t epochs) {
  using std::chrono::microseconds;
  RunRecord record;
  record.state = RunState::finished;
  record.begun = record.written = std::chrono::system_clock::time_point{std::chrono::seconds{1769850300}};
  record.configuration = "apps/mnist/app.toml";
  record.settings = {{"data.batch", "100", "apps/mnist/app.toml:16:9"},
                     {"train.epochs", std::to_string(epochs), "--set train.epochs"},
                     {"train.seed", "7", "default"}};
  record.device = "cpu, 1 thread";
  record.data = "IDX data from data/mnist";
  Plan plan;
  plan.model = "mlp";
  plan.groups = {{.rule = "adam(rate=0.001)"}};
  plan.batch = 100;
  plan.train_samples = 60000;
  plan.steps = 300ULL * epochs;
  plan.parameters = 1796010;
  plan.nodes.resize(1);
  plan.ranks.resize(2);
  record.plan = plan;
  for (std::uint32_t epoch = 1; epoch <= epochs; ++epoch) {
    const double n = epoch;
    for (int part = 1; part <= 5; ++part) {
      const double at = (n - 1) * 2 + part * 0.4;
      const auto us = [&](double share) { return microseconds{std::llround(at * share * 1e6)}; };
      record.trace.add({at,
                        at * 0.95,
                        static_cast<std::uint64_t>(60000 * (n - 1 + part / 5.0)),
                        {.load = us(0.02),
                         .compute = us(0.6),
                         .exchange = us(0.2),
                         .update = us(0.1),
                         .evaluate = us(0.05),
                         .copy = us(0.01),
                         .idle = us(0.02)}});
    }
    record.epochs.push_back({.epoch = epoch,
                             .steps = 300ULL * epoch,
                             .loss = 0.25 / n,
                             .accuracy = 1 - 0.07 / n,
                             .test_loss = 0.1 / std::sqrt(n) + 0.04,
                             .test_accuracy = 0.985 - 0.02 / n,
                             .elapsed_s = 2 * n,
                             .samples = 60000ULL * epoch,
                             .train_s = 1.9 * n});
  }
  record.last = {.step = plan.steps, .steps = plan.steps, .samples = 60000ULL * epochs};
  return record;
}

/// The same with a loss that is no number from `epoch` on.
inline RunRecord run_with_nan_from(std::uint32_t epoch, std::uint32_t epochs) {
  RunRecord record = run_of(epochs);
  for (EpochReport& line : record.epochs) {
    if (line.epoch < epoch) continue;
    line.loss = std::numeric_limits<double>::quiet_NaN();
    line.test_loss = std::numeric_limits<double>::infinity();
  }
  return record;
}

/// The same with a path longer than any line, without a place to break it.
inline RunRecord run_with_long_paths() {
  RunRecord record = run_of(3);
  const std::string path = "/" + std::string(600, 'p') + "/app.toml";
  record.configuration = path;
  record.data = "IDX data from " + path;
  record.settings.push_back({"data.path", "\"" + path + "\"", path + ":7:9"});
  record.settings.push_back({"checkpoint.dir", "\"" + path + "\"", "--set checkpoint.dir"});
  record.notes.push_back("going on from " + path);
  record.state = RunState::failed;
  record.reason = "cannot write " + path + ": No space left on device";
  return record;
}

}  // namespace troupe::report::testing
