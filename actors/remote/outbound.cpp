#include <algorithm>
#include <array>
#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/sec.hpp>
#include <caf/system_messages.hpp>
#include <cstring>
#include <mutex>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/engine.hpp"

namespace troupe::remote {
namespace {

/// Larger bodies go with the tensors.
constexpr std::size_t kLargestControlBody = 64 << 10;
/// A payload of at most so many bytes goes by the control lane, which saves it the way to the other one, while no more
/// than as many are under way there: several would make small messages wait.
constexpr std::uint64_t kControlPayload = 64 << 10;
/// So many heads of a round go at once; what follows is batched, since then the transport is the bottleneck.
constexpr unsigned kUnbatchedHeads = 4;
/// Larger heads gain nothing.
constexpr std::size_t kLargestBatched = 512;
/// One request in so many is timed.
constexpr unsigned kTimedRequests = 16;

std::span<const std::byte> bytes_of(const std::vector<char>& chars) { return std::as_bytes(std::span(chars)); }

}  // namespace

Status shortened(const Status& why) {
  constexpr std::size_t kMostText = Transport::kMaxHeadBytes / 2;
  if (why.text().size() <= kMostText) return why;
  return {why.code(), std::string(why.text().substr(0, kMostText)) + " ..."};
}

/// Waits until the tensors of a parked frame are valid, or one never will be; then tells the engine. Deletes itself.
class Engine::PointsReached final : public Waker, public LaneTask {
 public:
  PointsReached(Engine& engine, std::uint64_t ticket, std::size_t points)
      : engine_(engine), gate_(engine.gate_), ticket_(ticket), left_(points) {}

  void reached(Point, Status status) noexcept override {
    if (!status.ok()) {
      const std::scoped_lock hold(mutex_);
      status_ = std::move(status);
    }
    if (left_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    std::unique_ptr<PointsReached> self(this);
    if (gate_->post(*this)) self.release();  // run() will end it
  }
  void run() noexcept override {
    const std::unique_ptr<PointsReached> self(this);
    engine_.unpark(ticket_, status_);
  }

 private:
  Engine& engine_;
  const std::shared_ptr<Gate> gate_;
  const std::uint64_t ticket_;
  std::atomic<std::size_t> left_;
  std::mutex mutex_;  // guards status_ until all are reached
  Status status_;
};

bool is_exit(const caf::mailbox_element& message) {
  const caf::type_erased_tuple& content = message.content();
  return content.size() == 1 && content.type(0).first == caf::type_nr<caf::exit_msg>::value;
}

bool is_free(const caf::mailbox_element& message) { return message.mid.is_response() || is_exit(message); }

void Engine::transmit(Proxy& proxy, caf::mailbox_element_ptr message) {
  PeerState& to = proxy.peer();
  if (to.dead || ended_ || !proxy.alive()) {
    const caf::error why = to.dead  ? to_caf(to.why)
                           : ended_ ? to_caf(Status{Code::aborted, "this process is ending"})
                                    : caf::make_error(caf::sec::request_receiver_down);
    return answer(message->sender, message->mid, why);
  }
  if (proxy.blocked.empty() && (open(proxy) || is_free(*message))) return send_now(proxy, *message);
  block(proxy, std::move(message));
}

/// An actor may have as much unhandled as is left for all others together: of several slow ones each gets an equal
/// part, and as much stays for those that are not.
bool Engine::open(const Proxy& proxy) const noexcept {
  const PeerState& to = proxy.peer();
  const std::uint64_t used = to.allowance.in_use().charge;
  return used < to.share && proxy.allowance.in_use().charge < to.share - used;
}

void Engine::block(Proxy& proxy, caf::mailbox_element_ptr message) {
  PeerState& to = proxy.peer();
  unfinished_.begin();
  to.waiting->messages.fetch_add(1, std::memory_order_relaxed);
  if (proxy.blocked.empty()) to.blocked.emplace_back(proxy.ctrl());
  const bool is_link = message->sender.get() == proxy.ctrl();
  Charge charge(outgoing_, is_link ? wire::kMessageBytes : cost_of(system_, *message));
  proxy.blocked.push_back({to.next_ticket++, std::move(message), std::move(charge)});
  note_backlog(outgoing_->used());
}

/// As far as the peer takes more. Actors take turns, since all share what it takes.
void Engine::send_blocked(PeerState& to) {
  for (std::size_t turns = to.blocked.size(); turns > 0; --turns) {
    const caf::strong_actor_ptr next = std::move(to.blocked.front());
    to.blocked.pop_front();
    auto& proxy = static_cast<Proxy&>(*next->get());
    while (!proxy.blocked.empty() && (open(proxy) || is_free(*proxy.blocked.front().message))) {
      const caf::mailbox_element_ptr message = std::move(proxy.blocked.front().message);
      proxy.blocked.pop_front();
      send_now(proxy, *message);
      to.waiting->messages.fetch_sub(1, std::memory_order_relaxed);
      unfinished_.end();
    }
    if (!proxy.blocked.empty()) to.blocked.push_back(next);
  }
  send_blocked_ends(to);
}

/// The news that an actor ended follows all that was to be sent before.
void Engine::send_blocked_ends(PeerState& to) {
  if (to.blocked_ends.empty()) return;
  std::uint64_t oldest = to.next_ticket;
  for (const auto& proxy : to.blocked)
    oldest = std::min(oldest, static_cast<Proxy&>(*proxy->get()).blocked.front().ticket);
  while (!to.blocked_ends.empty() && to.blocked_ends.front().first < oldest) {
    const auto [ticket, ended] = std::move(to.blocked_ends.front());
    to.blocked_ends.pop_front();
    send_down(to, ended.actor, ended.reason);
    unfinished_.end();
  }
}

void Engine::tell_end(PeerState& to, caf::actor_id actor, const caf::error& reason) {
  if (to.blocked.empty()) return send_down(to, actor, reason);
  unfinished_.begin();
  to.blocked_ends.push_back({to.next_ticket++, {actor, reason}});
}

void Engine::drop_blocked(Proxy& proxy, const caf::error& why) {
  PeerState& to = proxy.peer();
  if (proxy.blocked.empty()) return;
  std::erase_if(to.blocked, [&](const auto& other) { return other.get() == proxy.ctrl(); });
  for (const Proxy::Blocked& entry : std::exchange(proxy.blocked, {})) {
    answer(entry.message->sender, entry.message->mid, why);
    to.waiting->messages.fetch_sub(1, std::memory_order_relaxed);
    unfinished_.end();
  }
  send_blocked_ends(to);
}

/// Those of a peer that is gone, or of all when this process's part ends.
void Engine::drop_blocked(PeerState& to, const caf::error& why) {
  for (; !to.blocked_ends.empty(); to.blocked_ends.pop_front()) unfinished_.end();
  while (!to.blocked.empty()) {
    const caf::strong_actor_ptr next = to.blocked.front();
    drop_blocked(static_cast<Proxy&>(*next->get()), why);
  }
}

void Engine::note_turned_away(PeerState& to) {
  const std::uint64_t count = to.waiting->untold.exchange(0);
  counts_.dropped.add(count);
  if (options_.dropped) {
    options_.dropped(text(count, " messages to peer ", to.number.value, " not sent: ",
                          outgoing_->full() ? "those that wait already take all of RemoteOptions::memory_bytes"
                                            : "an actor's window is full (RemoteActors::bound)"));
  }
}

void Engine::bound(Proxy& proxy, const Window& window, WhenFull when_full, std::chrono::milliseconds wait_within) {
  proxy.make_room().set(window, when_full, wait_within);
  // Its process then tells sooner what is dealt with.
  gate_->run([this, window, kept = caf::strong_actor_ptr(proxy.ctrl())] {
    auto& of = static_cast<Proxy&>(*kept->get());
    if (of.peer().dead || ended_) return;
    send_control(of.peer(), {.kind = wire::Kind::window,
                             .message_id = window.messages,
                             .source = window.bytes / wire::kChargeBytes + 1,
                             .target = of.id()});
  });
}

void Engine::send_link(Proxy& proxy, const LinkChange& change) {
  PeerState& to = proxy.peer();
  wire::Header header{.kind = change.links ? wire::Kind::link : wire::Kind::unlink,
                      .flags = wire::kFree,
                      .sequence = proxy.next_sequence++,
                      .order = to.next_order++,
                      .target = proxy.id()};
  header.source = source_of(change.actor, header);
  send_control(to, header);
}

void Engine::send_now(Proxy& proxy, caf::mailbox_element& message) {
  if (message.sender.get() == proxy.ctrl()) return send_link(proxy, static_cast<const LinkChange&>(message));
  PeerState& to = proxy.peer();
  wire::Header header{.message_id = message.mid.integer_value(), .target = proxy.id()};
  if (is_free(message)) header.flags = wire::kFree;
  if (!message.stages.empty()) header.flags |= wire::kHasStages;
  scratch_.assign(wire::kHeaderBytes, 0);
  tensors_.clear();
  if (codec_.encode_plain(message, scratch_)) {
    header.flags |= wire::kPlain;
  } else {
    Status status;
    if (const Tensor* const tensor = codec_.encode_lone(message, scratch_)) {
      header.flags |= wire::kLone;
      status = plan(to, {tensor, 1}, tensors_);
    } else {
      detail::TensorSlots slots;
      status = codec_.encode(message, scratch_);
      if (status.ok()) status = plan(to, slots.sent, tensors_);
    }
    if (const std::size_t body_bytes = scratch_.size() - wire::kHeaderBytes; body_bytes > wire::kLargestBody) {
      status = {Code::unsupported,
                text("a message of ", body_bytes, " bytes; at most ", wire::kLargestBody, " fit into one")};
      for (const wire::TensorRecord& record : tensors_.records) lent_.erase(record.token);
    }
    if (!status.ok()) {
      tensors_.clear();
      scratch_ = {};
      return refuse(proxy, message, status);
    }
  }

  header.tensors = static_cast<std::uint8_t>(tensors_.records.size());
  header.source = source_of(message.sender, header);
  if (message.mid.is_request() && header.source != 0 && header.source_peer == self_.value) {
    const RequestKey key{header.source, message.mid.request_id().integer_value()};
    const bool timed = ++requests_ % kTimedRequests == 0;
    outstanding_.insert_or_assign(
        key, Outstanding{message.mid, to.number, proxy.id(), timed ? Clock::now() : Clock::time_point{}});
  }
  counts_.sent.add();
  send_message(proxy, header, tensors_);
}

/// Whoever waits for something must hear of it: the requester, or, when this was the answer, the one who asked over
/// there.
void Engine::refuse(Proxy& proxy, caf::mailbox_element& message, const Status& why) {
  drop(text("message not sent: ", why.text()));
  if (!message.mid.is_response()) {
    if (Room* const room = proxy.room(); room != nullptr && !is_free(message)) room->leave(1, 0);
    return answer(message.sender, message.mid, why);
  }
  const auto instead = caf::make_mailbox_element(message.sender, message.mid, {}, to_caf(why));
  send_now(proxy, *instead);
}

bool Engine::reached(Point point) const {
  return point.value == 0 || space_.timeline(point.line).value() >= point.value;
}

/// Memory that a processor cannot follow must not get to where one would.
Status Engine::check_kind(const Tensor& tensor, bool by_reference) const {
  const Memory memory = tensor.memory();
  if (memory.size_bytes == 0) return {};
  const MemoryKind kind = space_.kind(memory.arena);
  if (kind != tensor.kind()) {
    return {Code::invalid, text("a tensor is said to lie in ", name_of(tensor.kind()), " memory, but arena ",
                                memory.arena.value, " is ", name_of(kind), " memory: name that when it is made")};
  }
  if (!by_reference && !control_.transport().carries(kind)) {
    return {Code::unsupported, text("a tensor in ", name_of(kind), " memory cannot be sent by ",
                                    control_.transport().description(), ": copy it to host memory first")};
  }
  return {};
}

/// Decides for each tensor whether it goes by reference; lends out those that do. On failure nothing is lent.
Status Engine::plan(PeerState& to, std::span<const Tensor> tensors, TensorPlan& plan) {
  if (tensors.size() > wire::kMaxTensors) {
    return {Code::unsupported,
            text("a message with ", tensors.size(), " tensors; at most ", wire::kMaxTensors, " fit into one")};
  }
  try {
    for (const Tensor& tensor : tensors) {
      const Memory memory = tensor.memory();
      if (memory.size_bytes > 0) space_.address(memory);  // throws for memory that is none of this process's
      const Point from = tensor.valid_from();
      const bool valid = reached(from);
      const bool by_reference = options_.shares && options_.shares(to.number, memory.arena);
      if (Status wrong = check_kind(tensor, by_reference); !wrong.ok()) return wrong;
      const bool point_travels = by_reference && !valid && options_.shares(to.number, from.line.arena);
      if (!valid && !point_travels) plan.awaited.push_back(from);
      wire::TensorRecord record{.by_reference = by_reference,
                                .arena = memory.arena,
                                .offset = memory.offset,
                                .size_bytes = memory.size_bytes};
      if (point_travels) {
        record.line = from.line;
        record.point = from.value;
      }
      if (!by_reference) {
        record.arena = {};
        record.offset = memory.size_bytes == 0 ? plan.copied_bytes : wire::align_up(plan.copied_bytes);
        plan.copied_bytes = record.offset + memory.size_bytes;
        record.token = tensor.sink().value;
        plan.copied.push_back(tensor);
      }
      plan.records.push_back(record);
    }
  } catch (const Error& error) {
    return error.status();
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (plan.records[i].by_reference == 0) continue;
    plan.records[i].token = next_token_++;
    lent_.emplace(plan.records[i].token, Lent{to.number, tensors[i]});
  }
  return {};
}

/// The sender's actor id, its process in the header; 0 for nobody, or somebody the receiver cannot reach.
std::uint64_t Engine::source_of(const caf::strong_actor_ptr& sender, wire::Header& header) {
  if (!sender) return 0;
  if (sender->node() == system_.node()) {
    if (sender->id() != last_source_) {
      expose(sender);
      last_source_ = sender->id();
    }
    header.source_peer = static_cast<std::uint16_t>(self_.value);
    return sender->id();
  }
  const PeerState* const of = peer(sender->node());
  if (of == nullptr) return 0;
  header.source_peer = static_cast<std::uint16_t>(of->number.value);
  return sender->id();
}

/// `scratch_` holds room for the header, then the body.
void Engine::send_message(Proxy& proxy, wire::Header header, TensorPlan& plan) {
  PeerState& to = proxy.peer();
  const std::size_t body_bytes = scratch_.size() - wire::kHeaderBytes;
  const std::size_t record_bytes = plan.records.size() * sizeof(wire::TensorRecord);
  const bool body_in_head = scratch_.size() + record_bytes <= Transport::kMaxHeadBytes;
  const bool in_pieces = body_bytes > wire::kPieceBytes;
  if (!body_in_head) header.flags |= in_pieces ? wire::kBodyInPieces : wire::kBodyInPayload;
  header.sequence = proxy.next_sequence++;
  header.order = to.next_order++;
  if ((header.flags & wire::kFree) == 0) {
    std::uint64_t copied = 0;
    for (const wire::TensorRecord& record : plan.records) copied += record.by_reference != 0 ? 0 : record.size_bytes;
    header.charge = wire::charge_of(body_bytes, copied);
    const std::uint64_t charge = wire::charge_in(header.charge);
    proxy.allowance.spend(charge);
    to.allowance.spend(charge);
    to.counts.unhandled.set(to.allowance.in_use().messages);
    if (Room* const room = proxy.room()) room->enter_bytes(charge * wire::kChargeBytes);
  }

  const auto* const records = reinterpret_cast<const char*>(plan.records.data());
  std::shared_ptr<Body> body;
  if (!body_in_head) {
    body = std::make_shared<Body>(std::move(scratch_), Charge(outgoing_, body_bytes));
    scratch_.assign(wire::kHeaderBytes, 0);
  }
  if (in_pieces) {
    const wire::Pieces pieces{to.next_body++, body_bytes};
    const auto* const bytes = reinterpret_cast<const char*>(&pieces);
    scratch_.insert(scratch_.end(), bytes, bytes + sizeof pieces);
  }
  scratch_.insert(scratch_.end(), records, records + record_bytes);
  wire::store(header, std::as_writable_bytes(std::span(scratch_)).first<wire::kHeaderBytes>());
  if (body_in_head && plan.copied_bytes == 0 && plan.awaited.empty()) return send_head(to, bytes_of(scratch_));

  const bool waits = !plan.awaited.empty();  // by then others may be under way
  const bool large = plan.copied_bytes > kControlPayload ||
                     (plan.copied_bytes > 0 && (waits || control_out_.payloads() > kControlPayload)) ||
                     body_bytes > kLargestControlBody;
  const auto head = bytes_of(scratch_);
  auto frame = std::make_unique<Frame>(large ? bulk_out_ : control_out_, to.number,
                                       std::vector<std::byte>(head.begin(), head.end()));
  frame->tensors = std::move(plan.copied);
  to.spoken_to = true;
  to.counts.messages_sent.add();
  to.counts.bytes_sent.add(head.size() + body_bytes + plan.copied_bytes);
  Frames frames;
  if (in_pieces) {
    cut_into_pieces(to, std::move(body), frames);
  } else if (body) {
    frame->body_begin = wire::kHeaderBytes;
    frame->body_end = body->bytes.size();
    frame->body = std::move(body);
  }
  frames.push_back(std::move(frame));
  if (plan.awaited.empty()) {
    dispatch(std::move(frames));
  } else {
    park(std::move(frames), plan.awaited);
  }
}

/// The body's frames, for the bulk lane: several are under way at once, and other messages pass between them.
void Engine::cut_into_pieces(PeerState& to, std::shared_ptr<const Body> body, Frames& frames) {
  const std::uint64_t size_bytes = body->bytes.size() - wire::kHeaderBytes;
  wire::Header header{.kind = wire::Kind::piece, .message_id = to.next_body - 1, .source = size_bytes};
  for (std::uint64_t offset = 0; offset < size_bytes; offset += wire::kPieceBytes) {
    header.target = offset;
    std::vector<std::byte> head(wire::kHeaderBytes);
    wire::store(header, std::span(head).first<wire::kHeaderBytes>());
    auto& frame = frames.emplace_back(std::make_unique<Frame>(bulk_out_, to.number, std::move(head)));
    frame->body = body;
    frame->body_begin = wire::kHeaderBytes + offset;
    frame->body_end = frame->body_begin + std::min(wire::kPieceBytes, size_bytes - offset);
  }
}

void Engine::dispatch(Frames frames) {
  for (std::unique_ptr<Frame>& frame : frames) {
    if (frame->outbox->lane() == Lane::control) {
      control_out_.send(std::move(frame));
    } else if (bulk_.post(*frame)) {
      frame.release();
    }
  }
}

/// Its place in the order is taken: what follows to the same actor waits at the receiver.
void Engine::park(Frames frames, const std::vector<Point>& awaited) {
  const std::uint64_t ticket = next_token_++;
  parked_.emplace(ticket, std::move(frames));
  auto* const waker = std::make_unique<PointsReached>(*this, ticket, awaited.size()).release();  // ends itself
  for (const Point& point : awaited) space_.timeline(point.line).wake(point.value, *waker);
}

void Engine::unpark(std::uint64_t ticket, const Status& status) {
  auto entry = parked_.extract(ticket);
  if (entry.empty()) return;
  Frames frames = std::move(entry.mapped());
  if (status.ok()) return dispatch(std::move(frames));
  const std::unique_ptr<Frame> frame = std::move(frames.back());
  // The tensor's content will never be: its request ends with the reason, and another frame fills the gap in the order.
  wire::Header header = *wire::load(frame->head);
  drop(text("message not sent: the work that was to fill its tensor failed: ", status.text()));
  const auto request =
      outstanding_.find({header.source, caf::message_id{header.message_id}.request_id().integer_value()});
  if (header.source_peer == self_.value && request != outstanding_.end()) {
    if (Local* const requester = local(header.source)) answer(requester->actor, request->second.id, status);
    outstanding_.erase(request);
  }
  for (const wire::TensorRecord& record : wire::load_records(frame->head, header.tensors)) lent_.erase(record.token);
  // In its place goes the reason, where it was an answer that somebody waits for, else nothing.
  const caf::message_id id{header.message_id};
  std::vector<char> head(wire::kHeaderBytes);
  header.flags = (header.flags & wire::kFree) | (id.is_response() ? 0 : wire::kVoid);
  header.tensors = 0;
  if (id.is_response()) {
    const auto reason = caf::make_mailbox_element(nullptr, id, {}, to_caf(shortened(status)));
    if (const Status wrong = codec_.encode(*reason, head); !wrong.ok()) {
      return drop(text("an answer's failure cannot be told: ", wrong.text()));
    }
  }
  wire::store(header, std::as_writable_bytes(std::span(head)).first<wire::kHeaderBytes>());
  if (PeerState* const to = peer(frame->to)) send_head(*to, bytes_of(head));
}

void Engine::send_control(PeerState& to, wire::Header header) {
  std::array<std::byte, wire::kHeaderBytes> head;
  wire::store(header, head);
  send_head(to, head);
}

/// All that leaves without a payload. A batch of one goes as it is.
void Engine::send_head(PeerState& to, std::span<const std::byte> head) {
  to.spoken_to = true;
  to.counts.messages_sent.add();
  to.counts.bytes_sent.add(head.size());
  if (++heads_ <= kUnbatchedHeads || head.size() > kLargestBatched) return control_out_.send(to.number, head);
  if (to.batch.size() + wire::kBatchedBytes + head.size() > Transport::kMaxHeadBytes) flush_batch(to);
  if (to.batched++ == 0) {
    to.batch.resize(wire::kHeaderBytes);
    open_batches_.push_back(&to);
  }
  wire::append_to_batch(to.batch, head);
}

/// The peer stays in the list of those with open batches, where an empty one is passed over.
void Engine::flush_batch(PeerState& to) {
  if (to.batched == 0) return;
  if (to.batched == 1) {
    control_out_.send(to.number, std::span(to.batch).subspan(wire::kHeaderBytes + wire::kBatchedBytes));
  } else {
    const wire::Header header{.kind = wire::Kind::batch, .message_id = to.batched};
    wire::store(header, std::span(to.batch).first<wire::kHeaderBytes>());
    control_out_.send(to.number, to.batch);
    to.counts.batches_sent.add();
    to.counts.batched_sent.add(to.batched);
  }
  to.batched = 0;
  to.batch.clear();
}

bool Engine::flush_batches() {
  heads_ = 0;
  if (open_batches_.empty()) return false;
  for (PeerState* const to : open_batches_) flush_batch(*to);
  open_batches_.clear();
  return true;
}

/// Tells in one frame which of its tensors are not needed here any more.
void Engine::send_given_back(PeerState& to) {
  if (to.given_back.empty()) return;
  const std::span<const std::uint64_t> more = std::span(to.given_back).subspan(1);
  std::vector<std::byte> head(wire::kHeaderBytes + more.size_bytes());
  const wire::Header header{.kind = wire::Kind::release, .message_id = to.given_back.front()};
  wire::store(header, std::span(head).first<wire::kHeaderBytes>());
  if (!more.empty()) std::memcpy(head.data() + wire::kHeaderBytes, more.data(), more.size_bytes());
  to.given_back.clear();
  send_head(to, head);
}

/// They can wait for a round in which nothing more urgent is sent, so that messages to and fro are not slowed down.
/// Whether any wait.
bool Engine::flush_given_back() {
  if (creditors_.empty()) return false;
  if (heads_ > 0) return true;
  for (PeerState* const to : std::exchange(creditors_, {})) send_given_back(*to);
  return false;
}

/// What was dealt with of a peer's messages, in all and for each actor where that changed.
void Engine::send_credit(PeerState& to) {
  if (to.dead || ended_) return;
  constexpr std::size_t kMost = (Transport::kMaxHeadBytes - wire::kHeaderBytes) / sizeof(wire::EdgeCredit);
  Amount skipped;
  for (const auto& edge : to.edges) {
    const Amount more = edge->skipped();
    skipped.messages += more.messages;
    skipped.charge += more.charge;
  }
  const Amount all = to.intake->begin_report(skipped);
  std::vector<wire::EdgeCredit> edges;
  const auto send = [&] {
    std::vector<std::byte> head(wire::kHeaderBytes + edges.size() * sizeof(wire::EdgeCredit));
    const wire::Header header{.kind = wire::Kind::credit, .message_id = all.messages, .source = all.charge};
    wire::store(header, std::span(head).first<wire::kHeaderBytes>());
    if (!edges.empty())
      std::memcpy(head.data() + wire::kHeaderBytes, edges.data(), edges.size() * sizeof(wire::EdgeCredit));
    edges.clear();
    send_head(to, head);
  };
  for (const auto& edge : to.edges) {
    if (!edge->has_news()) continue;
    const Amount amount = edge->tell();
    edges.push_back({edge->actor, amount.messages, amount.charge});
    if (edges.size() == kMost) send();
  }
  send();
  // Of actors that have ended, once nothing of theirs lies in a mailbox.
  std::erase_if(to.edges, [](const auto& edge) { return edge.use_count() == 1 && !edge->has_news(); });
}

/// Tells peers how many of their messages were refused for want of memory, if any were in this round.
bool Engine::flush_refused() {
  if (refused_.empty()) return false;
  for (PeerState* const to : std::exchange(refused_, {})) {
    const std::uint64_t count = std::exchange(to->refused, 0);
    if (!to->dead) send_control(*to, {.kind = wire::Kind::refused, .message_id = count});
  }
  return true;
}

void Engine::send_down(PeerState& to, caf::actor_id actor, const caf::error& reason) {
  std::vector<char> head(wire::kHeaderBytes);
  codec_.encode(reason, head);
  if (head.size() > Transport::kMaxHeadBytes) {
    head.resize(wire::kHeaderBytes);
    codec_.encode(caf::error(reason.code(), reason.category()), head);
  }
  const wire::Header header{.kind = wire::Kind::down, .order = to.next_order++, .source = actor};
  wire::store(header, std::as_writable_bytes(std::span(head)).first<wire::kHeaderBytes>());
  send_head(to, bytes_of(head));
}

}  // namespace troupe::remote
