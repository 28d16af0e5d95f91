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
#include "runtime/data/find.hpp"
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

/// What a session tells its app. Called on threads of the session, one call at a time; must not block for long. Rank 0
/// hears all; the others only `note` and `started`.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  /// Something a person should know (which data, who is missing, who has fallen silent). On every rank.
  virtual void note(const std::string&) {}
  /// How far long work on the data is that begins before the run: `done` of `total`, `what` for people.
  virtual void preparing(std::uint64_t /*done*/, std::uint64_t /*total*/, const std::string& /*what*/) {}
  /// Another rank has died, or was cut off; the run ends for that, unless it had ended already. On every rank.
  virtual void lost(std::uint32_t /*rank*/, const std::string& /*why*/) {}
  /// The run goes on from a checkpoint in `folder`, which has so many steps. Before started(), on rank 0.
  virtual void resumed(const std::string& /*folder*/, std::uint64_t /*steps*/) {}
  /// The plan stands; training begins.
  virtual void started(const Plan&, const std::string& /*device*/, const DataPlace&) {}
  virtual void progress(const RunProgress&) {}
  virtual void epoch(const EpochReport&) {}
  /// After each report.every_steps steps of an epoch, where report.format has such lines.
  virtual void steps(const StepsReport&) {}
  /// Every committed step in order, when `SessionOptions::every_step` asks for it.
  virtual void step(Step, const StepSums&) {}
};

/// Where a device that the app brings will work; all of it outlives the device.
struct DeviceSite {
  AddressSpace& space;
  const RankPlan& plan;                     // its cores
  std::chrono::milliseconds wait_deadline;  // of the stream's waits
  ActiveWait* waits;                        // to be driven while the stream waits for other nodes; null: none
};
using MakeDevice = std::function<std::unique_ptr<Device>(const DeviceSite&)>;

/// Makes the model from the settings and the fields of a sample; the same at all ranks.
using BuildGraph = std::function<Graph(const Settings&, const std::vector<Field>& fields)>;

/// Samples that the app brings, in place of those of `[data]`.
struct OwnData {
  std::string description;        // for people
  DataFacts facts;                // the same at all ranks
  std::function<DataSet()> read;  // at each rank that makes batches (data.loader)
};

struct SessionOptions {
  Configuration configuration;
  std::optional<DataPlace> data;    // absent: what data_request(configuration) finds
  std::optional<OwnData> own_data;  // absent: `data`
  /// Instead of the model that the configuration names, on any device. Empty: that one.
  BuildGraph graph;
  /// The same, with arithmetic of the app's own.
  std::optional<OwnModel> model;
  /// Not 0: the app brings its own samples, so many an epoch over all ranks; no data set is read, and exchange() alone
  /// makes steps. Wants a model.
  std::uint64_t own_samples = 0;
  MakeDevice make_device;            // empty: the CPU device
  std::optional<LaunchPlace> place;  // absent: a job of one rank
  /// The ranks are this group's processes, in the place of `place`: all of them start the session, after each other's
  /// ones have ended. Its actor system was given to configure_session(), and its hellos have topologies (discover(), as
  /// ucx_group_options() does). The group outlives the session, which neither stops nor leaves it.
  Group* group = nullptr;
  SessionListener* listener = nullptr;  // outlives the session
  /// The process is there for this session alone (rtrun's ranks are): all of its threads, also those that it had
  /// before, go where the plan wants the rank (placement.affinity) and stay there. Otherwise those of the session do.
  bool owns_process = false;
  bool every_step = false;
  bool log = true;  // rank 0 writes report.dir's log and log.csv, and makes the folder
  std::optional<std::chrono::milliseconds> time_limit;  // end after this much training time (benchmarks)
};

/// How a run ended.
struct RunResult {
  Status status;         // ok: all steps done, or stopped on request, and saved if checkpoints are
  bool stopped = false;  // by request_stop() somewhere in the job
  std::string reason;    // why it was stopped where evaluate.patience did that, for people; rank 0's
  bool judged = false;   // the status is a verdict of all ranks on a step's numbers, the same at each rank
  RunTotal total;        // rank 0's; the other ranks count steps only
  std::vector<EpochReport> epochs;
  std::uint64_t saved_steps = 0;      // of the newest checkpoint that the run saved; 0: none
  std::uint64_t parameters_hash = 0;  // xxh3 of the f32 parameters' bytes at the end
};

/// How a run came to another view (Session::rebuild).
struct Rebuilt {
  std::uint64_t step = 0;  // the first of the new view
  std::uint32_t view = 0;  // its number
  double seconds = 0;      // from the end of the old one's last step until the new one stood
};

/// For people: "from step 120 on in a new view (number 2), which took 0.041 s to build".
std::string to_string(const Rebuilt& rebuilt);

/// Makes the messages of sessions known to an actor system whose group shall have one (SessionOptions::group); after
/// configure_group(), before the system is made, in every process.
void configure_session(caf::actor_system_config& config);

/// One rank of a training job inside the calling process: builds transport, arena, device and actors from the plan,
/// runs them, takes them down. It installs no signal handlers, never calls exit(), and prints nothing; but without a
/// listener one line on stderr when cluster.nodes asks for more ranks and no launcher started this process, and one
/// when the log cannot be written. Rank 0 keeps the run's log in report.dir (SessionOptions::log).
///
/// Either run() trains to the end, or the app owns the loop:
///   while (auto batch = session->next(blocking)) session->step(blocking);
///   RunResult result = session->finish(blocking);
/// with exchange() in the place of step() where the app computes the gradients. These four and run() are for one
/// thread. All ranks of a job take their steps together: one that stops calling is waited for until `faults.exchange_s`
/// has passed.
class Session {
 public:
  /// Joins the job and builds everything, up to the first step. Throws Error as Bootstrap::join and the parts do.
  static std::unique_ptr<Session> start(Blocking& blocking, SessionOptions options);
  virtual ~Session() = default;
  virtual const Plan& plan() const = 0;
  /// Trains to the end, a stop, or a failure; never throws for what goes wrong on the way: that is in the result.
  virtual RunResult run(Blocking& blocking) = 0;
  /// The next batch of this rank, the same one until its step is taken; nothing: the job has no more steps or is over,
  /// finish() tells why. The first call joins the view, which all ranks do within `faults.start_s`.
  virtual std::optional<BatchView> next(Blocking& blocking) = 0;
  /// Trains on the batch that next() gave, on the device or by OwnModel::step, and returns when the step is committed
  /// at this rank, with the sums over all ranks. Nothing: the run was over before. Throws Error{invalid} when there is
  /// no batch, or nobody to compute.
  virtual std::optional<StepSums> step(Blocking& blocking) = 0;
  /// A step whose gradients the app has written into tensors(): adds them up over all ranks, divides by all samples,
  /// updates the parameters. `own`: loss, correct and samples of this rank (a sum over samples, as the gradients); a
  /// rank without samples takes part with zeros. Otherwise as step().
  virtual std::optional<StepSums> exchange(Blocking& blocking, const StepSums& own) = 0;
  /// Reports a number under a name for people: the log, its table and the listener's lines have the mean of what all
  /// ranks reported under it since the line before, that is the sum over all calls at all ranks, added in rank order,
  /// divided by the number of calls. A rank need not report anything. A call belongs to the step that this rank is at,
  /// from the call of next() that gave its batch to the one after; where the app does not call next(), which an app
  /// with samples of its own need not, to the exchange() that follows, and behind the last one to that. A line is told
  /// when all ranks have gone beyond its step; the run's last line waits for finish() at all ranks, for at most half of
  /// faults.exchange_s. What was reported before a checkpoint that a run goes on from, in the epoch under way, is not
  /// in that epoch's line. A value that is not finite makes the line's so: null in the log, and a note. The thread that
  /// calls next(), step() and exchange(); also inside of OwnModel's functions. `name`: up to 64 characters of a-z, 0-9,
  /// '_', '.', '/' and '-', no key that the log has by itself, 256 names at most; throws Error{invalid} otherwise, and
  /// once finish() was called.
  virtual void report(std::string_view name, double value) = 0;
  /// As long as the session lives. A session whose app has asked for them is not rebuilt.
  virtual const std::vector<SessionTensor>& tensors() const = 0;
  /// Ends the app's own loop: asks the job to end if it is not at its end, waits for that, and takes everything down.
  virtual RunResult finish(Blocking& blocking) = 0;
  /// Asks the whole job to end after the steps now under way; all ranks end at the same step. Any thread, signal
  /// handlers not.
  virtual void request_stop() noexcept = 0;
  /// Asks that all ranks exchange by `policy` from some step soon on, the same at each, in the place of whatever
  /// update.switch has still to come; `reason` is told to people. Returns that step. Any thread that may block; on rank
  /// 0. Throws Error{invalid} with the reason when it is refused (another rank, no memory for the policy, the end is
  /// near), Error{timeout} when the ranks have not agreed by the deadline: they may yet.
  virtual std::uint64_t switch_policy(Blocking& blocking, const PolicySettings& policy, const std::string& reason,
                                      Deadline deadline) = 0;
  /// Asks that all ranks end their view (plan, memory, communicators, actors) after one of the next steps, the same at
  /// each, and go on in a new one in the same processes, from what they have in memory: parameters, the state of rules
  /// and policies, the place in the sample order. With train.deterministic the numbers are those of a run without it.
  /// Where gradients travel in rounds, the view ends with the first step from the one asked for on that leaves no round
  /// under way: of local_sgd and the like the end of a block, of double_buffered the next evaluation or checkpoint.
  /// With placement.split = "measured" the new view begins with the shares that were measured. `reason` is told to
  /// people. Returns when the new view stands. Any thread that may block but the one in run(); on rank 0. Throws
  /// Error{invalid} with the reason when it is refused (another rank; an app that owns the loop, brings its model or
  /// has asked for tensors(); update.log; the end is near), Error{timeout} when the new view does not stand by the
  /// deadline: it may yet, Error{aborted} when the run has ended before.
  virtual Rebuilt rebuild(Blocking& blocking, const std::string& reason, Deadline deadline) = 0;
  /// What this rank is doing, some lines for people: step and epoch, how far each rank of this node has come, what is
  /// under way to other ranks. Any thread, also while run() waits. Never throws for what it cannot find out: it says
  /// so.
  virtual std::string describe(Blocking& blocking, Deadline deadline) = 0;
  /// The machine of each node of the job, as JSON: what `rttopo show --json` prints of several machines. Each node's
  /// first rank looks when it is asked. Any thread that may block. Throws Error{timeout}, Error{peer_lost};
  /// Error{environment} when a rank could not look; Error{unsupported} where SessionOptions::group is the app's.
  virtual std::string machines(Blocking& blocking, Deadline deadline) = 0;
  /// The current parameters as bytes of f32 in the layout's order; only when run() is over.
  virtual std::vector<float> parameters() const = 0;
};

/// What the configuration, --set and TROUPE_DATA of the environment say of the data.
DataRequest data_request(const Configuration& configuration);

/// The plan that ranks of a run on this machine (cluster.nodes = "local:N"), or on `hosts` if there are any, would
/// make, without running and without reading images. Hosts that are other machines are taken to be like this one.
/// Throws Error as the ranks would.
Plan preview(const Configuration& configuration, const DataPlace& data, const HostList& hosts = {});

}  // namespace troupe
