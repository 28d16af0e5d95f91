#include "tools/bench/train.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "apps/session/session.hpp"
#include "runtime/base/error.hpp"
#include "tools/bench/bare.hpp"
#include "tools/bench/cases.hpp"
#include "tools/bench/say.hpp"
#include "tools/crew/statistics.hpp"
#include "tools/rtrun/launcher.hpp"

namespace troupe::bench {
namespace {

std::uint32_t batch_of(const TrainCase& what) { return what.batch > 0 ? what.batch : network_of(what.name).batch; }

/// Notes when each step was committed.
class StepListener final : public SessionListener {
 public:
  void started(const Plan& plan, const std::string&, const DataPlace&) override {
    clock_ = StepClock{plan.ranks.front().device_threads};
  }
  void step(Step, const StepSums& total) override { clock_.note(total.samples); }
  const StepClock& clock() const noexcept { return clock_; }

 private:
  StepClock clock_;
};

/// `np` ranks on this machine, without evaluations, ended only by time.
Configuration configuration_of(const TrainCase& what) {
  std::vector<std::string> overrides{text("cluster.nodes=\"local:", what.np, '"'),
                                     text("data.batch=", batch_of(what)),
                                     text("model.dtype=\"", what.dtype, '"'),
                                     "train.epochs=100000",
                                     "checkpoint.every_steps=0",
                                     "evaluate.every_epochs=0"};
  overrides.insert(overrides.end(), what.overrides.begin(), what.overrides.end());
  return parse_configuration(std::string(network_of(what.name).settings), "rtbench", overrides);
}

StepClock run_session(Blocking& blocking, SessionOptions options, double seconds) {
  StepListener steps;
  options.log = false;
  options.listener = &steps;
  options.time_limit = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000) + 300);
  const RunResult result = Session::start(blocking, std::move(options))->run(blocking);
  TROUPE_CHECK(result.status.ok(), result.status.code(), result.status.text());
  return steps.clock();
}

/// Prints the result if this is rank 0.
int run_rank(Blocking& blocking, const TrainCase& what, SessionOptions options) {
  const bool prints = !options.place || options.place->rank == 0;
  nlohmann::ordered_json line{{"bench", what.products ? "products" : "train"},
                              {"impl", (what.bare ? "bare-" : "ours-") + what.dtype}};
  if (what.products) {
    line["np"] = what.np;
    line["us"] = run_products(blocking, options, what.seconds);
  } else {
    const StepClock clock =
        what.bare ? run_bare(blocking, options, what.seconds) : run_session(blocking, std::move(options), what.seconds);
    if (!prints) return 0;
    line["case"] = text(what.name, ' ', what.np, "px", clock.threads(), 't');
    line["np"] = what.np;
    line["unit"] = "samples/s";
    line["v"] = clock.windows(network_of(what.name).pace);
  }
  if (prints) std::cout << line.dump() << std::endl;
  return 0;
}

/// The values under `key` in the JSON line that this program prints when run with `arguments`.
std::vector<double> measure(const std::string& arguments, const char* key) {
  const std::string command = "/proc/" + std::to_string(::getpid()) + "/exe " + arguments;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe{::popen(command.c_str(), "r"), ::pclose};
  TROUPE_CHECK_ERRNO(pipe != nullptr, Code::environment, "cannot run ", command);
  const auto line = nlohmann::json::parse(pipe.get(), nullptr, false);
  TROUPE_CHECK(line.is_object() && line.contains(key), Code::device_fault, "no result came from: ", command);
  return line[key].get<std::vector<double>>();
}

}  // namespace

int run_train(Blocking& blocking, const rtrun::Signals& signals, const TrainCase& what,
              std::vector<std::string> arguments) {
  const Configuration configuration = configuration_of(what);
  std::optional<LaunchPlace> place = launch_place_from_environment();
  if (place || what.np == 1) {
    return run_rank(blocking, what,
                    {.configuration = configuration,
                     .own_data = network_of(what.name).draw(),
                     .place = std::move(place),
                     .every_step = true});
  }
  const auto& faults = configuration.settings.faults;
  return rtrun::launch(blocking, signals,
                       {.sites = rtrun::sites_of({.local = what.np}, {}),
                        .arguments = std::move(arguments),
                        .name = "rtbench",
                        .dead_setting = "",
                        .stop = faults.stop,
                        .idle = faults.exchange});
}

StepClock run_alone(Blocking& blocking, const TrainCase& what) {
  return run_session(
      blocking, {.configuration = configuration_of(what), .own_data = network_of(what.name).draw(), .every_step = true},
      what.seconds);
}

int run_step(const TrainCase& what, std::uint32_t rounds) {
  const std::uint32_t batch = batch_of(what);
  const std::string options = text(" --case ", what.name, " --np ", what.np, " --dtype ", what.dtype, " --batch ",
                                   batch, " --seconds ", what.seconds);
  std::vector<double> steps;
  std::vector<double> products;
  std::vector<double> ratios;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const double rate = Spread(measure("train" + options, "v")).median();
    steps.push_back(std::round(1e7 * what.np * batch / rate) / 10);
    products.push_back(Spread(measure("products" + options, "us")).median());
    ratios.push_back(std::round(1000 * steps.back() / products.back()) / 1000);
  }
  const nlohmann::ordered_json line{{"bench", "step"},
                                    {"impl", "ours-" + what.dtype},
                                    {"np", what.np},
                                    {"step_us", steps},
                                    {"products_us", products},
                                    {"ratios", ratios},
                                    {"ratio", Spread(ratios).median()}};
  std::cout << line.dump() << std::endl;
  return 0;
}

}  // namespace troupe::bench
