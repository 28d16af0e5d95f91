#include "actors/group/detail/member.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>

#include "runtime/base/error.hpp"
#include "runtime/wire/member.capnp.h"

namespace troupe::group {
namespace {

kj::ArrayPtr<const kj::byte> as_data(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}
std::vector<std::byte> as_bytes(kj::ArrayPtr<const kj::byte> data) {
  const auto* first = reinterpret_cast<const std::byte*>(data.begin());
  return {first, first + data.size()};
}

}  // namespace

std::vector<std::byte> encode(const Member& member) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<wire::Member>();
  root.setTransport(as_data(member.transport));
  root.setActorNode(as_data(member.actor_node));
  root.setBroadcaster(member.broadcaster);
  root.setAgent(member.agent);
  root.setArena(as_data(member.arena));
  const auto words = capnp::messageToFlatArray(message);
  return as_bytes(words.asBytes());
}

Member decode_member(std::span<const std::byte> bytes) {
  TROUPE_CHECK(bytes.size() % sizeof(capnp::word) == 0, Code::corrupt, "a member's description has ", bytes.size(),
               " bytes");
  std::vector<capnp::word> words(bytes.size() / sizeof(capnp::word));
  if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  try {
    capnp::FlatArrayMessageReader reader(kj::arrayPtr(words.data(), words.size()));
    const auto root = reader.getRoot<wire::Member>();
    return {.transport = as_bytes(root.getTransport()),
            .actor_node = as_bytes(root.getActorNode()),
            .broadcaster = root.getBroadcaster(),
            .agent = root.getAgent(),
            .arena = as_bytes(root.getArena())};
  } catch (const kj::Exception& e) {
    fail(Code::corrupt, text("a member's description cannot be read: ", e.getDescription().cStr()));
  }
}

}  // namespace troupe::group
