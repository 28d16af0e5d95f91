#include <array>
#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/sec.hpp>
#include <cstring>
#include <mutex>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/engine.hpp"

namespace troupe::remote {
namespace {

/// Larger bodies go with the tensors.
constexpr std::size_t kLargestControlBody = 64 << 10;

std::span<const std::byte> bytes_of(const std::vector<char>& chars) { return std::as_bytes(std::span(chars)); }

}  // namespace

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

void Engine::transmit(Proxy& proxy, caf::mailbox_element& message) {
  PeerState& to = proxy.peer();
  if (to.dead) return answer(message.sender, message.mid, to.why);
  if (ended_) return answer(message.sender, message.mid, Status{Code::aborted, "this process is ending"});
  if (!proxy.alive()) return answer(message.sender, message.mid, caf::make_error(caf::sec::request_receiver_down));

  wire::Header header{.message_id = message.mid.integer_value(), .target = proxy.id()};
  if (!message.stages.empty()) header.flags |= wire::kHasStages;
  detail::TensorSlots slots;
  TensorPlan tensors;
  scratch_.assign(wire::kHeaderBytes, 0);
  if (codec_.encode_plain(message, scratch_)) {
    header.flags |= wire::kPlain;
  } else {
    Status status = codec_.encode(message, scratch_);
    if (status.ok()) status = plan(to, slots.sent, tensors);
    if (!status.ok()) return refuse(proxy, message, status);
  }

  header.tensors = static_cast<std::uint8_t>(tensors.records.size());
  header.source = source_of(message.sender, header);
  if (message.mid.is_request() && header.source != 0 && header.source_peer == self_.value) {
    const RequestKey key{header.source, message.mid.request_id().integer_value()};
    outstanding_.insert_or_assign(key, Outstanding{message.mid, to.number, proxy.id()});
  }
  ++counts_.sent;
  send_message(proxy, header, tensors);
}

/// Whoever waits for something must hear of it: the requester, or, when this was the answer, the one who asked over
/// there.
void Engine::refuse(Proxy& proxy, caf::mailbox_element& message, const Status& why) {
  drop(text("message not sent: ", why.text()));
  if (!message.mid.is_response()) return answer(message.sender, message.mid, why);
  const auto instead = caf::make_mailbox_element(message.sender, message.mid, {}, to_caf(why));
  transmit(proxy, *instead);
}

bool Engine::reached(Point point) const {
  return point.value == 0 || space_.timeline(point.line).value() >= point.value;
}

/// Decides for each tensor whether it goes by reference; lends out those that do. On failure nothing is lent.
Status Engine::plan(PeerState& to, const std::vector<Tensor>& tensors, TensorPlan& plan) {
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
    expose(sender);
    header.source_peer = self_.value;
    return sender->id();
  }
  const PeerState* const of = peer(sender->node());
  if (of == nullptr) return 0;
  header.source_peer = of->number.value;
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

  const auto* const records = reinterpret_cast<const char*>(plan.records.data());
  std::vector<char> body;
  if (!body_in_head) {
    body = std::move(scratch_);
    scratch_.assign(wire::kHeaderBytes, 0);
  }
  scratch_.insert(scratch_.end(), records, records + record_bytes);
  wire::store(header, std::as_writable_bytes(std::span(scratch_)).first<wire::kHeaderBytes>());
  if (body_in_head && plan.copied_bytes == 0 && plan.awaited.empty())
    return control_out_.send(to.number, bytes_of(scratch_));

  const bool large = plan.copied_bytes > 0 || body_bytes > kLargestControlBody;
  const auto head = bytes_of(scratch_);
  auto frame = std::make_unique<Frame>(large ? bulk_out_ : control_out_, to.number,
                                       std::vector<std::byte>(head.begin(), head.end()));
  frame->tensors = std::move(plan.copied);
  frame->body = std::move(body);
  frame->body_begin = frame->body.empty() ? 0 : wire::kHeaderBytes;
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
  header.flags = id.is_response() ? 0 : wire::kVoid;
  header.tensors = 0;
  if (id.is_response()) {
    const auto reason = caf::make_mailbox_element(nullptr, id, {}, to_caf(status));
    if (const Status wrong = codec_.encode(*reason, head); !wrong.ok()) {
      return drop(text("an answer's failure cannot be told: ", wrong.text()));
    }
  }
  wire::store(header, std::as_writable_bytes(std::span(head)).first<wire::kHeaderBytes>());
  const Peer to = frame->to;
  frame.reset();
  control_out_.send(to, bytes_of(head));
}

void Engine::send_control(PeerState& to, wire::Header header) {
  std::array<std::byte, wire::kHeaderBytes> head;
  wire::store(header, head);
  control_out_.send(to.number, head);
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
  control_out_.send(to.number, bytes_of(head));
}

}  // namespace troupe::remote
