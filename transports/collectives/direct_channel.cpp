#include <algorithm>

#include "transports/collectives/detail/direct_head.hpp"
#include "transports/collectives/detail/direct_rounds.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe {
namespace {

/// The rounds to which a message belongs. A message that cannot be read goes to the first ones, which report it to all.
Receiver* receiver_of(const std::vector<collectives::DirectRounds*>& by_group,
                      std::span<const std::byte> head) noexcept {
  const GroupId id = collectives::group_of(head).value_or(GroupId{});
  const std::size_t place = id.value < by_group.size() ? id.value : 0;
  return place < by_group.size() ? by_group[place] : nullptr;
}

/// Drops messages that come between two views.
class DroppingReceiver final : public Receiver {
 public:
  Memory landing(Peer, Lane, std::span<const std::byte>, std::uint64_t) noexcept override { return {}; }
  void arrived(Peer, Lane, std::span<const std::byte>, Memory) noexcept override {}
  void dropped(Peer, Lane, Memory, const Status&) noexcept override {}
  void lost(Peer, const Status&) noexcept override {}
};
DroppingReceiver dropping_receiver;  // it has no state

}  // namespace

void DirectChannel::open(Transport& transport) { transport.receive(Channel::exchange, *this); }

void DirectChannel::close(Transport& transport) { transport.receive(Channel::exchange, dropping_receiver); }

bool DirectChannel::is_idle() const noexcept {
  return std::all_of(by_group_.begin(), by_group_.end(), [](const collectives::DirectRounds* rounds) {
    return rounds == nullptr || rounds->calls().is_idle();
  });
}

void DirectChannel::add(GroupId id, collectives::DirectRounds& rounds) {
  if (by_group_.size() <= id.value) by_group_.resize(id.value + 1);
  TROUPE_CHECK(by_group_[id.value] == nullptr, Code::invalid, "group ", id.value, " has two communicators");
  by_group_[id.value] = &rounds;
}

Memory DirectChannel::landing(Peer from, Lane lane, std::span<const std::byte> head,
                              std::uint64_t size_bytes) noexcept {
  Receiver* const receiver = receiver_of(by_group_, head);
  return receiver == nullptr ? Memory{} : receiver->landing(from, lane, head, size_bytes);
}

void DirectChannel::arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept {
  if (Receiver* const receiver = receiver_of(by_group_, head)) receiver->arrived(from, lane, head, payload);
}

/// It is unknown to which group it belonged. A peer that does not finish what it sends is lost to all groups.
void DirectChannel::dropped(Peer from, Lane lane, Memory payload, const Status& why) noexcept {
  for (Receiver* const receiver : by_group_)
    if (receiver != nullptr) receiver->dropped(from, lane, payload, why);
}

void DirectChannel::lost(Peer peer, const Status& why) noexcept {
  for (Receiver* const receiver : by_group_)
    if (receiver != nullptr) receiver->lost(peer, why);
}

}  // namespace troupe
