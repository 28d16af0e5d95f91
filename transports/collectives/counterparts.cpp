#include "transports/collectives/counterparts.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace troupe {

NodeRoles::NodeRoles(const ExchangeLevel& between, std::span<const Rank> members, Rank self) {
  std::uint32_t ranks = 0;
  for (const std::vector<Rank>& set : between.sets)
    for (const Rank rank : set) ranks = std::max(ranks, rank.value + 1);
  for (Rank rank{0}; rank.value < ranks; ++rank.value) {
    homes_.push_back(home_set(between, rank));
    const std::vector<Rank>& set = between.sets[homes_.back()];
    nodes_.push_back(static_cast<std::uint32_t>(std::find(set.begin(), set.end(), rank) - set.begin()));
  }
  for (const std::vector<Rank>& set : between.sets) {
    const Rank host = set[nodes_.at(self.value)];
    const auto place = std::find(members.begin(), members.end(), host);
    TROUPE_CHECK(place != members.end(), Code::invalid, "rank ", host.value, " is not on the node of rank ",
                 self.value);
    hosts_.push_back(static_cast<std::uint32_t>(place - members.begin()));
  }
}

std::vector<OwnedPart> NodeRoles::within_node(std::span<const OwnedPart> parts) const {
  std::vector<OwnedPart> mapped(parts.begin(), parts.end());
  for (OwnedPart& part : mapped) part.owner = Rank{host_of(part.owner)};
  return mapped;
}

std::vector<OwnedPart> NodeRoles::between_nodes(const Counterparts& set, std::span<const OwnedPart> parts) const {
  std::vector<OwnedPart> mapped;
  for (const OwnedPart& part : parts)
    if (homes_.at(part.owner.value) == set.set) mapped.push_back({Rank{nodes_[part.owner.value]}, part.data});
  return mapped;
}

StripeMemory part_of(const Counterparts& set, const Bucket& range, std::span<const StripeMemory> mine, Rank self) {
  const Stripe& stripe = set.group.stripes[range.index];
  StripeMemory part;
  if (set.group.ranks[stripe.owner.value] == self && !mine.empty()) part = mine.front();
  part.stripe = stripe;
  if (set.group.ranks[stripe.owner.value] != self) part.stripe.count = 0;
  return part;
}

}  // namespace troupe
