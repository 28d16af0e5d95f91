#include "actors/group/detail/roster.hpp"

#include "runtime/base/error.hpp"

namespace troupe::group {

void Roster::enroll(RemoteActors& remote, std::vector<Entry> entries) {
  entries_ = std::move(entries);
  for (std::uint32_t peer = 0; peer < entries_.size(); ++peer) peers_[entries_[peer].node] = Peer{peer};
  const std::scoped_lock hold(mutex_);
  remote_ = &remote;
}

void Roster::close() {
  const std::scoped_lock tell(telling_);
  const std::scoped_lock hold(mutex_);
  remote_ = nullptr;
}

std::optional<Peer> Roster::peer_of(const caf::node_id& node) const {
  const auto found = peers_.find(node);
  return found == peers_.end() ? std::nullopt : std::optional(found->second);
}

std::string Roster::describe(Peer peer) const {
  const std::string& host = entries_.at(peer.value).host;
  return host.empty() ? text("peer ", peer.value) : text("peer ", peer.value, " (", host, ")");
}

caf::actor Roster::courier(Peer peer) const { return handle(peer, entries_.at(peer.value).courier); }

caf::actor Roster::steward(Peer peer) const { return handle(peer, entries_.at(peer.value).steward); }

caf::actor Roster::handle(Peer peer, caf::actor_id actor) const {
  const std::scoped_lock hold(mutex_);
  return remote_ == nullptr ? caf::actor{} : remote_->lookup(peer, actor);
}

void Roster::has_left(Peer peer) const {
  const std::scoped_lock hold(mutex_);
  if (remote_ != nullptr) remote_->lost(peer, Status{Code::peer_lost, describe(peer) + " has left the group"});
}

void Roster::is_leaving(Peer peer) const {
  const std::scoped_lock hold(mutex_);
  ended_.insert(peer.value);
}

void Roster::is_lost(Peer peer, const Status& why) const {
  const std::scoped_lock tell(telling_);
  {
    const std::scoped_lock hold(mutex_);
    if (remote_ == nullptr || !ended_.insert(peer.value).second) return;
  }
  losses_.emplace_back(peer, why);
  for (const auto& [number, lost] : listeners_) lost(peer, why);
}

std::uint64_t Roster::listen(Lost lost) {
  const std::scoped_lock tell(telling_);
  for (const auto& [peer, why] : losses_) lost(peer, why);
  listeners_.emplace(++listeners_ever_, std::move(lost));
  return listeners_ever_;
}

void Roster::forget(std::uint64_t listener) {
  const std::scoped_lock tell(telling_);
  listeners_.erase(listener);
}

void Roster::is_silent(Peer peer, const Status& why) const {
  {
    const std::scoped_lock hold(mutex_);
    if (remote_ != nullptr) remote_->lost(peer, why);
  }
  if (!parting_) is_lost(peer, why);
}

void Roster::drop(const std::string& what) const {
  const std::scoped_lock hold(mutex_);
  if (dropped_) dropped_(what);
}

}  // namespace troupe::group
