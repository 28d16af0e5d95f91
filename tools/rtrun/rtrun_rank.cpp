// The program rtrun-rank, which rtrun starts or becomes: one rank of a job, or a job of one rank.

#include <signal.h>

#include <cstdlib>
#include <optional>

#include "apps/session/session.hpp"
#include "tools/rtrun/early_signals.hpp"
#include "tools/rtrun/launcher_line.hpp"
#include "tools/rtrun/main.hpp"
#include "tools/rtrun/prepare.hpp"
#include "tools/rtrun/program.hpp"
#include "tools/rtrun/rank.hpp"
#include "tools/rtrun/sites.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::rtrun {
namespace {

/// The rank is a program of the user's, on a machine on which a launcher started this process by a remote shell.
int run_users_program(Blocking& blocking, const Signals& signals, const CommandLine& line, const LaunchPlace& place) {
  check_launcher_settings(line.overrides);
  TROUPE_CHECK(place.launcher_on_stdin, Code::invalid, "this process is rank ", place.rank,
               " of a job that another launcher started (", place.found_in, "); let that launcher start ",
               line.program.front(), " itself, without rtrun");
  const LauncherLine launcher_line;
  return run_program(blocking, signals, place, line.program);
}

int train(Blocking& blocking, const Signals& signals, const CommandLine& line, const Configuration& configuration,
          std::optional<LaunchPlace> place) {
  const Settings& settings = configuration.settings;
  std::optional<LauncherLine> launcher_line;
  if (place && place->launcher_on_stdin) launcher_line.emplace();
  if (!place) {
    // Errors of the plan are reported before anything is created.
    preview(configuration, look_for_data(configuration), hosts_here(host_list(configuration)));
    check_resume(settings.checkpoint.resume);
  }
  const std::uint32_t ranks = place ? place->world_size : 1;
  prepare_file_limit(ranks);
  if (!place || place->rank == 0) prepare_folders(settings, ranks, true);
  std::optional<FolderLock> lock;
  if (tells_the_end()) lock.emplace(lock_report(blocking, settings.report.dir, line.file));
  SignalThread answers{signals};
  const DataPlace data = locate_data(configuration, line.quiet);
  return run_rank(blocking, answers, line, configuration, data, std::move(place));
}

}  // namespace

int run(const CommandLine& line, const std::vector<std::string>&) {
  TROUPE_CHECK(line.verb == Verb::train, Code::invalid, "rtrun-rank only trains; use rtrun");
  Blocking blocking = Blocking::on_thread("main");
  const Configuration configuration = read_job(blocking, line);
  sigset_t mask = mask_at_start();
  if (!line.program.empty()) sigdelset(&mask, SIGUSR1);  // rtrun blocks it before it becomes this program
  const Signals signals{mask};                           // before any thread is started
  std::optional<LaunchPlace> place = launch_place_from_environment();
  TROUPE_CHECK(place || line.program.empty(), Code::invalid, "rtrun-rank starts no program; use rtrun");
  TROUPE_CHECK(place || !wants_launcher(sites_of(configuration.settings.cluster, host_list(configuration))),
               Code::invalid, "rtrun-rank is one rank, and ", line.file, " describes a job of several; use rtrun");
  if (!line.program.empty()) return run_users_program(blocking, signals, line, *place);
  return train(blocking, signals, line, configuration, std::move(place));
}

}  // namespace troupe::rtrun
