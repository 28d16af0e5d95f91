#include "runtime/report/line_values.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/error.hpp"

namespace troupe {

bool is_value_name(std::string_view name) noexcept {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_./-";
  return !name.empty() && name.size() <= kMostValueName && name.find_first_not_of(kAllowed) == name.npos;
}

void ValueCollector::add(std::string_view name, double value) {
  TROUPE_CHECK(is_value_name(name), Code::invalid, "a value cannot be reported as \"",
               std::string{name.substr(0, kMostValueName)}, "\": a name has 1 to ", kMostValueName,
               " characters of a-z, 0-9, '_', '.', '/' and '-'");
  auto found = sums_.find(name);
  if (found == sums_.end()) {
    TROUPE_CHECK(sums_.size() < kMostValueNames, Code::invalid, "\"", std::string{name},
                 "\" would be the name of one value too many: there may be ", kMostValueNames);
    found = sums_.emplace(std::string{name}, ValueSum{.name = std::string{name}}).first;
  }
  found->second.sum += value;
  ++found->second.count;
}

std::vector<ValueSum> ValueCollector::take() {
  std::vector<ValueSum> taken;
  for (auto& [name, sum] : sums_) {
    if (sum.count != 0) taken.push_back(sum);
    sum.sum = 0;
    sum.count = 0;
  }
  return taken;
}

void LineValues::add(Rank rank, Step step, bool last, std::vector<ValueSum> values) {
  if (rank.value >= ranks_.size()) return;
  OfRank& its = ranks_[rank.value];
  its.reported_steps = std::max(its.reported_steps, step.value + 1);
  its.last = its.last || last;
  if (!values.empty()) its.parts.push_back({step, std::move(values)});
}

bool LineValues::has_all_until(Step step) const noexcept {
  return std::ranges::all_of(ranks_, [&](const OfRank& its) { return its.last || its.reported_steps > step.value; });
}

bool LineValues::has_all() const noexcept {
  return std::ranges::all_of(ranks_, [](const OfRank& its) { return its.last; });
}

std::vector<ReportedValue> LineValues::take(Step step) {
  std::map<std::string, ValueSum> sums;
  for (OfRank& its : ranks_) {  // in rank order, so that runs with the same values have the same bits
    for (; !its.parts.empty() && its.parts.front().step <= step; its.parts.pop_front()) {
      for (const ValueSum& reported : its.parts.front().values) {
        sums[reported.name].sum += reported.sum;
        sums[reported.name].count += reported.count;
      }
    }
  }
  std::vector<ReportedValue> values;
  for (const auto& [name, sum] : sums)
    if (sum.count != 0) values.push_back({name, sum.sum / static_cast<double>(sum.count)});
  return values;
}

}  // namespace troupe
