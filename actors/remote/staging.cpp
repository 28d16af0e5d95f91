#include "actors/remote/detail/staging.hpp"

#include <algorithm>
#include <utility>

#include "actors/remote/detail/slab_pool.hpp"
#include "actors/remote/wire.hpp"
#include "runtime/compute/device.hpp"

namespace troupe::remote {
namespace {

/// So many payloads share the way to a peer: the receiver has memory for as many that are incomplete.
constexpr std::size_t kMostBegun = 4;
/// A single peer gets half of them: one is copied to while the other one leaves.
constexpr std::uint64_t kLeastSlots = 4;

std::uint64_t count_slots(const RemoteOptions& options) {
  return std::max(options.staging_bytes / wire::kPieceBytes, kLeastSlots);
}

}  // namespace

struct Staging::Transfer {
  Transfer(StagedPayload what, Done then) : payload(std::move(what)), done(std::move(then)) {}

  StagedPayload payload;
  Done done;
  std::uint32_t pieces = 0;   // in all
  std::uint32_t sent = 0;     // passed to the lane
  std::uint32_t copying = 0;  // begun, and not sent
  std::size_t tensor = 0;     // the next piece begins in this one
  std::uint64_t offset = 0;   // there
  std::uint64_t begin = 0;    // of that tensor, in the payload
  bool ended = false;
  Status failure;

  bool has_more() const noexcept { return tensor < payload.tensors.size(); }
  const Tensor& source() const noexcept { return payload.tensors[tensor]; }
  /// The piece that begins here has been taken.
  void pass(std::uint64_t bytes) {
    offset += bytes;
    skip_complete();
  }
  void skip_complete() {
    while (has_more() && offset == source().memory().size_bytes) {
      begin += std::exchange(offset, 0);
      if (++tensor < payload.tensors.size() && source().memory().size_bytes > 0) begin = wire::align_up(begin);
    }
  }
};

/// Waits until a piece is in its slot; deletes itself.
class Staging::PieceCopied final : public Waker, public LaneTask {
 public:
  PieceCopied(Staging& staging, Piece piece)
      : staging_(staging), lane_access_(staging.context_.lane_access), piece_(std::move(piece)) {}

  void reached(Point, Status status) noexcept override {
    status_ = std::move(status);
    std::unique_ptr<PieceCopied> self(this);
    if (lane_access_->post(*this)) self.release();  // run() deletes it
  }
  void run() noexcept override {
    const std::unique_ptr<PieceCopied> self(this);
    staging_.piece_copied(piece_, status_);
  }

 private:
  Staging& staging_;  // used only on the control lane
  const std::shared_ptr<LaneAccess> lane_access_;
  const Piece piece_;
  Status status_;
};

/// The slots are cleared, so that the driver knows their memory before the lanes run: to make it known takes long.
Staging::Staging(Context& context, FrameSender& frames) : context_(context), frames_(frames) {
  const RemoteOptions& options = context.options;
  if (options.device == nullptr || options.device->traits().memory != MemoryKind::device) return;
  if (context.transport.sends_from(MemoryKind::device)) return;
  const ArenaId id = arena_id(context.self, options.first_arena + 2 * SlabPool::kArenas);
  slots_ = options.device->allocate(id, MemoryKind::pinned, count_slots(options) * wire::kPieceBytes);
  for (std::size_t slot = count_slots(options); slot-- > 0;) free_.push_back(slot);
  stream_ = options.device->stream();
  stream_->clear(slots_);
}

void Staging::send(StagedPayload payload, Done done) {
  if (!status_.ok()) return done(status_);
  const Peer peer = payload.to->number;
  auto transfer = std::make_shared<Transfer>(std::move(payload), std::move(done));
  for (const Tensor& tensor : transfer->payload.tensors) {
    const std::uint64_t bytes = tensor.memory().size_bytes;
    const std::uint64_t pieces = (bytes + wire::kPieceBytes - 1) / wire::kPieceBytes;
    transfer->pieces += static_cast<std::uint32_t>(copies(tensor) ? pieces : std::min<std::uint64_t>(pieces, 1));
  }
  transfer->skip_complete();
  queues_[peer].waiting.push_back(std::move(transfer));
  start_pieces();
}

/// Peers take turns, until none of them can take a slot.
void Staging::start_pieces() {
  for (std::size_t passed = 0; passed < queues_.size();) {
    auto next = queues_.upper_bound(last_);
    if (next == queues_.end()) next = queues_.begin();
    last_ = next->first;
    passed = start_piece(last_) ? 0 : passed + 1;
  }
}

bool Staging::start_piece(Peer peer) {
  Queue& queue = queues_.at(peer);
  if (queue.begun.size() < kMostBegun && !queue.waiting.empty()) {
    queue.begun.push_back(std::move(queue.waiting.front()));
    queue.waiting.pop_front();
  }
  const TransferRef transfer = queue.begun.front();
  const Tensor& source = transfer->source();
  const bool needs_slot = copies(source);
  if (needs_slot && held_[peer] >= free_.size()) return false;
  queue.begun.pop_front();
  if (needs_slot) {
    copy_piece(transfer);
  } else {
    const Tensor whole = source;
    send_piece(*transfer, whole.memory(), transfer->begin, std::make_shared<const Tensor>(whole));
    transfer->pass(whole.memory().size_bytes);
  }
  if (transfer->has_more() && transfer->failure.ok()) queue.begun.push_back(transfer);
  if (queue.begun.empty() && queue.waiting.empty()) queues_.erase(peer);
  end_if_done(*transfer);
  return true;
}

void Staging::copy_piece(const TransferRef& transfer) {
  const Peer peer = transfer->payload.to->number;
  const Memory from = transfer->source().memory();
  const std::uint64_t bytes = std::min(wire::kPieceBytes, from.size_bytes - transfer->offset);
  const std::size_t slot = free_.back();
  const Memory to = slice(slots_, slot * wire::kPieceBytes, bytes);
  try {
    stream_->copy(to, slice(from, transfer->offset, bytes));
  } catch (const Error& error) {  // nothing was enqueued
    transfer->failure = error.status();
    return;
  }
  free_.pop_back();
  ++held_[peer];
  ++transfer->copying;
  Piece piece{transfer, slot, to, transfer->begin + transfer->offset};
  transfer->pass(bytes);
  auto* const waker = std::make_unique<PieceCopied>(*this, std::move(piece)).release();  // ends by itself
  const Point copied = stream_->mark();
  context_.space.timeline(copied.line).wake(copied.value, *waker);
}

void Staging::piece_copied(const Piece& piece, const Status& status) {
  Transfer& transfer = *piece.transfer;
  const Peer peer = transfer.payload.to->number;
  --transfer.copying;
  if (!status.ok() && transfer.failure.ok()) transfer.failure = status;
  if (transfer.failure.ok() && !is_over(transfer)) {
    send_piece(transfer, piece.memory, piece.offset, slot_owner(piece.slot, peer));
  } else {
    free_slot(piece.slot, peer);
  }
  end_if_done(transfer);
  if (!status.ok() && status_.ok()) fail_all(status);
  start_pieces();
}

std::unique_ptr<Frame> Staging::piece_frame(const Transfer& transfer, std::uint64_t target, std::uint8_t flags) {
  const wire::Header header{.kind = wire::Kind::payload_piece,
                            .flags = flags,
                            .sequence = transfer.pieces,
                            .order = transfer.payload.order,
                            .message_id = transfer.payload.sink.value,
                            .source = transfer.payload.size_bytes,
                            .target = target};
  std::vector<std::byte> head(wire::kHeaderBytes);
  wire::store(header, std::span(head).first<wire::kHeaderBytes>());
  return frames_.frame(*transfer.payload.to, true, std::move(head));
}

void Staging::send_piece(Transfer& transfer, Memory memory, std::uint64_t offset, std::shared_ptr<const void> owner) {
  auto frame = piece_frame(transfer, offset);
  frame->piece = memory;
  frame->piece_owner = std::move(owner);
  ++transfer.sent;
  transfer.payload.to->sent_since_check = true;
  frames_.dispatch(std::move(frame));
}

/// Frees the slot when its frame has left, on whatever thread.
std::shared_ptr<const void> Staging::slot_owner(std::size_t slot, Peer held_by) {
  return {this, [this, slot, held_by, lane_access = context_.lane_access](const void*) {
            lane_access->run([this, slot, held_by] {
              free_slot(slot, held_by);
              start_pieces();
            });
          }};
}

void Staging::free_slot(std::size_t slot, Peer held_by) {
  free_.push_back(slot);
  --held_[held_by];
}

/// The stream has ended, and with it all that waits for it.
void Staging::fail_all(const Status& why) {
  status_ = why;
  for (auto& [peer, queue] : std::exchange(queues_, {})) {
    for (const auto& transfers : {queue.begun, queue.waiting}) {
      for (const TransferRef& transfer : transfers) {
        transfer->failure = why;
        end_if_done(*transfer);
      }
    }
  }
}

bool Staging::is_over(const Transfer& transfer) const {
  return transfer.ended || transfer.payload.to->dead || context_.ended;
}

/// The receiver of a payload that failed is told how many pieces it will get.
void Staging::end_if_done(Transfer& transfer) {
  const bool done = transfer.copying == 0 && (!transfer.has_more() || !transfer.failure.ok());
  if (!done || is_over(transfer)) return;
  transfer.ended = true;
  transfer.payload.tensors.clear();
  if (!transfer.failure.ok() && transfer.sent > 0)
    frames_.dispatch(piece_frame(transfer, transfer.sent, wire::kFailed));
  transfer.done(transfer.failure);
}

}  // namespace troupe::remote
