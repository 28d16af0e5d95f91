#include "apps/report/run_record.hpp"

#include <algorithm>
#include <utility>

namespace troupe::report {

void RunTrace::add(const TracePoint& point) {
  if (point.elapsed_s <= points_.back().elapsed_s || point.samples < points_.back().samples) return;
  if (points_.size() == kMostPoints) {
    for (std::size_t i = 1; 2 * i < kMostPoints; ++i) points_[i] = points_[2 * i];
    points_.resize(kMostPoints / 2);
  }
  points_.push_back(point);
}

void add_epoch(std::vector<EpochReport>& epochs, const EpochReport& epoch) {
  if (!epochs.empty()) {
    epochs.back().ranks = {};
    if (!epoch.generated_text.empty()) epochs.back().generated_text = {};
  }
  if (epochs.size() >= kMostEpochs) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < epochs.size(); i += 2, ++kept) {
      EpochReport stays = std::move(epochs[i]);
      if (i + 1 < epochs.size()) {
        EpochReport other = std::move(epochs[i + 1]);
        std::vector<SwitchReport> switches = std::move(stays.switches);
        switches.insert(switches.end(), other.switches.begin(), other.switches.end());
        if (!(stays.test_accuracy && other.test_accuracy < stays.test_accuracy)) stays = std::move(other);
        stays.switches = std::move(switches);
      }
      epochs[kept] = std::move(stays);
    }
    epochs.resize(kept);
  }
  epochs.push_back(epoch);
}

const EpochReport* newest_text(const RunRecord& record) {
  const auto found = std::find_if(record.epochs.rbegin(), record.epochs.rend(),
                                  [](const auto& e) { return !e.generated_text.empty(); });
  return found == record.epochs.rend() ? nullptr : &*found;
}

}  // namespace troupe::report
