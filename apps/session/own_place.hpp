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

/// Which network devices a rank's transport uses, and by whose word.
struct NetworkChoice {
  enum class By : std::uint8_t { nobody, plan, one_node, user };
  By by = By::nobody;
  /// As UCX names them, by commas: "eth0", "mlx5_0:1,ens1f0"; empty: all that it finds, or those that the user named.
  std::string devices;
  std::string users;  // UCX_NET_DEVICES of the environment, which UCX reads by itself
};

/// The user's, where there are any (UCX_NET_DEVICES; null: unset); else loopback where all ranks are on one node, so
/// that nobody else can connect to them; else the plan's for `self`, by the names that `node`, on which it is, knows it
/// by: of one with an RDMA device both where UCX may choose between RDMA and TCP, and the interface alone for TCP.
NetworkChoice network_choice(const Plan& plan, Rank self, const Topology& node, const Settings& settings,
                             const char* users);

/// Where a process puts its rank: in the place of the plan, as far as the settings want it (placement.affinity) and the
/// system permits it. What cannot be had is left out, and found by PlaceCheck.
class OwnPlace {
 public:
  /// Moves nothing yet. `node`: where the rank is. Takes some milliseconds where memory is to be bound.
  OwnPlace(const Plan& plan, Rank self, const Topology& node, const Settings& settings);

  /// The plan's, whose CPUs are those on which this process may put its threads: for lanes and devices. Empty `cpus`:
  /// threads go anywhere.
  const RankPlan& rank() const noexcept { return rank_; }
  /// Null: memory comes from anywhere.
  MemoryBinding* memory() const noexcept { return memory_.get(); }
  const NetworkChoice& network() const noexcept { return network_; }
  /// Puts all threads of this process there for good, and the memory that they have and that the calling one, and those
  /// that it starts, will have.
  void take_process();
  /// Whether that was done.
  bool has_process() const noexcept { return has_process_; }

 private:
  RankPlan rank_;
  std::unique_ptr<MemoryBinding> memory_;
  NetworkChoice network_;
  bool has_process_ = false;
};

/// Puts the calling thread, and the threads that it starts meanwhile, in a place, which outlives it. Where all of the
/// process is there they stay there.
class InPlace {
 public:
  explicit InPlace(const OwnPlace& place)
      : threads_(place.has_process() ? std::span<const std::uint32_t>{} : place.rank().cpus),
        memory_(place.has_process() ? nullptr : place.memory()) {}

 private:
  const ThreadAffinity threads_;
  const ThreadMemory memory_;
};

}  // namespace troupe
