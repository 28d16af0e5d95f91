#include "actors/group/detail/member.hpp"

#include "runtime/wire/detail/messages.hpp"
#include "runtime/wire/member.capnp.h"

namespace troupe::group {

using wire::as_bytes;
using wire::as_data;

std::vector<std::byte> encode(const Member& member) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<wire::Member>();
  root.setTransport(as_data(member.transport));
  root.setActorNode(as_data(member.actor_node));
  root.setBroadcaster(member.broadcaster);
  root.setAgent(member.agent);
  root.setArena(as_data(member.arena));
  return wire::encoded(message);
}

Member decode_member(std::span<const std::byte> bytes) {
  return wire::decoded<wire::Member>(bytes, "a member's description", [](wire::Member::Reader root) {
    return Member{.transport = as_bytes(root.getTransport()),
                  .actor_node = as_bytes(root.getActorNode()),
                  .broadcaster = root.getBroadcaster(),
                  .agent = root.getAgent(),
                  .arena = as_bytes(root.getArena())};
  });
}

}  // namespace troupe::group
