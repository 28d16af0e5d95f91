#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/sample_ledger.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/data/source.hpp"

namespace troupe {

/// A batch for a rank, without its samples.
struct BatchHead {
  Step step;
  bool evaluation = false;  // of the test set, after `step`
  bool last = false;        // evaluation: the last batch of this pass over the test set
  std::uint32_t rows = 0;
  std::vector<Rank> relieved{};  // ranks that do not take part in the step's update (relieved_ranks.hpp)
  friend bool operator==(const BatchHead&, const BatchHead&) = default;
};

/// One rank's sequence of batches: its part of each step, and after an evaluated step its part of the test set. The
/// position is a step and a number of test batches. Threads: one.
class BatchCursor {
 public:
  /// Batches of up to `max_rows` rows.
  BatchCursor(const Schedule& schedule, Rank rank, std::uint32_t max_rows)
      : schedule_(schedule), rank_(rank), max_rows_(max_rows), step_{schedule.first_step} {}

  /// Whether there is a next batch that `ledger` knows.
  bool has_next(const SampleLedger& ledger) const noexcept {
    return testing_ || (step_.value < schedule_.steps && ledger.knows(step_));
  }
  /// The next batch, with its samples in `samples`: from the test set if it is an evaluation. Advances the position.
  BatchHead next(const SampleLedger& ledger, SampleOrder& order, std::vector<Sample>& samples);

 private:
  BatchHead next_training(const SampleLedger& ledger, SampleOrder& order, std::vector<Sample>& samples);
  BatchHead next_test(const SampleLedger& ledger, std::vector<Sample>& samples);

  Schedule schedule_;
  Rank rank_;
  std::uint32_t max_rows_;
  Step step_;
  bool testing_ = false;          // in the test set after `step_`
  std::uint64_t test_batch_ = 0;  // number of the next batch of that pass
};

}  // namespace troupe
