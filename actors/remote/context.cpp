#include "actors/remote/detail/context.hpp"

#include <algorithm>
#include <caf/actor_control_block.hpp>
#include <caf/system_messages.hpp>
#include <limits>
#include <utility>

#include "actors/caf_error.hpp"
#include "runtime/memory/memory_limit.hpp"

namespace troupe::remote {
namespace {

/// A header has 16 bits for the peer of a message's sender.
constexpr std::uint32_t kMostPeers = std::numeric_limits<decltype(wire::Header::source_peer)>::max() + 1u;

/// One half of the memory for messages is for those that wait here, the other for those that have arrived.
std::uint64_t half_of_memory(const RemoteOptions& options) {
  return std::max<std::uint64_t>(options.memory_bytes != 0 ? options.memory_bytes : memory_limit_bytes() / 8, 2) / 2;
}

void check_number(Peer number) {
  TROUPE_CHECK(number.value < kMostPeers, Code::unsupported, "peer ", number.value,
               " has a number that messages have no room for: remote actors reach at most ", kMostPeers, " processes");
}

}  // namespace

void answer(const caf::strong_actor_ptr& sender, caf::message_id id, const caf::error& error) {
  if (sender && id.is_request()) sender->enqueue(nullptr, id.response_id(), caf::make_message(error), nullptr);
}

void answer(const caf::strong_actor_ptr& sender, caf::message_id id, const Status& status) {
  answer(sender, id, to_caf(status));
}

Status shortened(const Status& why) {
  constexpr std::size_t kMostText = Transport::kMaxHeadBytes / 2;
  if (why.text().size() <= kMostText) return why;
  return {why.code(), std::string(why.text().substr(0, kMostText)) + " ..."};
}

bool is_exit(const caf::mailbox_element& message) {
  const caf::type_erased_tuple& content = message.content();
  return content.size() == 1 && content.type(0).first == caf::type_nr<caf::exit_msg>::value;
}

bool is_free(const caf::mailbox_element& message) { return message.mid.is_response() || is_exit(message); }

Context::Context(caf::actor_system& its_system, AddressSpace& its_space, LaneLoop& control_lane, LaneLoop& bulk_lane,
                 Peer itself, RemoteOptions its_options)
    : system(its_system),
      space(its_space),
      control(control_lane),
      bulk(bulk_lane),
      transport(control_lane.transport()),
      self(itself),
      options(std::move(its_options)),
      lane_access(std::make_shared<LaneAccess>(control)),
      outgoing(std::make_shared<Budget>(half_of_memory(options))),
      incoming(std::make_shared<Budget>(half_of_memory(options))),
      unit(&system),
      codec(unit) {
  TROUPE_CHECK(
      control.lane() == Lane::control && bulk.lane() == Lane::bulk && &control.transport() == &bulk.transport(),
      Code::invalid, "remote actors need the control and the bulk lane of one transport, in this order");
  check_number(self);
}

PeerState& Context::add_peer(Peer number, const caf::node_id& node) {
  check_number(number);
  TROUPE_CHECK(number != self && node != system.node(), Code::invalid, "peer ", number.value,
               " has the identity of this process, peer ", self.value,
               "; every process needs an actor system of its own");
  TROUPE_CHECK(peer(number) == nullptr && peer(node) == nullptr, Code::invalid, "peer ", number.value,
               " was added before, or another peer with its identity");
  auto& added = peers[number] = std::make_unique<PeerState>(number, node);
  by_node_[node] = added.get();
  return *added;
}

PeerState* Context::peer(Peer number) noexcept {
  const auto found = peers.find(number);
  return found == peers.end() ? nullptr : found->second.get();
}

PeerState* Context::peer(const caf::node_id& node) noexcept {
  const auto found = by_node_.find(node);
  return found == by_node_.end() ? nullptr : found->second;
}

void Context::drop(const std::string& what) {
  counts.dropped.add();
  if (options.dropped) options.dropped(what);
}

void Context::lose_later(PeerState& of, const std::string& why) {
  if (std::exchange(of.will_be_lost, true)) return;
  lane_access->run([this, &of, why] {
    if (!of.dead && !ended) lose(of, {Code::corrupt, text("peer ", of.number.value, " breaks the protocol: ", why)});
  });
}

}  // namespace troupe::remote
