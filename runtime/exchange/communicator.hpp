#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/compute/stream.hpp"

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

/// A part of what all ranks of a communicator have, and the rank whose part it is.
struct OwnedPart {
  Rank owner;
  Memory data;  // in the caller's own memory; at every rank as large
};

/// What a communicator does to numbers, and where they may lie.
struct CommunicatorTraits {
  /// Sums are added up in rank order, so that they have the bits of one process that adds one rank's numbers after the
  /// other's. Otherwise all ranks still get the same bits, in an order of the communicator's own.
  bool rank_ordered = true;
  /// Ranks of a node have one copy of the parameters, in which their tenants write; otherwise each has its own.
  bool in_place = false;
  bool device_memory = false;  // it may be given device memory, beside the host's
};

/// Moves bytes for one view and group; knows nothing of when. Calls only enqueue on `stream`; one that is not that of
/// the call before must have waited for it. Every rank makes the same calls in the same order. Threads: one caller at a
/// time; abort: any.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual CommunicatorTraits traits() const noexcept = 0;
  virtual Rank rank() const noexcept = 0;
  virtual std::uint32_t ranks() const noexcept = 0;

  // Plain operations. Work enqueued on the stream after the call sees their results and may use their memory again.
  /// Each part becomes the sum over the ranks, f32, at its owner; what it is at the others is not
  /// defined.
  virtual void reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) = 0;
  /// Each part becomes what its owner has there.
  virtual void all_gather(Stream& stream, std::span<const OwnedPart> parts) = 0;
  /// No rank's work enqueued after the call starts before all ranks have come so far.
  virtual void barrier(Stream& stream) = 0;
  /// data = sum over the ranks, f32, everywhere the same bits.
  virtual void all_reduce(Stream& stream, Memory data);
  /// data = what `root` has there.
  virtual void broadcast(Stream& stream, Memory data, Rank root);

  // The synchronous step.
  /// Hands a bucket over for the synchronous step: its gradients are summed over the ranks, each stripe is updated
  /// once, on its tenant or who else was ordered to, and every rank gets the new parameters. `mine` are the parts of
  /// the bucket that this rank updates (those with count 0: nothing). From the returned point on the bucket's
  /// parameters are the new ones here, its gradients may be written again, and with the step's first bucket
  /// `work.total` is known. A point of value 0: for whatever is enqueued on `stream` after the call. The next call for
  /// the bucket waits for it by itself.
  [[nodiscard]] virtual Point reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                                                   std::span<const StripeMemory> mine) = 0;
  // The same in three parts, for rules that need all of the gradient first (gathers_first): gather_gradients for each
  // bucket, agree once, update_gather for each bucket. None of them waits either, but they take effect in the order of
  // the calls.
  /// Sums the bucket's gradients over the ranks, in rank order, into this rank's own over `mine`, and measures them
  /// into `work.sums`; both hold from the returned point on. The bucket's gradients may not be written before the
  /// point of update_gather.
  virtual Point gather_gradients(Stream& stream, const BucketWork& work, std::span<const StripeMemory> mine) = 0;
  /// `work.total` = all ranks' `work.sums`, from the returned point on.
  virtual Point agree(Stream& stream, const BucketWork& work) = 0;
  /// Updates each stripe with what was gathered and gives every rank the new parameters. The point is that of
  /// reduce_update_gather.
  [[nodiscard]] virtual Point update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                                            std::span<const StripeMemory> mine) = 0;
  /// A barrier on the stream that includes relieved ranks: work enqueued after it starts when they too have left all
  /// calls so far. Required before a rank's sums, which they still read, are reused in a step without such a call.
  virtual void barrier_with_relieved(Stream&) {}
  /// Ends every wait of this communicator, here and (in an arena) at the peers, with `why`.
  virtual void abort(const Status& why) noexcept = 0;
};

/// `data` in parts as equal as multiples of 64 bytes allow, one for each rank in rank order; later ones may be empty.
std::vector<OwnedPart> equal_parts(const Memory& data, std::uint32_t ranks);

}  // namespace troupe
