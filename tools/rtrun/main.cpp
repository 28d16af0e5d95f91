// rtrun: trains what app.toml describes. This file decides what this process does: it answers a question about a
// configuration, it is one rank, or it starts the ranks of a local job and waits for them.

#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <span>
#include <string_view>

#include "apps/report/report_writer.hpp"
#include "apps/report/timeline.hpp"
#include "apps/session/openmp_polls.hpp"
#include "apps/session/run_log.hpp"
#include "apps/session/session.hpp"
#include "runtime/base/new_file.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/planning/planner.hpp"
#include "tools/rtrun/cli.hpp"
#include "tools/rtrun/console.hpp"
#include "tools/rtrun/control.hpp"
#include "tools/rtrun/early_signals.hpp"
#include "tools/rtrun/inspect.hpp"
#include "tools/rtrun/launcher.hpp"
#include "tools/rtrun/launcher_line.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/rtrun/plan_command.hpp"
#include "tools/rtrun/prepare.hpp"
#include "tools/rtrun/program.hpp"
#include "tools/rtrun/rank.hpp"
#include "tools/rtrun/sites.hpp"
#include "tools/terminal/terminal.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace {

using namespace troupe;
using namespace troupe::rtrun;

/// A run must not begin if it cannot write its results. Checkpoints are written where rank 0 is.
void prepare_folders(const Settings& settings, std::uint32_t ranks, bool with_rank_zero) {
  prepare_report(settings.report.dir, ranks);
  if (with_rank_zero && settings.checkpoint.every_steps != 0)
    prepare_folder(checkpoint_folder(settings), "checkpoint.dir");
  if (!with_rank_zero || settings.report.trace.empty()) return;
  refuse_special_file(settings.report.trace);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::string part = trace_part(settings.report.trace, rank);
    refuse_special_file(part);
    std::remove(part.c_str());  // of a killed run: the parts that are there at the end are joined
  }
  const std::filesystem::path folder = std::filesystem::path{settings.report.trace}.parent_path();
  prepare_folder(folder.empty() ? "." : folder.string(), "the folder of report.trace");
}

/// A folder without a checkpoint is refused before any rank is started, so that the message stands alone.
void check_resume(const std::string& resume) {
  if (resume == "never" || resume == "auto") return;
  try {
    check_holds_checkpoint(resume);
  } catch (const Error& error) {
    fail(error.code() == Code::corrupt ? Code::invalid : error.code(),
         text("--resume (checkpoint.resume): ", error.what(),
              error.code() == Code::corrupt ? "; --resume auto resumes from the newest complete checkpoint" : ""));
  }
}

/// Whether this process reports how the job ended: it started the whole job, or another launcher made it rank 0.
bool tells_the_end() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    const char* const rank = std::getenv(name);
    if (rank != nullptr && std::string_view{rank} != "0") return false;
  }
  return std::getenv("TROUPE_LISTEN_FD") == nullptr && std::getenv("TROUPE_SECRET_STDIN") == nullptr;
}

/// Prints the error on stderr, and as the last line of JSON if that is wanted. Returns the exit code.
int failed(const std::string& why, int exit_code, bool json) {
  say_error(why);
  if (json && tells_the_end()) std::cout << failed_json(why, exit_code) << std::flush;
  return exit_code;
}

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
int train_program(const CommandLine& line, const Configuration& configuration, std::vector<std::string> arguments) {
  Blocking blocking = Blocking::on_thread("main");
  const Signals signals{mask_at_start()};  // before any thread is started
  check_launcher_settings(line.overrides);
  if (const std::optional<LaunchPlace> place = launch_place_from_environment()) {
    TROUPE_CHECK(place->launcher_on_stdin, Code::invalid, "this process is rank ", place->rank,
                 " of a job that another launcher started (", place->found_in, "); let that launcher start ",
                 line.program.front(), " itself, without rtrun");
    const LauncherLine launcher_line;
    return run_program(blocking, signals, *place, line.program);
  }
  const Settings& settings = configuration.settings;
  LaunchOptions options;
  options.sites = sites_of(settings.cluster, host_list(configuration));
  if (std::any_of(options.sites.begin(), options.sites.end(), [](const RankSite& site) { return site.here; }))
    find_program(line.program.front());
  const auto ranks = static_cast<std::uint32_t>(options.sites.size());
  prepare_file_limit(ranks);
  prepare_report(settings.report.dir, ranks);
  const FolderLock lock = lock_report(blocking, settings.report.dir, line.file);
  options.arguments = std::move(arguments);
  options.program = line.program;
  return launch_job(blocking, signals, line, settings, std::move(options));
}

int train(const CommandLine& line, const Configuration& configuration, std::vector<std::string> arguments) {
  Blocking blocking = Blocking::on_thread("main");
  const Signals signals{mask_at_start()};  // before any thread is started
  std::optional<LaunchPlace> place = launch_place_from_environment();
  std::optional<LauncherLine> launcher_line;
  if (place && place->launcher_on_stdin) launcher_line.emplace();
  const Settings& settings = configuration.settings;
  std::vector<RankSite> sites;
  HostList here;
  if (!place) {
    const HostList hosts = host_list(configuration);
    sites = sites_of(settings.cluster, hosts);
    here = hosts_here(hosts);
  }
  const bool works_here = place || std::any_of(sites.begin(), sites.end(), [](const RankSite& s) { return s.here; });
  // Errors of the plan are reported once, here, before anything is created or started.
  if (!place && works_here) preview(configuration, look_for_data(configuration), here);
  if (!place && sites.front().here) check_resume(settings.checkpoint.resume);
  const std::uint32_t ranks = place ? place->world_size : static_cast<std::uint32_t>(sites.size());
  prepare_file_limit(ranks);
  if (!place || place->rank == 0) prepare_folders(settings, ranks, place || sites.front().here);
  // This lock covers ranks that rtrun starts, too.
  std::optional<FolderLock> lock;
  if (tells_the_end()) lock.emplace(lock_report(blocking, settings.report.dir, line.file));
  std::optional<SignalThread> answers{signals};
  const DataPlace data = works_here ? locate_data(configuration, line.quiet) : DataPlace{};
  if (place || !wants_launcher(sites)) return run_rank(blocking, *answers, line, configuration, data, std::move(place));

  answers.reset();  // the launcher reads signals itself
  LaunchOptions options;
  options.sites = std::move(sites);
  options.arguments = std::move(arguments);
  return launch_job(blocking, signals, line, settings, std::move(options));
}

/// Of a verb whose result is what it prints.
int printed(int exit_code = 0) {
  TROUPE_CHECK(std::cout.flush(), Code::environment, "stdout could not be written; is the disk full?");
  return exit_code;
}

/// Longer than any request takes before the run itself gives it up (faults.exchange_s).
constexpr std::chrono::minutes kAnswer{10};

int control(const CommandLine& line) {
  Blocking blocking = Blocking::on_thread("main");
  const ControlAnswer answer = ask_run(blocking, line.run, line.request, Deadline::after(kAnswer));
  if (!answer.done) return failed(answer.text, 1, false);
  std::cout << answer.text << (answer.text.ends_with('\n') ? "" : "\n");
  return printed();
}

int timeline(const CommandLine& line) {
  const std::vector<report::TimelineRow> rows = report::read_timeline(line.file);
  const std::string picture = report::step_timeline(rows, line.step.value_or(report::middle_step(rows).value_or(0)));
  std::filesystem::path out = line.picture;
  if (out.empty()) out = std::filesystem::path{line.file}.replace_extension(".svg");
  NewFile file{out.string()};
  file.write(std::as_bytes(std::span{picture}));
  file.publish();
  if (!file.in_place()) std::cout << out.string() << '\n' << std::flush;
  return 0;
}

int run(const CommandLine& line, std::vector<std::string> arguments) {
  if (line.verb == Verb::control) return control(line);
  if (line.verb == Verb::timeline) return timeline(line);
  const Configuration configuration = read_configuration(line.file, line.overrides);
  Blocking blocking = Blocking::on_thread("main");
  const bool may_be_rank = line.verb == Verb::train && line.program.empty();
  if (may_be_rank) {
    check_address_space();
    check_file_size();
  }
  check_folders(blocking, configuration);
  if (may_be_rank) restart_with_short_polls(arguments);
  switch (line.verb) {
    case Verb::check:
      print_settings(configuration, look_for_data(configuration), host_list(configuration), std::cout);
      return printed();
    case Verb::plan: print_plan(line, configuration, std::cout); return printed();
    case Verb::train:
    case Verb::control:
    case Verb::timeline: break;
  }
  if (!line.program.empty()) return train_program(line, configuration, std::move(arguments));
  return train(line, configuration, std::move(arguments));
}

}  // namespace

int main(int argc, char** argv) {
  release_early(SIGHUP);
  terminal::open_standard_streams();
  const PrintableStream out{std::cout}, err{std::cerr};
  ::prctl(PR_SET_NAME, "rtrun");  // since ranks are started as /proc/self/exe
  const auto parsed = parse_command_line(argc, argv, std::cout, std::cerr);
  const auto* const answered = std::get_if<Answered>(&parsed);
  const CommandLine line = answered == nullptr ? std::get<CommandLine>(parsed) : CommandLine{};
  try {
    if (answered != nullptr) return printed(answered->exit_code);
    if (line.verb != Verb::train) release_early(SIGUSR1);
    return run(line, {argv, argv + argc});
  } catch (const Error& error) {
    return failed(error.what(), exit_code(error.code()), line.json);
  } catch (const std::exception& error) {
    return failed(error.what(), 1, line.json);
  }
}
