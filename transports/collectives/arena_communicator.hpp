#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/exchange/communicator.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

/// What one rank shows to the other ranks of its node; all of it is in memory that all of them have mapped.
struct ArenaMember {
  Memory gradients;      // its contributions, [group] f32 once or several times
  Memory sums;           // its steps' StepSums, at the same offsets as every other rank's
  TimelineId ready;      // raised when its gradients (or its data) can be read; signalled by its own stream
  TimelineId published;  // raised when its stripe (or its part of the sum) can be read
  Memory scratch;        // for all_reduce, equal sizes, at least 128 bytes per rank; empty: no all_reduce
};

/// A group of ranks that share arenas, as plain data: the same at all of them, except `rank`.
struct ArenaGroup {
  Rank rank;                         // this rank
  std::vector<ArenaMember> members;  // by rank
};

/// Collectives of ranks that share memory. The synchronous step copies no byte: each rank reads the others' gradients
/// in place, updates its stripe, and writes parameters that all ranks read. Two lines per rank keep the order:
/// gradients are read when every rank is ready, and overwritten only after all ranks have published. Relieved ranks are
/// not waited for, since they read no gradients.
class ArenaCommunicator final : public Communicator {
 public:
  /// The rank's own lines must be at 0. Throws Error{invalid} if the members do not match. `space` outlives it.
  ArenaCommunicator(AddressSpace& space, ArenaGroup group);

  CommunicatorTraits traits() const noexcept override { return {.in_place = true, .device_memory = true}; }
  Rank rank() const noexcept override { return group_.rank; }
  std::uint32_t ranks() const noexcept override { return static_cast<std::uint32_t>(group_.members.size()); }
  // Of any size; moved through the scratch memories, half a scratch at a time. All except barrier throw Error{invalid}
  // without scratch.
  void reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) override;
  void all_gather(Stream& stream, std::span<const OwnedPart> parts) override;
  void barrier(Stream& stream) override;
  void all_reduce(Stream& stream, Memory data) override;
  /// `work.gradients` and `work.sums` are in this rank's `gradients` and `sums`, at the same offsets as the others'.
  Point reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) override;
  Point gather_gradients(Stream& stream, const BucketWork& work) override;
  Point agree(Stream& stream, const BucketWork& work) override;
  Point update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) override;
  void barrier_with_relieved(Stream& stream) override;
  void abort(const Status& why) noexcept override;

 private:
  void signal_and_wait(Stream& stream, TimelineId ArenaMember::*line, std::span<const Rank> without = {});
  std::uint64_t half_of_scratch() const;
  void all_reduce_chunk(Stream& stream, Memory data);
  template <class Round>
  void in_rounds(std::span<const OwnedPart> parts, Round&& round);
  Memory shown_by(std::uint32_t rank, std::size_t slot, std::uint64_t room, std::uint64_t size_bytes) const noexcept;

  AddressSpace& space_;
  const ArenaGroup group_;
  std::uint64_t round_ = 0;      // calls so far (for plain operations: pieces so far), and the lines' values
  std::uint64_t published_ = 0;  // the last round that raised `published`
  std::vector<Memory> parts_;    // reused by every call
};

/// Enqueues on `stream` the rest of the update of `work` by `theirs.stripe.owner`, a rank that died within it. By its
/// journal the pass continues where it stopped, and the result has the same bits. `work` is the survivor's own for the
/// same bucket and step, `theirs` the dead rank's part of it. Call it when every rank's gradients of this work were
/// ready, no rank has begun later work, and the dead rank's process has ended. A pass that was complete is not changed.
/// For rules with a gather phase: a rank that died before all had agreed has changed nothing, so nothing must be
/// finished; one that died later has left its summed gradients.
void finish_stripe(Stream& stream, const ArenaGroup& group, const BucketWork& work, const RuleStep& rule,
                   const StripeMemory& theirs);

}  // namespace troupe
