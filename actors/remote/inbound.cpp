#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/sec.hpp>
#include <cstring>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/engine.hpp"

namespace troupe::remote {
namespace {

/// What arrived, kept until the control lane looks at it, or until its turn comes.
std::vector<std::byte> copy(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

/// Gives a tensor back that was lent by another process, when its last handle here ends.
class Engine::Borrowed {
 public:
  Borrowed(Engine& engine, PeerState& from, std::uint64_t token)
      : engine_(engine), gate_(engine.gate_), from_(from), token_(token) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    gate_->run([engine = &engine_, from = &from_, token = token_] { engine->give_back(*from, token); });
  }

 private:
  Engine& engine_;  // like from_, only touched on the control lane
  const std::shared_ptr<Gate> gate_;
  PeerState& from_;
  const std::uint64_t token_;
};

Memory Engine::landing(Peer from, Lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept {
  if (const auto memory = landing_pool_->take(size_bytes)) return *memory;
  // Refused: no memory tells the transport to drop the payload. The head still takes its place in the order.
  gate_->run([this, from, kept = copy(head)] { take_in(from, {.head = kept, .refused = true}); });
  return {};
}

void Engine::arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept {
  auto owner = payload.size_bytes > 0 ? landing_pool_->owner(payload) : nullptr;
  if (lane == Lane::control) {
    take_in(from, {.head = head, .payload = payload, .payload_owner = std::move(owner)});
    inline_->run();
    return;
  }
  gate_->run([this, from, kept = copy(head), payload, owner = std::move(owner)]() mutable {
    take_in(from, {.head = kept, .payload = payload, .payload_owner = std::move(owner)});
  });
}

void Engine::dropped(Peer, Lane, Memory payload, const Status&) noexcept { landing_pool_->give_back(payload); }

void Engine::lost(Peer number, const Status& why) noexcept { lost_any_thread(number, why); }

void Engine::take_in(Peer number, const Arrival& arrival) {
  PeerState* const from = peer(number);
  if (ended_ || (from != nullptr && from->dead)) return;
  const auto header = wire::load(arrival.head);
  if (from == nullptr || !header) {
    return drop(text("a frame from peer ", number.value, " that is unknown, or speaks another protocol"));
  }
  switch (header->kind) {
    case wire::Kind::message: return take_in_message(*from, *header, arrival);
    case wire::Kind::monitor: return take_in_monitor(*from, header->target);
    case wire::Kind::down: return take_in_down(*from, *header, arrival);
    case wire::Kind::release: lent_.erase(header->message_id); return;
  }
}

void Engine::take_in_message(PeerState& from, const wire::Header& header, const Arrival& arrival) {
  Local* const to = local(header.target);
  if (to == nullptr) {  // it has ended; ids are not given twice, so there is no order to keep
    answer(sender_of(from, header), caf::message_id{header.message_id},
           caf::make_error(caf::sec::request_receiver_down));
    abandon(from, header, arrival.head);
    return settle(from, header.order);
  }
  Stream& stream = to->streams[from.number];
  if (header.sequence != stream.next) {
    ++counts_.reordered;
    stream.held.emplace(header.sequence,
                        Held{copy(arrival.head), arrival.payload, arrival.payload_owner, arrival.refused});
    return;
  }
  deliver(from, header, arrival, *to);
  ++stream.next;
  while (!stream.held.empty()) {
    auto next = stream.held.extract(stream.next);
    if (next.empty()) break;
    const Held& held = next.mapped();
    deliver(from, *wire::load(held.head), {held.head, held.payload, held.payload_owner, held.refused}, *to);
    ++stream.next;
  }
}

/// A message whose turn it is.
void Engine::deliver(PeerState& from, const wire::Header& header, const Arrival& arrival, Local& to) {
  const caf::message_id id{header.message_id};
  if ((header.flags & wire::kVoid) == 0) {
    auto sender = sender_of(from, header);
    caf::mailbox_element_ptr message;
    Status status;
    if (arrival.refused) {
      abandon(from, header, arrival.head);
      status = {Code::out_of_memory, text("peer ", self_.value, " has no memory left for the payload of a message")};
    } else {
      status = decode(from, header, arrival, sender, message);
    }
    if (id.is_response()) outstanding_.erase({header.target, id.request_id().integer_value()});
    if (status.ok()) {
      ++counts_.delivered;
      to.actor->enqueue(std::move(message), nullptr);
    } else {
      drop(text("message from peer ", from.number.value, " not delivered: ", status.text()));
      answer(sender, id, status);
      // An answer that cannot be read is still an end for the request that waits for it.
      if (id.is_response()) to.actor->enqueue(nullptr, id, caf::make_message(to_caf(status)), nullptr);
    }
  }
  settle(from, header.order);
}

Status Engine::decode(PeerState& from, const wire::Header& header, const Arrival& arrival,
                      const caf::strong_actor_ptr& sender, caf::mailbox_element_ptr& message) {
  const caf::message_id id{header.message_id};
  if ((header.flags & wire::kPlain) != 0 && (header.tensors | (header.flags & wire::kBodyInPayload)) == 0) {
    return codec_.decode_plain(arrival.head.subspan(wire::kHeaderBytes), sender, id, message);
  }
  const auto records = wire::load_records(arrival.head, header.tensors);
  detail::TensorSlots slots;
  std::uint64_t end = 0;  // of the tensors in the payload: there a body in the payload begins
  Status status;
  if (records.size() != header.tensors) status = {Code::corrupt, "a message is shorter than its tensors' records"};
  for (const wire::TensorRecord& record : records) {  // all of them: what was lent must be given back in any case
    Status wrong = land(from, record, arrival, slots.arrived.emplace_back());
    if (!wrong.ok()) status = std::move(wrong);
    if (record.by_reference == 0) end = std::max(end, record.offset + record.size_bytes);
  }
  if (!status.ok()) return status;
  std::span<const std::byte> body = arrival.head.subspan(wire::kHeaderBytes);
  body = body.first(body.size() - records.size() * sizeof(wire::TensorRecord));
  if ((header.flags & wire::kBodyInPayload) != 0) {
    if (end > arrival.payload.size_bytes) return {Code::corrupt, "a message's body lies outside its payload"};
    body = {space_.address(arrival.payload) + end, arrival.payload.size_bytes - end};
  }
  Codec::Decoded decoded;
  status = codec_.decode(body, (header.flags & wire::kHasStages) != 0, decoded);
  if (status.ok()) {
    message = caf::make_mailbox_element(sender, id, std::move(decoded.stages), std::move(decoded.content));
  }
  return status;
}

Status Engine::land(PeerState& from, const wire::TensorRecord& record, const Arrival& arrival,
                    detail::TensorSlots::Landed& tensor) {
  if (record.by_reference == 0) {
    const std::uint64_t have = arrival.payload.size_bytes;
    if (record.offset > have || record.size_bytes > have - record.offset) {
      return {Code::corrupt, "a tensor lies outside of its message's payload"};
    }
    tensor = {slice(arrival.payload, record.offset, record.size_bytes), {}, arrival.payload_owner};
    return {};
  }
  tensor = {{record.arena, record.offset, record.size_bytes},
            {record.line, record.point},
            std::make_shared<Borrowed>(*this, from, record.token)};
  try {
    if (tensor.memory.size_bytes > 0) space_.address(tensor.memory);
    if (record.point != 0) space_.timeline(record.line);
  } catch (const Error& error) {
    return {Code::corrupt,
            text("a tensor by reference from peer ", from.number.value, " cannot be reached: ", error.what())};
  }
  return {};
}

/// Gives back what was lent for a message that nobody will read.
void Engine::abandon(PeerState& from, const wire::Header& header, std::span<const std::byte> head) {
  for (const wire::TensorRecord& record : wire::load_records(head, header.tensors)) {
    if (record.by_reference != 0) give_back(from, record.token);
  }
}

void Engine::give_back(PeerState& from, std::uint64_t token) {
  if (!from.dead && !ended_) send_control(from, {.kind = wire::Kind::release, .message_id = token});
}

void Engine::take_in_monitor(PeerState& from, caf::actor_id actor) {
  if (Local* const watched = local(actor)) {
    watched->watchers.push_back(from.number);
  } else {
    send_down(from, actor, caf::exit_reason::unknown);
  }
}

void Engine::take_in_down(PeerState& from, const wire::Header& header, const Arrival& arrival) {
  Ended ended{header.source, caf::exit_reason::unknown};
  const Status status = codec_.decode(arrival.head.subspan(wire::kHeaderBytes), ended.reason);
  if (!status.ok()) ended.reason = to_caf(status);
  from.ended.emplace(header.order, std::move(ended));
  settle(from, header.order);
}

/// Messages to different actors, and on different lanes, overtake each other; but what an actor sent before it ended
/// must not be overtaken by the news of its end, which would answer requests that are answered already. So a down waits
/// until all that its process sent before it is dealt with.
void Engine::settle(PeerState& from, std::uint32_t order) {
  if (order == from.settled && from.early.empty() && from.ended.empty()) {  // nearly always
    ++from.settled;
    return;
  }
  from.early.insert(order);
  while (from.early.erase(from.settled) > 0) {
    auto ended = from.ended.extract(from.settled++);
    if (!ended.empty()) end_remote(from, ended.mapped());
  }
}

void Engine::end_remote(PeerState& from, const Ended& ended) {
  answer_outstanding(from, ended.actor, caf::make_error(caf::sec::request_receiver_down));
  proxies_.erase(from.node, ended.actor, ended.reason);
}

caf::strong_actor_ptr Engine::sender_of(PeerState& from, const wire::Header& header) {
  if (header.source == 0) return nullptr;
  if (header.source_peer == self_.value) {
    Local* const known = local(header.source);
    return known ? known->actor : nullptr;
  }
  PeerState* const of = header.source_peer == from.number.value ? &from : peer(Peer{header.source_peer});
  return of ? proxies_.get_or_put(of->node, header.source) : nullptr;
}

}  // namespace troupe::remote
