#pragma once

#include <caf/actor_system.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/exchange/hosted_exchange.hpp"
#include "actors/exchange/update_log_writer.hpp"
#include "actors/remote/remote_actors.hpp"
#include "apps/session/rank_memory.hpp"
#include "runtime/planning/plan.hpp"

namespace troupe {

/// The parts that a rank needs for a group with a hosted policy; the references outlive it.
struct HostedGroupParts {
  caf::actor_system& system;
  AddressSpace& space;
  Arena& arena;
  Device& device;
  RemoteActors* remote;  // null: a job of one rank
  std::string name;      // under which its rank's shard is published; the same at all ranks
  Rank self;
  std::uint32_t ranks = 1;
  const GroupPlan& plan;
  const GroupMemory& memory;
  bool shares_parameters = false;  // all ranks' stripes are in the same memory
  Rule rule;
  std::optional<RateSchedule> rate;
  std::span<const Layout::Entry> no_decay;
  std::chrono::milliseconds deadline{30000};  // of a shard's answer
  std::string log;                            // folder for the shard's log of updates; empty: no log
  std::string replay;                         // folder of the log whose order the shard repeats; empty: none
  Trace* trace = nullptr;                     // has rows for the shard and the worker; null: no trace
};

/// A rank's part in a group whose stripes are hosted by shards under some of its policies: the shard of its stripe, its
/// worker, and their streams. Its actors end before it.
class HostedGroup {
 public:
  explicit HostedGroup(const HostedGroupParts& parts);

  HostedExchange& exchange() noexcept { return *exchange_; }
  /// Null if the rank has no stripe.
  const HostedShard& shard() const noexcept { return shard_; }
  /// Finds the other ranks' shards and passes them to the worker. Call it once, when all ranks have published their
  /// shards.
  void connect_shards(Blocking& blocking, Deadline deadline);
  std::vector<caf::actor> actors() const;
  /// The staleness of the contributions that this rank's shard applied under the last hosted policy; asks it by
  /// message. Nothing: it applied none, or does not answer in time.
  std::optional<HostingReport> staleness(Deadline deadline) const;

 private:
  HostedMemory hosted_memory(const HostedGroupParts& parts) const;
  std::string log_file(const std::string& folder, std::uint32_t shard) const;

  caf::actor_system& system_;
  RemoteActors* remote_;
  const std::string name_;
  const GroupPlan& plan_;
  const Rank self_;
  std::unique_ptr<UpdateLogFile> log_;           // of the shard
  std::unique_ptr<UpdateLogWriter> log_writer_;  // writes to log_; ends before it
  std::unique_ptr<Stream> shard_stream_, side_;
  const PrivateTimeline line_;  // of the worker
  HostedShard shard_;
  HostedWorkerActor worker_;
  std::unique_ptr<HostedExchange> exchange_;
};

}  // namespace troupe
