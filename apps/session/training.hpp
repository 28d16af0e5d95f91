#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "actors/balancer_actor.hpp"
#include "actors/checkpointer_actor.hpp"
#include "actors/device_actor.hpp"
#include "actors/digest_actor.hpp"
#include "actors/evaluator_actor.hpp"
#include "actors/loader_actor.hpp"
#include "actors/membership_actor.hpp"
#include "actors/node_loader_actor.hpp"
#include "actors/reporter_actor.hpp"
#include "actors/slot_lender_actor.hpp"
#include "actors/step_coordinator.hpp"
#include "actors/sums_gatherer.hpp"

namespace troupe {

/// How the actors of one rank reach rank 0's.
struct CoordinatorHandles {
  MembershipPeer membership;
  TestPartReceiver evaluator;
  PartReceiver checkpointer;  // of jobs that save
  BalancerPeer balancer;      // of jobs of several ranks
  SlotBorrower loader;        // its node's, where that is one for all its ranks and not this rank's
  StepCoordinatorPeer steps;
  RankSumsReceiver sums;       // where DeviceParts::sums_are_common is false
  RankDigestReceiver digests;  // with DeviceParts::digests
  RankValuesReceiver values;
};

/// What the actors of one rank are made of; everything outlives them.
struct TrainingParts {
  std::optional<LoaderParts> loader;           // absent: the app brings its own samples, or the node has one for all
  std::optional<NodeLoaderParts> node_loader;  // of a node with one, on the rank that has it
  LeasePool* lent = nullptr;                   // of a node with one: the pool that it fills
  DeviceParts device;
  std::vector<caf::actor> hosting;  // shards that host, and workers: watched, and ended with the others
  ViewId view;
  Rank self;
  std::vector<std::string> hosts;
  std::chrono::milliseconds start_within{60000};
  std::chrono::milliseconds end_within{30000};
  ReportTargets report;  // rank 0
  std::function<void(const Status&)> abort_view;
  std::function<void(const RunEnd&)> ended;
  std::function<void(Step)> committed;  // told of every step, in order
  std::optional<CheckpointerParts> checkpoints;
  std::optional<BalancerParts> balancer;           // jobs of several ranks
  std::vector<std::string> tensors;                // names, with DeviceParts::digests
  std::chrono::milliseconds answer_within{30000};  // of all ranks' devices, when their steps are held
  ReportSoFar so_far;                              // rank 0: before the first step
  TraceRow* evaluator_trace = nullptr;             // null: nothing is noted
  TraceRow* membership_trace = nullptr;
  TraceRow* coordinator_trace = nullptr;
};

/// The training actors of one rank. Membership, its node's loader if it has that, and, on rank 0, evaluator,
/// checkpointer, balancer, step coordinator and sums gatherer exist at once, so that they can be published; the others
/// begin with start(). Ended explicitly by end(), since they refer to what is taken down after them.
class TrainingActors {
 public:
  TrainingActors(caf::actor_system& system, TrainingParts parts);
  MembershipActor membership() const { return membership_; }
  EvaluatorActor evaluator() const { return evaluator_; }
  /// Null in a job that saves nothing.
  CheckpointerActor checkpointer() const { return checkpointer_; }
  /// Null in a job of one rank.
  BalancerActor balancer() const { return balancer_; }
  /// Rank 0's; null elsewhere.
  StepCoordinator steps() const { return steps_; }
  /// Rank 0's; null elsewhere.
  ReporterActor reporter() const { return reporter_; }
  /// Rank 0's where DeviceParts::sums_are_common is false; null elsewhere.
  SumsGatherer sums() const { return sums_; }
  /// Rank 0's with DeviceParts::digests; null elsewhere.
  DigestActor digests() const { return digests_; }
  /// Null on ranks that have no loader for others.
  NodeLoaderActor node_loader() const { return node_loader_; }
  /// What stands before the device for the loader; it ends with the device.
  using Gate = std::function<BatchReceiver(const DeviceActor&)>;
  /// Joins the view; `coordinator` is needed on other ranks than 0. `gate` may be empty: batches go to the device.
  void start(const CoordinatorHandles& coordinator, const Gate& gate);
  /// Before start() too. Any thread.
  void request_stop() noexcept;
  /// Rank 0's: hands a wish to the step coordinator; once that has ended nobody is told. Any thread.
  void wish(PolicyWish wish);
  void wish(RebuildWish wish);
  /// Rank 0's: tells all ranks' devices, which wait for it (DeviceParts::awaits_verdicts). Any thread.
  void judge(EvaluationVerdict verdict);
  /// Ends all actors and waits until they are gone; false when some were not by the deadline.
  bool end(Blocking& blocking, Deadline deadline);

 private:
  struct Gone;
  /// Who is told of the end, until end() has returned.
  struct EndListener {
    std::mutex mutex;
    std::function<void(const RunEnd&)> ended;
  };
  DeviceAudience audience(const CoordinatorHandles& coordinator) const;
  caf::actor_system& system_;
  TrainingParts parts_;
  const std::shared_ptr<EndListener> listener_ = std::make_shared<EndListener>();
  MembershipActor membership_;
  EvaluatorActor evaluator_;
  ReporterActor reporter_;
  CheckpointerActor checkpointer_;
  BalancerActor balancer_;
  StepCoordinator steps_;
  SumsGatherer sums_;
  DigestActor digests_;
  std::mutex mutex_;  // guards device_ and stop_requested_ between start() and request_stop()
  bool stop_requested_ = false;
  DeviceActor device_;
  BatchReceiver batches_;  // the device, or what stands before it
  LoaderActor loader_;
  NodeLoaderActor node_loader_;
  SlotLenderActor lender_;
};

}  // namespace troupe
