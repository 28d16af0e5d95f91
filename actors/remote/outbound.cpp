#include "actors/remote/detail/outbound.hpp"

#include <atomic>
#include <caf/sec.hpp>
#include <mutex>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/proxies.hpp"

namespace troupe::remote {
namespace {

/// Larger bodies are sent on the bulk lane, like tensors.
constexpr std::size_t kLargestControlBody = 64 << 10;
/// A payload of at most this size is sent on the control lane, which is faster than passing it to the other lane, if
/// the control lane is sending no more than this amount already: more would delay small messages.
constexpr std::uint64_t kControlPayload = 64 << 10;

std::span<const std::byte> bytes_of(const std::vector<char>& chars) { return std::as_bytes(std::span(chars)); }

std::span<std::byte, wire::kHeaderBytes> header_in(std::vector<char>& head) {
  return std::as_writable_bytes(std::span(head)).first<wire::kHeaderBytes>();
}

}  // namespace

/// Waits until the tensors of a parked message are valid, or until one can no longer become valid; then reports that.
/// Deletes itself.
class Outbound::PointsReached final : public Waker, public LaneTask {
 public:
  PointsReached(Outbound& outbound, std::uint64_t ticket, std::size_t points)
      : outbound_(outbound), lane_access_(outbound.context_.lane_access), ticket_(ticket), left_(points) {}

  void reached(Point, Status status) noexcept override {
    if (!status.ok()) {
      const std::scoped_lock hold(mutex_);
      status_ = std::move(status);
    }
    if (left_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    std::unique_ptr<PointsReached> self(this);
    if (lane_access_->post(*this)) self.release();  // run() deletes it
  }
  void run() noexcept override {
    const std::unique_ptr<PointsReached> self(this);
    outbound_.unpark(ticket_, status_);
  }

 private:
  Outbound& outbound_;  // used only on the control lane
  const std::shared_ptr<LaneAccess> lane_access_;
  const std::uint64_t ticket_;
  std::atomic<std::size_t> left_;
  std::mutex mutex_;  // guards status_ until all are reached
  Status status_;
};

void Outbound::transmit(Proxy& proxy, caf::mailbox_element_ptr message) {
  PeerState& to = proxy.peer();
  if (to.dead || context_.ended || !proxy.alive()) {
    const caf::error why = to.dead          ? to_caf(to.why)
                           : context_.ended ? to_caf(Status{Code::aborted, "this process is ending"})
                                            : caf::make_error(caf::sec::request_receiver_down);
    return answer(message->sender, message->mid, why);
  }
  if (message->mid.is_request()) report_passed(proxy, *message);
  if (backlog_.may_send(proxy, *message)) return send_now(proxy, *message);
  backlog_.block(proxy, std::move(message));
}

/// If an actor here has passed a request of another process on, that process is told who has the request now: otherwise
/// it would not notice the end of that actor. Before the DOWN notice of the actor that has passed it on, since after
/// that notice the requester expects no answer.
void Outbound::report_passed(const Proxy& proxy, const caf::mailbox_element& message) {
  const caf::strong_actor_ptr& requester = message.sender;
  if (!requester || requester->node() == context_.system.node()) return;
  PeerState* const of = context_.peer(requester->node());
  if (of == nullptr || of->dead || of == &proxy.peer()) return;
  frames_.send(*of, {.kind = wire::Kind::passed,
                     .source_peer = static_cast<std::uint16_t>(proxy.peer().number.value),
                     .order = of->next_order++,
                     .message_id = message.mid.integer_value(),
                     .source = proxy.id(),
                     .target = requester->id()});
}

void Outbound::note_refused_send(PeerState& to) {
  const std::uint64_t count = to.outgoing->unreported.exchange(0);
  context_.counts.dropped.add(count);
  if (context_.options.dropped) {
    context_.options.dropped(text(count, " messages to peer ", to.number.value, " not sent: ",
                                  context_.outgoing->full()
                                      ? "those that wait already take all of RemoteOptions::memory_bytes"
                                      : "an actor's window is full (RemoteActors::bound)"));
  }
}

void Outbound::send_link(Proxy& proxy, const LinkChange& change) {
  PeerState& to = proxy.peer();
  wire::Header header{.kind = change.links ? wire::Kind::link : wire::Kind::unlink,
                      .flags = wire::kFree,
                      .sequence = proxy.next_sequence++,
                      .order = to.next_order++,
                      .target = proxy.id()};
  header.source = source_of(change.actor, header);
  frames_.send(to, header);
}

void Outbound::send_down(PeerState& to, const Ended& ended) {
  std::vector<char> head(wire::kHeaderBytes);
  context_.codec.encode(ended.reason, head);
  if (head.size() > Transport::kMaxHeadBytes) {
    head.resize(wire::kHeaderBytes);
    context_.codec.encode(caf::error(ended.reason.code(), ended.reason.category()), head);
  }
  const wire::Header header{.kind = wire::Kind::down, .order = to.next_order++, .source = ended.actor};
  wire::store(header, header_in(head));
  frames_.send(to, bytes_of(head));
}

void Outbound::send_now(Proxy& proxy, caf::mailbox_element& message) {
  if (message.sender.get() == proxy.ctrl()) return send_link(proxy, static_cast<const LinkChange&>(message));
  PeerState& to = proxy.peer();
  wire::Header header{.message_id = message.mid.integer_value(), .target = proxy.id()};
  if (!message.stages.empty()) header.flags |= wire::kHasStages;
  if (const Status status = encode(to, message, header); !status.ok()) {
    tensors_.clear();
    scratch_ = {};
    return refuse(proxy, message, status);
  }
  const bool is_plain = (header.flags & wire::kPlain) != 0;  // then it is no exit message
  if (is_plain ? message.mid.is_response() : is_free(message)) header.flags |= wire::kFree;
  header.tensors = static_cast<std::uint8_t>(tensors_.records.size());  // plan() accepts at most kMaxTensors
  header.source = source_of(message.sender, header);
  if (message.mid.is_request() && header.source != 0 && header.source_peer == context_.self.value)
    requests_.open(actors_.make_sender_known(message.sender), message.mid, proxy);
  context_.counts.sent.add();
  send_encoded(proxy, header);
}

/// Encodes into scratch_ and tensors_. On failure no tensor stays lent.
Status Outbound::encode(PeerState& to, caf::mailbox_element& message, wire::Header& header) {
  scratch_.assign(wire::kHeaderBytes, 0);
  tensors_.clear();
  if (context_.codec.encode_plain(message, scratch_)) {
    header.flags |= wire::kPlain;
    return {};
  }
  Status status;
  if (const Tensor* const tensor = context_.codec.encode_lone(message, scratch_)) {
    header.flags |= wire::kLone;
    status = loans_.plan(to, {tensor, 1}, tensors_);
  } else {
    detail::TensorSlots slots;
    status = context_.codec.encode(message, scratch_);
    if (status.ok()) status = loans_.plan(to, slots.sent, tensors_);
  }
  if (const std::size_t body_bytes = scratch_.size() - wire::kHeaderBytes; body_bytes > wire::kLargestBody) {
    loans_.take_back(tensors_.records);
    return {Code::unsupported,
            text("a message of ", body_bytes, " bytes; at most ", wire::kLargestBody, " fit into one")};
  }
  return status;
}

/// An actor that waits must be told that the message could not be sent: the requester, or, if the message was an
/// answer, the actor of the other process that asked.
void Outbound::refuse(Proxy& proxy, caf::mailbox_element& message, const Status& why) {
  context_.drop(text("message not sent: ", why.text()));
  if (!message.mid.is_response()) {
    if (SendWindow* const send_window = proxy.send_window(); send_window != nullptr && !is_free(message))
      send_window->leave(1, 0);
    return answer(message.sender, message.mid, why);
  }
  const auto instead = caf::make_mailbox_element(message.sender, message.mid, {}, to_caf(why));
  send_now(proxy, *instead);
}

/// The sender's actor id; its process goes into the header. 0: there is no sender, or the receiver cannot reach it.
std::uint64_t Outbound::source_of(const caf::strong_actor_ptr& sender, wire::Header& header) {
  if (!sender) return 0;
  if (sender->node() == context_.system.node()) {
    actors_.make_sender_known(sender);
    header.source_peer = static_cast<std::uint16_t>(context_.self.value);  // fits: Context checks all peers
    return sender->id();
  }
  const PeerState* const of = context_.peer(sender->node());
  if (of == nullptr) return 0;
  header.source_peer = static_cast<std::uint16_t>(of->number.value);
  return sender->id();
}

/// Counts the message against the peer's credit and the actor's window.
void Outbound::spend(Proxy& proxy, wire::Header& header, std::size_t body_bytes) {
  PeerState& to = proxy.peer();
  std::uint64_t copied = 0;
  for (const wire::TensorRecord& record : tensors_.records) copied += record.by_reference != 0 ? 0 : record.size_bytes;
  header.charge = wire::charge_of(body_bytes, copied);
  const std::uint64_t charge = wire::charge_in(header.charge);  // as the receiver computes it, including rounding
  proxy.credit.spend(charge);
  to.backlog.credit.spend(charge);
  to.counts.unhandled.set(to.backlog.credit.in_use().messages);
  if (SendWindow* const send_window = proxy.send_window()) send_window->enter_bytes(charge * wire::kChargeBytes);
}

/// Sends what scratch_ and tensors_ contain. From here on the message has its sequence numbers, so a frame with these
/// numbers must be sent.
void Outbound::send_encoded(Proxy& proxy, wire::Header header) {
  PeerState& to = proxy.peer();
  const std::size_t body_bytes = scratch_.size() - wire::kHeaderBytes;
  header.sequence = proxy.next_sequence++;
  header.order = to.next_order++;
  if ((header.flags & wire::kFree) == 0) spend(proxy, header, body_bytes);
  if (tensors_.records.empty() && scratch_.size() <= Transport::kMaxHeadBytes) {  // most messages
    wire::store(header, header_in(scratch_));
    return frames_.send(to, bytes_of(scratch_));
  }
  const std::size_t record_bytes = tensors_.records.size() * sizeof(wire::TensorRecord);
  const bool body_in_head = scratch_.size() + record_bytes <= Transport::kMaxHeadBytes;
  // Pieces of a payload are stored in their places, where there is none for a body.
  const bool in_pieces = body_bytes > wire::kPieceBytes || tensors_.is_staged;
  if (!body_in_head) header.flags |= in_pieces ? wire::kBodyInPieces : wire::kBodyInPayload;
  if (tensors_.is_staged) header.flags |= wire::kPayloadInPieces;
  const auto* const records = reinterpret_cast<const char*>(tensors_.records.data());
  std::shared_ptr<Body> body;
  if (!body_in_head) {
    body = std::make_shared<Body>(std::move(scratch_), Charge(context_.outgoing, body_bytes));
    scratch_.assign(wire::kHeaderBytes, 0);
  }
  if (!body_in_head && in_pieces) {
    const wire::Pieces pieces{to.next_body++, body_bytes};
    const auto* const bytes = reinterpret_cast<const char*>(&pieces);
    scratch_.insert(scratch_.end(), bytes, bytes + sizeof pieces);
  }
  if (record_bytes > 0) scratch_.insert(scratch_.end(), records, records + record_bytes);
  wire::store(header, header_in(scratch_));
  if (body_in_head && tensors_.copied_bytes == 0 && tensors_.awaited.empty())
    return frames_.send(to, bytes_of(scratch_));

  const auto head = bytes_of(scratch_);
  auto frame = frames_.frame(to, needs_bulk(body_bytes), std::vector<std::byte>(head.begin(), head.end()));
  to.sent_since_check = true;
  to.counts.messages_sent.add();
  to.counts.bytes_sent.add(head.size() + body_bytes + tensors_.copied_bytes);
  Parked message;
  if (tensors_.is_staged)
    message.payload = take_payload(to, header.order);
  else
    frame->tensors = std::move(tensors_.copied);
  Frames& frames = message.frames;
  if (body && in_pieces) {
    cut_into_pieces(to, std::move(body), frames);
  } else if (body) {
    frame->body_begin = wire::kHeaderBytes;
    frame->body_end = body->bytes.size();
    frame->body = std::move(body);
  }
  if (frames.empty() && !message.payload && tensors_.awaited.empty()) return frames_.dispatch(std::move(frame));
  frames.push_back(std::move(frame));
  if (tensors_.awaited.empty()) {
    go_on(std::move(message));
  } else {
    park(std::move(message));
  }
}

/// Whether the message is sent on the bulk lane.
bool Outbound::needs_bulk(std::size_t body_bytes) const {
  if (tensors_.is_staged || tensors_.copied_bytes > kControlPayload || body_bytes > kLargestControlBody) return true;
  const bool waits = !tensors_.awaited.empty();  // when it ends, other payloads may be in progress
  return tensors_.copied_bytes > 0 && (waits || frames_.control_payloads() > kControlPayload);
}

/// The tensors that are sent by value, of which some are staged.
StagedPayload Outbound::take_payload(PeerState& to, std::uint32_t order) {
  const SinkKey sink = tensors_.copied.size() == 1 ? tensors_.copied.front().sink() : SinkKey{};
  return {&to, order, sink, tensors_.copied_bytes, std::move(tensors_.copied)};
}

/// Sends the body in frames on the bulk lane. Several are sent at once, and other messages may pass between them.
void Outbound::cut_into_pieces(PeerState& to, std::shared_ptr<const Body> body, Frames& frames) {
  const std::uint64_t size_bytes = body->bytes.size() - wire::kHeaderBytes;
  wire::Header header{.kind = wire::Kind::piece, .message_id = to.next_body - 1, .source = size_bytes};
  for (std::uint64_t offset = 0; offset < size_bytes; offset += wire::kPieceBytes) {
    header.target = offset;
    std::vector<std::byte> head(wire::kHeaderBytes);
    wire::store(header, std::span(head).first<wire::kHeaderBytes>());
    auto& frame = frames.emplace_back(frames_.frame(to, true, std::move(head)));
    frame->body = body;
    frame->body_begin = wire::kHeaderBytes + offset;
    frame->body_end = frame->body_begin + std::min(wire::kPieceBytes, size_bytes - offset);
  }
}

/// Keeps the message until the points in tensors_.awaited are reached. Its numbers are taken, so later messages to the
/// same actor wait at the receiver.
void Outbound::park(Parked message) {
  const std::uint64_t ticket = next_ticket_++;
  parked_.emplace(ticket, std::move(message));
  auto* const waker =
      std::make_unique<PointsReached>(*this, ticket, tensors_.awaited.size()).release();  // ends by itself
  for (const Point& point : tensors_.awaited) context_.space.timeline(point.line).wake(point.value, *waker);
}

void Outbound::unpark(std::uint64_t ticket, const Status& status) {
  auto entry = parked_.extract(ticket);
  if (entry.empty()) return;  // its peer was lost meanwhile
  Parked message = std::move(entry.mapped());
  if (status.ok()) return go_on(std::move(message));
  replace_failed(*message.frames.back(), status);
}

/// Its tensors are valid. A staged payload goes first, since the message cannot be replaced once it was sent.
void Outbound::go_on(Parked message) {
  if (!message.payload) return frames_.dispatch(std::move(message.frames));
  StagedPayload payload = *std::exchange(message.payload, {});
  const std::uint64_t ticket = next_ticket_++;
  parked_.emplace(ticket, std::move(message));
  staging_.send(std::move(payload), [this, ticket](const Status& status) { unpark(ticket, status); });
}

/// The tensor will never be valid, but the message already has its sequence numbers. Its request ends with the reason,
/// and another frame is sent in its place: one with the reason if the message was an answer that an actor waits for,
/// otherwise an empty one.
void Outbound::replace_failed(const Frame& frame, const Status& why) {
  wire::Header header = *wire::load(frame.head);
  context_.drop(text("message not sent: the work that was to fill its tensor failed: ", why.text()));
  const caf::message_id id{header.message_id};
  if (id.is_request() && header.source_peer == context_.self.value) {
    const auto request = requests_.close(header.source, id);
    KnownActor* const requester = request ? actors_.find(header.source) : nullptr;
    if (requester != nullptr) answer(requester->actor, request->id, why);
  }
  loans_.take_back(wire::load_records(frame.head, header.tensors));
  std::vector<char> head(wire::kHeaderBytes);
  header.flags = (header.flags & wire::kFree) | (id.is_response() ? 0 : wire::kVoid);
  header.tensors = 0;
  if (id.is_response()) {
    const auto reason = caf::make_mailbox_element(nullptr, id, {}, to_caf(shortened(why)));
    if (const Status wrong = context_.codec.encode(*reason, head); !wrong.ok())
      return context_.drop(text("an answer's failure cannot be told: ", wrong.text()));
  }
  wire::store(header, header_in(head));
  if (PeerState* const to = context_.peer(frame.to)) frames_.send(*to, bytes_of(head));
}

void Outbound::forget_parked(Peer peer) {
  std::erase_if(parked_, [&](const auto& entry) { return entry.second.frames.front()->to == peer; });
}

}  // namespace troupe::remote
