#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/frame_sender.hpp"
#include "actors/remote/tensor.hpp"
#include "runtime/compute/stream.hpp"

namespace troupe::remote {

/// A payload that is sent in pieces: tensors at multiples of wire::kTensorAlignment, in their order.
struct StagedPayload {
  PeerState* to = nullptr;
  std::uint32_t order = 0;  // of its message
  SinkKey sink;             // of the payload's only tensor, or 0
  std::uint64_t size_bytes = 0;
  std::vector<Tensor> tensors;  // all valid
};

/// Sends tensors from memory that the transport does not carry. A stream of the device copies them, piece by piece,
/// into slots of pinned memory; when a copy's point is reached, its slot leaves as a frame of its own, while the next
/// pieces are copied. So a tensor of any size needs no more memory here than the slots. No thread waits for a copy. A
/// transport that sends from such memory gets the whole tensor as one piece instead.
///
/// Every slot is free, being copied to, or with a frame. A peer may take another one while it has fewer than are free:
/// alone it gets half of them, and peers that take nothing in hold less each: a half, a quarter, and so on. Threads:
/// the control lane's.
class Staging {
 public:
  /// Without RemoteOptions::device nothing can be staged. Throws Error as Device::allocate and Device::stream do.
  Staging(Context& context, FrameSender& frames);

  /// Whether tensors in memory of `kind` are sent by this class.
  bool takes(MemoryKind kind) const noexcept {
    const Transport& transport = context_.transport;
    return !transport.carries(kind) && (stream_ != nullptr || transport.sends_from(kind));
  }
  /// Why nothing is staged any more: the stream has failed.
  const Status& status() const noexcept { return status_; }

  /// `done` is called once: with ok when the pieces have been passed to their lane, so that the message may follow, and
  /// nothing reads the tensors in the device's memory any more; or with the reason why they cannot be sent. It is not
  /// called after forget().
  using Done = std::function<void(const Status&)>;
  void send(StagedPayload payload, Done done);
  void forget(Peer peer) { queues_.erase(peer); }
  void forget_all() { queues_.clear(); }

 private:
  class PieceCopied;
  struct Transfer;
  using TransferRef = std::shared_ptr<Transfer>;
  /// A part of a payload, copied to a slot.
  struct Piece {
    TransferRef transfer;
    std::size_t slot = 0;
    Memory memory;
    std::uint64_t offset = 0;  // in the payload
  };
  /// The transfers to a peer of which some pieces have not begun. The next piece is one of the first transfer's, which
  /// then becomes the last of those that have begun.
  struct Queue {
    std::deque<TransferRef> begun, waiting;
  };

  bool copies(const Tensor& tensor) const noexcept { return !context_.transport.sends_from(tensor.kind()); }
  void start_pieces();
  bool start_piece(Peer peer);
  void copy_piece(const TransferRef& transfer);
  void piece_copied(const Piece& piece, const Status& status);
  std::unique_ptr<Frame> piece_frame(const Transfer& transfer, std::uint64_t target, std::uint8_t flags = 0);
  void send_piece(Transfer& transfer, Memory memory, std::uint64_t offset, std::shared_ptr<const void> owner);
  std::shared_ptr<const void> slot_owner(std::size_t slot, Peer held_by);
  void free_slot(std::size_t slot, Peer held_by);
  void fail_all(const Status& why);
  void end_if_done(Transfer& transfer);
  bool is_over(const Transfer& transfer) const;

  Context& context_;
  FrameSender& frames_;
  Status status_;
  Memory slots_;
  std::vector<std::size_t> free_;     // slots, by number
  std::map<Peer, std::size_t> held_;  // how many slots each peer has
  std::map<Peer, Queue> queues_;      // none is empty
  Peer last_;                         // whose turn was last
  std::unique_ptr<Stream> stream_;    // null: nothing is copied. Last member: it ends first
};

}  // namespace troupe::remote
