#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/compute/stream.hpp"

namespace troupe {

/// The work on one bucket in one step.
struct BucketWork {
  Bucket bucket;
  Step step;
  std::uint64_t update = 0;  // number of the update, counted from 1
  bool first = false;        // the step's first bucket, with which the sums are sent
  Memory gradients;          // this rank's sums of gradients, [bucket.count] f32
  Memory sums;               // this rank's StepSums
  Memory total;              // the StepSums of all ranks, written with the first bucket
  bool squares = true;       // gather_gradients: whether the gradient's norm is wanted, besides the finite check
  /// The parts of the bucket that this rank updates (count 0: none), at least one; read only during the call.
  std::span<const StripeMemory> mine{};
  /// Ranks whose stripes other ranks update (relieved_ranks.hpp), in rank order; read only during the call.
  std::span<const Rank> relieved{};

  /// Of a communicator whose ranks do not reach each other's stripes. Throws Error{invalid} if there are several.
  const StripeMemory& only_part() const;
};

/// A part of data that all ranks of a communicator have, and the rank that owns it.
struct OwnedPart {
  Rank owner;
  Memory data;  // in the caller's own memory; of the same size at every rank
};

/// How a communicator adds numbers, and where they may be.
struct CommunicatorTraits {
  /// Sums are added in rank order, so they have the same bits as in one process that adds the ranks' numbers one after
  /// the other. Otherwise all ranks still get the same bits, but the order is the communicator's own.
  bool rank_ordered = true;
  /// The ranks of a node share one copy of the parameters, into which owners write; otherwise each has its own copy.
  bool in_place = false;
  bool device_memory = false;  // device memory may be given to it, besides host memory
};

/// Moves data for one view and group; it does not decide when. Calls only enqueue on `stream`; if that is another
/// stream than in the previous call, it must have waited for that one. Every rank makes the same calls in the same
/// order. Threads: one caller at a time; abort: any.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual CommunicatorTraits traits() const noexcept = 0;
  virtual Rank rank() const noexcept = 0;
  virtual std::uint32_t ranks() const noexcept = 0;

  // Plain operations. Work enqueued on the stream after the call sees the results and may reuse the memory.
  /// At its owner each part becomes the sum of that part over the ranks, f32; at the other ranks its content is
  /// undefined afterwards.
  virtual void reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) = 0;
  /// Each part becomes a copy of its owner's.
  virtual void all_gather(Stream& stream, std::span<const OwnedPart> parts) = 0;
  /// Work enqueued after the call starts when all ranks have reached the barrier.
  virtual void barrier(Stream& stream) = 0;
  /// data = sum over the ranks, f32, with the same bits everywhere.
  virtual void all_reduce(Stream& stream, Memory data);
  /// data = root's data.
  virtual void broadcast(Stream& stream, Memory data, Rank root);

  // The synchronous step.
  /// Passes on a bucket for the synchronous step: its gradients are summed over the ranks, each stripe is updated once,
  /// by its owner or by the ranks that relieve it, and every rank gets the new parameters. From the returned point on
  /// the bucket's parameters are the new ones here, its gradients may be overwritten, and with the step's first bucket
  /// `work.total` is known. A point of value 0: this holds for all work enqueued on `stream` after the call. The next
  /// call for the bucket waits for the point by itself.
  [[nodiscard]] virtual Point reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) = 0;
  // The same in three parts, for rules that need the whole gradient first (gathers_first): gather_gradients for each
  // bucket, agree once, update_gather for each bucket. They do not wait either, but take effect in the order of the
  // calls.
  /// Sums the bucket's gradients over the ranks, in rank order, into this rank's own gradients within `work.mine`, and
  /// computes into `work.sums` their finite check and, if it is wanted, their norm. Both are valid from the returned
  /// point on. The bucket's gradients must not be overwritten before the point of update_gather.
  virtual Point gather_gradients(Stream& stream, const BucketWork& work) = 0;
  /// `work.total` = the sum of all ranks' `work.sums`, from the returned point on; `work.mine` is not read.
  virtual Point agree(Stream& stream, const BucketWork& work) = 0;
  /// Updates each stripe with the gathered gradients and gives every rank the new parameters. The point means the same
  /// as that of reduce_update_gather.
  [[nodiscard]] virtual Point update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) = 0;
  /// A barrier on the stream that includes relieved ranks: work enqueued after it starts when they too have completed
  /// all calls so far. Required before a rank reuses its sums, which they still read, in a step without such a call.
  virtual void barrier_with_relieved(Stream&) {}
  /// Ends every wait of this communicator with `why`, here and (in an arena) at the peers.
  virtual void abort(const Status& why) noexcept = 0;
};

/// `data` in parts as equal as multiples of 64 bytes allow, one per rank in rank order; the last ones may be empty.
std::vector<OwnedPart> equal_parts(const Memory& data, std::uint32_t ranks);

}  // namespace troupe
