#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/data/schedule.hpp"

namespace troupe {

/// How unequal ranks' shares may be, as fractions of the mean batch: the smallest and the largest share of a rank.
struct SplitRange {
  double least = 1;  // at most 1
  double most = 1;   // at least 1
  friend bool operator==(const SplitRange&, const SplitRange&) = default;
};

/// Rows are divided in multiples of this if the mean of a rank is `rows`, so that devices see few different numbers of
/// rows.
constexpr std::uint32_t quantum_of(std::uint32_t rows) noexcept { return rows >= 64 ? 8 : rows >= 16 ? 4 : 1; }

/// The range in such multiples; `most` is above an equal share.
struct ShareBounds {
  std::uint64_t quantum = 1;  // rows
  std::uint64_t least = 0;
  std::uint64_t most = 0;
};
ShareBounds bounds_of(std::uint32_t rows, const SplitRange& range) noexcept;

/// The rows that a batch must have room for, if the mean of a rank is `rows`.
std::uint32_t max_rows_of(std::uint32_t rows, const SplitRange& range) noexcept;

/// Divides a mean of `rows` per rank in proportion to `weights` (rates), such that the largest share / weight is as
/// small as multiples of quantum_of(rows) and `range` allow; rows that are not a whole multiple go to the largest
/// share. The sum is always rows * weights.size(); if all weights are zero, they count as equal. Uses only integers, so
/// every process finds the same.
std::vector<std::uint32_t> share_out(std::uint32_t rows, std::span<const std::uint64_t> weights,
                                     const SplitRange& range);

/// From step `first` on each rank takes this many rows.
struct LedgerSpan {
  Step first{};
  std::vector<std::uint32_t> rows;  // by rank; their sum is the schedule's global rows
  friend bool operator==(const LedgerSpan&, const LedgerSpan&) = default;
};

/// The rows of each rank in `step`, for which `span` is valid, if the step takes as many samples as its batch size
/// says: the span's rows, or, if the batch size has changed since the span began, rows in the same proportion.
std::vector<std::uint32_t> rows_of(const LedgerSpan& span, Step step, const Schedule& schedule,
                                   const SplitRange& range);

/// A range of the sample order, or of the test set.
struct SamplePart {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  friend bool operator==(const SamplePart&, const SamplePart&) = default;
};

/// Which rank takes which samples of which step. A step's samples are an interval of the order (Schedule); ranks divide
/// it in rank order, by the rows of the span that the step is in. If the batch size changes within a span, rows are
/// divided again in the same proportion; a shorter last step of an epoch is also divided in that proportion. All ranks
/// have the same ledger, as far as they know it: if spans are appended, no rank loads a step beyond the horizon that it
/// has received. Threads: one.
class SampleLedger {
 public:
  /// Equal shares for all steps.
  explicit SampleLedger(const Schedule& schedule);
  /// Equal shares up to `horizon`; other shares may follow from there on.
  SampleLedger(const Schedule& schedule, const SplitRange& range, Step horizon);

  /// Whether it is known which rank takes which samples of `step`.
  bool knows(Step step) const noexcept { return step < horizon_; }
  /// The first step that is not known.
  Step horizon() const noexcept { return horizon_; }
  /// Steps from the horizon up to `until` follow `span`, which begins at the horizon or is already the last
  /// one. Known steps do not change. Throws Error{invalid} for a gap, another number of ranks or a wrong
  /// sum.
  void append(const LedgerSpan& span, Step until);

  /// The rows of each rank in `step`, which must be known. Throws Error{invalid}.
  std::vector<std::uint32_t> rows(Step step) const;
  /// The ranks that do no update in `step`, if others can do it for them (relieved_ranks.hpp).
  std::vector<Rank> relieved(Step step) const;
  /// The samples of `rank` in `step`, as positions of the order. With Scatter::equal, positions beyond the epoch's end
  /// mean samples of its beginning, as in stretches().
  SamplePart part(Step step, Rank rank) const;
  /// The same as ranges of the order: one, or more if samples of the epoch are taken again.
  std::vector<SamplePart> stretches(Step step, Rank rank) const;
  /// The part of the test set that `rank` evaluates after `step`: in proportion to its rows in steps of full size.
  SamplePart test_part(Step step, Rank rank) const;

 private:
  const LedgerSpan& span_at(Step step) const;
  std::vector<std::uint32_t> full_rows(Step step) const;
  Schedule schedule_;
  SplitRange range_;
  std::vector<LedgerSpan> spans_;
  Step horizon_;
};

}  // namespace troupe
