#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/thread_affinity.hpp"
#include "runtime/config/settings.hpp"
#include "runtime/memory/memory_binding.hpp"
#include "runtime/planning/plan.hpp"

namespace troupe {

/// The network devices that a rank's transport uses, and who chose them.
struct NetworkChoice {
  enum class By : std::uint8_t { nobody, plan, one_node, user };
  By by = By::nobody;
  /// UCX's names, separated by commas: "eth0", "mlx5_0:1,ens1f0"; empty: all that it finds, or those that the user
  /// named.
  std::string devices;
  std::string users;  // UCX_NET_DEVICES of the environment, which UCX itself reads
};

/// The user's devices if there are any (UCX_NET_DEVICES; null: not set). Otherwise loopback if all ranks are on one
/// node, so that no other machine can connect to them. Otherwise the plan's for `self`, by their names on its node
/// `node`: for a device with RDMA, both its names if UCX may choose between RDMA and TCP, and only the interface for
/// TCP.
NetworkChoice network_choice(const Plan& plan, Rank self, const Topology& node, const Settings& settings,
                             const char* users);

/// Puts a rank's process in the place that the plan gives it, as far as the settings ask for it (placement.affinity)
/// and the system permits it. What is not possible is left out, and is found by PlacementCheck.
class ProcessPlacement {
 public:
  /// Moves nothing yet. `node`: the rank's node. Takes some milliseconds if memory is to be bound.
  ProcessPlacement(const Plan& plan, Rank self, const Topology& node, const Settings& settings);

  /// The plan's entry; its CPUs are those on which this process may put its threads: for lanes and devices. If `cpus`
  /// is empty, threads may run anywhere.
  const RankPlan& rank() const noexcept { return rank_; }
  /// Null: memory is not bound.
  MemoryBinding* memory() const noexcept { return memory_.get(); }
  const NetworkChoice& network() const noexcept { return network_; }
  /// Moves all threads of this process there permanently, with the memory that they have. The calling thread and those
  /// that it starts will also allocate there.
  void take_process();
  /// Whether take_process() was called.
  bool has_process() const noexcept { return has_process_; }

 private:
  RankPlan rank_;
  std::unique_ptr<MemoryBinding> memory_;
  NetworkChoice network_;
  bool has_process_ = false;
};

/// Pins the calling thread, and the threads that it starts meanwhile, to a place, which outlives this object. If the
/// whole process is pinned already, nothing changes.
class ScopedPlacement {
 public:
  explicit ScopedPlacement(const ProcessPlacement& place)
      : threads_(place.has_process() ? std::span<const std::uint32_t>{} : place.rank().cpus),
        memory_(place.has_process() ? nullptr : place.memory()) {}

 private:
  const ThreadAffinity threads_;
  const ThreadMemory memory_;
};

}  // namespace troupe
