#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/error.hpp"
#include "runtime/stream.hpp"

namespace troupe {

/// One bucket's part in one step.
struct BucketWork {
  Bucket bucket;
  Step step;
  std::uint64_t update = 0;  // number of the update, from 1
  bool first = false;        // the step's first bucket: carries the sums
  Memory gradients;          // this rank's sums of gradients, [bucket.count] f32
  Memory sums;               // this rank's StepSums
  Memory total;              // the StepSums of all ranks: written with the first bucket
  /// Ranks whose stripes the others update (relief.hpp), in rank order; read by the calls alone.
  std::span<const Rank> relieved{};
};

/// Moves bytes for one view and group; knows nothing of when. Calls only enqueue on `stream`, which is the same for all
/// calls of one communicator. Every rank makes the same calls in the same order. Threads: one caller at a time; abort:
/// any.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// data = sum over the ranks, added in rank order; f32, in place, everywhere the same bits.
  virtual void all_reduce(Stream& stream, Memory data) = 0;
  /// The synchronous step: sums the bucket's gradients over the ranks in rank order, updates each stripe once, on its
  /// tenant or who else was ordered to, and gives every rank the new parameters. `mine` are the parts of the bucket
  /// that this rank updates (those with count 0: nothing).
  /// Work enqueued after the call sees the new parameters.
  virtual void reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                                    std::span<const StripeMemory> mine) = 0;
  // The same in three parts, for rules that need a verdict over all buckets: gather_gradients for each bucket, agree
  // once, update_gather for each bucket.
  /// Sums the bucket's gradients over the ranks, in rank order, into this rank's own over `mine`, and measures them
  /// into `work.sums`. Work enqueued after the call may not write the bucket's gradients before update_gather.
  virtual void gather_gradients(Stream& stream, const BucketWork& work, std::span<const StripeMemory> mine) = 0;
  /// `work.total` = all ranks' `work.sums`.
  virtual void agree(Stream& stream, const BucketWork& work) = 0;
  /// Updates each stripe with what was gathered and gives every rank the new parameters.
  virtual void update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                             std::span<const StripeMemory> mine) = 0;
  /// Work enqueued after the call starts when relieved ranks too have left the calls so far: for what they still read,
  /// every rank's sums, before it is used for something else. To be called before a step without one of these calls.
  virtual void settle(Stream&) {}
  /// Ends every wait of this communicator, here and (in an arena) at the peers, with `why`.
  virtual void abort(const Status& why) noexcept = 0;
};

}  // namespace troupe
