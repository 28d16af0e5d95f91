#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/data/schedule.hpp"

namespace troupe {

/// How unequal ranks may be, as parts of the mean batch: the least and the most that a rank is given.
struct SplitRange {
  double least = 1;  // at most 1
  double most = 1;   // at least 1
  friend bool operator==(const SplitRange&, const SplitRange&) = default;
};

/// Rows are shared out in whole multiples of this where `rows` are the mean of a rank, so that a device meets few
/// numbers of rows.
constexpr std::uint32_t quantum_of(std::uint32_t rows) noexcept { return rows >= 64 ? 8 : rows >= 16 ? 4 : 1; }

/// The same in those multiples, and what a rank must have of them; `most` is above what an equal part has.
struct ShareBounds {
  std::uint64_t quantum = 1;  // rows
  std::uint64_t least = 0;
  std::uint64_t most = 0;
};
ShareBounds bounds_of(std::uint32_t rows, const SplitRange& range) noexcept;

/// Rows that a batch must have room for where `rows` are the mean of a rank.
std::uint32_t room_of(std::uint32_t rows, const SplitRange& range) noexcept;

/// Shares `rows` a rank on average out in proportion to `weights` (rates), so that the largest of share by weight is as
/// small as multiples of quantum_of(rows) and `range` allow; what does not make a whole quantum goes to the largest
/// share. The sum is rows * weights.size(), whatever the weights; all-zero weights are equal ones. Integers alone, so
/// that every process finds the same.
std::vector<std::uint32_t> share_out(std::uint32_t rows, std::span<const std::uint64_t> weights,
                                     const SplitRange& range);

/// From step `first` on ranks take so many rows each.
struct LedgerSpan {
  Step first{};
  std::vector<std::uint32_t> rows;  // by rank; their sum is the schedule's global rows
  friend bool operator==(const LedgerSpan&, const LedgerSpan&) = default;
};

/// Rows of each rank in `step`, for which `span` is in force, if it takes as many samples as its batch size says: the
/// span's own, or, where the batch size has changed since it began, as many shared out in the same proportion.
std::vector<std::uint32_t> rows_of(const LedgerSpan& span, Step step, const Schedule& schedule,
                                   const SplitRange& range);

/// A stretch of the sample order, or of the test set.
struct SamplePart {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  friend bool operator==(const SamplePart&, const SamplePart&) = default;
};

/// Which rank takes which samples of which step. A step's samples are an interval of the order (Schedule); ranks cut it
/// in their order, by the rows of the span that the step lies in. Where the batch size changes inside a span, its rows
/// are shared out anew in the same proportion; an epoch's last step, if it is shorter, is cut in that proportion too.
/// All ranks have the same ledger as far as they know it: where spans are appended, nobody loads a step beyond the
/// horizon that it was told. Threads: one.
class Ledger {
 public:
  /// Equal parts without end.
  explicit Ledger(const Schedule& schedule);
  /// Equal parts up to `horizon`, from where on others may follow.
  Ledger(const Schedule& schedule, const SplitRange& range, Step horizon);

  /// Whether it is known who takes what of `step`.
  bool knows(Step step) const noexcept { return step < horizon_; }
  /// The first step that is not known.
  Step horizon() const noexcept { return horizon_; }
  /// Steps from the horizon up to `until` are as `span` says, which begins at the horizon or is the one in force there
  /// already. What is known already is left alone. Throws Error{invalid} for a gap, another number of ranks or a wrong
  /// sum.
  void append(const LedgerSpan& span, Step until);

  /// Rows of each rank in `step`, which is known. Throws Error{invalid}.
  std::vector<std::uint32_t> rows(Step step) const;
  /// Ranks that do no update in `step` where others can do it for them (relief.hpp).
  std::vector<Rank> relieved(Step step) const;
  /// What `rank` takes in `step`, as positions of the order. With Scatter::equal those beyond the epoch's end stand for
  /// its beginning, as stretches() has them.
  SamplePart part(Step step, Rank rank) const;
  /// The same where it lies in the order: one stretch, more where an epoch's own samples are taken again.
  std::vector<SamplePart> stretches(Step step, Rank rank) const;
  /// The part of the test set that `rank` goes through after `step`: in proportion to its rows in steps of full size.
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
