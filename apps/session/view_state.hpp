#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/device_actor.hpp"
#include "actors/reporter_actor.hpp"
#include "apps/session/checkpoint_start.hpp"
#include "apps/session/rank_memory.hpp"
#include "apps/session/run_so_far.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/compute/host_copies.hpp"
#include "runtime/exchange/exchange.hpp"

namespace troupe {

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
  std::shared_ptr<RunSoFar> so_far;
};

}  // namespace troupe
