#include "apps/session/roll_back.hpp"

#include <fcntl.h>

#include <utility>

#include "apps/session/rank_session.hpp"
#include "runtime/compute/rules/verdict.hpp"

namespace troupe {
namespace {

void add(RunTotal& total, const RunTotal& before) {
  total.samples += before.samples;
  total.train_s += before.train_s;
  total.elapsed_s += before.elapsed_s;
}

/// `line` with what sessions before it trained.
EpochReport counted(EpochReport line, const RunTotal& before) {
  line.samples += before.samples;
  line.train_s += before.train_s;
  line.elapsed_s += before.elapsed_s;
  return line;
}

}  // namespace

/// The sessions of one run look like one to its listener.
class RollBackSession::Relay final : public SessionListener {
 public:
  explicit Relay(SessionListener* to) : to_(to) {}

  void note(const std::string& text) override {
    if (to_ != nullptr) to_->note(text);
  }
  void lost(std::uint32_t rank, const std::string& why) override {
    if (to_ != nullptr) to_->lost(rank, why);
  }
  void resumed(const std::string& folder, std::uint64_t steps) override {
    if (to_ != nullptr && !started_) to_->resumed(folder, steps);
  }
  void started(const Plan& plan, const std::string& device, const DataPlace& data) override {
    if (to_ != nullptr && !std::exchange(started_, true)) to_->started(plan, device, data);
  }
  void progress(const RunProgress& progress) override {
    RunProgress all = progress;
    all.samples += before_.samples;
    all.elapsed_s += before_.elapsed_s;
    all.train_s += before_.train_s;
    if (to_ != nullptr) to_->progress(all);
  }
  void epoch(const EpochReport& line) override {
    if (to_ != nullptr) to_->epoch(counted(line, before_));
  }
  void step(Step step, const StepSums& total) override {
    if (to_ != nullptr) to_->step(step, total);
  }

  /// The session that gave `result` is over and another follows.
  void keep(RunResult& result) {
    add_before(result);
    epochs_ = std::move(result.epochs);
    before_ = result.total;
  }
  /// Makes `result` that of all sessions so far: lines that were trained anew stand for those before.
  void add_before(RunResult& result) const {
    for (EpochReport& line : result.epochs) line = counted(line, before_);
    std::vector<EpochReport> lines;
    for (const EpochReport& line : epochs_)
      if (result.epochs.empty() || line.epoch < result.epochs.front().epoch) lines.push_back(line);
    lines.insert(lines.end(), result.epochs.begin(), result.epochs.end());
    result.epochs = std::move(lines);
    add(result.total, before_);
  }

 private:
  SessionListener* const to_;  // null: nobody listens
  bool started_ = false;
  std::vector<EpochReport> epochs_;  // of the sessions before; written between two of them, as is before_
  RunTotal before_;
};

RollBackSession::RollBackSession(Blocking& blocking, SessionOptions options, std::unique_ptr<LogWriter> log)
    : options_(std::move(options)), log_(std::move(log)), relay_(std::make_unique<Relay>(options_.listener)) {
  options_.listener = relay_.get();
  if (options_.place && options_.place->listen_fd >= 0) {
    meeting_.reset(::fcntl(options_.place->listen_fd, F_DUPFD_CLOEXEC, 0));
    TROUPE_CHECK_ERRNO(meeting_.get() >= 0, Code::environment,
                       "cannot keep the socket at which the ranks meet, which train.non_finite = \"roll_back\" needs");
  }
  session_ = std::make_unique<RankSession>(blocking, options_);
  lock_ = session_->lineage().lock;
}

RollBackSession::~RollBackSession() = default;

RunResult RollBackSession::run(Blocking& blocking) {
  for (;;) {
    RunResult result = current().run(blocking);
    if (!result.judged) {
      relay_->add_before(result);
      return result;
    }
    const std::string reason = text(session_->bad_step(), " is not finite");
    const std::uint32_t times = session_->lineage().roll_backs;
    const std::uint32_t most = options_.configuration.settings.train.roll_backs;
    if (times >= most) {
      result.status = {result.status.code(), text(reason, ", and the run has gone back to a checkpoint ", times,
                                                  " times, as often as train.roll_backs allows; ", kAgainstNonFinite)};
      relay_->add_before(result);
      return result;
    }
    try {
      go_back(blocking, result, reason);
    } catch (const Error& error) {
      result.status = {error.code(), text(reason, ", and the run could not go back to a checkpoint: ", error.what())};
      return result;
    }
  }
}

void RollBackSession::go_back(Blocking& blocking, RunResult& ended, const std::string& reason) {
  Lineage lineage = session_->lineage();
  ++lineage.roll_backs;
  lineage.lock = lock_;
  Settings& settings = options_.configuration.settings;
  if (session_->leads_job()) {
    const std::string to =
        ended.saved_steps != 0 ? text("the checkpoint of step ", ended.saved_steps) : std::string{"where it began"};
    relay_->note(text(reason, ": the run goes back to ", to, ", number ", lineage.roll_backs, " of at most ",
                      settings.train.roll_backs, ", with ", settings.train.roll_back_rate, " times the rate"));
  }
  // A session that saved nothing began with the newest checkpoint there is, or with what the user said.
  if (ended.saved_steps != 0) settings.checkpoint.resume = checkpoint_folder(settings);  // its newest: this run's own
  relay_->keep(ended);
  std::shared_ptr<RankSession> before;
  {
    const std::lock_guard lock(mutex_);
    before = std::move(session_);
  }
  before.reset();
  if (meeting_) options_.place->listen_fd = ::fcntl(meeting_.get(), F_DUPFD_CLOEXEC, 0);
  auto next = std::make_unique<RankSession>(blocking, options_, std::move(lineage));
  const std::lock_guard lock(mutex_);
  session_ = std::move(next);
  if (stop_) session_->request_stop();
}

RankSession& RollBackSession::current() const {
  TROUPE_CHECK(session_ != nullptr, Code::invalid, "the run ended while it went back to a checkpoint; run() told why");
  return *session_;
}

const Plan& RollBackSession::plan() const { return current().plan(); }
std::optional<BatchView> RollBackSession::next(Blocking& blocking) { return current().next(blocking); }
std::optional<StepSums> RollBackSession::step(Blocking& blocking) { return current().step(blocking); }
std::optional<StepSums> RollBackSession::exchange(Blocking& blocking, const StepSums& own) {
  return current().exchange(blocking, own);
}
void RollBackSession::report(std::string_view name, double value) { current().report(name, value); }
const std::vector<SessionTensor>& RollBackSession::tensors() const { return current().tensors(); }
RunResult RollBackSession::finish(Blocking& blocking) { return current().finish(blocking); }
std::vector<float> RollBackSession::parameters() const { return current().parameters(); }

void RollBackSession::request_stop() noexcept {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  if (session_) session_->request_stop();
}

std::uint64_t RollBackSession::switch_policy(Blocking& blocking, const PolicySettings& policy,
                                             const std::string& reason, Deadline deadline) {
  std::shared_ptr<RankSession> session;
  {
    const std::lock_guard lock(mutex_);
    session = session_;
  }
  TROUPE_CHECK(session != nullptr, Code::invalid, "the run goes back to a checkpoint: ask again when it trains");
  return session->switch_policy(blocking, policy, reason, deadline);
}

std::string RollBackSession::describe(Blocking& blocking, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  return session_ ? session_->describe(blocking, deadline) : "the run goes back to a checkpoint: the ranks meet again";
}

}  // namespace troupe
