#include "runtime/membership/membership.hpp"

#include <algorithm>

namespace troupe {

Membership::Membership(ViewId view, Rank self, std::vector<std::string> hosts)
    : view_(view), self_(self), hosts_(std::move(hosts)), members_(hosts_.size(), Member::expected) {
  TROUPE_CHECK(self.value < hosts_.size(), Code::invalid, "rank ", self.value, " is not below the world size ",
               hosts_.size());
}

MembershipActions Membership::joined(Rank rank) {
  TROUPE_CHECK(rank.value < members_.size(), Code::invalid, "rank ", rank.value, " joined a view of ", members_.size());
  if (over_ || members_[rank.value] != Member::expected) return {};
  members_[rank.value] = Member::joined;
  return {.begin = missing().empty()};
}

MembershipActions Membership::finished(Rank rank) {
  TROUPE_CHECK(rank.value < members_.size(), Code::invalid, "rank ", rank.value, " finished in a view of ",
               members_.size());
  if (over_) return {};
  members_[rank.value] = Member::finished;
  const bool all = std::all_of(members_.begin(), members_.end(), [](Member m) { return m == Member::finished; });
  return {.leave = all};
}

/// The loss of rank 0 is not left to the coordinator, because rank 0 is the coordinator.
MembershipActions Membership::lost(Rank rank, const Status& why) {
  if (rank.value != 0 && leaves_it_to_coordinator()) return {};
  return report_lost(rank, why);
}

MembershipActions Membership::report_lost(Rank rank, const Status& why) {
  if (over_ || rank.value >= members_.size()) return {};
  return end({Code::peer_lost, text("rank ", rank.value, " on node ", hosts_[rank.value], " was lost after step ",
                                    committed_, " was committed: ", why.text())});
}

MembershipActions Membership::failed(const Status& why) {
  if (over_ || (why.code() == Code::peer_lost && leaves_it_to_coordinator())) return {};
  return end({why.code(), text("rank ", self_.value, " on node ", hosts_[self_.value], ", after step ", committed_,
                               " was committed: ", why.text())});
}

std::vector<Rank> Membership::missing() const {
  std::vector<Rank> ranks;
  for (std::uint32_t i = 0; i < members_.size(); ++i)
    if (members_[i] == Member::expected) ranks.push_back({i});
  return ranks;
}

std::vector<Rank> Membership::unfinished() const {
  std::vector<Rank> ranks;
  for (std::uint32_t i = 0; i < members_.size(); ++i)
    if (members_[i] != Member::finished) ranks.push_back({i});
  return ranks;
}

MembershipActions Membership::end(Status why) {
  over_ = true;
  return {.abort = std::move(why)};
}

}  // namespace troupe
