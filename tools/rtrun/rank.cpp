#include "tools/rtrun/rank.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <iostream>

#include "apps/report/report_writer.hpp"
#include "apps/session/session.hpp"
#include "tools/rtrun/console.hpp"
#include "tools/rtrun/job.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/terminal/terminal.hpp"

namespace troupe::rtrun {
namespace {

/// How long a rank may take to say what it is doing.
constexpr std::chrono::seconds kReport{1};

/// What ranks other than 0 show: what a person should know, nothing else.
class Notes final : public SessionListener {
 public:
  void note(const std::string& text) override { say(text); }
};

/// What rank 0 shows, and the page it writes.
class Display final : public SessionListener {
 public:
  Display(const Configuration& configuration, const ConsoleOptions& options)
      : console_(configuration.settings, std::cout, options),
        report_(configuration, report_file(configuration.settings),
                [this](const std::string& text) { console_.note(text); }) {}
  Console& console() { return console_; }
  report::ReportWriter& report() { return report_; }

  void note(const std::string& text) override {
    console_.note(text);
    report_.note(text);
  }
  void started(const Plan& plan, const std::string& device, const DataPlace& data) override {
    console_.started(plan, device, data);
    report_.started(plan, device, data);
  }
  void progress(const RunProgress& progress) override {
    console_.progress(progress);
    report_.progress(progress);
  }
  void epoch(const EpochReport& line) override {
    console_.epoch(line);
    report_.epoch(line);
  }
  void finish(const RunResult& result) {
    report_.finish(result);
    console_.finish(result);
  }

 private:
  Console console_;
  report::ReportWriter report_;
};

}  // namespace

std::string report_file(const Settings& settings) { return settings.report.dir + "/report.html"; }

int run_rank(Blocking& blocking, SignalThread& signals, const CommandLine& line, const Configuration& configuration,
             const DataPlace& data, std::optional<LaunchPlace> place) {
  const bool shows = !place || place->rank == 0;
  Display display{configuration,
                  {.quiet = line.quiet,
                   .json = line.json,
                   .bar = terminal::draws_bars(STDOUT_FILENO),
                   .columns = terminal::columns_of(STDOUT_FILENO)}};
  Notes notes;
  if (shows) display.console().starting(place ? place->world_size : 1);
  SessionOptions options;
  options.configuration = configuration;
  options.data = data;
  options.place = std::move(place);
  options.listener = shows ? static_cast<SessionListener*>(&display) : &notes;

  const std::unique_ptr<Session> session = [&] {
    try {
      return Session::start(blocking, std::move(options));
    } catch (const Error& error) {
      if (shows) display.report().failed(error.what());
      throw;
    }
  }();
  signals.on_first([&session] { session->request_stop(); });
  signals.on_report([&session] {
    Blocking signals_thread = Blocking::on_thread("signals");
    say(session->describe(signals_thread, Deadline::after(kReport)));
  });
  const RunResult result = session->run(blocking);
  signals.on_report(nullptr);
  signals.on_first(nullptr);

  if (shows) display.finish(result);
  if (!result.status.ok()) fail(result.status.code(), std::string{result.status.text()});
  // A scheduler that took the machine away may put the job in its queue again.
  if (signals.first() == SIGTERM && result.saved_steps != 0) return kPreempted;
  return signals.first() != 0 ? 128 + signals.first() : 0;
}

}  // namespace troupe::rtrun
