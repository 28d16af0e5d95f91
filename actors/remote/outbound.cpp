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

bool Engine::transmit(Proxy& proxy, caf::mailbox_element_ptr message) {
  PeerState& to = proxy.peer();
  if (to.dead || ended_ || !proxy.alive()) {
    const caf::error why = to.dead  ? to_caf(to.why)
                           : ended_ ? to_caf(Status{Code::aborted, "this process is ending"})
                                    : caf::make_error(caf::sec::request_receiver_down);
    answer(message->sender, message->mid, why);
    return true;
  }
  if (is_free(*message)) {
    send_now(proxy, *message, wire::kFree);
  } else if (proxy.blocked.empty() && proxy.allowance.open() && to.allowance.open()) {
    send_now(proxy, *message, 0);
  } else {
    block(proxy, std::move(message));
    return false;
  }
  return true;
}

void Engine::block(Proxy& proxy, caf::mailbox_element_ptr message) {
  PeerState& to = proxy.peer();
  unfinished_.begin();
  if (proxy.blocked.empty()) to.blocked.emplace_back(proxy.ctrl());
  proxy.blocked.push_back({to.next_ticket++, std::move(message)});
}

/// As far as the windows allow. Actors take turns, as they may have different edges but share the peer's window.
void Engine::send_blocked(PeerState& to) {
  for (std::size_t turns = to.blocked.size(); turns > 0 && to.allowance.open(); --turns) {
    const caf::strong_actor_ptr next = std::move(to.blocked.front());
    to.blocked.pop_front();
    auto& proxy = static_cast<Proxy&>(*next->get());
    while (!proxy.blocked.empty() && proxy.allowance.open() && to.allowance.open()) {
      const caf::mailbox_element_ptr message = std::move(proxy.blocked.front().message);
      proxy.blocked.pop_front();
      send_now(proxy, *message, 0);
      to.room->leave();
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
    to.room->leave();
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
  to.room->open();
}

void Engine::note_turned_away(PeerState& to) {
  const std::uint64_t count = to.room->take_turned_away();
  to.counts.turned_away.add(count);
  counts_.dropped.add(count);
  if (options_.dropped)
    options_.dropped(text(count, " messages to peer ", to.number.value, " not sent: it takes no more for now"));
}

void Engine::send_now(Proxy& proxy, caf::mailbox_element& message, std::uint8_t flags) {
  PeerState& to = proxy.peer();
  wire::Header header{.flags = flags, .message_id = message.mid.integer_value(), .target = proxy.id()};
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
    if (!status.ok()) {
      tensors_.clear();
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
  if (!message.mid.is_response()) return answer(message.sender, message.mid, why);
  const auto instead = caf::make_mailbox_element(message.sender, message.mid, {}, to_caf(why));
  send_now(proxy, *instead, wire::kFree);
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
  if (!body_in_head) header.flags |= wire::kBodyInPayload;
  header.sequence = proxy.next_sequence++;
  header.order = to.next_order++;
  if ((header.flags & wire::kFree) == 0) {
    std::uint64_t bytes = body_bytes;
    for (const wire::TensorRecord& record : plan.records) bytes += record.by_reference != 0 ? 0 : record.size_bytes;
    header.charge = wire::charge_of(bytes);
    proxy.allowance.spend(header.charge);
    to.allowance.spend(header.charge);
    to.counts.in_window.set(to.allowance.in_use());
  }

  const auto* const records = reinterpret_cast<const char*>(plan.records.data());
  std::vector<char> body;
  if (!body_in_head) {
    body = std::move(scratch_);
    scratch_.assign(wire::kHeaderBytes, 0);
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
  frame->body = std::move(body);
  frame->body_begin = frame->body.empty() ? 0 : wire::kHeaderBytes;
  to.spoken_to = true;
  to.counts.messages_sent.add();
  to.counts.bytes_sent.add(head.size() + body_bytes + plan.copied_bytes);
  if (plan.awaited.empty()) {
    dispatch(std::move(frame));
  } else {
    park(std::move(frame), plan.awaited);
  }
}

void Engine::dispatch(std::unique_ptr<Frame> frame) {
  if (frame->outbox->lane() == Lane::control) return control_out_.send(std::move(frame));
  if (bulk_.post(*frame)) frame.release();
}

/// Its place in the order is taken: what follows to the same actor waits at the receiver.
void Engine::park(std::unique_ptr<Frame> frame, const std::vector<Point>& awaited) {
  const std::uint64_t ticket = next_token_++;
  parked_.emplace(ticket, std::move(frame));
  auto* const waker = std::make_unique<PointsReached>(*this, ticket, awaited.size()).release();  // ends itself
  for (const Point& point : awaited) space_.timeline(point.line).wake(point.value, *waker);
}

void Engine::unpark(std::uint64_t ticket, const Status& status) {
  auto entry = parked_.extract(ticket);
  if (entry.empty()) return;
  std::unique_ptr<Frame> frame = std::move(entry.mapped());
  if (status.ok()) return dispatch(std::move(frame));
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
  PeerState* const to = peer(frame->to);
  frame.reset();
  if (to != nullptr) send_head(*to, bytes_of(head));
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
  const Amount all = to.intake->begin_report();
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
