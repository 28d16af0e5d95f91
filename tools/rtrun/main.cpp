// rtrun: trains what app.toml describes. Here it is decided which part this process plays: it answers a question about
// a configuration, it is one rank, or it starts the ranks of a local job and waits for them.

#include <sys/prctl.h>

#include <algorithm>
#include <exception>
#include <iostream>
#include <optional>

#include "apps/session/session.hpp"
#include "runtime/planner.hpp"
#include "tools/rtrun/cli.hpp"
#include "tools/rtrun/inspect.hpp"
#include "tools/rtrun/launcher.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/rtrun/prepare.hpp"
#include "tools/rtrun/rank.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace {

using namespace troupe;
using namespace troupe::rtrun;

/// A run that could keep nothing of what it does is not begun.
void prepare_folders(const Settings& settings) {
  prepare_folder(settings.report.dir);
  if (settings.checkpoint.every_steps != 0) prepare_folder(checkpoint_folder(settings), "checkpoint.dir");
}

int train(const CommandLine& line, const Configuration& configuration, std::vector<std::string> arguments) {
  Blocking blocking = Blocking::on_thread("main");
  const Signals signals;  // before any thread is started
  std::optional<LaunchPlace> place = launch_place_from_environment();
  const std::uint32_t local = configuration.settings.cluster.local;
  // What is wrong with the plan is said once and here, before anything is made or started.
  if (!place) preview(configuration, look_for_data(configuration));
  prepare_file_limit(place ? place->world_size : std::max<std::uint32_t>(1, local));
  if (!place || place->rank == 0) prepare_folders(configuration.settings);
  std::optional<SignalThread> answers{signals};
  const DataPlace data = locate_data(configuration);
  if (place || local <= 1) return run_rank(blocking, *answers, line, configuration, data, std::move(place));

  answers.reset();  // the launcher reads signals itself
  const auto& faults = configuration.settings.faults;
  return launch_local(blocking, signals, {local, std::move(arguments), faults.stop, faults.exchange});
}

int run(int argc, char** argv) {
  const auto parsed = parse_command_line(argc, argv, std::cout, std::cerr);
  if (const auto* answered = std::get_if<Answered>(&parsed)) return answered->exit_code;
  const auto& line = std::get<CommandLine>(parsed);
  const Configuration configuration = read_configuration(line.file, line.overrides);
  switch (line.verb) {
    case Verb::check: print_settings(configuration, look_for_data(configuration), std::cout); return 0;
    case Verb::plan: std::cout << describe(preview(configuration, look_for_data(configuration))); return 0;
    case Verb::train: break;
  }
  return train(line, configuration, {argv, argv + argc});
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_NAME, "rtrun");  // ranks are started as /proc/self/exe
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    say_error(error.what());
    return exit_code(error.code());
  } catch (const std::exception& error) {
    say_error(error.what());
    return 1;
  }
}
