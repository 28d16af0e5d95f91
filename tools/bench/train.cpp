#include "tools/bench/train.hpp"

#include <cstdlib>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/session/session.hpp"
#include "runtime/base/error.hpp"
#include "tools/bench/bare.hpp"
#include "tools/rtrun/launcher.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/rtrun/prepare.hpp"

namespace troupe::bench {
namespace {

/// Notes when each step was committed.
class StepListener final : public SessionListener {
 public:
  void step(Step, const StepSums& total) override { clock_.note(total.samples); }
  const StepClock& clock() const noexcept { return clock_; }

 private:
  StepClock clock_;
};

/// Prints the result; of the others nothing.
int say(const TrainCase& what, bool prints, const StepClock& clock) {
  if (!prints) return 0;
  const nlohmann::ordered_json line{{"bench", "train"},
                                    {"impl", (what.bare ? "bare-" : "ours-") + what.dtype},
                                    {"case", text(what.name, ' ', what.np, "px1t")},
                                    {"np", what.np},
                                    {"unit", "samples/s"},
                                    {"v", clock.windows()}};
  std::cout << line.dump() << std::endl;
  return 0;
}

int run_rank(Blocking& blocking, const TrainCase& what, const Configuration& configuration, const DataPlace& data,
             std::optional<LaunchPlace> place) {
  const bool prints = !place || place->rank == 0;
  SessionOptions options{.configuration = configuration, .data = data, .place = std::move(place), .every_step = true};
  if (what.bare) return say(what, prints, run_bare(blocking, options, what.seconds));
  StepListener steps;
  options.log = false;
  options.listener = &steps;
  options.time_limit = std::chrono::milliseconds(static_cast<std::int64_t>(what.seconds * 1000) + 300);
  const auto session = Session::start(blocking, std::move(options));
  const RunResult result = session->run(blocking);
  if (!result.status.ok()) {
    rtrun::say_error(result.status.text());
    return exit_code(result.status.code());
  }
  return say(what, prints, steps.clock());
}

}  // namespace

Configuration configuration_of(const TrainCase& what) {
  std::vector<std::string> overrides{text("cluster.nodes=\"local:", what.np, '"'),
                                     text("data.batch=", what.batch),
                                     text("model.name=\"", what.name, '"'),
                                     text("model.dtype=\"", what.dtype, '"'),
                                     "train.epochs=100000",
                                     "checkpoint.every_steps=0",
                                     "evaluate.every_epochs=0"};
  overrides.insert(overrides.end(), what.overrides.begin(), what.overrides.end());
  return parse_configuration("", "rtbench", overrides);
}

int run_train(Blocking& blocking, const rtrun::Signals& signals, const TrainCase& what,
              std::vector<std::string> arguments) {
  const Configuration configuration = configuration_of(what);
  std::optional<LaunchPlace> place = launch_place_from_environment();
  const DataPlace data = rtrun::locate_data(configuration);
  if (place || what.np == 1) return run_rank(blocking, what, configuration, data, std::move(place));
  const auto& faults = configuration.settings.faults;
  return rtrun::launch(blocking, signals,
                       {.sites = rtrun::sites_of({.local = what.np}, {}),
                        .arguments = std::move(arguments),
                        .stop = faults.stop,
                        .idle = faults.exchange});
}

}  // namespace troupe::bench
