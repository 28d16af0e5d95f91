#include "actors/group/detail/peer_table.hpp"

#include "runtime/base/error.hpp"

namespace troupe::group {

void PeerTable::enroll(RemoteActors& remote, std::vector<Entry> entries) {
  entries_ = std::move(entries);
  for (std::uint32_t peer = 0; peer < entries_.size(); ++peer) peers_[entries_[peer].node] = Peer{peer};
  const std::scoped_lock hold(mutex_);
  remote_ = &remote;
}

void PeerTable::close() {
  const std::scoped_lock tell(notifying_);
  const std::scoped_lock hold(mutex_);
  remote_ = nullptr;
}

std::optional<Peer> PeerTable::peer_of(const caf::node_id& node) const {
  const auto found = peers_.find(node);
  return found == peers_.end() ? std::nullopt : std::optional(found->second);
}

std::string PeerTable::describe(Peer peer) const {
  const std::string& host = entries_.at(peer.value).host;
  return host.empty() ? text("peer ", peer.value) : text("peer ", peer.value, " (", host, ")");
}

caf::actor PeerTable::broadcaster(Peer peer) const { return handle(peer, entries_.at(peer.value).broadcaster); }

caf::actor PeerTable::agent(Peer peer) const { return handle(peer, entries_.at(peer.value).agent); }

caf::actor PeerTable::handle(Peer peer, caf::actor_id actor) const {
  const std::scoped_lock hold(mutex_);
  return remote_ == nullptr ? caf::actor{} : remote_->lookup(peer, actor);
}

void PeerTable::report_left(Peer peer) const {
  const std::scoped_lock hold(mutex_);
  if (remote_ != nullptr) remote_->lost(peer, Status{Code::peer_lost, describe(peer) + " has left the group"});
}

void PeerTable::report_leaving(Peer peer) const {
  const std::scoped_lock hold(mutex_);
  ended_.insert(peer.value);
}

void PeerTable::report_lost(Peer peer, const Status& why) const {
  const std::scoped_lock tell(notifying_);
  {
    const std::scoped_lock hold(mutex_);
    if (remote_ == nullptr || !ended_.insert(peer.value).second) return;
  }
  losses_.emplace_back(peer, why);
  for (const auto& [number, lost] : listeners_) lost(peer, why);
}

std::uint64_t PeerTable::add_listener(Lost lost) {
  const std::scoped_lock tell(notifying_);
  for (const auto& [peer, why] : losses_) lost(peer, why);
  listeners_.emplace(++listeners_ever_, std::move(lost));
  return listeners_ever_;
}

void PeerTable::remove_listener(std::uint64_t listener) {
  const std::scoped_lock tell(notifying_);
  listeners_.erase(listener);
}

void PeerTable::report_silent(Peer peer, const Status& why) const {
  {
    const std::scoped_lock hold(mutex_);
    if (remote_ != nullptr) remote_->lost(peer, why);
  }
  if (!shutting_down_) report_lost(peer, why);
}

void PeerTable::drop(const std::string& what) const {
  const std::scoped_lock hold(mutex_);
  if (dropped_) dropped_(what);
}

}  // namespace troupe::group
