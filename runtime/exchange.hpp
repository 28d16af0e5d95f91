#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/communicator.hpp"
#include "runtime/device.hpp"

namespace troupe {

/// One round of communication of one parameter group, under one view and one policy: a Communicator (bytes), a Policy
/// (when) and a Rule (arithmetic).
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Takes a bucket whose gradients `stream` has finished by now. `sums` and `total`: see BucketWork; `first`: the
  /// first bucket of the step over all groups.
  virtual void contribute(Stream& stream, const Bucket& bucket, Step step, bool first, Memory sums, Memory total) = 0;
  /// Ends the tenancy: no contribution is taken any more; what is under way ends with `why`. Gives the stripes back for
  /// the next tenant. Idempotent.
  virtual std::vector<StripeMemory> retire(const Status& why) noexcept = 0;
};

/// What a rank says with a step, for all to count (StepSums).
struct StepVotes {
  bool stop = false;    // it asks to end
  bool saving = false;  // it is still writing a checkpoint
};

/// All groups of one view: routes each bucket to its group's exchange and counts steps. The device actor's side.
class StepExchange final : public BucketSink {
 public:
  /// How many steps' sums are kept: a total may be read until this many steps later.
  static constexpr std::uint64_t kStepsKept = 8;

  /// `sums` and `totals` are memory for kStepsKept StepSums each; exchanges[g] is group g's, and outlives this object.
  /// `buckets` become ready in every step, over all groups. Throws Error{invalid} when memory is missing.
  StepExchange(ViewId view, AddressSpace& space, Memory sums, Memory totals, std::vector<Exchange*> exchanges,
               std::size_t buckets = 1);

  ViewId view() const noexcept { return view_; }
  /// Starts `step` (one more than the last): where the replica writes its sums. Throws Error{invalid} for another step,
  /// or before the last one was committed.
  Memory begin(Step step, StepVotes votes);
  void ready(const Bucket& bucket, Stream& stream) noexcept override;
  /// The step is enqueued wholly: the point at which it is committed. A bucket that could not be contributed, or one
  /// that never became ready, is an Error here.
  Point commit(Stream& stream);
  /// The sums over all ranks; to be read once the step is committed, until kStepsKept steps later.
  StepSums total(Step step) const;

 private:
  ViewId view_;
  AddressSpace& space_;
  Memory sums_;
  Memory totals_;
  std::vector<Exchange*> exchanges_;
  std::size_t buckets_;
  Step step_{};
  bool begun_ = false;     // a first step was begun; the next one follows step_
  bool open_ = false;      // between begin and commit
  std::size_t ready_ = 0;  // buckets of this step so far
  Status failed_;          // of this step, told by commit
};

/// What of `stripe` lies in `bucket`; count 0: nothing.
Stripe common_part(const Stripe& stripe, const Bucket& bucket) noexcept;

/// The same with its memory. Every bucket's pass has a journal of its own: bucket b's is the b-th of journal_bytes each
/// in the stripe's journal. Throws Error{invalid} when a journal is there but too small for the bucket.
StripeMemory common_part(const StripeMemory& stripe, const Bucket& bucket, RuleKind rule);

/// The collective route for synchronous groups: every step, reduce to the stripes, update, gather.
/// `communicator` outlives it; `gradients` [group] f32 is this rank's; `mine` is the stripe this rank is tenant of, its
/// journal (if any) of journal_bytes for each bucket. Threads: retire may be called by another one than contribute.
std::unique_ptr<Exchange> collective_exchange(Communicator& communicator, const Rule& rule, Memory gradients,
                                              StripeMemory mine);

}  // namespace troupe
