#include "tools/rtrun/rank.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <iostream>

#include "apps/session/session.hpp"
#include "tools/rtrun/console.hpp"
#include "tools/rtrun/job.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/rtrun/progress_bar.hpp"

namespace troupe::rtrun {
namespace {

/// How long a rank may take to say what it is doing.
constexpr std::chrono::seconds kReport{1};

/// What ranks other than 0 show: what a person should know, nothing else.
class Notes final : public SessionListener {
 public:
  void note(const std::string& text) override { say(text); }
};

}  // namespace

int run_rank(Blocking& blocking, SignalThread& signals, const CommandLine& line, const Configuration& configuration,
             const DataPlace& data, std::optional<LaunchPlace> place) {
  const bool shows = !place || place->rank == 0;
  Console console{configuration.settings,
                  std::cout,
                  {.quiet = line.quiet, .bar = draws_bars(STDOUT_FILENO), .columns = terminal_columns(STDOUT_FILENO)}};
  Notes notes;
  SessionOptions options;
  options.configuration = configuration;
  options.data = data;
  options.place = std::move(place);
  options.listener = shows ? static_cast<SessionListener*>(&console) : &notes;

  const std::unique_ptr<Session> session = Session::start(blocking, std::move(options));
  signals.on_first([&session] { session->request_stop(); });
  signals.on_report([&session] {
    Blocking signals_thread = Blocking::on_thread("signals");
    say(session->describe(signals_thread, Deadline::after(kReport)));
  });
  const RunResult result = session->run(blocking);
  signals.on_report(nullptr);
  signals.on_first(nullptr);

  if (shows) console.finish(result);
  if (!result.status.ok()) {
    say_error(result.status.text());
    return exit_code(result.status.code());
  }
  // A scheduler that took the machine away may put the job in its queue again.
  if (signals.first() == SIGTERM && result.saved_steps != 0) return kPreempted;
  return signals.first() != 0 ? 128 + signals.first() : 0;
}

}  // namespace troupe::rtrun
