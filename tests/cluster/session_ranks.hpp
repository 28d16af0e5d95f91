#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/cluster/pull_model.hpp"
#include "tests/cluster/session_threads.hpp"

namespace troupe::testing {

/// The results of a job's ranks.
struct RanksRan {
  std::vector<RunResult> results;          // by rank
  std::vector<std::vector<float>> began;   // by rank: the weights before the first step
  std::map<std::uint64_t, double> losses;  // by step, mean over all samples; of steps that end a round
  std::string notes;                       // rank 0's
};

/// Whether the gradient of a rank's `number`th training step, from 0 and over all sessions of the run, has a NaN.
using Spoils = std::function<bool(std::uint32_t rank, std::uint64_t number)>;

/// Runs pull_model() on sessions of this process, each rank on a thread, 120 samples a step over all ranks. `at_epoch`:
/// called on the thread of rank 0's listener with each line of the log, before it is written.
inline RanksRan run_ranks(const JobFolder& folder, std::uint32_t ranks, std::vector<std::string> settings,
                          const Spoils& spoils = {}, const std::function<void()>& at_epoch = {}) {
  class Log final : public SessionListener {
   public:
    Log(RanksRan& to, const std::function<void()>& at_epoch) : to_(to), at_epoch_(at_epoch) {}
    void note(const std::string& text) override { to_.notes += text + '\n'; }
    void step(Step step, const StepSums& total) override {
      if (total.samples != 0) to_.losses[step.value] = total.loss / static_cast<double>(total.samples);
    }

    void epoch(const EpochReport&) override {
      if (at_epoch_) at_epoch_();
    }

   private:
    RanksRan& to_;
    const std::function<void()>& at_epoch_;
  };
  settings.insert(settings.begin(), {"cluster.nodes=\"local:1\"", "train.deterministic=true", "faults.dead_ms=20000",
                                     "placement.cores=0", "data.path=\"" + (folder.path() / "data").string() + "\"",
                                     "report.dir=\"" + (folder.path() / "run").string() + "\"",
                                     "data.batch=" + std::to_string(120 / ranks), "checkpoint.keep=100"});
  RanksRan ran;
  Log log{ran, at_epoch};
  ran.began.resize(ranks);
  std::vector<std::uint64_t> trained(ranks);
  ran.results = run_sessions(
      ranks,
      [&](std::uint32_t rank) {
        SessionOptions options{.configuration = read_configuration(folder.path() / "app.toml", settings)};
        options.model = pull_model([&, rank](const std::vector<SessionTensor>& tensors) {
          const std::uint64_t number = trained[rank]++;
          for (const SessionTensor& tensor : tensors) {
            if (number != 0) break;
            ran.began[rank].insert(ran.began[rank].end(), tensor.parameters.begin(), tensor.parameters.end());
          }
          return spoils && spoils(rank, number);
        });
        options.every_step = true;
        if (rank == 0) options.listener = &log;
        return options;
      },
      run_to_the_end);
  return ran;
}

}  // namespace troupe::testing
