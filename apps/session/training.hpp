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

/// The actors of other ranks that the actors of one rank need. They are rank 0's, except `loader`, which is its node's.
struct CoordinatorHandles {
  MembershipPeer membership;
  TestPartReceiver evaluator;
  PartReceiver checkpointer;  // in jobs that save
  BalancerPeer balancer;      // in jobs of several ranks
  SlotBorrower loader;        // if one loader serves all ranks of the node
  StepCoordinatorPeer steps;
  RankSumsReceiver sums;       // if DeviceParts::sums_are_common is false
  RankDigestReceiver digests;  // with DeviceParts::digests
  RankValuesReceiver values;
};

/// What the actors of one rank need; everything outlives them.
struct TrainingParts {
  std::optional<LoaderParts> loader;           // absent: the app brings its own samples, or one loader serves the node
  std::optional<NodeLoaderParts> node_loader;  // if one loader serves the node, on the rank that has it
  LeasePool* lent = nullptr;                   // if one loader serves the node: the pool that it fills
  DeviceParts device;
  std::vector<caf::actor> hosting;  // hosting shards, and workers: monitored, and ended with the others
  ViewId view;
  Rank self;
  std::vector<std::string> hosts;
  std::chrono::milliseconds start_within{60000};
  std::chrono::milliseconds end_within{30000};
  ReportTargets report;  // of rank 0
  std::function<void(const Status&)> abort_view;
  std::function<void(const RunEnd&)> ended;
  std::function<void(Step)> committed;  // called for every step, in order
  std::optional<CheckpointerParts> checkpoints;
  std::optional<BalancerParts> balancer;           // in jobs of several ranks
  std::vector<std::string> tensors;                // names, with DeviceParts::digests
  std::chrono::milliseconds answer_within{30000};  // of all ranks' devices, while their steps are held
  ReportSoFar so_far;                              // of rank 0: before the first step
  TraceRow* evaluator_trace = nullptr;             // null: nothing is traced
  TraceRow* membership_trace = nullptr;
  TraceRow* coordinator_trace = nullptr;
};

/// The training actors of one rank. Membership, the node's loader if this rank has it, and, on rank 0, evaluator,
/// checkpointer, balancer, step coordinator and sums gatherer are spawned at once, so that they can be published; the
/// others are spawned by start(). They must be ended by end(), since they refer to objects that are destroyed after
/// them.
class TrainingActors {
 public:
  TrainingActors(caf::actor_system& system, TrainingParts parts);
  MembershipActor membership() const { return membership_; }
  /// Those of this rank's actors that other ranks need; null: this rank, or this job, has none.
  CoordinatorHandles for_other_ranks() const;
  /// Makes the actor that receives the loader's batches instead of the device; it ends with the device.
  using MakeBatchReceiver = std::function<BatchReceiver(const DeviceActor&)>;
  /// Joins the view; `coordinator` is needed on ranks other than 0. If `make_batch_receiver` is empty, batches go to
  /// the device.
  void start(const CoordinatorHandles& coordinator, const MakeBatchReceiver& make_batch_receiver);
  /// May be called before start(). Any thread.
  void request_stop() noexcept;
  /// At rank 0: passes a request to the step coordinator; if that has ended, nothing happens. Any thread.
  void request(PolicyRequest request);
  void request(RebuildRequest request);
  /// At rank 0: sends the verdict to all ranks' devices, which wait for it (DeviceParts::awaits_verdicts). Any thread.
  void judge(EvaluationVerdict verdict);
  /// Ends all actors and waits until they have ended; false if some had not by the deadline.
  bool end(Blocking& blocking, Deadline deadline);

 private:
  struct Gone;
  /// Called at the end of the run, until end() has returned.
  struct EndListener {
    std::mutex mutex;
    std::function<void(const RunEnd&)> ended;
  };
  DeviceReceivers receivers(const CoordinatorHandles& coordinator) const;
  std::vector<caf::actor> watched_actors() const;
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
  BatchReceiver batches_;  // the device, or the actor that receives its batches first
  LoaderActor loader_;
  NodeLoaderActor node_loader_;
  SlotLenderActor lender_;
};

}  // namespace troupe
