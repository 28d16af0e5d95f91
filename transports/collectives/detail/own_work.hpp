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

/// What this rank computes in a round. It is enqueued on the exchange's stream; when it is done, the round, or the
/// staged result, is told. Contributions are added up in the order of ranks, whatever the order of arrival; otherwise
/// two runs would not have the same bits. Threads: the lane's.
class OwnWork {
 public:
  OwnWork(AddressSpace& space, Stream& exchange, const RoundPlan& plan);

  /// Adds up the contributions to a round of a whole update, and updates this rank's part of the chunk.
  void add_up_and_update(Round& round);
  /// Only the update, in a step with a verdict: the gathered gradients have been added up before.
  void update_own_part(Round& round);
  /// Works on this rank's whole part of the bucket at once: what is measured is then added in the same order, whatever
  /// the chunks. Tells all rounds of the call.
  void reduce_with_norm(CollectiveCall& call);
  /// Tells the call when everything measured so far is in the sums that will be sent.
  void finish_measuring(CollectiveCall& call);
  void add_up_sums(Round& round);
  void plain(Round& round);
  /// Copies a result that has arrived to its place, and then tells `result`.
  void unstage(const DirectHead& head, StagedResult& result);

 private:
  void about(const RoundShape& shape) { exchange_.about(plan_.label_of(shape)); }
  void tell(Waker& waker);
  void stage_results(const ElementRange& own);
  void update(const CollectiveCall& call, const ElementRange& own, std::span<const Memory> gradients,
              const Memory& total);
  std::span<const Memory> sums_of(const Round& round);
  std::span<const Memory> gradients_of(const RoundShape& shape, const Memory& gradients, const ElementRange& own);
  Memory add_up_packed(std::uint32_t bucket, const Memory& mine, const ElementRange& own);
  void add_up_packed_with_norm(std::uint32_t bucket, const Memory& mine, const ElementRange& own,
                               const BucketWork& work);
  template <class OfRank>
  std::span<const Memory> in_rank_order(Memory own, OfRank&& of_rank);

  AddressSpace& space_;
  Stream& exchange_;
  const RoundPlan& plan_;
  const DirectGroup& group_;
  const Staging& staging_;
  const std::uint32_t self_;
  std::vector<Memory> parts_;  // memory that is reused
  /// By rank: the ranks to blame if the sum of the earlier contributions, or that with this rank's added, is not
  /// finite.
  std::vector<std::array<Rank, 2>> blamed_so_far_;
};

}  // namespace troupe::collectives
