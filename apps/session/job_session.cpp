#include "apps/session/job_session.hpp"

#include <fmt/format.h>

#include <iostream>
#include <utility>

#include "apps/session/passing_listener.hpp"
#include "apps/session/view.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/compute/rules/verdict.hpp"

namespace troupe {
namespace {

/// With what earlier views have trained. `Figures`: RunTotal, EpochReport or RunProgress.
template <class Figures>
Figures counted(Figures figures, const RunTotal& before) {
  figures.samples += before.samples;
  figures.train_s += before.train_s;
  figures.elapsed_s += before.elapsed_s;
  return figures;
}

}  // namespace

/// Makes the views of one run look like a single one to its listener.
class JobSession::Relay final : public PassingListener {
 public:
  using PassingListener::PassingListener;

  void resumed(const std::string& folder, std::uint64_t steps) override {
    if (!started_) PassingListener::resumed(folder, steps);
  }
  void started(const Plan& plan, const std::string& device, const DataPlace& data) override {
    if (!std::exchange(started_, true)) PassingListener::started(plan, device, data);
  }
  void progress(const RunProgress& progress) override { PassingListener::progress(counted(progress, told_before_)); }
  void epoch(const EpochReport& line) override { PassingListener::epoch(counted(line, told_before_)); }

  /// The view with this `result` has ended, and another follows. Returns what its events are counted after.
  RunTotal keep(RunResult& result) {
    add_before(result);
    epochs_ = std::move(result.epochs);
    return before_ = result.total;
  }
  /// Events that follow are those of a view after `before`. On the thread that passes events on, in order with them.
  void count_after(const RunTotal& before) { told_before_ = before; }
  /// Makes `result` that of all views so far. Lines of epochs that were trained again replace earlier ones.
  void add_before(RunResult& result) const {
    for (EpochReport& line : result.epochs) line = counted(line, before_);
    std::vector<EpochReport> lines;
    for (const EpochReport& line : epochs_)
      if (result.epochs.empty() || line.epoch < result.epochs.front().epoch) lines.push_back(line);
    lines.insert(lines.end(), result.epochs.begin(), result.epochs.end());
    result.epochs = std::move(lines);
    result.total = counted(result.total, before_);
  }

 private:
  bool started_ = false;
  std::vector<EpochReport> epochs_;  // of earlier views, as before_: for the thread that runs the session
  RunTotal before_;
  RunTotal told_before_;  // before_ for the thread that passes events on
};

/// Keeps the view alive while a thread that does not run it uses it. Throws Error{invalid} if there is none at the
/// moment, Error{aborted} if none will follow.
class JobSession::Use {
 public:
  explicit Use(JobSession& session) : session_(session) {
    const std::lock_guard lock(session.mutex_);
    view_ = session.view_;
    TROUPE_CHECK(!session.over_, Code::aborted, "the run has ended");
    TROUPE_CHECK(view_ != nullptr, Code::invalid, "the run is between two views: ask again when it trains");
  }
  ~Use() {
    const std::lock_guard lock(session_.mutex_);
    view_.reset();
    session_.changed_.notify_all();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  View* operator->() const noexcept { return view_.get(); }

 private:
  JobSession& session_;
  std::shared_ptr<View> view_;
};

JobSession::JobSession(Blocking& blocking, SessionOptions options, std::unique_ptr<LogWriter> log)
    : relay_(std::make_unique<Relay>(options.listener)) {
  if (options.listener != nullptr) options.listener = relay_.get();
  job_ = std::make_unique<Job>(blocking, std::move(options), std::move(log));
  view_ = std::make_shared<View>(blocking, *job_, Lineage{}, job_->deadline());
}

JobSession::~JobSession() {
  Blocking blocking = Blocking::on_thread("session");
  leave(blocking);
}

/// The view ends first, with its actors; then the group.
void JobSession::leave(Blocking& blocking) noexcept {
  bool given_up = view_ == nullptr;
  if (view_) {
    view_->take_down(blocking);
    given_up = view_->given_up();
    view_->end_imports();
  }
  job_->leave(blocking, Deadline::after(job_->settings().faults.stop), given_up);
}

RunResult JobSession::run(Blocking& blocking) {
  RunResult result = run_views(blocking);
  end_run(blocking);
  return result;
}

RunResult JobSession::finish(Blocking& blocking) {
  RunResult result = current().finish(blocking);
  end_run(blocking);
  return result;
}

void JobSession::end_run(Blocking& blocking) noexcept {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  leave(blocking);
}

RunResult JobSession::run_views(Blocking& blocking) {
  for (;;) {
    RunResult result = current().run(blocking);
    const Settings& settings = job_->settings();
    if (view_->retired()) {
      try {
        continue_in_next_view(blocking);
        continue;
      } catch (const Error& error) {
        result.status = {error.code(), text("the run could not change to another view after step ", result.total.steps,
                                            ": ", error.what())};
        return result;
      }
    }
    if (!result.judged || !settings.rule.stops_non_finite) {
      relay_->add_before(result);
      return result;
    }
    const std::string reason = text(view_->so_far().bad_step(), " is not finite");
    const std::uint32_t times = view_->lineage().roll_backs;
    const std::uint32_t most = settings.train.roll_backs;
    if (times >= most) {
      result.status = {result.status.code(), text(reason, ", and the run has returned to a checkpoint ", times,
                                                  " times, as often as train.roll_backs allows; ", kAgainstNonFinite)};
      relay_->add_before(result);
      return result;
    }
    try {
      roll_back(blocking, result, reason);
    } catch (const Error& error) {
      result.status = {error.code(), text(reason, ", and the run could not return to a checkpoint: ", error.what())};
      return result;
    }
  }
}

void JobSession::roll_back(Blocking& blocking, RunResult& ended, const std::string& reason) {
  Lineage lineage = view_->lineage();
  ++lineage.roll_backs;
  lineage.evaluations = view_->so_far().evaluations();
  const Settings& settings = job_->settings();
  if (view_->leads_job()) {
    const std::string to =
        ended.saved_steps != 0 ? text("the checkpoint of step ", ended.saved_steps) : std::string{"where it began"};
    job_->note(text(reason, ": the run returns to ", to, ", number ", lineage.roll_backs, " of at most ",
                    settings.train.roll_backs, ", with ", settings.train.roll_back_rate, " times the learning rate"));
  }
  // A view that saved nothing began with the newest checkpoint, or with what the user chose; that is still set.
  if (ended.saved_steps != 0) job_->resume_from(checkpoint_folder(settings));  // its newest one is this run's
  const RunTotal before = relay_->keep(ended);
  if (ListenerThread* const listener = job_->listener())
    listener->later([this, before](SessionListener&) { relay_->count_after(before); });
  drop_view(blocking);
  set_view(std::make_shared<View>(blocking, *job_, std::move(lineage), job_->new_deadline()));
}

/// A view's memory is unmapped when the view is destroyed, so no other thread may be using it.
void JobSession::drop_view(Blocking&) {
  std::shared_ptr<View> before;
  {
    std::unique_lock lock(mutex_);
    before = std::move(view_);
    // Waits for requests that use the view; all have deadlines. Copies are made and dropped under the mutex.
    changed_.wait(lock, [&] { return before.use_count() == 1; });
  }
  before.reset();
}

void JobSession::set_view(std::shared_ptr<View> view) {
  const std::lock_guard lock(mutex_);
  view_ = std::move(view);
  if (stop_) view_->request_stop();
}

void JobSession::continue_in_next_view(Blocking& blocking) {
  const auto begun = Clock::now();
  std::unique_ptr<ViewState> state = view_->hand_over();
  ViewRemains remains = view_->remains();
  Lineage lineage = view_->lineage();
  const bool leads = view_->leads_job();
  Rebuilt rebuilt{.step = state->steps};
  drop_view(blocking);
  const Deadline deadline = job_->new_deadline();
  give_back(blocking, job_->group(), std::move(remains), deadline);
  auto next = std::make_shared<View>(blocking, *job_, std::move(lineage), deadline, std::move(state));
  rebuilt.view = next->id().value;
  rebuilt.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  set_view(std::move(next));
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    reason = std::exchange(reason_, {});
    last_ = rebuilt;
    ++rebuilds_;
  }
  changed_.notify_all();
  if (leads) job_->note(text(to_string(rebuilt), " (", reason.empty() ? "asked for" : reason, ")"));
}

std::string to_string(const Rebuilt& rebuilt) {
  return fmt::format("from step {} on in a new view (number {}), which took {:.3f} s to build", rebuilt.step,
                     rebuilt.view, rebuilt.seconds);
}

View& JobSession::current() const {
  TROUPE_CHECK(view_ != nullptr, Code::invalid, "the run ended between two views; run() returned the reason");
  return *view_;
}

std::optional<BatchView> JobSession::next(Blocking& blocking) { return current().next(blocking); }
std::optional<StepSums> JobSession::step(Blocking& blocking) { return current().step(blocking); }
std::optional<StepSums> JobSession::exchange(Blocking& blocking, const StepSums& own) {
  TROUPE_CHECK(own.samples <= kMostSamples && own.correct <= kMostSamples, Code::invalid, "exchange() with ",
               own.samples, " samples, ", own.correct, " of them correct: no step has more than ", kMostSamples,
               "; a negative number becomes such a large one");
  TROUPE_CHECK(own.correct <= own.samples, Code::invalid, "exchange() with ", own.samples, " samples, ", own.correct,
               " of them correct: samples counts all whose loss was computed, also the correct ones");
  return current().exchange(blocking, own);
}
void JobSession::report(std::string_view name, double value) { current().report(name, value); }
const std::vector<SessionTensor>& JobSession::tensors() const { return current().tensors(); }
std::vector<float> JobSession::parameters() const {
  {
    const std::lock_guard lock(mutex_);
    TROUPE_CHECK(over_, Code::invalid,
                 "parameters() before the end of the run, whose steps still change them: call it after run() or "
                 "finish(); a loop of the app's own reads tensors()");
  }
  return current().parameters();
}

void JobSession::request_stop() noexcept {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  if (view_) view_->request_stop();
}

std::uint64_t JobSession::switch_policy(Blocking& blocking, const PolicySettings& policy, const std::string& reason,
                                        Deadline deadline) {
  return Use(*this)->switch_policy(blocking, policy, reason, deadline);
}

Rebuilt JobSession::rebuild(Blocking& blocking, const std::string& reason, Deadline deadline) {
  std::uint64_t before = 0;
  {
    const std::lock_guard lock(mutex_);
    reason_ = reason;
    before = rebuilds_;
  }
  const std::uint64_t from = Use(*this)->end_view(blocking, reason, deadline);
  std::unique_lock lock(mutex_);
  const bool in_time = changed_.wait_until(lock, deadline.at(), [&] { return rebuilds_ != before || over_; });
  TROUPE_CHECK(in_time, Code::timeout, "the new view is not built yet: the old one ends with the first step from ",
               from, " on that leaves all ranks' weights alike");
  TROUPE_CHECK(rebuilds_ != before, Code::aborted, "the run ended before a new view was built");
  return *last_;
}

std::string JobSession::describe(Blocking& blocking, Deadline deadline) {
  try {
    return Use(*this)->describe(blocking, deadline);
  } catch (const Error& error) {
    return error.what();
  }
}

std::string JobSession::machines(Blocking& blocking, Deadline deadline) {
  ShareWindow window;
  try {
    window = Use(*this)->so_far().newest_window();
  } catch (const Error&) {
    // Between two views, or after the last one, no rank makes steps.
  }
  return job_->machines(blocking, window, deadline);
}

namespace {

bool is_first_rank(const SessionOptions& options) {
  return options.group != nullptr ? options.group->self().value == 0 : !options.place || options.place->rank == 0;
}

/// To the listener. Without one it is printed, since the user has most likely made a mistake.
void warn(const SessionOptions& options, const std::string& what) {
  if (options.listener != nullptr)
    options.listener->note(what);
  else
    std::cerr << printable(text("troupe: ", what, "\n"));
}

/// Looks for the data that the settings describe, unless the app has said where they are or brings its own.
void find_data_of(SessionOptions& options) {
  if (options.data || options.own_data || options.own_samples != 0) return;
  options.data = find_data(data_request(options.configuration));
  if (options.data->generated && options.configuration.settings.data.source != "generated" && is_first_rank(options))
    warn(options, text("the run trains on ", options.data->description));
}

/// A program that its user started without a launcher has one rank, whatever cluster.nodes says.
void note_lone_rank(const SessionOptions& options) {
  if (options.place || options.group != nullptr) return;
  const Settings::Cluster& cluster = options.configuration.settings.cluster;
  std::uint32_t ranks = cluster.local;
  for (const HostSlots& host : host_list(options.configuration).hosts) ranks += host.slots;
  if (ranks <= 1) return;
  warn(options, text("cluster.nodes asks for ", ranks,
                     " ranks, but no launcher started this process: it is a job of one rank; `rtrun app.toml "
                     "-- PROGRAM ARGUMENTS` starts a program as all of them"));
}

}  // namespace

std::unique_ptr<Session> Session::start(Blocking& blocking, SessionOptions options) {
  check_folders(blocking, options.configuration);
  note_lone_rank(options);
  find_data_of(options);
  std::unique_ptr<LogWriter> log;
  if (options.log && is_first_rank(options)) {
    log = std::make_unique<LogWriter>(options.configuration.settings, options.listener);
    if (!options.report_locked && !options.place && options.group == nullptr) log->lock(blocking);
    options.listener = log.get();
  }
  return std::make_unique<JobSession>(blocking, std::move(options), std::move(log));
}

}  // namespace troupe
