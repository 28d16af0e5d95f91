#include "transports/collectives/detail/direct_head.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe {
namespace {

/// Whose message it is; one that cannot be read goes to the first, which says so to all.
Receiver* receiver_of(const std::vector<Receiver*>& by_group, std::span<const std::byte> head) noexcept {
  const GroupId id = collectives::group_of(head).value_or(GroupId{});
  const std::size_t place = id.value < by_group.size() ? id.value : 0;
  return place < by_group.size() ? by_group[place] : nullptr;
}

}  // namespace

void DirectChannel::open(Transport& transport) { transport.receive(Channel::exchange, *this); }

void DirectChannel::add(GroupId id, Receiver& receiver) {
  if (by_group_.size() <= id.value) by_group_.resize(id.value + 1);
  TROUPE_CHECK(by_group_[id.value] == nullptr, Code::invalid, "group ", id.value, " has two communicators");
  by_group_[id.value] = &receiver;
}

Memory DirectChannel::landing(Peer from, Lane lane, std::span<const std::byte> head,
                              std::uint64_t size_bytes) noexcept {
  Receiver* const receiver = receiver_of(by_group_, head);
  return receiver == nullptr ? Memory{} : receiver->landing(from, lane, head, size_bytes);
}

void DirectChannel::arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept {
  if (Receiver* const receiver = receiver_of(by_group_, head)) receiver->arrived(from, lane, head, payload);
}

/// Where it would have gone is not said; a peer that does not finish what it sends is lost to all.
void DirectChannel::dropped(Peer from, Lane lane, Memory payload, const Status& why) noexcept {
  for (Receiver* const receiver : by_group_)
    if (receiver != nullptr) receiver->dropped(from, lane, payload, why);
}

void DirectChannel::lost(Peer peer, const Status& why) noexcept {
  for (Receiver* const receiver : by_group_)
    if (receiver != nullptr) receiver->lost(peer, why);
}

}  // namespace troupe
