#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/session/own_model.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/compute/device.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/config/config.hpp"
#include "runtime/data/find_data.hpp"
#include "runtime/exchange/communicator.hpp"
#include "runtime/exchange/policies/policy.hpp"
#include "runtime/lanes/active_wait.hpp"
#include "runtime/memory/arena.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/report/report.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace caf {
class actor_system_config;
}

namespace troupe {

class Group;

/// Receives the events of a session. Called on threads of the session, one call at a time. A call that blocks delays
/// later events and the end of run() and finish() at this rank, no step and no other rank. It must not throw: that ends
/// the process, as in any thread. Rank 0 gets all events; the others only `note`, `started`, `preparing` and `lost`.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  /// Something that a person should know (data found, ranks missing or silent). On every rank.
  virtual void note(const std::string&) {}
  /// Progress of long work on the data before the run: `done` of `total`; `what` describes it for people.
  virtual void preparing(std::uint64_t /*done*/, std::uint64_t /*total*/, const std::string& /*what*/) {}
  /// Another rank has died or was cut off. The run ends for this reason, unless it has ended already. On every rank.
  virtual void lost(std::uint32_t /*rank*/, const std::string& /*why*/) {}
  /// The run resumes from a checkpoint in `folder` that was saved after `steps` steps. Before started(), on rank 0.
  virtual void resumed(const std::string& /*folder*/, std::uint64_t /*steps*/) {}
  /// The plan is made and training begins.
  virtual void started(const Plan&, const std::string& /*device*/, const DataPlace&) {}
  virtual void progress(const RunProgress&) {}
  virtual void epoch(const EpochReport&) {}
  /// After each report.every_steps steps of an epoch, if report.format has such lines.
  virtual void steps(const StepsReport&) {}
  /// Every committed step in order, if `SessionOptions::every_step` is set.
  virtual void step(Step, const StepSums&) {}
};

/// What a device that the app brings gets to work with; all of it outlives the device.
struct DeviceContext {
  AddressSpace& space;
  const RankPlan& plan;                     // its cores
  std::chrono::milliseconds wait_deadline;  // of the stream's waits
  ActiveWait* waits;                        // driven while the stream waits for other nodes; null: none
};
using MakeDevice = std::function<std::unique_ptr<Device>(const DeviceContext&)>;

/// What a communicator that the app brings gets to work with; all of it outlives the communicator.
struct CommunicatorContext {
  AddressSpace& space;
  const Plan& plan;
  const GroupPlan& group;  // whose gradients and parameters it moves
  Rank self;
  Memory parameters;  // [group.count] f32: this rank's copy, or the node's if the ranks of a node share one
  Memory half;        // [group.count] of the plan's 16-bit type, likewise; empty: the replica computes in f32
};
/// `own`: the session's communicator for the group, which has all memory and connections that it needs. The app's may
/// pass calls on to it, before or after work of its own. Called at every rank, which must make the same kind.
using MakeCommunicator =
    std::function<std::unique_ptr<Communicator>(const CommunicatorContext&, std::unique_ptr<Communicator> own)>;

/// Makes the model from the settings and the fields of a sample; it must be the same at all ranks.
using BuildGraph = std::function<Graph(const Settings&, const std::vector<Field>& fields)>;

/// Samples that the app brings instead of those of `[data]`.
struct OwnData {
  std::string description;        // for people
  DataFacts facts;                // the same at all ranks
  std::function<DataSet()> read;  // both sets; called at each rank that makes batches (data.loader)
};

/// The most samples that an epoch, or a rank's step, may have.
inline constexpr std::uint64_t kMostSamples = std::uint64_t{1} << 48U;

struct SessionOptions {
  Configuration configuration;      // the others may be left out without a warning of -Wextra: each has an initializer
  std::optional<DataPlace> data{};  // absent: what data_request(configuration) finds
  std::optional<OwnData> own_data{};  // absent: `data`
  /// Makes the model, instead of the one that the configuration names, on any device. Empty: the configuration's model.
  BuildGraph graph{};
  /// A model that the app computes itself.
  std::optional<OwnModel> model{};
  /// Not 0: the app brings its own samples, this number per epoch over all ranks. No data set is read, and only
  /// exchange() makes steps. Requires `model`. At most kMostSamples.
  std::uint64_t own_samples = 0;
  MakeDevice make_device{};              // empty: what placement.device says
  MakeCommunicator make_communicator{};  // empty: the session's communicators stay
  /// When a group exchanges: a policy of the app's own in place of one that update.policy or update.switch name, and
  /// with its memory. The same at all ranks: a rank that decides otherwise keeps the others waiting until
  /// faults.exchange_s has passed.
  MakeRoundPolicy make_policy{};
  std::optional<LaunchPlace> place{};  // absent: a job of one rank
  /// The ranks are this group's processes, and `place` is not used: all of them start the session, after the run of
  /// their previous one has ended; before, Error{invalid}. configure_session() must have been called for its actor
  /// system, and its hellos must have topologies (discover(), as in ucx_group_options()). The group outlives the
  /// session, which neither stops nor leaves it.
  Group* group = nullptr;
  SessionListener* listener = nullptr;  // outlives the session
  /// The process exists only for this session, as rtrun's ranks do: all of its threads, including those that exist
  /// already, are moved to the rank's place in the plan (placement.affinity) permanently. Otherwise only the session's
  /// threads are.
  bool owns_process = false;
  bool every_step = false;
  bool log = true;  // rank 0 writes log and log.csv to report.dir, and creates the folder
  /// The caller has the lock of report.dir (FolderLock on report.lock) or sees to it in another way that no other job
  /// writes there. Otherwise a session with a log that no launcher has started takes it, until its run has ended.
  bool report_locked = false;
  std::optional<std::chrono::milliseconds> time_limit{};  // the run ends after this much training time (benchmarks)
};

/// How a run ended.
struct RunResult {
  Status status;         // ok: all steps done, or stopped on request; and saved if checkpoints are on
  bool stopped = false;  // by request_stop() somewhere in the job
  std::string reason;    // for people: why evaluate.patience ended it; at rank 0
  bool judged = false;   // the status is a verdict of all ranks on a step's numbers; the same at each rank
  RunTotal total;        // at rank 0; at the other ranks only the number of steps
  std::vector<EpochReport> epochs;
  std::uint64_t saved_steps = 0;      // of the newest checkpoint that the run saved; 0: none
  std::uint64_t parameters_hash = 0;  // xxh3 of the f32 parameters' bytes at the end; 0 after a failure
};

/// How a run changed to another view (Session::rebuild).
struct Rebuilt {
  std::uint64_t step = 0;  // the first of the new view
  std::uint32_t view = 0;  // its number
  double seconds = 0;      // from the end of the old view's last step until the new one was ready
};

/// For people: "from step 120 on in a new view (number 2), which took 0.041 s to build".
std::string to_string(const Rebuilt& rebuilt);

/// Registers the messages of sessions in the configuration of an actor system that a group with sessions will use
/// (SessionOptions::group). Call it after configure_group() and before the system is made, in every process.
void configure_session(caf::actor_system_config& config);

/// One rank of a training job inside the calling process: builds transport, arena, device and actors from the plan,
/// runs them and ends them. It installs no signal handlers and never calls exit(). It prints nothing, except that
/// without a listener it prints one line on stderr if cluster.nodes asks for more ranks and no launcher started this
/// process, one if it found no data and trains on generated digits, and one if the log cannot be written. Rank 0 keeps
/// the run's log in report.dir (SessionOptions::log).
///
/// Either run() trains to the end, or the app owns the loop:
///   while (auto batch = session->next(blocking)) session->step(blocking);
///   RunResult result = session->finish(blocking);
/// with exchange() instead of step() if the app computes the gradients. These four functions and run() must be called
/// from one thread. All ranks of a job take their steps together: if one stops calling, the others wait for it until
/// `faults.exchange_s` has passed.
class Session {
 public:
  /// Joins the job and builds everything that the first step needs. Throws Error as Bootstrap::join and the parts do.
  static std::unique_ptr<Session> start(Blocking& blocking, SessionOptions options);
  virtual ~Session() = default;
  virtual const Plan& plan() const = 0;
  /// Trains until the end, a stop, or a failure; failures are in the result, never thrown.
  virtual RunResult run(Blocking& blocking) = 0;
  /// The next batch of this rank, the same one until its step is taken; nothing: the job has no more steps or is over,
  /// and finish() says why. The first call joins the view, which all ranks must do within `faults.start_s`.
  virtual std::optional<BatchView> next(Blocking& blocking) = 0;
  /// Trains on the batch that next() returned, on the device or by OwnModel::step. Returns the sums over all ranks when
  /// the step is committed at this rank; nothing: the run ended before. Throws Error{invalid} if there is no batch, or
  /// nothing that can compute the step. With policies whose ranks do not exchange in every step the sums of a step
  /// without an exchange are zeros, and its samples are in the sums of the next exchange; with double_buffered they are
  /// in the sums of the next step. With async, ssp and easgd the sums are those of this rank alone.
  virtual std::optional<StepSums> step(Blocking& blocking) = 0;
  /// A step with gradients that the app has written into tensors(): adds them up over all ranks, divides by the number
  /// of all samples, updates the parameters. `own`: loss, correct and samples of this rank (sums over samples, as the
  /// gradients); a rank without samples takes part with zeros. Otherwise as step().
  virtual std::optional<StepSums> exchange(Blocking& blocking, const StepSums& own) = 0;
  /// Reports a number under a name for people. The log, its table and the listener's lines have the mean of the values
  /// that all ranks reported under the name since the previous line: the sum over all calls at all ranks, added in rank
  /// order, divided by the number of calls. A rank need not report anything. A call belongs to the step that this rank
  /// is at, which lasts from the call of next() that returned its batch to the following call of next(). If an app with
  /// its own samples does not call next(), a call belongs to the exchange() that follows it, and after the last
  /// exchange() to that one. A line is made when all ranks have passed its step; the run's last line waits for finish()
  /// at all ranks, for at most half of faults.exchange_s. When a run resumes within an epoch, that epoch's line does
  /// not include values from before the checkpoint. A value that is not finite makes the line's value not finite: null
  /// in the log, and a note. Call it on the thread that calls next(), step() and exchange(); also within OwnModel's
  /// functions. `name`: up to 64 characters of a-z, 0-9, '_', '.', '/' and '-', not a key of the log itself, at most
  /// 256 names; throws Error{invalid} otherwise, and after finish().
  virtual void report(std::string_view name, double value) = 0;
  /// Valid as long as the session. A session is not rebuilt after its app has called this.
  virtual const std::vector<SessionTensor>& tensors() const = 0;
  /// Ends the app's own loop: asks the job to end unless it is at its end, waits for that, and ends everything.
  virtual RunResult finish(Blocking& blocking) = 0;
  /// Asks the whole job to end after the steps that are in progress; all ranks end at the same step. Any thread, but
  /// not a signal handler.
  virtual void request_stop() noexcept = 0;
  /// Asks all ranks to exchange by `policy` from one of the next steps on, the same step at each; later entries of
  /// update.switch are dropped. `reason` is for people. Returns that step. Any thread that may block; on rank 0. Throws
  /// Error{invalid} with the reason if it is refused (another rank, no memory for the policy, the end is near),
  /// Error{timeout} if the ranks have not agreed by the deadline: they may still do so.
  virtual std::uint64_t switch_policy(Blocking& blocking, const PolicySettings& policy, const std::string& reason,
                                      Deadline deadline) = 0;
  /// Asks all ranks to end their view (plan, memory, communicators, actors) after one of the next steps, the same at
  /// each, and to continue in a new view in the same processes from the state in memory: parameters, state of rules and
  /// policies, position in the sample order. With train.deterministic the numbers are the same as without a rebuild. If
  /// gradients are exchanged in rounds, the view ends with the first step, from the requested one on, after which no
  /// round is in progress: for local_sgd and similar policies the end of a block, for double_buffered the next
  /// evaluation or checkpoint. With placement.split = "measured" the new view begins with the measured shares. `reason`
  /// is for people. Returns when the new view is ready. Any thread that may block except the one in run(); on rank 0.
  /// Throws Error{invalid} with the reason if it is refused (another rank; an app that owns the loop, brings its model
  /// or has called tensors(); update.log; the end is near), Error{timeout} if the new view is not ready by the
  /// deadline: it may still be built, Error{aborted} if the run ended before.
  virtual Rebuilt rebuild(Blocking& blocking, const std::string& reason, Deadline deadline) = 0;
  /// What this rank is doing, some lines for people: step and epoch, the progress of each rank of this node, and
  /// messages to other ranks that have not arrived. Any thread, also while run() waits. Never throws for something it
  /// cannot find out: the text says so.
  virtual std::string describe(Blocking& blocking, Deadline deadline) = 0;
  /// The machine of each node of the job, as JSON: the output of `rttopo show --json` for several machines, with where
  /// each rank is, what its newest steps took, and how far the clocks differ from this process's. Each node's first
  /// rank examines its machine when asked, each rank itself. Any thread that may block. Throws Error{timeout},
  /// Error{peer_lost}; Error{environment} if a rank could not examine its machine; Error{unsupported} if
  /// SessionOptions::group is the app's.
  virtual std::string machines(Blocking& blocking, Deadline deadline) = 0;
  /// The current parameters as f32, in the order of tensors(). Each tensor begins at a multiple of
  /// Layout::kAlignElements; between tensors there are zeros. After a failure the values are unspecified, since the
  /// exchange may still write some. Throws Error{invalid} until run() or finish() has returned; in a loop of the app's
  /// own, tensors() has the parameters after each step.
  virtual std::vector<float> parameters() const = 0;
};

/// What the configuration, --set and the environment's TROUPE_DATA specify about the data.
DataRequest data_request(const Configuration& configuration);

/// Asks for everything that a run opens before it trains (report.dir, checkpoint.dir, data.path and the like), one
/// after another. Throws Error{environment} that names what has not answered within faults.start_s, as on a network
/// mount whose server is gone. A thread is then left waiting for it (ADR 0047). Session::start() calls it.
void check_folders(Blocking& blocking, const Configuration& configuration);

/// The plan that ranks of a run on this machine (cluster.nodes = "local:N"), or on `hosts` if there are any, would
/// make, without running and without reading images. Hosts that are other machines are assumed to be like this one.
/// Throws Error as the ranks would.
Plan preview(const Configuration& configuration, const DataPlace& data, const HostList& hosts = {});

}  // namespace troupe
