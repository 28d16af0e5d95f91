#include "tools/bench/train.hpp"

#include <cmath>
#include <cstdlib>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/session/session.hpp"
#include "runtime/clock.hpp"
#include "runtime/error.hpp"
#include "tools/rtrun/launcher.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/rtrun/prepare.hpp"

namespace troupe::bench {
namespace {

constexpr std::size_t kWarmSteps = 25;
constexpr std::size_t kWindows = 5;
constexpr std::size_t kLeastOfWindow = 5;  // steps: fewer tell nothing

/// Notes when each step was committed.
class StepClock final : public SessionListener {
 public:
  void step(Step, const StepSums& total) override {
    at_.push_back(Clock::now());
    samples_ = total.samples;
  }
  /// Samples/s of equal windows over the steps after the warm-up. Throws Error{invalid} when there are too few.
  std::vector<double> windows() const {
    constexpr std::size_t kLeast = kWarmSteps + kWindows * kLeastOfWindow + 1;
    TROUPE_CHECK(at_.size() >= kLeast, Code::invalid, "measured too short: ", at_.size(), " steps, but ", kWarmSteps,
                 " to warm up and ", kWindows, " windows of ", kLeastOfWindow, " need ", kLeast,
                 "; give --seconds more, or --batch less");
    std::vector<double> values;
    const std::size_t steps = (at_.size() - kWarmSteps - 1) / kWindows;
    for (std::size_t w = 0; w < kWindows; ++w) {
      const std::size_t first = kWarmSteps + w * steps;
      const double seconds = std::chrono::duration<double>(at_[first + steps] - at_[first]).count();
      values.push_back(std::round(static_cast<double>(samples_ * steps) / seconds * 100) / 100);
    }
    return values;
  }

 private:
  std::vector<Clock::time_point> at_;
  std::uint64_t samples_ = 0;  // a step
};

int run_rank(Blocking& blocking, const TrainCase& what, const Configuration& configuration, const DataPlace& data,
             std::optional<LaunchPlace> place) {
  const bool prints = !place || place->rank == 0;
  StepClock steps;
  SessionOptions options{.configuration = configuration, .data = data, .place = std::move(place), .every_step = true};
  options.listener = &steps;
  options.time_limit = std::chrono::milliseconds(static_cast<std::int64_t>(what.seconds * 1000) + 300);
  const auto session = Session::start(blocking, std::move(options));
  const RunResult result = session->run(blocking);
  if (!result.status.ok()) {
    rtrun::say_error(result.status.text());
    return exit_code(result.status.code());
  }
  if (!prints) return 0;
  const nlohmann::ordered_json line{
      {"bench", "train"}, {"impl", "ours-" + what.dtype}, {"case", text(what.name, ' ', what.np, "px1t")},
      {"np", what.np},    {"unit", "samples/s"},          {"v", steps.windows()}};
  std::cout << line.dump() << std::endl;
  return 0;
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
