#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/outbox.hpp"
#include "actors/remote/detail/slab_pool.hpp"
#include "actors/remote/wire.hpp"

namespace troupe::remote {

/// Sends frames: chooses the lane, and combines small heads into one frame.
///
/// Frames on the same lane to the same peer are sent in the order of the calls. Between lanes there is no order; the
/// receiver restores it from the numbers in the headers. Therefore the caller must number frames, in the order in which
/// the receiver must handle them, before it passes them to this class. Threads: the control lane's, unless stated
/// otherwise.
class FrameSender {
 public:
  using Frames = std::vector<std::unique_ptr<Frame>>;

  FrameSender(Context& context, std::shared_ptr<SlabPool> pool, std::uint64_t pool_bytes);

  /// Sends a frame without a payload. The first few of a round are sent at once; later ones are collected and sent at
  /// the end of the round, since then the transport's cost for each frame limits the speed.
  void send(PeerState& to, std::span<const std::byte> head);
  void send(PeerState& to, const wire::Header& header);
  /// Sends the frames of one message, each on the lane of its outbox.
  void dispatch(Frames frames);
  void dispatch(std::unique_ptr<Frame> frame);
  /// A frame for `to` with this head, for the bulk lane or for the control lane.
  std::unique_ptr<Frame> frame(PeerState& to, bool by_bulk, std::vector<std::byte> head) {
    return std::make_unique<Frame>(by_bulk ? bulk_out_ : control_out_, to.number, std::move(head));
  }
  /// Bytes of payloads that are being sent on the control lane.
  std::uint64_t control_payloads() const noexcept { return control_out_.payloads(); }
  /// Whether this round has sent any frame at once.
  bool sent_this_round() const noexcept { return heads_ > 0; }
  /// Ends a round: sends the collected frames. Returns whether there were any.
  bool flush() {
    heads_ = 0;
    return !open_batches_.empty() && send_batches();
  }
  bool pump_control() noexcept { return control_out_.pump(); }
  /// On the bulk lane.
  bool pump_bulk() noexcept { return bulk_out_.pump(); }
  /// Drops frames that wait for a lost peer, on the control lane; cut_bulk() is for the bulk lane's thread.
  void cut_control(PeerState& of);
  void cut_bulk(Peer of) noexcept { bulk_out_.cut(of); }
  /// Frames that were sent and have not left this process. Any thread.
  SendsInProgress& unfinished() noexcept { return unfinished_; }

 private:
  bool send_batches();
  void flush(PeerState& to);

  Context& context_;
  SendsInProgress unfinished_;
  Outbox control_out_;
  Outbox bulk_out_;                       // used by the bulk lane
  unsigned heads_ = 0;                    // sent in this round
  std::vector<PeerState*> open_batches_;  // peers with an open batch, which may be empty
};

}  // namespace troupe::remote
