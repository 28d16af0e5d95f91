#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  /// How much of the sample order was taken, and by how many steps.
  struct Position {
    std::uint64_t steps = 0;
    std::uint64_t samples = 0;
  };
  /// Without evaluations where nothing can be evaluated. `from`: where the job goes on; nothing: from the beginning.
  Schedule schedule(const Settings& settings, const std::optional<Position>& from) const;
  /// Of all groups, as its replica takes them.
  std::vector<Bucket> buckets() const;
  /// Steps that a rank may have loaded or enqueued beyond the last one committed.
  std::uint64_t steps_ahead() const { return plan.prefetch + kStepsAhead; }
  /// Who takes which samples, as far as it is known when `schedule` begins: in equal parts, or, where shares are
  /// measured, of the first steps so many `rows` by rank. Throws Error{invalid} when these are not all.
  Ledger ledger(const Schedule& schedule, const std::vector<std::uint32_t>& rows = {}) const;
};

/// Joins, reads the data and plans. Throws Error. `listener` is told who is missing, and later, on any thread, what the
/// data are told to; null: nobody.
JoinedJob join_job(Blocking& blocking, const SessionOptions& options, Deadline deadline, SessionListener* listener);

}  // namespace troupe
