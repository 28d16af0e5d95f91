#include "actors/remote/detail/tensor_loans.hpp"

#include <cstring>
#include <utility>

#include "actors/remote/detail/inline_unit.hpp"

namespace troupe::remote {
namespace {

/// Returned loans wait for flush(), which the lane calls once a round, and are sent together. This many are not kept
/// waiting.
constexpr std::size_t kGivenBackAtOnce = 32;

}  // namespace

/// Gives back a tensor that another process lent, when its last handle here is destroyed: on any thread.
class TensorLoans::Borrowed {
 public:
  Borrowed(TensorLoans& loans, PeerState& from, std::uint64_t token)
      : loans_(loans), lane_access_(loans.context_.lane_access), from_(from), token_(token) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    if (running_inline() == lane_access_.get()) {
      loans_.give_back(from_, token_);
    } else {
      lane_access_->run([loans = &loans_, from = &from_, token = token_] { loans->give_back(*from, token); });
    }
  }

 private:
  TensorLoans& loans_;  // used only on the control lane, like from_
  const std::shared_ptr<LaneAccess> lane_access_;
  PeerState& from_;
  const std::uint64_t token_;
};

bool TensorLoans::reached(Point point) const {
  return point.value == 0 || context_.space.timeline(point.line).value() >= point.value;
}

/// Refuses a tensor in memory that only a device can access where the message would make a host read or write it.
Status TensorLoans::check_kind(const Tensor& tensor, bool by_reference) const {
  const Memory memory = tensor.memory();
  if (memory.size_bytes == 0) return {};
  const MemoryKind kind = context_.space.kind(memory.arena);
  if (kind != tensor.kind()) {
    return {Code::invalid,
            text("a tensor was made for ", name_of(tensor.kind()), " memory, but arena ", memory.arena.value, " is ",
                 name_of(kind), " memory: give that kind when the tensor is made")};
  }
  if (by_reference || context_.transport.carries(kind)) return {};
  if (staging_.takes(kind)) return staging_.status();
  return {Code::unsupported,
          text("a tensor in ", name_of(kind), " memory cannot be sent by ", context_.transport.description(),
               ": give the group the device (GroupOptions::device), or copy it to host memory first")};
}

Status TensorLoans::plan(PeerState& to, std::span<const Tensor> tensors, TensorPlan& plan) {
  if (tensors.size() > wire::kMaxTensors) {
    return {Code::unsupported,
            text("a message with ", tensors.size(), " tensors; at most ", wire::kMaxTensors, " fit into one")};
  }
  try {
    for (const Tensor& tensor : tensors) {
      const Memory memory = tensor.memory();
      if (memory.size_bytes > 0) context_.space.address(memory);  // throws for memory that is not mapped
      const bool by_reference = context_.options.shares && context_.options.shares(to.number, memory.arena);
      if (Status wrong = check_kind(tensor, by_reference); !wrong.ok()) return wrong;
      const Point from = tensor.valid_from();
      const bool valid = reached(from);
      const bool point_travels = by_reference && !valid && context_.options.shares(to.number, from.line.arena);
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
        plan.is_staged = plan.is_staged || (memory.size_bytes > 0 && staging_.takes(tensor.kind()));
      }
      plan.records.push_back(record);
    }
  } catch (const Error& error) {
    return error.status();
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (plan.records[i].by_reference == 0) continue;
    plan.records[i].token = next_token_++;
    lent_.emplace(plan.records[i].token, Loan{to.number, tensors[i]});
  }
  return {};
}

void TensorLoans::take_back(std::span<const wire::TensorRecord> records) {
  for (const wire::TensorRecord& record : records) {
    // Otherwise the token is no loan's: it is the key of the receiver's memory for the tensor.
    if (record.by_reference != 0) lent_.erase(record.token);
  }
}

void TensorLoans::take_in_release(PeerState& from, const wire::Header& header, std::span<const std::byte> more) {
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

Status TensorLoans::land(PeerState& from, const wire::TensorRecord& record, const Arrival& arrival,
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
    if (record.token != 0 && record.size_bytes > 0) tensor.kind = context_.space.kind(arrival.payload.arena);
    return {};
  }
  tensor = {{record.arena, record.offset, record.size_bytes},
            {record.line, record.point},
            std::make_shared<Borrowed>(*this, from, record.token)};
  try {
    if (tensor.memory.size_bytes > 0) {
      context_.space.address(tensor.memory);
      tensor.kind = context_.space.kind(record.arena);
    }
    if (record.point != 0) {
      TROUPE_CHECK(context_.space.arena(record.line.arena).has_timeline(record.line), Code::invalid, "timeline ",
                   record.line.index, " of arena ", record.line.arena.value, " does not exist");
      context_.space.timeline(record.line);
    }
  } catch (const Error& error) {
    return {Code::corrupt,
            text("a tensor by reference from peer ", from.number.value, " cannot be reached: ", error.what())};
  }
  return {};
}

void TensorLoans::abandon(PeerState& from, const wire::Header& header, std::span<const std::byte> head) {
  for (const wire::TensorRecord& record : wire::load_records(head, header.tensors)) {
    if (record.by_reference != 0) give_back(from, record.token);
  }
}

void TensorLoans::give_back(PeerState& from, std::uint64_t token) {
  if (from.dead || context_.ended) return;
  if (from.given_back.empty()) creditors_.push_back(&from);
  from.given_back.push_back(token);
  if (from.given_back.size() >= kGivenBackAtOnce) send_given_back(from);
}

/// Sends all tokens that wait for this peer in one frame.
void TensorLoans::send_given_back(PeerState& to) {
  if (to.given_back.empty()) return;
  const std::span<const std::uint64_t> more = std::span(to.given_back).subspan(1);
  std::vector<std::byte> head(wire::kHeaderBytes + more.size_bytes());
  const wire::Header header{.kind = wire::Kind::release, .message_id = to.given_back.front()};
  wire::store(header, std::span(head).first<wire::kHeaderBytes>());
  if (!more.empty()) std::memcpy(head.data() + wire::kHeaderBytes, more.data(), more.size_bytes());
  to.given_back.clear();
  frames_.send(to, head);
}

bool TensorLoans::give_back_tokens() {
  if (frames_.sent_this_round()) return true;
  for (PeerState* const to : std::exchange(creditors_, {})) send_given_back(*to);
  return false;
}

void TensorLoans::forget(Peer peer) {
  std::erase_if(lent_, [&](const auto& entry) { return entry.second.peer == peer; });
}

}  // namespace troupe::remote
