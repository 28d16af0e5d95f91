#include "tools/rtrun/log_file.hpp"

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
