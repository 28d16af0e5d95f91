#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/device_actor.hpp"
#include "apps/session/session.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/data/ledger.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/data/shares.hpp"
#include "runtime/data/source.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// A job that this rank has joined: who is there, what they train on, and the plan that all of them made alike.
struct JoinedJob {
  LaunchPlace place;
  std::unique_ptr<Bootstrap> bootstrap;  // none: a job of one rank
  std::vector<Hello> hellos;             // by rank
  DataSet data;                          // without sets where the app brings its samples, or another rank of the node
                                         // reads them
  Graph graph;
  Layout layout;
  Plan plan;
  BatchLayout batch;
  bool can_evaluate = true;

  Rank self() const noexcept { return {place.rank}; }
  const RankPlan& mine() const { return plan.ranks.at(place.rank); }
  std::vector<std::string> hosts() const;
  /// Without evaluations where nothing can be evaluated. `from`: the checkpoint that the job goes on from; null: none.
  Schedule schedule(const Settings& settings, const CheckpointManifest* from) const;
  /// Of all groups, as its replica takes them.
  std::vector<Bucket> buckets() const;
  /// Steps that a rank may have loaded or enqueued beyond the last one committed.
  std::uint64_t steps_ahead() const { return plan.prefetch + kStepsAhead; }
  /// Who takes which samples, as far as it is known when `schedule` begins.
  Ledger ledger(const Schedule& schedule) const;
};

/// Joins, reads the data and plans. Throws Error.
JoinedJob join_job(Blocking& blocking, const SessionOptions& options, Deadline deadline);

}  // namespace troupe
