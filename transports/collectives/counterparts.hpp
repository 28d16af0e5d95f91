#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/exchange/communicator.hpp"
#include "runtime/exchange/exchange_level.hpp"

namespace troupe {

/// A set of counterparts to which a rank belongs.
struct Counterparts {
  std::size_t set = 0;  // its index in the level between nodes
  CounterpartGroup group;
  std::unique_ptr<Communicator> communicator;  // for its ranges and stripes
};

/// Which member of a node exchanges the data of which ranks of the job with other nodes: the one that belongs to the
/// home set of their owner.
class NodeRoles {
 public:
  /// `between`: the job's sets of counterparts. `members`: the node's ranks, by their numbers in the job; `self` is one
  /// of them. Throws Error{invalid} if the node has no member in some set.
  NodeRoles(const ExchangeLevel& between, std::span<const Rank> members, Rank self);

  /// Of the job.
  std::uint32_t ranks() const noexcept { return static_cast<std::uint32_t>(homes_.size()); }
  /// The index of the member that exchanges what `owner` owns.
  std::uint32_t host_of(Rank owner) const { return hosts_[homes_.at(owner.value)]; }
  /// `parts` with those members in place of their owners.
  std::vector<OwnedPart> within_node(std::span<const OwnedPart> parts) const;
  /// The parts whose owners have this home set, with the set's rank numbers.
  std::vector<OwnedPart> between_nodes(const Counterparts& set, std::span<const OwnedPart> parts) const;

 private:
  std::vector<std::size_t> homes_;    // by rank of the job: the index of its home set
  std::vector<std::uint32_t> hosts_;  // by set: the member of this node that belongs to it
  std::vector<std::uint32_t> nodes_;  // by rank of the job: its node
};

/// This rank's part of a range, with the set's rank numbers; empty if another rank owns it.
StripeMemory part_of(const Counterparts& set, const Bucket& range, std::span<const StripeMemory> mine, Rank self);

/// Calls `what(set, work)` for each range of the bucket that this rank, `self`, exchanges, with the work for that
/// range. Empty ranges are left out, except those whose messages carry a step's sums.
template <class What>
void for_each_range(std::span<Counterparts> sets, const BucketWork& work, Rank self, What&& what) {
  for (Counterparts& set : sets) {
    bool first = work.first;
    for (const Bucket& range : set.group.ranges_of(work.bucket.index)) {
      const bool with_sums = std::exchange(first, false);
      if (range.count == 0 && !with_sums) continue;
      BucketWork part = work;
      part.bucket = range;
      part.first = with_sums;
      part.gradients = elements(work.gradients, range.first - work.bucket.first, range.count, sizeof(float));
      const StripeMemory mine = part_of(set, range, work.mine, self);
      part.mine = {&mine, 1};
      what(set, part);
    }
  }
}

}  // namespace troupe
