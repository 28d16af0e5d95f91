#include "tools/rtrun/rank.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <iostream>

#include "apps/report/report_writer.hpp"
#include "apps/session/listener_thread.hpp"
#include "apps/session/session.hpp"
#include "tools/rtrun/abort_guard.hpp"
#include "tools/rtrun/console.hpp"
#include "tools/rtrun/control_server.hpp"
#include "tools/rtrun/job.hpp"
#include "tools/rtrun/main.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/rtrun/prepare.hpp"
#include "tools/terminal/terminal.hpp"

namespace troupe::rtrun {
namespace {

/// How long a rank may take to report what it is doing.
constexpr std::chrono::seconds kReport{1};

/// Shows only notes, on ranks other than 0.
class Notes final : public SessionListener {
 public:
  void note(const std::string& text) override { say(text); }
  void lost(std::uint32_t rank, const std::string& why) override { note_lost(rank, why); }
};

/// Shows the run at rank 0, and writes its page. The console has a thread of its own, so that the page and the log go
/// on while nobody reads stdout.
class Display final : public SessionListener {
 public:
  Display(const Configuration& configuration, const ConsoleOptions& options)
      : console_(configuration.settings, std::cout, options),
        shown_(console_, "console"),
        report_(configuration, report_file(configuration.settings),
                [this](const std::string& text) { shown_.note(text); }) {}
  report::ReportWriter& report() { return report_; }

  void starting(std::uint32_t ranks) {
    shown_.later([this, ranks](SessionListener&) { console_.starting(ranks); });
  }
  void note(const std::string& text) override {
    shown_.note(text);
    report_.note(text);
  }
  void lost(std::uint32_t rank, const std::string& why) override { note_lost(rank, why); }
  void preparing(std::uint64_t done, std::uint64_t total, const std::string& what) override {
    shown_.preparing(done, total, what);
  }
  void started(const Plan& plan, const std::string& device, const DataPlace& data) override {
    shown_.started(plan, device, data);
    report_.started(plan, device, data);
  }
  void steps(const StepsReport& part) override { shown_.steps(part); }
  void progress(const RunProgress& progress) override {
    shown_.progress(progress);
    report_.progress(progress);
  }
  void epoch(const EpochReport& line) override {
    shown_.epoch(line);
    report_.epoch(line);
  }
  /// Returns when everything is shown, or false when `deadline` has passed before.
  bool finish(const RunResult& result, std::optional<Deadline> deadline) {
    report_.finish(result);
    shown_.later([this, result](SessionListener&) { console_.finish(result); });
    if (deadline) return shown_.finish(*deadline);
    shown_.finish();
    return true;
  }

 private:
  Console console_;
  ListenerThread shown_;
  report::ReportWriter report_;
};

/// The exit code of a run that ended well, perhaps because of a signal.
int code_of(int signal, const RunResult& result) {
  // A scheduler that took the machine away may queue the job again.
  if (signal == SIGTERM && result.saved_steps != 0) return kPreempted;
  return signal != 0 ? 128 + signal : 0;
}

/// For a signal that nobody reads stdout after: the thread that writes there can be ended in no other way.
[[noreturn]] void end_unread(int exit_code, const Status& status) {
  pollfd err{STDERR_FILENO, POLLOUT, 0};  // often the same pipe
  const auto can_say = [&err] { return ::poll(&err, 1, 0) == 1; };
  if (can_say()) say("warning: nobody reads stdout; the last lines of the run are not shown");
  if (!status.ok() && can_say()) say(fmt::format("error: {}", status.text()));
  ::_exit(exit_code);
}

constexpr const char* kAskedFor = "asked for by rtrun control";

/// Carries out a request of `rtrun control` for a session that outlives the server.
std::string serve(Blocking& blocking, Session& session, const ControlRequest& request, Clock::duration patience) {
  switch (request.kind) {
    case ControlRequest::Kind::describe: return session.describe(blocking, Deadline::after(kReport));
    case ControlRequest::Kind::machines: return session.machines(blocking, Deadline::after(patience));
    case ControlRequest::Kind::stop: session.request_stop(); return "the run ends after the current steps";
    case ControlRequest::Kind::rebuild:
    case ControlRequest::Kind::switch_policy: break;
  }
  // All ranks have this long to report their next step; if one is later than that, the run ends.
  const Deadline deadline = Deadline::after(2 * patience);
  if (request.kind == ControlRequest::Kind::rebuild) return to_string(session.rebuild(blocking, kAskedFor, deadline));
  const std::uint64_t first = session.switch_policy(blocking, request.policy, kAskedFor, deadline);
  const std::uint32_t ranks = session.plan().world_size();
  return fmt::format("from step {} on: {}", first, describe(resolved(request.policy, ranks), ranks));
}

/// Null if another run uses this folder; that is not a reason to end the run.
std::unique_ptr<ControlServer> take_requests(Session& session, const Settings& settings) {
  try {
    return std::make_unique<ControlServer>(
        settings.report.dir, [&session, patience = settings.faults.exchange](Blocking& blocking, const auto& request) {
          return serve(blocking, session, request, patience);
        });
  } catch (const Error& error) {
    say(fmt::format("warning: {}; training continues, and takes no requests", error.what()));
    return nullptr;
  }
}

}  // namespace

int run_rank(Blocking& blocking, SignalThread& signals, const CommandLine& line, const Configuration& configuration,
             const DataPlace& data, std::optional<LaunchPlace> place) {
  std::optional<Display> display;
  if (!place || place->rank == 0) {
    display.emplace(configuration, ConsoleOptions{.quiet = line.quiet,
                                                  .json = line.json,
                                                  .bar = terminal::draws_bars(STDOUT_FILENO),
                                                  .columns = terminal::columns_of(STDOUT_FILENO)});
    display->starting(place ? place->world_size : 1);
  }
  Notes notes;
  SessionOptions options;
  options.configuration = configuration;
  options.data = data;
  options.place = std::move(place);
  options.owns_process = true;
  options.report_locked = true;  // by main
  options.listener = display ? static_cast<SessionListener*>(&*display) : &notes;

  guard_against_aborts();
  std::unique_ptr<Session> session = [&] {
    try {
      return Session::start(blocking, std::move(options));
    } catch (const Error& error) {
      if (display) display->report().failed(error.what());
      throw;
    }
  }();
  signals.on_first([&session] { session->request_stop(); });
  signals.on_report([&session] {
    Blocking signals_thread = Blocking::on_thread("signals");
    say(session->describe(signals_thread, Deadline::after(kReport)));
  });
  std::unique_ptr<ControlServer> control = display ? take_requests(*session, configuration.settings) : nullptr;
  const RunResult result = session->run(blocking);
  control.reset();
  signals.on_report(nullptr);
  signals.on_first(nullptr);

  const int code = result.status.ok() ? code_of(signals.first(), result) : exit_code(result.status.code());
  if (display && !display->finish(result, signals.patience(configuration.settings.faults.stop))) {
    session.reset();
    end_unread(code, result.status);
  }
  if (!result.status.ok()) fail(result.status.code(), std::string{result.status.text()});
  return display && code != kPreempted ? printed(code) : code;
}

}  // namespace troupe::rtrun
