#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/compute/stream.hpp"
#include "runtime/memory/arena.hpp"
#include "transports/collectives/detail/direct_call.hpp"
#include "transports/collectives/detail/direct_head.hpp"
#include "transports/collectives/detail/round_plan.hpp"

namespace troupe::collectives {

/// What this rank computes in a round: enqueued on the exchange's stream, which then tells the round, or the staged
/// result, that it is done. Contributions are added up in the order of ranks, whatever the order in which they came:
/// that is what makes two runs the same to the last bit. Threads: the lane's.
class OwnWork {
 public:
  OwnWork(AddressSpace& space, Stream& exchange, const RoundPlan& plan);

  /// Adds up the contributions to a round that does all of an update, and updates this rank's part of the chunk.
  void add_up_and_update(Round& round);
  /// The update by itself, of a step with a verdict: what was gathered before is added up already.
  void update_own_part(Round& round);
  /// Over this rank's whole part of the bucket at once: what is measured is added up in the same order, however the
  /// bucket was cut. Tells all of the call's rounds.
  void reduce_with_norm(CollectiveCall& call);
  /// Tells the call when all that was measured so far stands in the sums from which they leave.
  void finish_measuring(CollectiveCall& call);
  void add_up_sums(Round& round);
  void plain(Round& round);
  /// A result that has arrived goes where it belongs; tells `result` then.
  void unstage(const DirectHead& head, StagedResult& result);

 private:
  void about(const RoundShape& shape) { exchange_.about(plan_.label_of(shape)); }
  void tell(Waker& waker);
  void stage_results(const Part& own);
  void update(const CollectiveCall& call, const Part& own, std::span<const Memory> gradients, const Memory& total);
  std::span<const Memory> sums_of(const Round& round);
  std::span<const Memory> gradients_of(const RoundShape& shape, const Memory& gradients, const Part& own);
  Memory add_up_packed(std::uint32_t bucket, const Memory& mine, const Part& own);
  void add_up_packed_with_norm(std::uint32_t bucket, const Memory& mine, const Part& own, const Memory& sums);
  template <class OfRank>
  std::span<const Memory> in_rank_order(Memory own, OfRank&& of_rank);

  AddressSpace& space_;
  Stream& exchange_;
  const RoundPlan& plan_;
  const DirectGroup& group_;
  const Staging& staging_;
  const std::uint32_t self_;
  std::vector<Memory> parts_;  // reused
  /// By rank: to whom a fault is laid that is there once this rank's part is added to what those before it add up to.
  std::vector<std::array<Rank, 2>> blamed_so_far_;
};

}  // namespace troupe::collectives
