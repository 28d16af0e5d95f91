#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <caf/actor_system.hpp>

#include "actors/remote/remote_actors.hpp"
#include "apps/session/followed_policies.hpp"
#include "apps/session/gathered_places.hpp"
#include "apps/session/hosted_group.hpp"
#include "apps/session/job.hpp"
#include "apps/session/lane_resources.hpp"
#include "apps/session/own_loop.hpp"
#include "apps/session/rank_memory.hpp"
#include "apps/session/resume.hpp"
#include "apps/session/run_end_box.hpp"
#include "apps/session/session.hpp"
#include "apps/session/training.hpp"
#include "apps/session/view_state.hpp"
#include "runtime/base/io_threads.hpp"
#include "runtime/compute/host_copies.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "runtime/planning/planner.hpp"
#include "runtime/report/line_values.hpp"

namespace troupe {

/// What the views of one run, which may return to its checkpoints, have in common.
struct Lineage {
  std::uint32_t roll_backs = 0;               // so far
  std::string run;                            // CheckpointStart::run of the first view; empty: this is the first
  std::vector<LoggedEvaluation> evaluations;  // of the views before, at rank 0
};

/// The parts that compute the steps of a view, from the shards that host stripes to the stream on which all work is
/// enqueued. They are destroyed from the last to the first.
struct StepWork {
  std::vector<std::unique_ptr<HostedGroup>> hosted;  // by group; null: it has no hosted policy
  std::vector<std::unique_ptr<Exchange>> exchanges;  // by group
  std::unique_ptr<StepExchange> steps;
  std::unique_ptr<PointMessenger<StepReached, kStepsAhead + 1>> step_messages;
  std::unique_ptr<PointMessenger<EvaluationReached, kEvaluationsKept + 1>> evaluation_messages;
  std::unique_ptr<PointMessenger<SnapshotReached, 1>> snapshot_messages;
  std::unique_ptr<Replica> replica;
  std::vector<std::unique_ptr<Stream>> side_streams;  // by group; null: no policy has rounds beside the next step
  Programs programs;                                  // of the stream's steps
  std::unique_ptr<Stream> stream;
};

/// Values that the app reports, before they are sent to rank 0; used by the app's thread.
struct AppValues {
  ValueCollector collected;
  RankValuesReceiver to;          // null: no actor receives them
  std::uint64_t taken = 0;        // steps that the app has taken, including earlier views'
  std::uint64_t handed_over = 0;  // steps whose values were sent
  bool ended = false;             // the last values were sent
  bool asked = false;             // the app has called next() for the present step
};

/// A job from one step on, with its ranks, plan and policies at that time: memory, device, communicators, exchanges,
/// actors. How it is built is in view.cpp, view_groups.cpp and view_actors.cpp, how it runs and ends in view_run.cpp,
/// how it is retired in retiring.cpp. Members that Session has, too, are described there.
class View {
 public:
  /// Collective over the ranks of `job`, which outlives it. `before`: the state of the retired view that it replaces at
  /// this rank; null: it begins from a checkpoint or from the initial state. Throws Error.
  View(Blocking& blocking, Job& job, Lineage lineage, Deadline deadline, std::unique_ptr<ViewState> before = nullptr);
  ~View();

  /// Includes what the checkpoint that it resumes from says.
  const Lineage& lineage() const noexcept { return lineage_; }
  const RunSoFar& so_far() const noexcept { return *so_far_; }
  bool leads_job() const { return joined_.self().value == 0; }
  /// Whether it was started, and ended before its run was over.
  bool given_up() const noexcept { return given_up_; }
  ViewId id() const noexcept { return view_; }
  /// After run(): whether only the view has ended, at all ranks after the same step, and the run continues in the next
  /// view.
  bool retired() const noexcept { return retired_; }
  /// For a retired view: the state from which the next one continues. Call it once.
  std::unique_ptr<ViewState> hand_over();
  /// For a retired view: what must be given back when this object is destroyed. Call it once.
  ViewRemains remains();

  RunResult run(Blocking& blocking);
  std::optional<BatchView> next(Blocking& blocking);
  std::optional<StepSums> step(Blocking& blocking);
  std::optional<StepSums> exchange(Blocking& blocking, const StepSums& own);
  void report(std::string_view name, double value);
  const std::vector<SessionTensor>& tensors() const {
    tensors_given_ = true;
    return tensors_;
  }
  RunResult finish(Blocking& blocking);
  void request_stop() noexcept {
    stop_asked_ = true;
    actors_->request_stop();
    joined_.stop_waiting_for_data();
  }
  std::uint64_t switch_policy(Blocking& blocking, const PolicySettings& policy, const std::string& reason,
                              Deadline deadline);
  /// As switch_policy. Returns the first step that may be the view's last.
  std::uint64_t end_view(Blocking& blocking, const std::string& reason, Deadline deadline);
  std::string describe(Blocking& blocking, Deadline deadline);
  std::vector<float> parameters() const;

  /// Ends the view, unless it has ended already. Call it once.
  void take_down(Blocking& blocking) noexcept;
  /// After take_down, and before the other ranks are told that this one ends: ends the access to memory of their GPUs,
  /// which they then free. If work on it may be left, because the run failed, the process's end does so.
  void end_imports() noexcept;

 private:
  const Settings& settings() const { return job_.settings(); }
  bool is_alone() const { return joined_.plan.world_size() == 1; }
  /// The name of one of its actors in the group.
  std::string actor_name(std::string_view actor) const { return text("session", view_.value, '.', actor); }
  template <class Handle>
  void publish(std::string_view actor, const Handle& handle) {
    if (handle) job_.group().publish(actor_name(actor), handle);
  }
  template <class Handle>
  Handle find(Blocking& blocking, Peer peer, std::string_view actor, Deadline deadline) {
    return caf::actor_cast<Handle>(job_.group().remote().resolve(blocking, peer, actor_name(actor), deadline));
  }
  bool leads_node() const { return joined_.plan.leads_node(joined_.self()); }
  /// Whether its parameters are its own; otherwise it uses the parameters of its node's leader.
  bool holds_parameters() const { return !joined_.plan.shares_memory() || leads_node(); }
  bool saves() const { return joined_.plan.saves; }
  /// Whether every step's sums are of all ranks, whatever the policy; they are exchanged in the rounds of group 0.
  bool sums_are_common() const { return !needs_of(joined_.plan.groups.front().policies).hosted; }
  bool nothing_left() const { return schedule_.steps <= schedule_.first_step || places_[0].start.over; }
  void note(const std::string& what) const { job_.note(what); }

  // Building, in this order.
  void make_device();
  bool uses_device_memory() const;
  void make_memory();
  void map_arena(Rank rank);
  void map_peer(Rank rank);
  void exchange_places(Blocking& blocking);
  void lock_checkpoints(Blocking& blocking);
  void resume();
  GatheredPlace own_place(Blocking& blocking);
  void note_resumed(const CheckpointStart& start);
  void make_steps(Blocking& blocking);
  std::unique_ptr<Device> make_device_for(const RankPlan& mine);
  std::uint32_t threads_for(const RankPlan& mine);
  std::unique_ptr<Stream> traced_stream(TraceRow* row);
  void make_communicators(Blocking& blocking);
  std::unique_ptr<NcclCommunicator> make_nccl(Blocking& blocking, const GroupPlan& group,
                                              std::span<const ArenaId> arenas);
  /// The rank that makes the ids by which this rank's groups of NCCL connect. Within a node it is one of the node,
  /// since NCCL need not get through to others.
  std::uint32_t nccl_leader() const {
    return joined_.plan.has_two_levels() ? joined_.plan.nodes[joined_.mine().node].leader : 0;
  }
  bool makes_nccl_ids() const { return joined_.plan.uses_nccl() && nccl_leader() == joined_.self().value; }
  std::string nccl_progress() const;
  std::vector<ArenaId> node_arenas() const;
  std::unique_ptr<HostedGroup> make_hosted(const GroupPlan& group, const Rule& rule,
                                           const std::optional<RateSchedule>& rates);
  ExchangeMemory exchange_memory(const GroupPlan& group) const;
  std::unique_ptr<Exchange> make_exchange(const GroupPlan& group);
  std::vector<Exchange*> all_exchanges() const;
  void abort_exchanges(const Status& why) noexcept;
  void make_loop();
  void load();
  void wait_until_all_are_ready(Blocking& blocking);
  void fill_loss_scale();
  void fill_parameters();
  void fill_from_onnx(const std::string& file, std::span<float> to) const;
  void make_actors();
  DeviceParts device_parts();
  ReportSoFar report_so_far() const;
  void add_loader(TrainingParts& parts);
  std::vector<SnapshotPiece> snapshot_pieces() const { return pieces_of(joined_, memory_); }
  std::optional<SavePlan> save_plan() const;
  CheckpointerParts checkpointer_parts();
  BalancerParts balancer_parts();
  ReportTargets report_targets();
  RateSchedule rate(const Rule& rule) const;
  // Retiring.
  void keep_progress(DeviceParts& device);
  std::string rebuild_refusal() const;
  // Switching, in switching.cpp.
  void switch_for_straggler(const PolicySettings& policy, const ShareWindow& window);
  std::optional<DigestPlan> digest_plan() const;
  // Texts, in generated_texts.cpp.
  std::optional<TextPlan> text_plan();
  std::string generate_text(Step step, const Memory& weights) const;
  template <class Request>
  std::uint64_t agree(Request request, const char* what, Deadline deadline);

  // Running and ending.
  CoordinatorHandles find_actors(Blocking& blocking, Deadline deadline);
  void start_actors(Blocking& blocking);
  void note_begin();
  void begin(Blocking& blocking, bool owned);
  void end_run(const RunEnd& end);
  void note_committed(Step step);
  RunResult wait_for_end(Blocking& blocking);
  void hash_parameters(RunResult& result);
  void note_staleness() const;
  void note_overlap() const;
  // Values that the app reports, in reported.cpp.
  void hand_over_values(std::uint64_t steps, bool last);

  Job& job_;
  const SessionOptions& options_;
  const JoinedJob& joined_;
  Lineage lineage_;
  const Deadline deadline_;  // of the start
  const ViewId view_;
  AddressSpace& space_;
  SessionTrace& trace_;
  ListenerThread* const listener_;  // null: there is no listener
  caf::actor_system& system_;
  std::shared_ptr<Arena> arena_;
  RankMemory memory_;
  std::vector<float> last_parameters_;  // once the memory of the rank that has them is not accessible any more
  std::unique_ptr<LeasePool> pool_;
  std::unique_ptr<ViewState> before_;  // the state that it continues from; null: none, or its first step is ready
  const bool continues_;               // whether there was such a state
  std::unique_ptr<ViewState> left_;    // the state that it leaves; its actors fill it in when it is retired
  std::unique_ptr<Resumed> resumed_;   // null: it does not resume from a checkpoint
  std::string first_run_;              // CheckpointManifest::first_run
  std::vector<ArenaId> arenas_;        // that it has mapped, or may have bound
  Schedule schedule_;
  std::vector<GatheredPlace> places_;  // by rank
  std::vector<SessionTensor> tensors_;
  std::unique_ptr<OwnLoop> loop_;
  RunEndBox end_;                            // filled by Membership; other threads see its actor end only later
  std::unique_ptr<IoThreads> data_threads_;  // closed before the loaders that it posts to end
  std::unique_ptr<IoThreads> io_;  // closed before the actors that it posts to end; those that post to it end first
  std::unique_ptr<IoThreads> text_thread_;  // at rank 0, with evaluate.text_bytes; closed as the one before
  MembershipActor membership_;
  std::shared_ptr<LaneResources> lane_resources_ = std::make_shared<LaneResources>();
  std::unique_ptr<HostCopies> copies_;
  std::unique_ptr<Group::LossListener> losses_;
  StepWork work_;
  std::unique_ptr<TrainingActors> actors_;
  std::shared_ptr<RunSoFar> so_far_;
  std::optional<FollowedPolicies> followed_;  // of the first group; before the actors begin
  std::atomic<std::uint64_t> committed_{0};   // steps
  bool begun_ = false;                        // the view was joined
  bool owned_ = false;                        // the app owns the loop
  AppValues values_;
  std::atomic<bool> over_{false};                   // the run is over: silence of other ranks has no meaning now
  std::atomic<bool> stop_asked_{false};             // a text that is being generated ends with the byte in work
  mutable std::atomic<bool> tensors_given_{false};  // the app may have addresses in this view's memory
  bool retired_ = false;
  bool given_up_ = false;
  bool taken_down_ = false;
};

}  // namespace troupe
