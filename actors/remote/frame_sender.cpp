#include "actors/remote/detail/frame_sender.hpp"

#include <array>
#include <utility>

namespace troupe::remote {
namespace {

/// This number of heads in a round are sent at once.
constexpr unsigned kUnbatchedHeads = 4;
/// A batch is not faster for larger heads.
constexpr std::size_t kLargestBatched = 512;

}  // namespace

FrameSender::FrameSender(Context& context, std::shared_ptr<SlabPool> pool, std::uint64_t pool_bytes)
    : context_(context),
      control_out_(context.transport, Lane::control, context.space, pool, context.outgoing, pool_bytes, unfinished_),
      bulk_out_(context.transport, Lane::bulk, context.space, pool, context.outgoing, pool_bytes, unfinished_) {}

void FrameSender::send(PeerState& to, const wire::Header& header) {
  std::array<std::byte, wire::kHeaderBytes> head;
  wire::store(header, head);
  send(to, head);
}

void FrameSender::send(PeerState& to, std::span<const std::byte> head) {
  to.sent_since_check = true;
  to.counts.messages_sent.add();
  to.counts.bytes_sent.add(head.size());
  // A head that is not batched may overtake one that is: the receiver restores the order of numbered heads.
  if (++heads_ <= kUnbatchedHeads || head.size() > kLargestBatched) return control_out_.send(to.number, head);
  auto& batch = to.batch;
  if (batch.frame.size() + wire::kBatchedBytes + head.size() > Transport::kMaxHeadBytes) flush(to);
  if (batch.heads++ == 0) {
    batch.frame.resize(wire::kHeaderBytes);
    open_batches_.push_back(&to);
  }
  wire::append_to_batch(batch.frame, head);
}

/// A batch with one head is sent as that head.
void FrameSender::flush(PeerState& to) {
  auto& batch = to.batch;
  if (batch.heads == 0) return;
  if (batch.heads == 1) {
    control_out_.send(to.number, std::span(batch.frame).subspan(wire::kHeaderBytes + wire::kBatchedBytes));
  } else {
    const wire::Header header{.kind = wire::Kind::batch, .message_id = batch.heads};
    wire::store(header, std::span(batch.frame).first<wire::kHeaderBytes>());
    control_out_.send(to.number, batch.frame);
    to.counts.batches_sent.add();
    to.counts.batched_sent.add(batch.heads);
  }
  batch.heads = 0;
  batch.frame.clear();
}

bool FrameSender::send_batches() {
  for (PeerState* const to : open_batches_) flush(*to);
  open_batches_.clear();
  return true;
}

void FrameSender::dispatch(Frames frames) {
  for (std::unique_ptr<Frame>& frame : frames) dispatch(std::move(frame));
}

void FrameSender::dispatch(std::unique_ptr<Frame> frame) {
  if (frame->outbox->lane() == Lane::control) {
    control_out_.send(std::move(frame));
  } else if (context_.bulk.post(*frame)) {
    frame.release();
  }
}

void FrameSender::cut_control(PeerState& of) {
  of.batch.heads = 0;
  of.batch.frame.clear();
  control_out_.cut(of.number);
}

}  // namespace troupe::remote
