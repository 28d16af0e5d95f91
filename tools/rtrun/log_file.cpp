#include "tools/rtrun/log_file.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "runtime/new_file.hpp"

namespace troupe::rtrun {
namespace {

nlohmann::ordered_json to_json(const EpochReport& report) {
  nlohmann::ordered_json entry;
  entry["main/loss"] = report.loss;
  entry["main/accuracy"] = report.accuracy;
  if (report.test_loss) entry["validation/main/loss"] = *report.test_loss;
  if (report.test_accuracy) entry["validation/main/accuracy"] = *report.test_accuracy;
  entry["epoch"] = report.epoch;
  entry["iteration"] = report.steps;
  entry["elapsed_time"] = report.elapsed_s;
  if (report.rate > 0) entry["lr"] = report.rate;
  if (report.skipped > 0) entry["skipped"] = report.skipped;
  for (const SwitchReport& change : report.switches) {
    entry["switches"].push_back({{"iteration", change.step},
                                 {"samples", change.samples},
                                 {"policy", change.policy},
                                 {"reason", change.reason}});
  }
  for (const RankShare& rank : report.ranks) {
    nlohmann::ordered_json one{{"samples_per_step", rank.rows}, {"samples_per_s", rank.samples_per_s}};
    for (std::size_t part = 0; part < kStepParts; ++part)
      one[fmt::format("{}_ms", name_of(static_cast<StepPart>(part)))] = rank.step_ms[part];
    one["last_in_steps"] = rank.last;
    entry["ranks"].push_back(std::move(one));
  }
  return entry;
}

}  // namespace

std::string epoch_json(const EpochReport& report) { return to_json(report).dump(); }

std::string log_json(const std::vector<EpochReport>& reports) {
  nlohmann::ordered_json log = nlohmann::ordered_json::array();
  for (const EpochReport& report : reports) log.push_back(to_json(report));
  return log.dump(4) + "\n";
}

void replace_file(const std::string& path, const std::string& text) {
  NewFile file{path};
  file.write(std::as_bytes(std::span{text}));
  file.publish();
}

}  // namespace troupe::rtrun
