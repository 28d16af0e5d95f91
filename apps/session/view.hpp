#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <caf/actor_system.hpp>

#include "actors/remote/remote_actors.hpp"
#include "apps/session/hosted_group.hpp"
#include "apps/session/job.hpp"
#include "apps/session/own_loop.hpp"
#include "apps/session/places.hpp"
#include "apps/session/rank_memory.hpp"
#include "apps/session/resume.hpp"
#include "apps/session/run_end_box.hpp"
#include "apps/session/session.hpp"
#include "apps/session/training.hpp"
#include "runtime/base/io_threads.hpp"
#include "runtime/compute/host_copies.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "runtime/lanes/lane_wait.hpp"
#include "runtime/planning/planner.hpp"
#include "runtime/report/early_stop.hpp"
#include "runtime/report/line_values.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe {

/// What views of one run that goes back to its checkpoints have in common.
struct Lineage {
  std::uint32_t roll_backs = 0;  // so far
  std::string run;               // CheckpointStart::run of the first; empty: this is the first
};

/// What the lanes may still be told of when a view has ended: kept by the job's group.
struct Wires {
  std::unique_ptr<DirectChannel> channel;                    // null: nothing is exchanged over a transport
  std::vector<std::unique_ptr<const Filter>> filters;        // by group, of what is sent; null: none
  std::vector<std::unique_ptr<Communicator>> communicators;  // by group
  std::vector<std::vector<Layout::Entry>> no_decay;          // by group; the streams' work reads them
  std::unique_ptr<LaneWait> waits;                           // null: the stream's waits have nothing to do with lanes
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> exchange_stream;            // between nodes: the bulk lane's thread enqueues on it
  std::vector<std::unique_ptr<Stream>> node_streams;  // by group; null: nothing is reduced within nodes first
};

/// A job from some step on, as its ranks, plan and policies are then: memory, device, communicators, exchanges, actors.
/// How it is built stands in view.cpp, and of its groups in view_groups.cpp; how it runs and ends in view_run.cpp. The
/// members that Session has, too, are described there.
class View {
 public:
  /// Collective over the ranks of `job`, which outlives it. Throws Error.
  View(Blocking& blocking, Job& job, Lineage lineage, Deadline deadline);
  ~View() {
    Blocking blocking = Blocking::on_thread("session");
    take_down(blocking);
  }

  /// With what the checkpoint that it goes on from says.
  const Lineage& lineage() const noexcept { return lineage_; }
  /// Once run() is over: what was not finite, "step 5: the gradient of l1.weight, first at rank 1"; empty: nothing.
  const std::string& bad_step() const noexcept { return bad_step_; }
  bool leads_job() const { return job_.self().value == 0; }
  /// Whether it was begun and ended before its run was over.
  bool given_up() const noexcept { return given_up_; }

  RunResult run(Blocking& blocking);
  std::optional<BatchView> next(Blocking& blocking);
  std::optional<StepSums> step(Blocking& blocking);
  std::optional<StepSums> exchange(Blocking& blocking, const StepSums& own);
  void report(std::string_view name, double value);
  const std::vector<SessionTensor>& tensors() const { return tensors_; }
  RunResult finish(Blocking& blocking);
  void request_stop() noexcept { actors_->request_stop(); }
  std::uint64_t switch_policy(Blocking& blocking, const PolicySettings& policy, const std::string& reason,
                              Deadline deadline);
  std::string describe(Blocking& blocking, Deadline deadline);
  std::vector<float> parameters() const;

  /// Ends it, if it has not ended by itself. Once.
  void take_down(Blocking& blocking) noexcept;

 private:
  const Settings& settings() const { return home_.settings(); }
  bool is_alone() const { return job_.plan.world_size() == 1; }
  /// The name of one of its actors in the group.
  std::string actor_name(std::string_view actor) const { return text("session", view_.value, '.', actor); }
  template <class Handle>
  void publish(std::string_view actor, const Handle& handle) {
    if (handle) home_.group().publish(actor_name(actor), handle);
  }
  template <class Handle>
  Handle find(Blocking& blocking, Peer peer, std::string_view actor, Deadline deadline) {
    return caf::actor_cast<Handle>(home_.group().remote().resolve(blocking, peer, actor_name(actor), deadline));
  }
  bool leads_node() const { return job_.plan.leads_node(job_.self()); }
  /// Whether the parameters that it works on are its own, or its node's ranks use this one's.
  bool holds_parameters() const { return !job_.plan.shares_memory() || leads_node(); }
  bool saves() const { return job_.plan.saves; }
  /// Whether every step's sums are of all ranks, whatever the policy; they travel with the rounds of group 0.
  bool sums_are_common() const { return !needs_of(job_.plan.groups.front().policies).hosted; }
  bool nothing_left() const { return schedule_.steps <= schedule_.first_step || places_[0].start.over; }
  void note(const std::string& what) const { home_.note(what); }

  // Building, in this order.
  void make_device();
  bool uses_device_memory() const;
  void make_memory();
  void map_peer(Rank rank);
  void meet(Blocking& blocking);
  void lock_checkpoints(Blocking& blocking);
  void resume();
  void make_early_stop(CheckpointStart& start);
  void take_evaluation(Step step, const EpochReport& line);
  void note_resumed(const CheckpointStart& start);
  void make_steps();
  std::unique_ptr<Device> device_for(const RankPlan& mine);
  std::unique_ptr<Stream> traced_stream(TraceRow* row);
  void make_communicators();
  std::vector<ArenaId> node_arenas() const;
  std::unique_ptr<Exchange> make_exchange(const GroupPlan& group);
  std::vector<Exchange*> all_exchanges() const;
  void abort_exchanges(const Status& why) noexcept;
  void make_loop();
  void load();
  void fill_parameters();
  void make_actors();
  void add_loader(TrainingParts& parts);
  std::vector<SnapshotPiece> snapshot_pieces() const { return pieces_of(job_, memory_); }
  std::optional<SavePlan> save_plan() const;
  CheckpointerParts checkpointer_parts();
  BalancerParts balancer_parts();
  void tell(const ShareWindow& window);
  ReportTargets report_targets();
  RateSchedule rate(const Rule& rule) const;
  Status judge(Step step, const StepSums& total);
  // Switching, in switching.cpp.
  void note_switch(Step step, const PolicySettings& policy, const std::string& reason);
  void switch_for_straggler(const ShareWindow& window);
  std::vector<SwitchReport> take_switches(std::uint64_t steps);
  std::optional<DigestPlan> digest_plan() const;

  // Running and ending.
  void begin(Blocking& blocking, bool owned);
  RunResult wait_for_end(Blocking& blocking);
  void note_staleness() const;
  // What the app reports, in reported.cpp.
  void hand_over_values(std::uint64_t steps, bool last);
  void note_not_finite(const EpochReport& line);

  Job& home_;
  const SessionOptions& options_;
  const JoinedJob& job_;
  Lineage lineage_;
  const Deadline deadline_;  // of the start
  const ViewId view_;
  AddressSpace& space_;
  SessionTrace& trace_;
  ListenerThread* const listener_;  // null: nobody listens
  caf::actor_system& system_;
  std::shared_ptr<Arena> arena_;
  RankMemory memory_;
  std::unique_ptr<LeasePool> pool_;
  std::unique_ptr<Resumed> resumed_;  // null: from the beginning
  Schedule schedule_;
  std::vector<PlaceBlob> places_;  // by rank
  std::vector<SessionTensor> tensors_;
  std::unique_ptr<OwnLoop> loop_;
  RunEndBox end_;                            // Membership's last words reach it when its actor is gone for the others
  std::unique_ptr<IoThreads> data_threads_;  // closed before the loaders that they tell end
  std::unique_ptr<IoThreads> io_;  // closed before the actors that it tells end; those that post to it end before it
  MembershipActor membership_;
  std::shared_ptr<Wires> wires_ = std::make_shared<Wires>();
  std::unique_ptr<HostCopies> copies_;
  std::unique_ptr<Group::LossListener> losses_;
  std::uint64_t left_out_ = 0;                        // steps, counted by the device actor
  std::string bad_step_;                              // written by the device actor, before the run ends
  std::vector<std::unique_ptr<HostedGroup>> hosted_;  // by group; null: no policy of it is a hosted one
  std::vector<std::unique_ptr<Exchange>> exchanges_;  // by group
  std::unique_ptr<StepExchange> steps_;
  std::unique_ptr<PointMessenger<StepReached, kStepsAhead + 1>> step_messages_;
  std::unique_ptr<PointMessenger<EvaluationReached, kEvaluationsKept + 1>> evaluation_messages_;
  std::unique_ptr<PointMessenger<SnapshotReached, 1>> snapshot_messages_;
  std::unique_ptr<Replica> replica_;
  std::vector<std::unique_ptr<Stream>>
      side_streams_;   // by group; null: its policies have no round behind the next step
  Programs programs_;  // of the stream's steps
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<TrainingActors> actors_;
  std::mutex shares_mutex_;              // guards shares_ and switches_
  std::vector<RankShare> shares_;        // rank 0: of the newest window, by rank
  std::vector<SwitchReport> switches_;   // rank 0: that no line has told yet
  std::size_t straggler_switches_ = 0;   // rank 0: that update.switch has and were asked for; the balancer's thread
  std::optional<Straggler> straggler_;   // rank 0: the last that was told; the balancer's thread
  RunResult result_;                     // rank 0's report so far; the reporter writes it, run() reads it after the end
  std::optional<EarlyStop> early_stop_;  // rank 0 with evaluate.patience; the reporter's thread, once it runs
  std::atomic<std::uint64_t> committed_{0};  // steps
  bool begun_ = false;                       // the view was joined
  bool owned_ = false;                       // by an app's loop
  // What the app reports; the app's thread's.
  ValueCollector values_;
  RankValuesReceiver values_to_;                   // null: nobody takes any
  std::uint64_t taken_ = 0;                        // steps that the app took, those before this run counted
  std::uint64_t handed_over_ = 0;                  // steps whose values were
  bool values_ended_ = false;                      // the last ones were
  bool asked_ = false;                             // the app called next() for the step that it is at
  std::set<std::string, std::less<>> not_finite_;  // values that a note has told of; the reporter's thread
  std::atomic<bool> over_{false};                  // the run: from now on silence means nothing
  bool given_up_ = false;
  bool taken_down_ = false;
};

}  // namespace troupe
