#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/exchange/communicator.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

/// What one rank shows to the others of its node; all of it in memory that every one of them has mapped.
struct ArenaMember {
  Memory gradients;      // what it contributes from, [group] f32 once or several times
  Memory sums;           // where its steps' StepSums lie, at the same offsets as every other rank's
  TimelineId ready;      // raised when its gradients (or its data) can be read; its own stream signals it
  TimelineId published;  // raised when its stripe (or its part of the sum) can be read
  Memory scratch;        // for all_reduce, equal sizes, at least 128 bytes per rank; empty: no all_reduce
};

/// A group of ranks that share arenas, as plain data: the same in every one of them but for `rank`.
struct ArenaGroup {
  Rank rank;                         // this one
  std::vector<ArenaMember> members;  // by rank
};

/// Collectives of ranks that share memory, without a byte copied for the synchronous step: each rank reads the others'
/// gradients where they lie, updates its stripe, and the parameters it writes are the ones that all read. Two lines
/// per rank keep the order: gradients are read when every rank is ready, and overwritten only after all have published
/// but for relieved ranks, which read none.
class ArenaCommunicator final : public Communicator {
 public:
  /// Its own lines are fresh. Throws Error{invalid} when the members do not fit together. `space` outlives it.
  ArenaCommunicator(AddressSpace& space, ArenaGroup group);

  CommunicatorTraits traits() const noexcept override { return {.in_place = true, .device_memory = true}; }
  Rank rank() const noexcept override { return group_.rank; }
  std::uint32_t ranks() const noexcept override { return static_cast<std::uint32_t>(group_.members.size()); }
  // Of any size, staged through the scratch memories half a scratch at a time. All but barrier throw Error{invalid}
  // without one.
  void reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) override;
  void all_gather(Stream& stream, std::span<const OwnedPart> parts) override;
  void barrier(Stream& stream) override;
  void all_reduce(Stream& stream, Memory data) override;
  /// `work.gradients` and `work.sums` lie in this rank's own `gradients` and `sums`, at the same place as the others'.
  Point reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                             std::span<const StripeMemory> mine) override;
  Point gather_gradients(Stream& stream, const BucketWork& work, std::span<const StripeMemory> mine) override;
  Point agree(Stream& stream, const BucketWork& work) override;
  Point update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                      std::span<const StripeMemory> mine) override;
  void barrier_with_relieved(Stream& stream) override;
  void abort(const Status& why) noexcept override;

 private:
  void meet(Stream& stream, TimelineId ArenaMember::*line, std::span<const Rank> without = {});
  std::uint64_t half_of_scratch() const;
  void all_reduce_chunk(Stream& stream, Memory data);
  template <class Round>
  void in_rounds(std::span<const OwnedPart> parts, Round&& round);
  Memory shown_by(std::uint32_t rank, std::size_t slot, std::uint64_t room, std::uint64_t size_bytes) const noexcept;

  AddressSpace& space_;
  const ArenaGroup group_;
  std::uint64_t round_ = 0;      // calls so far (of plain operations: what is moved at once), the lines' values
  std::uint64_t published_ = 0;  // the last round that raised `published`
  std::vector<Memory> parts_;    // reused by every call
};

/// Enqueues on `stream` what `theirs.stripe.tenant`, a rank that died inside its update of `work`, left undone: with
/// its journal the pass goes on where it stopped and ends with the same bits. `work` is the survivor's own of the same
/// bucket and step, `theirs` the dead rank's part of it. May be called when every rank's gradients of this work were
/// ready, while none has gone beyond it, and after the dead rank's process has ended. A pass that was complete stays as
/// it is. Of a rule that gathers first: a rank that died before all had agreed has changed nothing, so there is nothing
/// to finish; one that died later has left its summed gradients behind.
void finish_stripe(Stream& stream, const ArenaGroup& group, const BucketWork& work, const RuleStep& rule,
                   const StripeMemory& theirs);

}  // namespace troupe
