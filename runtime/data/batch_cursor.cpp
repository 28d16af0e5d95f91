#include "runtime/data/batch_cursor.hpp"

#include <algorithm>
#include <span>

namespace troupe {

BatchHead BatchCursor::next(const SampleLedger& ledger, SampleOrder& order, std::vector<Sample>& samples) {
  return testing_ ? next_test(ledger, samples) : next_training(ledger, order, samples);
}

BatchHead BatchCursor::next_training(const SampleLedger& ledger, SampleOrder& order, std::vector<Sample>& samples) {
  samples.clear();
  for (const SamplePart& stretch : ledger.stretches(step_, rank_)) {
    const std::size_t before = samples.size();
    samples.resize(before + stretch.count);
    order.fill(stretch.first, std::span(samples).subspan(before));
  }
  const BatchHead head{
      .step = step_, .rows = static_cast<std::uint32_t>(samples.size()), .relieved = ledger.relieved(step_)};
  if (schedule_.evaluates(step_)) {
    testing_ = true;
    test_batch_ = 0;
  } else {
    step_ = troupe::next(step_);
  }
  return head;
}

/// The last batch may have fewer rows; there is at least one batch, so that every rank reports something.
BatchHead BatchCursor::next_test(const SampleLedger& ledger, std::vector<Sample>& samples) {
  const SamplePart mine = ledger.test_part(step_, rank_);
  const std::uint64_t done = test_batch_ * max_rows_;
  const std::uint64_t rows = std::min<std::uint64_t>(max_rows_, mine.count - std::min(done, mine.count));
  samples.resize(rows);
  for (std::uint64_t row = 0; row < rows; ++row) samples[row] = {.index = mine.first + done + row};
  BatchHead head{.step = step_, .evaluation = true, .rows = static_cast<std::uint32_t>(rows)};
  ++test_batch_;
  if (done + rows >= mine.count) {
    head.last = true;
    testing_ = false;
    step_ = troupe::next(step_);
  }
  return head;
}

}  // namespace troupe
