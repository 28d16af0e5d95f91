#include <algorithm>
#include <bit>
#include <caf/actor_system.hpp>
#include <caf/downstream_msg.hpp>
#include <caf/sec.hpp>
#include <caf/upstream_msg.hpp>
#include <cstring>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/engine.hpp"

namespace troupe::remote {
namespace {

/// More tensors than this do not wait to be given back.
constexpr std::size_t kGivenBackAtOnce = 32;

/// Exit messages and answers that nobody waits for any more may come before their turn too, beside what a window and
/// outstanding requests allow.
constexpr std::size_t kMostStrays = 1024;
/// Gaps in the order of what a peer sent, beside those that its window allows: answers on their way.
constexpr std::size_t kMostGaps = 65536;

/// The body is not in the head.
constexpr std::uint8_t kElsewhere = wire::kBodyInPayload | wire::kBodyInPieces;

/// CAF looks at what the number of a message says, and takes the content to be that without looking.
bool fits_its_queue(const caf::mailbox_element& message) {
  if (message.mid.is_upstream_message()) return message.content().match_elements<caf::upstream_msg>();
  if (message.mid.is_downstream_message()) return message.content().match_elements<caf::downstream_msg>();
  return true;
}

/// As its sender must have reckoned it.
std::uint16_t charge_of(const wire::Header& header, const Arrival& arrival) {
  std::uint64_t copied = 0;
  std::uint64_t end = 0;  // of the tensors in the payload
  const std::size_t records_bytes = std::size_t{header.tensors} * sizeof(wire::TensorRecord);
  if (header.tensors > 0) {
    for (const wire::TensorRecord& record : wire::load_records(arrival.head, header.tensors)) {
      if (record.by_reference != 0) continue;
      copied += record.size_bytes;
      end = std::max(end, record.offset + record.size_bytes);
    }
  }
  std::uint64_t body = arrival.head.size() - std::min(arrival.head.size(), wire::kHeaderBytes + records_bytes);
  if ((header.flags & wire::kBodyInPieces) != 0) body = arrival.body.size_bytes;
  if ((header.flags & wire::kBodyInPayload) != 0)
    body = arrival.payload.size_bytes - std::min(arrival.payload.size_bytes, end);
  return wire::charge_of(body, copied);
}

/// What arrived, kept until the control lane looks at it, or until its turn comes.
std::vector<std::byte> copy(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

/// A message from another process in its receiver's mailbox.
class ReceivedMessage final : public caf::mailbox_element {
 public:
  ReceivedMessage(caf::strong_actor_ptr sender, caf::message_id id, Codec::Decoded&& decoded,
                  troupe::detail::Receipt receipt)
      : caf::mailbox_element(std::move(sender), id, std::move(decoded.stages)),
        message_(std::move(decoded.content)),
        receipt_(std::move(receipt)) {}
  caf::type_erased_tuple& content() override {
    if (message_.empty()) return nothing_;
    return message_.vals().unshared();
  }
  const caf::type_erased_tuple& content() const override {
    if (message_.empty()) return nothing_;
    return *message_.cvals();
  }
  caf::message move_content_to_message() override { return std::move(message_); }
  caf::message copy_content_to_message() const override { return message_; }

 private:
  caf::message message_;
  caf::empty_type_erased_tuple nothing_;
  const troupe::detail::Receipt receipt_;
};

/// Gives a tensor back that was lent by another process, when its last handle here ends.
class Engine::Borrowed {
 public:
  Borrowed(Engine& engine, PeerState& from, std::uint64_t token)
      : engine_(engine), gate_(engine.gate_), from_(from), token_(token) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    if (running_inline() == gate_.get()) {
      engine_.give_back(from_, token_);
    } else {
      gate_->run([engine = &engine_, from = &from_, token = token_] { engine->give_back(*from, token); });
    }
  }

 private:
  Engine& engine_;  // like from_, only touched on the control lane
  const std::shared_ptr<Gate> gate_;
  PeerState& from_;
  const std::uint64_t token_;
};

Memory Engine::landing(Peer from, Lane lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept {
  if (const auto sink = sink_for(head, size_bytes)) return *sink;
  if (const auto memory = landing_pool_->take(size_bytes)) return *memory;
  const auto header = lane == Lane::bulk ? wire::load(head) : std::nullopt;
  const bool is_piece = header && header->kind == wire::Kind::piece;
  // It stays only until it has arrived, so it may use what is meant for the other direction.
  if (const auto memory = is_piece ? sending_pool_->take(size_bytes) : std::nullopt) return *memory;
  // Refused: no memory tells the transport to drop the payload. The head still takes its place in the order.
  if (is_piece) {
    refuse_piece(from, *header, size_bytes);
  } else if (header && (header->flags & wire::kBodyInPieces) != 0) {
    wait_for_body(from, *header, {copy(head), {}, nullptr, true});
  } else {
    gate_->run([this, from, kept = copy(head)] { take_in(from, {.head = kept, .refused = true}); });
  }
  return {};
}

void Engine::arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept {
  const auto header = lane == Lane::bulk ? wire::load(head) : std::nullopt;
  if (header && header->kind == wire::Kind::piece) {
    take_in_piece(from, *header, payload);
    return dropped(from, lane, payload, {});
  }
  std::shared_ptr<const void> owner;
  if (payload.size_bytes > 0 && !sinks_.landed(payload, owner)) owner = landing_pool_->owner(payload);
  if (lane == Lane::control) {
    take_in(from, {.head = head, .payload = payload, .payload_owner = std::move(owner)});
    inline_->run();
    return;
  }
  if (header && (header->flags & wire::kBodyInPieces) != 0) {
    return wait_for_body(from, *header, {copy(head), payload, std::move(owner), false});
  }
  gate_->run([this, from, kept = copy(head), payload, owner = std::move(owner)]() mutable {
    take_in(from, {.head = kept, .payload = payload, .payload_owner = std::move(owner)});
  });
}

void Engine::dropped(Peer, Lane, Memory payload, const Status&) noexcept {
  if (sinks_.give_back(payload)) return;
  landing_pool_->give_back(payload);  // each takes only its own
  sending_pool_->give_back(payload);
}

void Engine::take_in_piece(Peer from, const wire::Header& header, Memory payload) {
  bool wrong = payload.size_bytes == 0;
  auto whole =
      wrong ? std::nullopt : bodies_.add_piece(from, header, {space_.address(payload), payload.size_bytes}, wrong);
  if (wrong) return blame(from, "a piece of a message does not fit to the others");
  if (whole) hand_on(from, std::move(*whole));
}

/// There was no memory for a piece to land in: its message is refused when the rest has come.
void Engine::refuse_piece(Peer from, const wire::Header& header, std::uint64_t size_bytes) {
  bool wrong = false;
  auto whole = bodies_.skip_piece(from, header, size_bytes, wrong);
  if (wrong) return blame(from, "a piece of a message does not fit to the others");
  if (whole) hand_on(from, std::move(*whole));
}

void Engine::wait_for_body(Peer from, const wire::Header& header, Bodies::Message message) {
  wire::Pieces pieces;
  const std::size_t records = std::size_t{header.tensors} * sizeof(wire::TensorRecord);
  bool wrong = message.head.size() != wire::kHeaderBytes + sizeof pieces + records;
  std::optional<Bodies::Whole> whole;
  if (!wrong) {
    std::memcpy(&pieces, message.head.data() + wire::kHeaderBytes, sizeof pieces);
    whole = bodies_.add_message(from, pieces, std::move(message), wrong);
  }
  if (wrong) return blame(from, "a message does not tell which body is its own");
  if (whole) hand_on(from, std::move(*whole));
}

void Engine::hand_on(Peer from, Bodies::Whole whole) {
  gate_->run([this, from, kept = std::make_shared<Bodies::Whole>(std::move(whole))] {
    const Bodies::Message& message = kept->message;
    take_in(from, {.head = message.head,
                   .payload = message.payload,
                   .payload_owner = message.payload_owner,
                   .refused = message.refused,
                   .body = std::move(kept->body)});
  });
}

/// What the bulk lane found wrong.
void Engine::blame(Peer from, const char* why) {
  gate_->run([this, from, why] {
    if (PeerState* const of = peer(from); of != nullptr && !of->dead) condemn(*of, why);
  });
}

/// The buffer that was laid out for the tensor that is the whole payload of a message.
std::optional<Memory> Engine::sink_for(std::span<const std::byte> head, std::uint64_t size_bytes) {
  if (sinks_.empty()) return {};
  const auto header = wire::load(head);
  if (!header || header->kind != wire::Kind::message || (header->flags & wire::kBodyInPayload) != 0) return {};
  SinkKey key;
  for (const wire::TensorRecord& record : wire::load_records(head, header->tensors)) {
    if (record.by_reference == 0 && record.offset == 0 && record.size_bytes == size_bytes) key = {record.token};
  }
  return sinks_.take(key, size_bytes);
}

void Engine::lost(Peer number, const Status& why) noexcept { lost_any_thread(number, why, true); }

void Engine::take_in(Peer number, Arrival&& arrival) {
  PeerState* const from = peer(number);
  if (ended_ || (from != nullptr && (from->dead || from->condemned))) return;
  const auto header = wire::load(arrival.head);
  if (from == nullptr || !header) {
    return drop(text("a frame from peer ", number.value, " that is unknown, or speaks another protocol"));
  }
  from->heard = true;
  from->counts.messages_received.add();
  from->counts.bytes_received.add(arrival.head.size() + arrival.payload.size_bytes);
  if (header->kind == wire::Kind::batch) return take_in_batch(*from, arrival.head.subspan(wire::kHeaderBytes));
  take_in_frame(*from, *header, arrival);
}

void Engine::take_in_frame(PeerState& from, const wire::Header& header, Arrival& arrival) {
  switch (header.kind) {
    case wire::Kind::message:
    case wire::Kind::link:
    case wire::Kind::unlink: return take_in_message(from, header, arrival);
    case wire::Kind::monitor: return take_in_monitor(from, header.target);
    case wire::Kind::down: return take_in_down(from, header, arrival);
    case wire::Kind::release: return take_in_release(from, header, arrival.head.subspan(wire::kHeaderBytes));
    case wire::Kind::credit: return take_in_credit(from, header, arrival.head.subspan(wire::kHeaderBytes));
    case wire::Kind::heartbeat: return;  // it was heard
    case wire::Kind::call: return take_in_call(from, header, arrival.head.subspan(wire::kHeaderBytes));
    case wire::Kind::answer: return take_in_answer(from, header, arrival.head.subspan(wire::kHeaderBytes));
    case wire::Kind::window: return take_in_window(from, header);
    case wire::Kind::refused:
      counts_.dropped.add(header.message_id);
      if (options_.dropped) {
        options_.dropped(text("peer ", from.number.value, " refused ", header.message_id,
                              " messages: it has no memory left for them (RemoteOptions::memory_bytes there)"));
      }
      return;
    case wire::Kind::piece:
    case wire::Kind::batch:
      return drop(text("a frame from peer ", from.number.value, " in a place where none of its kind belongs"));
  }
}

void Engine::take_in_batch(PeerState& from, std::span<const std::byte> heads) {
  for (auto head = wire::next_in_batch(heads); !head.empty(); head = wire::next_in_batch(heads)) {
    const auto header = wire::load(head);
    if (!header) break;
    Arrival arrival{.head = head};
    take_in_frame(from, *header, arrival);
    if (from.dead || from.condemned || ended_) return;
  }
  if (!heads.empty()) drop(text("a batch of messages from peer ", from.number.value, " that is damaged"));
}

void Engine::take_in_release(PeerState& from, const wire::Header& header, std::span<const std::byte> more) {
  const auto release = [&](std::uint64_t token) {
    const auto lent = lent_.find(token);
    if (lent != lent_.end() && lent->second.peer == from.number) lent_.erase(lent);
  };
  release(header.message_id);
  for (std::uint64_t token = 0; more.size() >= sizeof token; more = more.subspan(sizeof token)) {
    std::memcpy(&token, more.data(), sizeof token);
    release(token);
  }
}

void Engine::take_in_credit(PeerState& from, const wire::Header& header, std::span<const std::byte> body) {
  from.allowance.hear({header.message_id, header.source});
  from.counts.unhandled.set(from.allowance.in_use().messages);
  for (; body.size() >= sizeof(wire::EdgeCredit); body = body.subspan(sizeof(wire::EdgeCredit))) {
    wire::EdgeCredit edge;
    std::memcpy(&edge, body.data(), sizeof edge);
    const auto known = proxies_.get(from.node, edge.actor);
    if (!known) continue;
    auto& proxy = static_cast<Proxy&>(*known->get());
    const Amount dealt = proxy.allowance.hear({edge.messages, edge.charge});
    if (Room* const room = proxy.room()) room->leave(dealt.messages, dealt.charge * wire::kChargeBytes);
  }
  if (!from.blocked.empty()) send_blocked(from);
}

void Engine::take_in_window(PeerState& from, const wire::Header& header) {
  if (Local* const to = local(header.target))
    edge_of(from, header.target, to->streams[from.number])->limit({header.message_id, header.source});
}

std::shared_ptr<EdgeIntake>& Engine::edge_of(PeerState& from, caf::actor_id actor, Stream& stream) {
  if (!stream.edge) {
    stream.edge = std::make_shared<EdgeIntake>(actor, from.intake);
    from.edges.push_back(stream.edge);
  }
  return stream.edge;
}

void Engine::take_in_message(PeerState& from, const wire::Header& header, Arrival& arrival) {
  const bool counted = (header.flags & wire::kFree) == 0;
  const std::uint64_t charge = wire::charge_in(header.charge);
  if (counted && !arrival.refused && (header.flags & wire::kVoid) == 0 && header.charge != charge_of(header, arrival))
    return condemn(from, "it says that a message is of another size than it is");
  if (counted && !from.intake->take(charge)) return condemn(from, "it sent more than this process takes");
  Local* const to = local(header.target);
  if (to == nullptr) {  // it has ended; ids are not given twice, so there is no order to keep
    answer(sender_of(from, header), caf::message_id{header.message_id},
           caf::make_error(caf::sec::request_receiver_down));
    abandon(from, header, arrival.head);
    if (counted) from.intake->dealt_with(wire::charge_in(header.charge), /*on_lane=*/true);
    return settle(from, header.order);
  }
  Stream& stream = to->streams[from.number];
  if (counted) edge_of(from, header.target, stream);
  if (header.sequence != stream.next) return hold(from, header, arrival, stream);
  deliver(from, header, arrival, stream, *to);
  ++stream.next;
  while (!stream.held.empty()) {
    auto next = stream.held.extract(stream.next);
    if (next.empty()) break;
    --from.held;
    Held& held = next.mapped();
    Arrival late{held.head, held.payload, held.payload_owner, held.refused, std::move(held.body)};
    deliver(from, *wire::load(held.head), late, stream, *to);
    ++stream.next;
  }
}

/// A message before its turn.
void Engine::hold(PeerState& from, const wire::Header& header, Arrival& arrival, Stream& stream) {
  const bool ahead = static_cast<std::int32_t>(header.sequence - stream.next) > 0;
  const auto [place, fresh] = stream.held.try_emplace(header.sequence);
  if (!ahead || !fresh) return condemn(from, "it sent two messages with one number");
  place->second = {copy(arrival.head), arrival.payload, arrival.payload_owner, arrival.refused,
                   std::move(arrival.body)};
  counts_.reordered.add();
  if (++from.held > from.intake->most_messages() + outstanding_.size() + kMostStrays) {
    condemn(from, "it sent too many messages before their turn");
  }
}

/// The peer says that `header.source` of it is linked to an actor of this process, or not any more.
void Engine::change_link(PeerState& from, const wire::Header& header, Local& to) {
  if (header.source_peer != from.number.value) return condemn(from, "it changed a link of another process's actor");
  const auto other = sender_of(from, header);
  if (!other || (header.flags & wire::kFree) == 0) return condemn(from, "it changed a link of no actor");
  auto& proxy = static_cast<Proxy&>(*other->get());
  if (header.kind == wire::Kind::link) {
    proxy.link_quietly(*to.actor->get());
  } else {
    proxy.unlink_quietly(*to.actor->get());
  }
}

/// A message whose turn it is.
void Engine::deliver(PeerState& from, const wire::Header& header, Arrival& arrival, const Stream& stream, Local& to) {
  if (header.kind != wire::Kind::message) {
    change_link(from, header, to);
    return settle(from, header.order);
  }
  const caf::message_id id{header.message_id};
  // Ends with the message, or here.
  const bool counted = (header.flags & wire::kFree) == 0;
  const std::uint64_t charge = wire::charge_in(header.charge);
  if (counted) stream.edge->delivered(charge);
  troupe::detail::Receipt receipt =
      counted ? troupe::detail::Receipt{stream.edge, static_cast<std::uint32_t>(charge)} : troupe::detail::Receipt{};
  if ((header.flags & wire::kVoid) == 0) {
    auto sender = sender_of(from, header);
    caf::mailbox_element_ptr message;
    Status status;
    // The last one may exceed the memory, so that any message goes where nothing else is.
    const std::uint64_t used = incoming_->used();
    note_backlog(used);
    const bool full = counted && used >= incoming_->limit() + charge * wire::kChargeBytes;
    if (arrival.refused || full) {
      abandon(from, header, arrival.head);
      status = {Code::out_of_memory,
                text("peer ", self_.value, " has no memory left for messages (RemoteOptions::memory_bytes)")};
      if (!id.is_request() && !id.is_response() && from.refused++ == 0) refused_.push_back(&from);
    } else {
      status = decode(from, header, arrival, sender, std::move(receipt), message);
    }
    if (status.ok() && !fits_its_queue(*message)) {
      status = {Code::corrupt, "a message that is marked as one of a stream, and is none"};
    }
    bool stray = false;  // an answer, but not to anything that was asked, or a second one
    if (id.is_response()) {
      const auto request = outstanding_.extract({header.target, id.request_id().integer_value()});
      stray = request.empty();
      if (!stray) answered(from, request.mapped());
    }
    const bool ends = !counted && !id.is_response() && status.ok() && is_exit(*message);
    if (stray) {
      counts_.dropped.add();
    } else if (status.ok() && !counted && !id.is_response() && !ends) {
      condemn(from, "it sent a message as free that is none");
    } else if (status.ok()) {
      counts_.delivered.add();
      if (ends) end_link(from, *message, to);
      if (to.inline_guest != nullptr) {
        inline_->hand(*to.inline_guest, to.actor, std::move(message));
      } else {
        to.actor->enqueue(std::move(message), nullptr);
      }
    } else {
      drop(text("message from peer ", from.number.value, " not delivered: ", status.text()));
      answer(sender, id, status);
      // An answer that cannot be read is still an end for the request that waits for it.
      if (id.is_response()) to.actor->enqueue(nullptr, id, caf::make_message(to_caf(status)), nullptr);
    }
  }
  settle(from, header.order);
}

/// An order to end is the last word of a link; the news that the other one ended must not be a second.
void Engine::end_link(PeerState& from, const caf::mailbox_element& message, Local& to) {
  const auto source = caf::actor_cast<caf::strong_actor_ptr>(message.content().get_as<caf::exit_msg>(0).source);
  if (!source || source->node() != from.node) return;
  if (auto* const proxy = dynamic_cast<Proxy*>(source->get())) proxy->unlink_quietly(*to.actor->get());
}

/// Finds actors that wait for another message than those that lie in their mailboxes: what they have skipped takes no
/// room in what their senders may send.
void Engine::notice_skipped() {
  for (auto& [number, of] : peers_) {
    if (of->dead) continue;
    const bool much = 8 * of->intake->untold() >= offers() / wire::kChargeBytes / peers_.size();
    bool any = false;
    for (const auto& edge : of->edges) {
      if (!(much || edge->bounded()) || !edge->may_have_skipped()) continue;
      const auto found = locals_.find(edge->actor);
      if (found == locals_.end() || found->second.waits == nullptr) continue;
      if (!found->second.waits(*found->second.actor->get())) continue;
      edge->all_seen();
      any = true;
    }
    if (any) send_credit(*of);
  }
}

Status Engine::decode(PeerState& from, const wire::Header& header, const Arrival& arrival,
                      const caf::strong_actor_ptr& sender, troupe::detail::Receipt receipt,
                      caf::mailbox_element_ptr& message) {
  const caf::message_id id{header.message_id};
  if ((header.flags & wire::kPlain) != 0 && header.tensors == 0) {
    std::span<const std::byte> body = arrival.head.subspan(wire::kHeaderBytes);
    if ((header.flags & wire::kBodyInPieces) != 0) {
      body = {arrival.body.bytes.get(), arrival.body.size_bytes};
    } else if ((header.flags & kElsewhere) != 0) {
      body = {};
      if (arrival.payload.size_bytes > 0) body = {space_.address(arrival.payload), arrival.payload.size_bytes};
    }
    return codec_.decode_plain(body, sender, id, std::move(receipt), message);
  }
  if ((header.flags & wire::kLone) != 0) return decode_lone(from, header, arrival, sender, std::move(receipt), message);
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
  if ((header.flags & wire::kBodyInPieces) != 0) {
    if (!arrival.body.bytes) return {Code::corrupt, "a message without its body"};
    body = {arrival.body.bytes.get(), arrival.body.size_bytes};
  } else if ((header.flags & wire::kBodyInPayload) != 0) {
    if (end >= arrival.payload.size_bytes) return {Code::corrupt, "a message's body lies outside its payload"};
    body = {space_.address(arrival.payload) + end, arrival.payload.size_bytes - end};
  }
  Codec::Decoded decoded;
  status = codec_.decode(body, (header.flags & wire::kHasStages) != 0, decoded);
  if (status.ok()) {
    message.reset(new ReceivedMessage(sender, id, std::move(decoded), std::move(receipt)));
  }
  return status;
}

/// A message that is one tensor.
Status Engine::decode_lone(PeerState& from, const wire::Header& header, const Arrival& arrival,
                           const caf::strong_actor_ptr& sender, troupe::detail::Receipt receipt,
                           caf::mailbox_element_ptr& message) {
  const auto record = wire::load_record(arrival.head);
  const bool whole = record && header.tensors == 1 && (header.flags & (kElsewhere | wire::kHasStages)) == 0;
  if (!whole) return {Code::corrupt, "a message of one tensor that does not tell where it is"};
  troupe::detail::TensorSlots::Landed landed;
  Status status = land(from, *record, arrival, landed);
  if (!status.ok()) return status;
  const std::span<const std::byte> body = arrival.head.subspan(wire::kHeaderBytes);
  Tensor tensor;
  status = Codec::decode_lone(body.first(body.size() - sizeof *record), std::move(landed), tensor);
  if (status.ok()) {
    message.reset(new troupe::detail::PlainElement<Tensor>(sender, caf::message_id{header.message_id}, tensor,
                                                           std::move(receipt)));
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
    if (record.size_bytes > 0 && record.offset % wire::kTensorAlignment != 0) {
      return {Code::corrupt, "a tensor does not begin where tensors begin in a payload"};
    }
    tensor = {slice(arrival.payload, record.offset, record.size_bytes), {}, arrival.payload_owner};
    if (record.token != 0 && record.size_bytes > 0) tensor.kind = space_.kind(arrival.payload.arena);
    return {};
  }
  tensor = {{record.arena, record.offset, record.size_bytes},
            {record.line, record.point},
            std::make_shared<Borrowed>(*this, from, record.token)};
  try {
    if (tensor.memory.size_bytes > 0) {
      space_.address(tensor.memory);
      tensor.kind = space_.kind(record.arena);
    }
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
  if (from.dead || ended_) return;
  if (from.given_back.empty()) creditors_.push_back(&from);
  from.given_back.push_back(token);
  if (from.given_back.size() >= kGivenBackAtOnce) send_given_back(from);
}

void Engine::take_in_monitor(PeerState& from, caf::actor_id actor) {
  if (Local* const watched = local(actor)) {
    if (std::ranges::find(watched->watchers, from.number) == watched->watchers.end())
      watched->watchers.push_back(from.number);
  } else {
    // Behind what it sent before it ended, which may still be on its way to this thread.
    gate_->run([this, of = &from, actor] {
      if (!of->dead && !ended_) tell_end(*of, actor, caf::exit_reason::unknown);
    });
  }
}

void Engine::take_in_down(PeerState& from, const wire::Header& header, const Arrival& arrival) {
  const auto place = from.settled.whole(header.order);
  if (!place || !proxies_.get(from.node, header.source)) return settle(from, header.order);  // nobody waits for it
  Ended ended{header.source, caf::exit_reason::unknown};
  const Status status = codec_.decode(arrival.head.subspan(wire::kHeaderBytes), ended.reason);
  if (!status.ok()) ended.reason = to_caf(status);
  if (!from.ended.try_emplace(*place, std::move(ended)).second || from.ended.size() > proxies_.count_proxies(from.node))
    return condemn(from, "it told of an actor's end twice");
  settle(from, header.order);
}

void Engine::answered(PeerState& by, const Outstanding& request) {
  if (request.sent == Clock::time_point{}) return;
  const auto took = static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - request.sent).count());
  auto& histogram = by.counts.answer_ns_log2;
  histogram[std::min<std::size_t>(std::bit_width(took | 1) - 1, histogram.size() - 1)].add();
}

/// Messages to different actors, and on different lanes, overtake each other; but what an actor sent before it ended
/// must not be overtaken by the news of its end, which would answer requests that are answered already. So a down waits
/// until all that its process sent before it is dealt with.
void Engine::settle(PeerState& from, std::uint32_t order) {
  const auto place = from.settled.whole(order);
  if (!place || !from.settled.add(*place)) return condemn(from, "it sent two messages with one place in the order");
  if (from.settled.runs() > kMostGaps + from.intake->most_messages()) {
    return condemn(from, "too much of what it sent is missing between what came");
  }
  while (!from.ended.empty() && from.ended.begin()->first < from.settled.next()) {
    const auto ended = from.ended.extract(from.ended.begin());
    end_remote(from, ended.mapped());
  }
}

void Engine::end_remote(PeerState& from, const Ended& ended) {
  const caf::error down = caf::make_error(caf::sec::request_receiver_down);
  answer_outstanding(from, ended.actor, down);
  if (const auto proxy = proxies_.get(from.node, ended.actor)) drop_blocked(static_cast<Proxy&>(*proxy->get()), down);
  if (from.last_sender && from.last_sender->id() == ended.actor) from.last_sender = nullptr;
  proxies_.erase(from.node, ended.actor, ended.reason);
}

caf::strong_actor_ptr Engine::sender_of(PeerState& from, const wire::Header& header) {
  if (header.source == 0) return nullptr;
  if (header.source_peer == self_.value) {
    Local* const known = local(header.source);
    return known ? known->actor : nullptr;
  }
  PeerState* const of = header.source_peer == from.number.value ? &from : peer(Peer{header.source_peer});
  if (of == nullptr) return nullptr;
  if (!of->last_sender || of->last_sender->id() != header.source)
    of->last_sender = proxies_.get_or_put(of->node, header.source);
  return of->last_sender;
}

}  // namespace troupe::remote
