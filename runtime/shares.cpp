#include "runtime/shares.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "runtime/error.hpp"

namespace troupe {
namespace {

constexpr std::size_t kLoad = static_cast<std::size_t>(StepPart::load);
constexpr std::size_t kCompute = static_cast<std::size_t>(StepPart::compute);
constexpr std::size_t kUpdate = static_cast<std::size_t>(StepPart::update);

/// A rank is clearly the last when the next one waits longer than it by this part of a step.
constexpr double kClearly = 0.1;
/// Reports kept while others of the same steps are missing: ranks are only a few steps apart.
constexpr std::size_t kMostWaiting = 256;

/// What a rank would take by itself.
std::int64_t own_ns(const RankTimes& times) {
  return times.spent_ns[kLoad] + times.spent_ns[kCompute] + times.spent_ns[kUpdate];
}
double own_ms(const RankShare& share) {
  return share.step_ms[kLoad] + share.step_ms[kCompute] + share.step_ms[kUpdate];
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string list(const std::vector<std::uint32_t>& rows) {
  std::string out;
  for (const std::uint32_t one : rows) (out += out.empty() ? "" : " ") += std::to_string(one);
  return out;
}

std::string rounded(double value) {
  return value >= 100 ? std::to_string(std::llround(value)) : text(static_cast<double>(std::llround(value * 10)) / 10);
}

}  // namespace

std::string to_string(const ShareChange& change, const ShareWindow& window) {
  std::string rates;
  for (const RankShare& rank : window.ranks) (rates += rates.empty() ? "" : " ") += rounded(rank.samples_per_s);
  return text("from step ", change.span.first.value, " on the ranks take ", list(change.span.rows), " rows, not ",
              list(change.before), ": they compute ", rates, " samples/s; the slowest then takes ",
              rounded(change.then_ms), " ms a step, not ", rounded(change.now_ms));
}

std::string to_string(const Straggler& straggler, const ShareWindow& window) {
  const RankShare& rank = window.ranks.at(straggler.rank);
  std::vector<double> others;
  const auto part = static_cast<std::size_t>(straggler.because);
  for (std::size_t r = 0; r < window.ranks.size(); ++r)
    if (r != straggler.rank) others.push_back(window.ranks[r].step_ms[part]);
  const std::string when =
      text("the others wait for rank ", straggler.rank, " in ", rank.last, " of ", window.steps, " steps: ");
  if (straggler.because == StepPart::exchange) return when + "what it sends comes late";
  return text(when, "its ", name_of(straggler.because), " takes ", rounded(rank.step_ms[part]), " ms a step, theirs ",
              rounded(median(others)));
}

Shares::Shares(const Schedule& schedule, SharesOptions options)
    : schedule_(schedule),
      options_(options),
      span_{{schedule.first_step}, std::vector<std::uint32_t>(schedule.ranks, schedule.rows)},
      until_{schedule.first_step + horizon_steps(options.ahead)},
      sums_(schedule.ranks),
      last_(schedule.ranks),
      rates_(schedule.ranks) {}

bool Shares::committed(Step step) {
  const std::uint64_t half = horizon_steps(options_.ahead) / 2;
  if (!options_.adapts || step.value + half < until_.value) return false;
  until_.value = step.value + 2 * half;
  return true;
}

std::optional<ShareWindow> Shares::take(const RankTimes& report) {
  if (report.rank >= schedule_.ranks || report.first < span_.first.value || report.waits_us.empty()) return {};
  Together& together = waiting_[report.first];
  together[report.rank] = report;
  if (together.size() < schedule_.ranks) {
    while (waiting_.size() > kMostWaiting) waiting_.erase(waiting_.begin());
    return {};
  }
  add(together);
  waiting_.erase(report.first);
  std::int64_t slowest = 0;
  for (const RankTimes& sum : sums_) slowest = std::max(slowest, own_ns(sum));
  if (slowest < options_.window.count()) return {};
  ShareWindow window = close();
  window.straggler = straggler_of(window);
  if (options_.adapts) window.change = change_after(window);
  return window;
}

void Shares::add(const Together& reports) {
  std::size_t steps = reports.begin()->second.waits_us.size();
  double own = 0;  // of the slowest, a step, in microseconds
  for (const auto& [rank, report] : reports) {
    RankTimes& sum = sums_[rank];
    if (steps_ == 0) sum = {.rank = rank, .first = report.first};
    sum.samples += report.samples;
    for (std::size_t part = 0; part < kStepParts; ++part) sum.spent_ns[part] += report.spent_ns[part];
    steps = std::min(steps, report.waits_us.size());
    own = std::max(own, static_cast<double>(own_ns(report)) / 1e3 / static_cast<double>(report.waits_us.size()));
  }
  steps_ += steps;
  for (std::size_t step = 0; step < steps && schedule_.ranks > 1; ++step) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> waits;  // and whose
    for (const auto& [rank, report] : reports) waits.emplace_back(report.waits_us[step], rank);
    std::partial_sort(waits.begin(), waits.begin() + 2, waits.end());
    if (waits[1].first - waits[0].first > kClearly * own) ++last_[waits[0].second];
  }
}

ShareWindow Shares::close() {
  ShareWindow window{.first = sums_.front().first, .steps = std::exchange(steps_, 0)};
  const Step last{window.first + window.steps - 1};
  std::vector<double> own;
  for (const RankTimes& sum : sums_) {
    RankShare& share = window.ranks.emplace_back();
    const double own_s = static_cast<double>(own_ns(sum)) / 1e9;
    if (sum.samples > 0 && own_s > 0) share.samples_per_s = static_cast<double>(sum.samples) / own_s;
    if (share.samples_per_s > 0) rates_[sum.rank] = share.samples_per_s;
    for (std::size_t part = 0; part < kStepParts; ++part)
      share.step_ms[part] = static_cast<double>(sum.spent_ns[part]) / 1e6 / static_cast<double>(window.steps);
    share.last = std::exchange(last_[sum.rank], 0);
    own.push_back(own_ms(share));
  }
  const std::vector<std::uint32_t> rows = rows_of(span_, last, schedule_, options_.range);
  for (std::size_t rank = 0; rank < rows.size(); ++rank) window.ranks[rank].rows = rows[rank];
  const double middle = median(own);
  if (middle > 0) window.ratio = *std::max_element(own.begin(), own.end()) / middle;
  return window;
}

std::optional<Straggler> Shares::straggler_of(const ShareWindow& window) const {
  const auto most = std::max_element(window.ranks.begin(), window.ranks.end(),
                                     [](const RankShare& a, const RankShare& b) { return a.last < b.last; });
  if (2 * most->last <= window.steps) return {};
  Straggler found{.rank = static_cast<std::uint32_t>(most - window.ranks.begin()), .because = StepPart::exchange};
  double worst = 0;
  for (const StepPart part : {StepPart::load, StepPart::compute, StepPart::update, StepPart::copy}) {
    const auto at = static_cast<std::size_t>(part);
    std::vector<double> others;
    for (const RankShare& rank : window.ranks)
      if (&rank != &*most) others.push_back(rank.step_ms[at]);
    const double more = most->step_ms[at] - median(others);
    if (more > worst) {
      worst = more;
      found.because = part;
    }
  }
  return found;
}

std::optional<ShareChange> Shares::change_after(const ShareWindow& window) {
  const bool known = std::all_of(rates_.begin(), rates_.end(), [](double rate) { return rate > 0; });
  if (!known) return {};  // a device that does not measure itself
  std::vector<std::uint64_t> weights;
  for (const double rate : rates_) weights.push_back(std::max<std::uint64_t>(1, std::llround(rate * 1000)));
  ShareChange change;
  change.span = {until_, share_out(schedule_.run_at(until_).rows, weights, options_.range)};
  // Where the batch size changes meanwhile, both are compared at the size of the window.
  const std::uint32_t mean = schedule_.run_at({window.first + window.steps - 1}).rows;
  const std::vector<std::uint32_t> same_size = share_out(mean, weights, options_.range);
  for (std::size_t rank = 0; rank < rates_.size(); ++rank) {
    change.before.push_back(window.ranks[rank].rows);
    change.now_ms = std::max(change.now_ms, own_ms(window.ranks[rank]));
    change.then_ms = std::max(change.then_ms, 1e3 * same_size[rank] / rates_[rank]);
  }
  if (same_size == change.before || change.now_ms < (1 + options_.least_gain) * change.then_ms) {
    promising_ = 0;
    return {};
  }
  if (++promising_ < options_.windows) return {};
  promising_ = 0;
  span_ = change.span;
  until_.value += horizon_steps(options_.ahead) / 2;
  waiting_.clear();
  return change;
}

}  // namespace troupe
