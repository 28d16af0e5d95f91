#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/error.hpp"
#include "transports/ucx/detail/frame.hpp"
#include "transports/ucx/detail/sends.hpp"

namespace troupe {
namespace {

template <class T>
void append(std::vector<std::byte>& bytes, const T& value) {
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), raw, raw + sizeof value);
}

std::size_t place(Class priority) { return static_cast<std::size_t>(priority); }

void link_in(SendOp& op) {
  op.previous = nullptr;
  op.next = op.link->ops;
  if (op.next != nullptr) op.next->previous = &op;
  op.link->ops = &op;
}

void link_out(SendOp& op) {
  (op.previous != nullptr ? op.previous->next : op.link->ops) = op.next;
  if (op.next != nullptr) op.next->previous = op.previous;
}

}  // namespace

Status peer_status(const PeerLink& link, ucs_status_t status) {
  if (status == UCS_OK) return {};
  if (link.cut) return link.why;
  const Code code = status == UCS_ERR_NO_MEMORY ? Code::out_of_memory : Code::peer_lost;
  return {code, text("peer ", link.peer.value, ": ", ucs_status_string(status))};
}

/// UCX reads a GPU's memory itself: it registers it when it is first used, and keeps that.
ucs_memory_type_t UcxSends::type_of(std::span<const Memory> payload) const {
  const bool on_gpu = reads_cuda_ && payload.size() == 1 && space_.kind(payload[0].arena) == MemoryKind::device;
  return on_gpu ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

bool UcxSends::start(PeerLink& link, Class priority, Channel channel, std::span<const std::byte> head,
                     std::span<const Memory> payload, SendDone& done) {
  std::uint64_t size = 0;
  pieces_.clear();
  for (const Memory& piece : payload) {
    if (piece.size_bytes == 0) continue;
    pieces_.push_back({space_.address(piece), piece.size_bytes});
    size += piece.size_bytes;
  }
  PeerLink::Load& load = link.load[place(priority)];
  if (load.messages >= options_.max_messages) return false;
  if (load.bytes > 0 && load.bytes + size > options_.max_bytes) return false;
  const ucs_memory_type_t memory = type_of(payload);
  ++load.messages;
  load.bytes += size;
  if (size > options_.chunk_bytes) {
    link.large.push_back({&done, priority, channel, ++last_number_, size, memory, {head.begin(), head.end()}, pieces_});
    link.waiting[place(priority)].push_back(&link.large.back());
    pump(link);
    return true;
  }
  SendOp& op = take_op();
  op.link = &link;
  op.large = nullptr;
  op.done = &done;
  op.priority = priority;
  op.bytes = size;
  op.memory = memory;
  const Frame frame{options_.self.value, Frame::kWhole};
  op.header.resize(sizeof frame + head.size());
  std::memcpy(op.header.data(), &frame, sizeof frame);
  if (!head.empty()) std::memcpy(op.header.data() + sizeof frame, head.data(), head.size());
  op.pieces.swap(pieces_);
  hand_over(op, channel);
  return true;
}

SendOp& UcxSends::take_op() {
  if (free_.empty()) free_.push_back(&all_.emplace_back());
  SendOp& op = *free_.back();
  free_.pop_back();
  op.sends = this;
  op.abandoned = false;
  op.header.clear();
  op.pieces.clear();
  return op;
}

void UcxSends::hand_over(SendOp& op, Channel channel) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = &UcxSends::on_sent;
  param.user_data = &op;
  param.memory_type = op.memory;
  const void* data = nullptr;
  std::size_t count = 0;
  if (op.pieces.size() == 1) {
    data = op.pieces[0].buffer;
    count = op.pieces[0].length;
  } else if (op.pieces.size() > 1) {
    data = op.pieces.data();
    count = op.pieces.size();
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = UCP_DATATYPE_IOV;
  }
  link_in(op);
  const ucs_status_ptr_t request = ucp_am_send_nbx(op.link->endpoint, static_cast<unsigned>(channel), op.header.data(),
                                                   op.header.size(), data, count, &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) ended(op, UCS_PTR_STATUS(request));
}

void UcxSends::on_sent(void* request, ucs_status_t status, void* op) {
  auto& ours = *static_cast<SendOp*>(op);
  ours.sends->ended(ours, status);
  ucp_request_free(request);
}

void UcxSends::ended(SendOp& op, ucs_status_t status) {
  PeerLink& link = *op.link;
  if (!op.abandoned) {
    link_out(op);
    link.wired = link.wired || status == UCS_OK;
    if (status == UCS_OK && op.large == nullptr) {  // nearly always
      PeerLink::Load& load = link.load[place(op.priority)];
      --load.messages;
      load.bytes -= op.bytes;
      deferred_.complete(*op.done, {});
      free_.push_back(&op);
      return;
    }
    const Status outcome = peer_status(link, status);
    if (outcome.code() == Code::peer_lost) deferred_.cut(link, outcome, true);
    if (op.large != nullptr) {
      ended(*op.large, link, outcome);
    } else {
      PeerLink::Load& load = link.load[place(op.priority)];
      --load.messages;
      load.bytes -= op.bytes;
      deferred_.complete(*op.done, outcome);
    }
  }
  free_.push_back(&op);
}

/// One chunk of `large` has ended.
void UcxSends::ended(LargeSend& large, PeerLink& link, const Status& outcome) {
  --link.chunks_in_flight;
  --large.chunks_in_flight;
  if (!outcome.ok() && large.result.ok()) {
    large.result = outcome;
    if (std::exchange(large.queued, false)) std::erase(link.waiting[place(large.priority)], &large);
  }
  if (!large.queued && large.chunks_in_flight == 0) finish(large, link);
  deferred_.pump(link);
}

void UcxSends::finish(LargeSend& large, PeerLink& link) {
  PeerLink::Load& load = link.load[place(large.priority)];
  --load.messages;
  load.bytes -= large.size_bytes;
  deferred_.complete(*large.done, large.result);
  link.large.remove_if([&](const LargeSend& each) { return &each == &large; });
}

/// The next message of the most urgent class that has one; messages of one class take turns.
LargeSend* UcxSends::next_large(PeerLink& link) {
  for (auto& queue : link.waiting) {
    if (queue.empty()) continue;
    LargeSend* const large = queue.front();
    queue.pop_front();
    return large;
  }
  return nullptr;
}

void UcxSends::pump(PeerLink& link) {
  while (!link.cut && link.chunks_in_flight < options_.chunks_ahead) {
    LargeSend* const large = next_large(link);
    if (large == nullptr) return;
    large->queued = large->offset + options_.chunk_bytes < large->size_bytes;
    if (large->queued) link.waiting[place(large->priority)].push_back(large);
    send_chunk(*large, link);
  }
}

void UcxSends::send_chunk(LargeSend& large, PeerLink& link) {
  SendOp& op = take_op();
  op.link = &link;
  op.large = &large;
  op.priority = large.priority;
  op.bytes = std::min(options_.chunk_bytes, large.size_bytes - large.offset);
  op.memory = large.memory;
  append(op.header, Frame{options_.self.value, Frame::kChunk});
  append(op.header, ChunkPlace{large.number, large.size_bytes, large.offset});
  op.header.insert(op.header.end(), large.head.begin(), large.head.end());
  for (std::uint64_t left = op.bytes; left > 0;) {
    const ucp_dt_iov_t& piece = large.pieces[large.piece];
    const std::uint64_t length = std::min<std::uint64_t>(left, piece.length - large.piece_offset);
    op.pieces.push_back({static_cast<std::byte*>(piece.buffer) + large.piece_offset, length});
    left -= length;
    large.piece_offset += length;
    if (large.piece_offset < piece.length) continue;
    ++large.piece;
    large.piece_offset = 0;
  }
  large.offset += op.bytes;
  ++large.chunks_in_flight;
  ++link.chunks_in_flight;
  hand_over(op, large.channel);  // may end `large`
}

void UcxSends::cut(PeerLink& link) {
  for (auto& queue : link.waiting) queue.clear();
  for (auto next = link.large.begin(); next != link.large.end();) {
    LargeSend& large = *next++;
    large.queued = false;
    if (large.result.ok()) large.result = link.why;
    if (large.chunks_in_flight == 0) finish(large, link);
  }
}

void UcxSends::abandon(PeerLink& link) {
  while (link.ops != nullptr) {
    SendOp& op = *link.ops;
    link_out(op);
    op.abandoned = true;
    if (op.large != nullptr) {
      ended(*op.large, link, link.why);
    } else {
      deferred_.complete(*op.done, link.why);
    }
  }
}

}  // namespace troupe
