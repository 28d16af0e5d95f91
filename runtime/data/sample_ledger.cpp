#include "runtime/data/sample_ledger.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/base/error.hpp"
#include "runtime/exchange/relieved_ranks.hpp"

namespace troupe {
namespace {

// Every rank has its own ledger, and ledgers are never compared: each sample is taken exactly once only because all
// ranks divide the same interval in the same way. Therefore everything here is computed with integers, or, if a range
// of shares is given as decimals, rounded to integers before ranks are compared; and a tie always goes to the lower
// rank. With a sum or a tie that depends on rounding, two ranks could take one sample, or none could.

constexpr std::uint64_t kEndless = ~std::uint64_t{0};

/// Divides `total` in proportion to `weights`, rounded down. The units that are left are given out one at a time, each
/// to the rank whose share / weight stays smallest with it: a slow rank is not rounded up, because all would wait for
/// it.
std::vector<std::uint64_t> proportional(std::uint64_t total, const std::vector<std::uint64_t>& weights) {
  __extension__ using Wide = unsigned __int128;
  const Wide sum = std::accumulate(weights.begin(), weights.end(), Wide{0});
  std::vector<std::uint64_t> shares(weights.size());
  std::uint64_t left = total;
  for (std::size_t i = 0; i < weights.size(); ++i)
    left -= shares[i] = static_cast<std::uint64_t>(Wide{total} * weights[i] / sum);
  for (; left > 0; --left) {
    std::size_t best = weights.size();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] == 0) continue;
      const bool better =
          best == weights.size() || Wide{shares[i] + 1} * weights[best] < Wide{shares[best] + 1} * weights[i];
      if (better) best = i;
    }
    ++shares[best];
  }
  return shares;
}

}  // namespace

ShareBounds bounds_of(std::uint32_t rows, const SplitRange& range) noexcept {
  const std::uint64_t quantum = quantum_of(rows);
  const auto units = [&](double share) { return share * rows / static_cast<double>(quantum); };
  const auto mean = std::uint64_t{rows} / quantum;
  return {quantum, std::min(static_cast<std::uint64_t>(std::ceil(units(range.least))), mean),
          std::max(static_cast<std::uint64_t>(std::floor(units(range.most))), mean + 1)};
}

std::uint32_t max_rows_of(std::uint32_t rows, const SplitRange& range) noexcept {
  if (range == SplitRange{}) return rows;
  const ShareBounds bounds = bounds_of(rows, range);
  return static_cast<std::uint32_t>((bounds.most + 1) * bounds.quantum);  // including the rows that are not a whole
                                                                          // quantum
}

std::vector<std::uint32_t> share_out(std::uint32_t rows, std::span<const std::uint64_t> weights,
                                     const SplitRange& range) {
  const std::size_t ranks = weights.size();
  if (range == SplitRange{}) return std::vector<std::uint32_t>(ranks, rows);
  const ShareBounds bounds = bounds_of(rows, range);
  const std::uint64_t total = std::uint64_t{rows} * ranks;
  std::uint64_t units = total / bounds.quantum;
  std::vector<std::uint64_t> shares(ranks);
  std::vector<std::size_t> open(ranks);  // ranks whose shares are not fixed yet
  std::iota(open.begin(), open.end(), std::size_t{0});
  // A rank below the least share gets the least, and the others divide the rest; in the same way with the largest
  // share. The side with the larger error is fixed first, because that may correct the other. Each round fixes at least
  // one rank, so the loop ends.
  while (!open.empty()) {
    std::vector<std::uint64_t> wanted;
    for (const std::size_t i : open) wanted.push_back(weights[i]);
    if (std::all_of(wanted.begin(), wanted.end(), [](std::uint64_t w) { return w == 0; }))
      wanted.assign(open.size(), 1);
    const std::vector<std::uint64_t> found = proportional(units, wanted);
    std::uint64_t below = 0;
    std::uint64_t above = 0;
    for (const std::uint64_t share : found) {
      below += share < bounds.least ? bounds.least - share : 0;
      above += share > bounds.most ? share - bounds.most : 0;
    }
    std::vector<std::size_t> still_open;
    for (std::size_t k = 0; k < open.size(); ++k) {
      const bool low = found[k] < bounds.least && below >= above;
      const bool high = found[k] > bounds.most && above > below;
      if (below == 0 && above == 0) {
        shares[open[k]] = found[k];
      } else if (low || high) {
        shares[open[k]] = low ? bounds.least : bounds.most;
        units -= shares[open[k]];
      } else {
        still_open.push_back(open[k]);
      }
    }
    open = std::move(still_open);
  }
  std::vector<std::uint32_t> all;
  for (const std::uint64_t share : shares) all.push_back(static_cast<std::uint32_t>(share * bounds.quantum));
  *std::max_element(all.begin(), all.end()) += static_cast<std::uint32_t>(total % bounds.quantum);
  return all;
}

std::vector<std::uint32_t> rows_of(const LedgerSpan& span, Step step, const Schedule& schedule,
                                   const SplitRange& range) {
  const std::uint32_t mean = schedule.run_at(step).rows;
  if (mean == schedule.run_at(span.first).rows) return span.rows;
  const bool equal = std::equal(span.rows.begin() + 1, span.rows.end(), span.rows.begin());
  if (equal) return std::vector<std::uint32_t>(schedule.ranks, mean);
  const std::vector<std::uint64_t> weights(span.rows.begin(), span.rows.end());
  return share_out(mean, weights, range);
}

SampleLedger::SampleLedger(const Schedule& schedule) : SampleLedger(schedule, {}, {kEndless}) {}

SampleLedger::SampleLedger(const Schedule& schedule, const SplitRange& range, Step horizon)
    : schedule_(schedule), range_(range), horizon_(horizon) {
  spans_.push_back({{schedule.first_step}, std::vector<std::uint32_t>(schedule.ranks, schedule.rows)});
}

void SampleLedger::append(const LedgerSpan& span, Step until) {
  if (until <= horizon_) return;  // already known: the same span may arrive on several ways
  TROUPE_CHECK(span.first <= horizon_, Code::invalid, "the ledger ends with step ", horizon_.value,
               ", a span from step ", span.first.value, " leaves a gap");
  const std::uint64_t sum = std::accumulate(span.rows.begin(), span.rows.end(), std::uint64_t{0});
  const std::uint64_t whole = std::uint64_t{schedule_.run_at(span.first).rows} * schedule_.ranks;
  TROUPE_CHECK(span.rows.size() == schedule_.ranks && sum == whole, Code::invalid, "a span from step ",
               span.first.value, " has ", span.rows.size(), " ranks with ", sum, " rows together, the step ",
               schedule_.ranks, " with ", whole);
  if (spans_.back() != span) {
    TROUPE_CHECK(span.first == horizon_, Code::invalid, "a span from step ", span.first.value,
                 " would change steps that are known up to ", horizon_.value);
    spans_.push_back(span);
  }
  horizon_ = until;
}

const LedgerSpan& SampleLedger::span_at(Step step) const {
  TROUPE_CHECK(knows(step) && step >= spans_.front().first, Code::invalid, "step ", step.value,
               " was asked for, the ledger knows ", spans_.front().first.value, " up to ", horizon_.value);
  const auto after = std::upper_bound(spans_.begin(), spans_.end(), step,
                                      [](Step wanted, const LedgerSpan& span) { return wanted < span.first; });
  return *std::prev(after);
}

std::vector<std::uint32_t> SampleLedger::full_rows(Step step) const {
  return rows_of(span_at(step), step, schedule_, range_);
}

std::vector<Rank> SampleLedger::relieved(Step step) const { return relieved_of(full_rows(step)); }

std::vector<std::uint32_t> SampleLedger::rows(Step step) const {
  std::vector<std::uint32_t> all = full_rows(step);
  const std::uint64_t sum = std::accumulate(all.begin(), all.end(), std::uint64_t{0});
  const std::uint64_t taken = schedule_.computed_rows(step);
  if (taken == sum) return all;
  // Divides at rounded ends, not in rounded sizes, so the parts always add up to the whole. No rank gets more than in a
  // full step, for which there is room.
  std::uint64_t before = 0;
  for (std::uint32_t& rows : all) {
    const std::uint64_t first = taken * before / sum;
    before += rows;
    rows = static_cast<std::uint32_t>(taken * before / sum - first);
  }
  return all;
}

SamplePart SampleLedger::part(Step step, Rank rank) const {
  const std::vector<std::uint32_t> all = rows(step);
  const std::uint64_t before = std::accumulate(all.begin(), all.begin() + rank.value, std::uint64_t{0});
  return {schedule_.samples_before(step) + before, all.at(rank.value)};
}

std::vector<SamplePart> SampleLedger::stretches(Step step, Rank rank) const {
  SamplePart left = part(step, rank);
  if (schedule_.scatter != Scatter::equal) return {left};
  const std::uint64_t end = schedule_.samples_before(step) + schedule_.global_rows(step);
  std::vector<SamplePart> found;
  while (left.count > 0) {
    if (left.first >= end) left.first = end - schedule_.train_samples + (left.first - end) % schedule_.train_samples;
    const std::uint64_t count = std::min(left.count, end - left.first);
    found.push_back({left.first, count});
    left = {left.first + count, left.count - count};
  }
  return found;
}

SamplePart SampleLedger::test_part(Step step, Rank rank) const {
  const std::vector<std::uint32_t> all = full_rows(step);
  const std::uint64_t before = std::accumulate(all.begin(), all.begin() + rank.value, std::uint64_t{0});
  const std::uint64_t sum = before + std::accumulate(all.begin() + rank.value, all.end(), std::uint64_t{0});
  const std::uint64_t first = schedule_.test_samples * before / sum;
  return {first, schedule_.test_samples * (before + all.at(rank.value)) / sum - first};
}

}  // namespace troupe
