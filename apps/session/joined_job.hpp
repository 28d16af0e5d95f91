#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/device_actor.hpp"
#include "apps/session/session.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/data/load_balancer.hpp"
#include "runtime/data/sample_ledger.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/data/source.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// A job that this rank has joined: its ranks, their data, and the plan, which is the same at all ranks.
struct JoinedJob {
  LaunchPlace place;
  std::unique_ptr<Bootstrap> bootstrap;  // null: a job of one rank
  std::vector<Hello> hellos;             // by rank
  /// Fills of batches that wait for a file soon give up.
  void stop_waiting_for_data() const {
    if (!data.train) return;
    data.train->stop_waiting();
    data.test->stop_waiting();
  }

  DataSet data;  // without sets where the app brings its samples, or another rank of the node
                 // reads them
  Graph graph;
  Layout layout;
  Plan plan;
  BatchLayout batch;
  bool can_evaluate = true;

  Rank self() const noexcept { return {place.rank}; }
  const RankPlan& mine() const { return plan.ranks.at(place.rank); }
  std::vector<std::string> hosts() const;
  /// How many samples of the order were taken, and in how many steps.
  struct Position {
    std::uint64_t steps = 0;
    std::uint64_t samples = 0;
  };
  /// Without evaluations if there is nothing to evaluate. `from`: where the job resumes; nothing: from the beginning.
  Schedule schedule(const Settings& settings, const std::optional<Position>& from) const;
  /// The buckets of all groups, in the order for the replica.
  std::vector<Bucket> buckets() const;
  /// The most steps that a rank may have loaded or enqueued after the last committed one.
  std::uint64_t steps_ahead() const { return plan.prefetch + kStepsAhead; }
  /// Which rank takes which samples, as far as that is known when `schedule` begins: equal parts, or, if shares are
  /// measured, `rows` by rank in the first steps. Throws Error{invalid} if these do not add up to a whole batch.
  SampleLedger ledger(const Schedule& schedule, const std::vector<std::uint32_t>& rows = {}) const;
};

/// Joins, reads the data and plans. Throws Error. `listener` is told which ranks are missing, and later, on any thread,
/// what concerns the data; null: no listener.
JoinedJob join_job(Blocking& blocking, const SessionOptions& options, Deadline deadline, SessionListener* listener);

}  // namespace troupe
