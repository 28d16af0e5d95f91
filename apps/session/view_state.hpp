#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/device_actor.hpp"
#include "actors/reporter_actor.hpp"
#include "apps/session/checkpoint_start.hpp"
#include "apps/session/rank_memory.hpp"
#include "apps/session/session.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/compute/host_copies.hpp"
#include "runtime/data/load_balancer.hpp"
#include "runtime/exchange/exchange.hpp"
#include "runtime/report/early_stop.hpp"

namespace troupe {

/// From `step` on, this rank's loss was scaled so.
struct ScaleChange {
  Step step;
  float scale = 1;
};

/// What is told of a run so far, whichever of its views does the work: one after the other has it. All but the result,
/// `left_out` and `device_threads` is rank 0's.
struct RunRecord {
  RunResult result;                               // the reporter's thread writes it, run() reads it after the end
  std::optional<EarlyStop> early_stop;            // with evaluate.patience; the reporter's thread, once it runs
  std::uint64_t left_out = 0;                     // steps, counted by the device actor
  std::uint32_t device_threads = 0;               // that a trial of this rank chose; 0: there was none
  std::optional<Deadline> time_limit;             // once the first step was told; the reporter's thread
  std::set<std::string, std::less<>> not_finite;  // values that a note has told of; the reporter's thread
  std::mutex mutex;                               // guards window, switches and scales
  ShareWindow window;                             // the newest; without ranks: there was none
  std::vector<SwitchReport> switches;             // that are not in a line yet
  std::vector<ScaleChange> scales;                // of the loss, likewise guarded; empty: it is not scaled
  // The members below are used by the balancer's thread.
  std::optional<LedgerSpan> shares_measured;  // the newest; nothing: no shares were measured
  std::size_t straggler_switches = 0;         // entries of update.switch for stragglers that were requested
  std::optional<Straggler> straggler;         // the last one that was noted
};

/// A copy of a rank's part of the state after a step, in the order of its memory.
class KeptMemory {
 public:
  KeptMemory() = default;
  /// `holds_parameters`: this rank keeps the parameters in `memory`.
  KeptMemory(HostCopies& copies, const Plan& plan, const RankMemory& memory, bool holds_parameters);
  /// Writes everything but the parameters to the same places of another view's memory. Throws Error{unsupported} if
  /// that memory has different places.
  void restore(HostCopies& copies, const Plan& plan, const RankMemory& memory) const;
  /// [layout]; empty: another rank of the node keeps them
  std::span<const std::byte> parameters() const noexcept { return parameters_; }

 private:
  std::vector<std::byte> parameters_;
  std::vector<std::vector<std::byte>> parts_;
};

/// The state that a view, retired after a step, leaves to the next view of this process. It is never read from, or
/// written to, a disk.
struct ViewState {
  std::uint64_t steps = 0;    // committed
  std::uint64_t samples = 0;  // of the order, taken by these steps
  KeptMemory memory;
  std::vector<ExchangeProgress> exchanges;  // by group
  DeviceProgress device;
  ReportSoFar report;     // of rank 0
  EpochSoFar epoch;       // as in checkpoints
  CheckpointStart start;  // of rank 0: this run's name, and how its checkpoints are numbered
  std::string first_run;  // CheckpointManifest::first_run
  std::shared_ptr<RunRecord> record;
};

}  // namespace troupe
