#include "actors/remote/detail/inbound.hpp"

#include <algorithm>
#include <caf/exit_reason.hpp>
#include <caf/sec.hpp>
#include <caf/system_messages.hpp>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/inline_unit.hpp"
#include "actors/remote/detail/memory_return.hpp"

namespace troupe::remote {
namespace {

/// Exit messages, and answers for which no request waits any more, may also arrive before their turn, in addition to
/// what credits and open requests allow.
constexpr std::size_t kMostStrays = 1024;
/// How many gaps the order of a peer's messages may have in addition to those that its credits allow: for answers that
/// have not arrived yet.
constexpr std::size_t kMostGaps = 65536;

bool is_counted(const wire::Header& header) noexcept { return (header.flags & wire::kFree) == 0; }

}  // namespace

// ---- Frames ----

void Inbound::take_in(Peer number, Arrival&& arrival) {
  PeerState* const from = context_.peer(number);
  if (context_.ended || (from != nullptr && (from->dead || from->will_be_lost))) return;
  const auto header = wire::load(arrival.head);
  if (from == nullptr || !header) {
    return context_.drop(text("a frame from peer ", number.value, " that is unknown, or speaks another protocol"));
  }
  from->received_since_check = true;
  from->counts.messages_received.add();
  from->counts.bytes_received.add(arrival.head.size() + arrival.payload.size_bytes);
  if (header->kind == wire::Kind::batch) return take_in_batch(*from, arrival.head.subspan(wire::kHeaderBytes));
  take_in_frame(*from, *header, arrival);
}

void Inbound::take_in_batch(PeerState& from, std::span<const std::byte> heads) {
  for (auto head = wire::next_in_batch(heads); !head.empty(); head = wire::next_in_batch(heads)) {
    const auto header = wire::load(head);
    if (!header) break;
    Arrival arrival{.head = head};
    take_in_frame(from, *header, arrival);
    if (from.dead || from.will_be_lost || context_.ended) return;
  }
  if (!heads.empty()) context_.drop(text("a batch of messages from peer ", from.number.value, " that is damaged"));
}

void Inbound::take_in_frame(PeerState& from, const wire::Header& header, Arrival& arrival) {
  const std::span<const std::byte> body = arrival.head.subspan(wire::kHeaderBytes);
  switch (header.kind) {
    case wire::Kind::message:
    case wire::Kind::link:
    case wire::Kind::unlink: return take_in_message(from, header, arrival);
    case wire::Kind::monitor: return take_in_monitor(from, header.target);
    case wire::Kind::down: return take_in_down(from, header, arrival);
    case wire::Kind::release: return loans_.take_in_release(from, header, body);
    case wire::Kind::credit: return backlog_.take_in_credit(from, header, body, proxies_);
    case wire::Kind::heartbeat: return;  // it was heard
    case wire::Kind::call: return calls_.take_in_call(from, header, body);
    case wire::Kind::answer: return calls_.take_in_answer(from, header, body);
    case wire::Kind::window: return credits_.take_in_window(from, header);
    case wire::Kind::refused: return take_in_refused(from, header.message_id);
    case wire::Kind::passed: return take_in_passed(from, header);
    case wire::Kind::piece:
    case wire::Kind::payload_piece:
    case wire::Kind::batch:
      return context_.drop(text("a frame from peer ", from.number.value, " of a kind that must not come there"));
  }
}

void Inbound::take_in_refused(const PeerState& from, std::uint64_t count) {
  context_.counts.dropped.add(count);
  if (context_.options.dropped) {
    context_.options.dropped(text("peer ", from.number.value, " refused ", count,
                                  " messages: it has no memory left for them (RemoteOptions::memory_bytes there)"));
  }
}

// ---- The order of messages ----

void Inbound::take_in_message(PeerState& from, const wire::Header& header, Arrival& arrival) {
  const bool counted = is_counted(header);
  if (counted && !arrival.refused && (header.flags & wire::kVoid) == 0 &&
      header.charge != MessageReader::charge_of(header, arrival))
    return context_.lose_later(from, "it gave a wrong size for a message");
  // Checked before the message is held or delivered, since held messages take memory, too.
  if (counted && !from.intake->take(wire::charge_in(header.charge)))
    return context_.lose_later(from, "it sent more than this process takes");
  KnownActor* const to = actors_.find(header.target);
  if (to == nullptr) {  // it has ended; ids are not reused, so there is no order to keep
    note_own_request(header);
    answer(sender_of(from, header), caf::message_id{header.message_id},
           caf::make_error(caf::sec::request_receiver_down));
    loans_.abandon(from, header, arrival.head);
    Credits::count_handled(from, header);
    return handled(from, header.order);
  }
  Edge& edge = to->edges[from.number];
  if (counted && !edge.intake) credits_.intake_of(from, header.target, edge);
  if (header.sequence != edge.next) return hold(from, header, arrival, edge);
  deliver(from, header, arrival, edge, *to);
  ++edge.next;
  while (!edge.held.empty()) {
    auto next = edge.held.extract(edge.next);
    if (next.empty()) break;
    --from.order.held;
    HeldMessage& held = next.mapped();
    Arrival late{held.head, held.payload, held.payload_owner, held.refused, std::move(held.body)};
    deliver(from, *wire::load(held.head), late, edge, *to);
    ++edge.next;
  }
}

/// Keeps a message that arrived before its turn.
void Inbound::hold(PeerState& from, const wire::Header& header, Arrival& arrival, Edge& edge) {
  const bool ahead = static_cast<std::int32_t>(header.sequence - edge.next) > 0;  // numbers wrap around
  const auto [place, fresh] = edge.held.try_emplace(header.sequence);
  if (!ahead || !fresh) return context_.lose_later(from, "it sent two messages with one number");
  place->second = {{arrival.head.begin(), arrival.head.end()},
                   arrival.payload,
                   arrival.payload_owner,
                   arrival.refused,
                   std::move(arrival.body)};
  context_.counts.reordered.add();
  if (++from.order.held > from.intake->most_messages() + requests_.size() + kMostStrays)
    context_.lose_later(from, "it sent too many messages before their turn");
}

/// The second order (see the class). A DOWN notice takes effect when the last message that it waited for is handled.
void Inbound::handled(PeerState& from, std::uint32_t order) {
  auto& of = from.order;
  const auto place = of.handled.whole(order);
  if (!place || !of.handled.add(*place))
    return context_.lose_later(from, "it sent two messages with one place in the order");
  if (of.handled.runs() > kMostGaps + from.intake->most_messages())
    return context_.lose_later(from, "too many messages are missing between those that arrived");
  while (!of.ended.empty() && of.ended.begin()->first < of.handled.next()) {
    const auto ended = of.ended.extract(of.ended.begin());
    end_remote(from, ended.mapped());
  }
}

// ---- One message ----

/// Delivers the next message in order.
void Inbound::deliver(PeerState& from, const wire::Header& header, Arrival& arrival, const Edge& edge, KnownActor& to) {
  if (header.kind != wire::Kind::message) {
    change_link(from, header, to);
  } else {
    deliver_message(from, header, arrival, edge, to);
  }
  handled(from, header.order);
}

void Inbound::deliver_message(PeerState& from, const wire::Header& header, Arrival& arrival, const Edge& edge,
                              KnownActor& to) {
  const bool counted = is_counted(header);
  const auto charge = static_cast<std::uint32_t>(wire::charge_in(header.charge));
  if (counted) edge.intake->delivered(charge);
  // It is destroyed with the message, or here: in both cases the sender is told that the message has been handled.
  auto receipt = counted ? troupe::detail::Receipt{edge.intake, charge} : troupe::detail::Receipt{};
  if ((header.flags & wire::kVoid) != 0) return;
  note_own_request(header);
  const auto& sender = sender_of(from, header);
  caf::mailbox_element_ptr message;
  Status status = !has_memory_for(header) || arrival.refused
                      ? refuse_for_memory(from, header, arrival)
                      : reader_.read(from, header, arrival, sender, std::move(receipt), message);
  // An answer that cannot be read still ends the request that waits for it.
  const bool is_answer = caf::message_id{header.message_id}.is_response();
  if (is_answer && !ends_request(from, header)) return context_.counts.dropped.add();
  if (!status.ok()) return fail(from, header, sender, to, status);
  hand_over(from, header, std::move(message), to);
}

/// The last message may exceed the limit, so that a message of any size is accepted if no other one is being received.
bool Inbound::has_memory_for(const wire::Header& header) {
  const std::uint64_t used = context_.incoming->used();
  memory_.note(used);
  return !is_counted(header) || used < context_.incoming->limit() + wire::charge_in(header.charge) * wire::kChargeBytes;
}

Status Inbound::refuse_for_memory(PeerState& from, const wire::Header& header, const Arrival& arrival) {
  loans_.abandon(from, header, arrival.head);
  const caf::message_id id{header.message_id};
  if (!id.is_request() && !id.is_response() && from.order.refused++ == 0) refused_.push_back(&from);
  return {Code::out_of_memory,
          text("peer ", context_.self.value, " has no memory left for messages (RemoteOptions::memory_bytes)")};
}

/// A request of an actor of this process, which an actor elsewhere passed on to one of this process: as within one
/// process, its answer takes no way through the engine.
void Inbound::note_own_request(const wire::Header& header) {
  const caf::message_id id{header.message_id};
  if (header.source_peer == context_.self.value && header.source != 0 && id.is_request())
    requests_.close(header.source, id);
}

/// Closes the request to which an answer belongs. False: no request waits for it (any more).
bool Inbound::ends_request(PeerState& from, const wire::Header& header) {
  const auto request = requests_.close(header.target, caf::message_id{header.message_id});
  if (request) OpenRequests::note_time(from, *request);
  return request.has_value();
}

void Inbound::hand_over(PeerState& from, const wire::Header& header, caf::mailbox_element_ptr message, KnownActor& to) {
  const bool is_answer = caf::message_id{header.message_id}.is_response();
  const bool ends = !is_counted(header) && !is_answer && is_exit(*message);
  if (!is_counted(header) && !is_answer && !ends)
    return context_.lose_later(from, "it marked a message as free that must be counted");
  context_.counts.delivered.add();
  if (ends) end_link(from, *message, to);
  if (to.inline_handler != nullptr) {
    inline_.hand(*to.inline_handler, to.actor, std::move(message));
  } else {
    to.actor->enqueue(std::move(message), &context_.unit);  // CAF's splices need one
  }
}

/// Tells the waiting actor why a message was not delivered.
void Inbound::fail(PeerState& from, const wire::Header& header, const caf::strong_actor_ptr& sender, KnownActor& to,
                   const Status& why) {
  const caf::message_id id{header.message_id};
  context_.drop(text("message from peer ", from.number.value, " not delivered: ", why.text()));
  answer(sender, id, why);
  if (id.is_response()) to.actor->enqueue(nullptr, id, caf::make_message(to_caf(why)), nullptr);
}

/// An exit message ends a link. The later DOWN notice of the other actor must not cause a second exit message.
void Inbound::end_link(PeerState& from, const caf::mailbox_element& message, KnownActor& to) {
  const auto source = caf::actor_cast<caf::strong_actor_ptr>(message.content().get_as<caf::exit_msg>(0).source);
  if (!source || source->node() != from.node) return;
  if (auto* const proxy = dynamic_cast<Proxy*>(source->get())) proxy->unlink_quietly(*to.actor->get());
}

/// The peer reports that its actor `header.source` is linked to an actor of this process, or not any more.
void Inbound::change_link(PeerState& from, const wire::Header& header, KnownActor& to) {
  if (header.source_peer != from.number.value)
    return context_.lose_later(from, "it changed a link of another process's actor");
  const auto& other = sender_of(from, header);
  if (!other || is_counted(header)) return context_.lose_later(from, "it changed a link of no actor");
  auto& proxy = static_cast<Proxy&>(*other->get());
  if (header.kind == wire::Kind::link) {
    proxy.link_quietly(*to.actor->get());
  } else {
    proxy.unlink_quietly(*to.actor->get());
  }
}

/// The proxy or the actor of this process that sent it; null: none, or one that has ended. Valid until the next call,
/// and while that actor is known.
const caf::strong_actor_ptr& Inbound::sender_of(PeerState& from, const wire::Header& header) {
  static const caf::strong_actor_ptr none;
  if (header.source == 0) return none;
  if (header.source_peer == context_.self.value) {
    KnownActor* const known = actors_.find(header.source);
    return known ? known->actor : none;
  }
  PeerState* const of = header.source_peer == from.number.value ? &from : context_.peer(Peer{header.source_peer});
  if (of == nullptr) return none;
  auto& last = of->order.last_sender;
  if (!last || last->id() != header.source) last = proxies_.find_or_make(*of, header.source);
  return last;
}

/// An actor of the peer has passed a request of this process on. The request waits for the actor that has it now.
void Inbound::take_in_passed(PeerState& from, const wire::Header& header) {
  const Peer receiver{header.source_peer};
  if (receiver == from.number || receiver == context_.self)
    return context_.lose_later(from, "it told of a request that did not leave for another process");
  PeerState* const to = context_.peer(receiver);
  const caf::message_id id{header.message_id};
  const bool known = to != nullptr && header.source != caf::invalid_actor_id;
  if (!known || !requests_.is_at(header.target, id, from.number)) {
    // It was answered meanwhile, or nobody here could notice the end of its new receiver.
  } else if (to->dead) {
    requests_.fail(actors_, header.target, id, to_caf(to->why));
  } else {
    const auto proxy = proxies_.find_or_make(*to, header.source);
    requests_.pass(header.target, id, static_cast<Proxy&>(*proxy->get()));
  }
  handled(from, header.order);
}

// ---- Ends of actors and peers ----

void Inbound::take_in_monitor(PeerState& from, caf::actor_id actor) {
  if (KnownActor* const watched = actors_.find(actor)) {
    if (std::ranges::find(watched->watchers, from.number) == watched->watchers.end())
      watched->watchers.push_back(from.number);
  } else {
    // Posted, so that it comes after the messages that the actor sent before it ended, which may not have reached this
    // thread.
    context_.lane_access->run([this, of = &from, actor] {
      if (!of->dead && !context_.ended) backlog_.report_end(*of, actor, caf::exit_reason::unknown);
    });
  }
}

void Inbound::take_in_down(PeerState& from, const wire::Header& header, const Arrival& arrival) {
  auto& of = from.order;
  const auto place = of.handled.whole(header.order);
  if (!place || !proxies_.find(from, header.source)) return handled(from, header.order);  // no proxy waits for it
  Ended ended{header.source, caf::exit_reason::unknown};
  const Status status = context_.codec.decode(arrival.head.subspan(wire::kHeaderBytes), ended.reason);
  if (!status.ok()) ended.reason = to_caf(status);
  if (!of.ended.try_emplace(*place, std::move(ended)).second || of.ended.size() > proxies_.count(from))
    return context_.lose_later(from, "it told of an actor's end twice");
  handled(from, header.order);
}

/// An actor of a peer has ended. Requests are answered first, because an actor that gets the DOWN message expects no
/// answers after it.
void Inbound::end_remote(PeerState& from, const Ended& ended) {
  const caf::error down = caf::make_error(caf::sec::request_receiver_down);
  if (const auto found = proxies_.find(from, ended.actor)) {
    auto& proxy = static_cast<Proxy&>(*found->get());
    requests_.fail(actors_, proxy, down);
    backlog_.drop(proxy, down);
  }
  if (from.order.last_sender && from.order.last_sender->id() == ended.actor) from.order.last_sender = nullptr;
  proxies_.end(from, ended.actor, ended.reason);
}

void Inbound::actor_ended(KnownActor&& actor, caf::actor_id id, const caf::error& reason) {
  for (const Peer watcher : actor.watchers) {
    if (PeerState* const to = context_.peer(watcher); to != nullptr && !to->dead) backlog_.report_end(*to, id, reason);
  }
  for (auto& [from, edge] : actor.edges) {
    PeerState* const of = context_.peer(from);
    of->order.held -= edge.held.size();
    for (auto& [sequence, held] : edge.held) {  // they will not be delivered
      const wire::Header header = *wire::load(held.head);
      loans_.abandon(*of, header, held.head);
      Credits::count_handled(*of, header);
      handled(*of, header.order);
    }
  }
  requests_.forget(actor);
}

void Inbound::forget(PeerState& of) {
  of.order.last_sender = nullptr;
  for (auto& [id, actor] : actors_.all()) {
    std::erase(actor.watchers, of.number);
    const auto edge = actor.edges.find(of.number);
    if (edge == actor.edges.end()) continue;
    for (const auto& [sequence, held] : edge->second.held) Credits::count_handled(of, *wire::load(held.head));
    actor.edges.erase(edge);
  }
  of.order.held = 0;
  of.order.ended.clear();
  of.edges.clear();
}

bool Inbound::tell_of_refused() {
  for (PeerState* const to : std::exchange(refused_, {})) {
    const std::uint64_t count = std::exchange(to->order.refused, 0);
    if (!to->dead) frames_.send(*to, {.kind = wire::Kind::refused, .message_id = count});
  }
  return true;
}

}  // namespace troupe::remote
