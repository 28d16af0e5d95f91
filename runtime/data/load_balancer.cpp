#include "runtime/data/load_balancer.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"

namespace troupe {
namespace {

constexpr std::size_t kLoad = static_cast<std::size_t>(StepPart::load);
constexpr std::size_t kCompute = static_cast<std::size_t>(StepPart::compute);
constexpr std::size_t kUpdate = static_cast<std::size_t>(StepPart::update);

/// A rank clearly arrives last if the next one waits longer than it by this fraction of a step.
constexpr double kLastByFraction = 0.1;
/// A straggler's part must take longer than the others' by this fraction of their own time; some rank is always the
/// last.
constexpr double kStragglerByFraction = 0.2;
/// Reports that are kept while others of the same steps are missing: ranks are only a few steps apart.
constexpr std::size_t kMostWaiting = 256;

/// The time of a rank without waiting for others.
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

std::string rounded(double value) {
  return value >= 100 ? std::to_string(std::llround(value)) : text(static_cast<double>(std::llround(value * 10)) / 10);
}

}  // namespace

std::string to_string(const ShareChange& change, const ShareWindow& window) {
  std::string rates;
  for (const RankShare& rank : window.ranks) (rates += rates.empty() ? "" : " ") += rounded(rank.samples_per_s);
  return text("from step ", change.span.first.value, " on the ranks take ", joined(change.span.rows, " "),
              " rows, not ", joined(change.before, " "), ": they compute ", rates,
              " samples/s; the slowest then takes ", rounded(change.then_ms), " ms a step, not ",
              rounded(change.now_ms));
}

std::string to_string(const Straggler& straggler, const ShareWindow& window) {
  const RankShare& rank = window.ranks.at(straggler.rank);
  std::vector<double> others;
  const auto part = static_cast<std::size_t>(straggler.because);
  for (std::size_t r = 0; r < window.ranks.size(); ++r)
    if (r != straggler.rank) others.push_back(window.ranks[r].step_ms[part]);
  const std::string when =
      text("the others waited for rank ", straggler.rank, " in ", rank.last, " of ", window.steps, " steps: ");
  if (straggler.because == StepPart::exchange) return when + "what it sent came late";
  return text(when, "its ", name_of(straggler.because), " took ", rounded(rank.step_ms[part]), " ms a step, theirs ",
              rounded(median(others)));
}

void StepCost::learn(double rows_now, double ms_now) noexcept {
  constexpr double kClearlyOther = 0.25;  // fraction of the larger one
  constexpr double kFlattest = 0.5;       // times the rate's slope: measurements are not exact
  constexpr double kSteepest = 2;
  if (rows_now == rows) ms_now = (ms + ms_now) / 2;  // other load on the machine comes and goes
  const double by_rate = ms_now / rows_now;
  if (rows <= 0) {
    slope = by_rate;
  } else if (std::abs(rows_now - rows) >= kClearlyOther * std::max(rows_now, rows)) {
    slope = (ms_now - ms) / (rows_now - rows);
  } else if (at(rows_now) > 0) {
    slope *= ms_now / at(rows_now);  // faster or slower in total
  }
  slope = std::clamp(slope, kFlattest * by_rate, kSteepest * by_rate);
  rows = rows_now;
  ms = ms_now;
}

/// Each piece goes to the rank that would finish its step first with it. As costs grow with rows, this makes the
/// slowest rank's time as short as the pieces and bounds allow. Large pieces come first only to save time; pieces of
/// one quantum then correct the result. The last round, which exceeds what is known of the costs, gives out the rest if
/// the first two could not.
std::vector<std::uint32_t> share_out(std::uint32_t rows, const std::vector<StepCost>& costs, const SplitRange& range) {
  constexpr std::uint64_t kRough = 64;  // pieces of an equal share, which are given out first
  const std::size_t ranks = costs.size();
  const ShareBounds bounds = bounds_of(rows, range);
  const auto quantum = static_cast<double>(bounds.quantum);
  std::vector<std::uint64_t> shares(ranks, bounds.least);
  std::uint64_t left = std::uint64_t{rows} * ranks / bounds.quantum - bounds.least * ranks;
  using Offer = std::pair<double, std::size_t>;  // the cost of a rank's step with the next piece, and the rank
  struct Round {
    std::uint64_t piece;
    bool careful;  // no rank gets much more than its cost is known for; if batches grow, that may not suffice
  };
  for (const auto [piece, careful] :
       {Round{std::max<std::uint64_t>(1, rows / bounds.quantum / kRough), true}, Round{1, true}, Round{1, false}}) {
    std::priority_queue<Offer, std::vector<Offer>, std::greater<>> offers;
    const auto offer = [&](std::size_t rank) {
      const auto known = static_cast<std::uint64_t>(2 * costs[rank].rows / quantum) + 1;
      const std::uint64_t then = shares[rank] + piece;
      if (then <= bounds.most && (!careful || then <= known))
        offers.emplace(costs[rank].at(static_cast<double>(then) * quantum), rank);
    };
    for (std::size_t rank = 0; rank < ranks; ++rank) offer(rank);
    for (; left >= piece && !offers.empty(); left -= piece) {
      const std::size_t rank = offers.top().second;
      offers.pop();
      shares[rank] += piece;
      offer(rank);
    }
  }
  std::vector<std::uint32_t> all;
  for (const std::uint64_t share : shares) all.push_back(static_cast<std::uint32_t>(share * bounds.quantum));
  *std::max_element(all.begin(), all.end()) += static_cast<std::uint32_t>(std::uint64_t{rows} * ranks % bounds.quantum);
  return all;
}

LoadBalancer::LoadBalancer(const Schedule& schedule, LoadBalancerOptions options)
    : schedule_(schedule),
      options_(options),
      span_{{schedule.first_step},
            options.rows.empty() ? std::vector<std::uint32_t>(schedule.ranks, schedule.rows) : options.rows},
      until_{schedule.first_step + horizon_steps(options.ahead)},
      sums_(schedule.ranks),
      last_(schedule.ranks),
      costs_(schedule.ranks) {}

bool LoadBalancer::committed(Step step) {
  const std::uint64_t half = horizon_steps(options_.ahead) / 2;
  if (!options_.adapts || step.value + half < until_.value) return false;
  until_.value = step.value + 2 * half;
  return true;
}

std::optional<ShareWindow> LoadBalancer::take(const RankTimes& report) {
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

void LoadBalancer::add(const Together& reports) {
  std::size_t steps = reports.begin()->second.waits_us.size();
  double own = 0;  // of the slowest rank, per step, in microseconds
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
    std::vector<std::pair<std::uint32_t, std::uint32_t>> waits;  // and of which rank
    for (const auto& [rank, report] : reports) waits.emplace_back(report.waits_us[step], rank);
    std::partial_sort(waits.begin(), waits.begin() + 2, waits.end());
    if (waits[1].first - waits[0].first > kLastByFraction * own) ++last_[waits[0].second];
  }
}

ShareWindow LoadBalancer::close() {
  ShareWindow window{.first = sums_.front().first, .steps = std::exchange(steps_, 0)};
  const Step last{window.first + window.steps - 1};
  std::vector<double> own;
  for (const RankTimes& sum : sums_) {
    RankShare& share = window.ranks.emplace_back();
    const double own_s = static_cast<double>(own_ns(sum)) / 1e9;
    if (sum.samples > 0 && own_s > 0) share.samples_per_s = static_cast<double>(sum.samples) / own_s;
    for (std::size_t part = 0; part < kStepParts; ++part)
      share.step_ms[part] = static_cast<double>(sum.spent_ns[part]) / 1e6 / static_cast<double>(window.steps);
    share.last = std::exchange(last_[sum.rank], 0);
    own.push_back(own_ms(share));
  }
  const std::vector<std::uint32_t> rows = rows_of(span_, last, schedule_, options_.range);
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    window.ranks[rank].rows = rows[rank];
    if (window.ranks[rank].samples_per_s > 0) costs_[rank].learn(rows[rank], own[rank]);
  }
  const double middle = median(own);
  if (middle > 0) window.ratio = *std::max_element(own.begin(), own.end()) / middle;
  return window;
}

std::optional<Straggler> LoadBalancer::straggler_of(const ShareWindow& window) const {
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
  std::vector<double> others;
  for (const RankShare& rank : window.ranks)
    if (&rank != &*most) others.push_back(own_ms(rank));
  if (worst > 0 && worst < kStragglerByFraction * median(others)) return {};
  return found;
}

std::optional<ShareChange> LoadBalancer::change_after(const ShareWindow& window) {
  const bool known = std::all_of(costs_.begin(), costs_.end(), [](const StepCost& cost) { return cost.rows > 0; });
  if (!known) return {};  // a device does not measure itself
  const std::uint32_t mean = schedule_.run_at({window.first + window.steps - 1}).rows;
  const std::vector<std::uint32_t> same_size = share_out(mean, costs_, options_.range);
  ShareChange change;
  for (std::size_t rank = 0; rank < costs_.size(); ++rank) {
    change.before.push_back(window.ranks[rank].rows);
    change.now_ms = std::max(change.now_ms, costs_[rank].ms);
    change.then_ms = std::max(change.then_ms, costs_[rank].at(same_size[rank]));
  }
  // If the batch size changes in between, the proportion stays the same.
  const std::uint32_t mean_then = schedule_.run_at(until_).rows;
  const std::vector<std::uint64_t> proportion(same_size.begin(), same_size.end());
  change.span = {until_, mean_then == mean ? same_size : share_out(mean_then, proportion, options_.range)};
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
