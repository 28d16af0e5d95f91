// The program rtrun: answers questions about a configuration or a run, or launches the ranks of a job and waits for
// them. A process that is to be a rank goes on as rtrun-rank.

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "apps/report/report_writer.hpp"
#include "apps/report/timeline.hpp"
#include "apps/session/run_log.hpp"
#include "apps/session/session.hpp"
#include "runtime/base/new_file.hpp"
#include "runtime/base/trace.hpp"
#include "tools/rtrun/console.hpp"
#include "tools/rtrun/control.hpp"
#include "tools/rtrun/early_signals.hpp"
#include "tools/rtrun/inspect.hpp"
#include "tools/rtrun/launcher.hpp"
#include "tools/rtrun/main.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/rtrun/plan_command.hpp"
#include "tools/rtrun/prepare.hpp"
#include "tools/rtrun/program.hpp"
#include "tools/rtrun/rank_program.hpp"
#include "tools/rtrun/sites.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::rtrun {
namespace {

/// A year: if ranks are a user's program, they may run this long after one has ended without error.
constexpr std::chrono::hours kAsLongAsItTakes{24 * 365};

/// Joins the traces of ranks on this machine. Those of ranks on other hosts stay there.
void join_trace(const std::string& file, std::uint32_t ranks) {
  try {
    const std::uint32_t joined = join_trace_parts(file, ranks);
    if (joined < ranks)
      say(text("the trace ", file, " has ", joined, " of ", ranks, " ranks; where the others ran, theirs are in ",
               trace_part(file, ranks - 1), " and the like"));
  } catch (const Error& error) {
    say(text("the trace could not be written: ", error.what()));
  }
}

/// Starts the ranks of the job, and reports how it ended.
int launch_job(Blocking& blocking, const Signals& signals, const CommandLine& line, const Settings& settings,
               LaunchOptions options) {
  options.remote_shell = settings.cluster.remote_shell;
  options.port = settings.cluster.port;
  options.stop = settings.faults.stop;
  options.dead = settings.faults.dead;
  options.idle = options.program.empty() ? settings.faults.exchange : kAsLongAsItTakes;
  options.log_folder = settings.report.dir;
  options.failed = [&](const std::string& what, int exit_code) {
    mend_log(settings.report.dir + "/log");
    if (!options.program.empty()) return;
    report::tell_failure(report_file(settings), what);
    if (line.json) std::cout << failed_json(what, exit_code) << std::flush;
  };
  const auto ranks = static_cast<std::uint32_t>(options.sites.size());
  const int exit_code = launch(blocking, signals, options);
  if (!settings.report.trace.empty()) join_trace(settings.report.trace, ranks);
  return exit_code;
}

/// The ranks are a program of the user's.
int train_program(Blocking& blocking, const CommandLine& line, const Configuration& configuration,
                  const std::vector<std::string>& arguments) {
  const Signals signals{mask_at_start()};  // before any thread is started
  check_launcher_settings(line.overrides);
  const Settings& settings = configuration.settings;
  LaunchOptions options;
  options.sites = sites_of(settings.cluster, host_list(configuration));
  if (std::any_of(options.sites.begin(), options.sites.end(), [](const RankSite& site) { return site.here; }))
    find_program(line.program.front());
  const auto ranks = static_cast<std::uint32_t>(options.sites.size());
  prepare_file_limit(ranks);
  prepare_report(settings.report.dir, ranks);
  const FolderLock lock = lock_report(blocking, settings.report.dir, line.file);
  options.arguments = arguments;
  options.program = line.program;
  return launch_job(blocking, signals, line, settings, std::move(options));
}

int train(Blocking& blocking, const CommandLine& line, const Configuration& configuration,
          const std::vector<std::string>& arguments) {
  const Settings& settings = configuration.settings;
  const HostList hosts = host_list(configuration);
  LaunchOptions options;
  options.sites = sites_of(settings.cluster, hosts);
  if (!wants_launcher(options.sites)) become_rank(arguments);
  const Signals signals{mask_at_start()};  // before any thread is started
  const bool works_here = std::ranges::any_of(options.sites, &RankSite::here);
  if (works_here) options.rank_program = rank_program();
  const bool has_rank_zero = options.sites.front().here;
  // Errors of the plan are reported once, here, before anything is created or started.
  if (works_here) preview(configuration, look_for_data(configuration), hosts_here(hosts));
  if (has_rank_zero) check_resume(settings.checkpoint.resume);
  const auto ranks = static_cast<std::uint32_t>(options.sites.size());
  prepare_file_limit(ranks);
  prepare_folders(settings, ranks, has_rank_zero);
  // This lock covers the ranks, too.
  std::optional<FolderLock> lock;
  if (tells_the_end()) lock.emplace(lock_report(blocking, settings.report.dir, line.file));
  if (works_here) {
    const SignalThread answers{signals};  // later the launcher reads signals itself
    locate_data(configuration, line.quiet);
  }
  options.arguments = arguments;
  return launch_job(blocking, signals, line, settings, std::move(options));
}

/// Longer than any request takes before the run itself gives it up (faults.exchange_s).
constexpr std::chrono::minutes kAnswer{10};

int control(const CommandLine& line) {
  Blocking blocking = Blocking::on_thread("main");
  const ControlAnswer answer = ask_run(blocking, line.run, line.request, Deadline::after(kAnswer));
  if (!answer.done) {
    say_error(answer.text);
    return 1;
  }
  std::cout << answer.text << (answer.text.ends_with('\n') ? "" : "\n");
  return printed();
}

int timeline(const CommandLine& line) {
  const std::vector<report::TimelineRow> rows = report::read_timeline(line.file);
  const std::string picture = report::step_timeline(rows, line.step.value_or(report::middle_step(rows).value_or(0)));
  std::filesystem::path out = line.picture;
  if (out.empty()) out = std::filesystem::path{line.file}.replace_extension(".svg");
  if (!write_new_file(out.string(), picture)) std::cout << out.string() << '\n';
  return printed();
}

}  // namespace

int run(const CommandLine& line, const std::vector<std::string>& arguments) {
  if (line.verb == Verb::control) return control(line);
  if (line.verb == Verb::timeline) return timeline(line);
  if (line.verb == Verb::train) check_host_name();
  if (line.verb == Verb::train && has_launcher()) become_rank(arguments);
  Blocking blocking = Blocking::on_thread("main");
  const Configuration configuration = read_job(blocking, line);
  if (line.verb == Verb::check) {
    print_settings(configuration, look_for_data(configuration), host_list(configuration), std::cout);
    return printed();
  }
  if (line.verb == Verb::plan) {
    print_plan(line, configuration, std::cout);
    return printed();
  }
  return line.program.empty() ? train(blocking, line, configuration, arguments)
                              : train_program(blocking, line, configuration, arguments);
}

}  // namespace troupe::rtrun
