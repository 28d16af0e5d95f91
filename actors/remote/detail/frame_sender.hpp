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

/// Sends frames: by which lane, and small heads several in one.
///
/// Frames that share a lane and a peer leave in the order of the calls; between lanes there is none, and the receiver
/// restores it from the numbers in the headers. So what has to be numbered is numbered by the caller, in the order in
/// which it is to be dealt with, before it is given to this class. Threads: the control lane's, where it says nothing
/// else.
class FrameSender {
 public:
  using Frames = std::vector<std::unique_ptr<Frame>>;

  FrameSender(Context& context, std::shared_ptr<SlabPool> pool, std::uint64_t pool_bytes);

  /// All that leaves without a payload. The first few of a round go at once; what follows is collected and leaves with
  /// the round's end, for then the transport's cost for each frame is the bottleneck.
  void send(PeerState& to, std::span<const std::byte> head);
  void send(PeerState& to, const wire::Header& header);
  /// Frames of one message, each on the lane of its outbox.
  void dispatch(Frames frames);
  /// A frame for `to` with this head, on the bulk lane or on the control lane.
  std::unique_ptr<Frame> frame(PeerState& to, bool by_bulk, std::vector<std::byte> head) {
    return std::make_unique<Frame>(by_bulk ? bulk_out_ : control_out_, to.number, std::move(head));
  }
  /// Bytes of payloads on the control lane.
  std::uint64_t control_payloads() const noexcept { return control_out_.payloads(); }
  /// Whether this round has sent anything that could not wait.
  bool sent_this_round() const noexcept { return heads_ > 0; }
  /// Ends a round: sends what was collected. Whether there was any.
  bool flush();
  bool pump_control() noexcept { return control_out_.pump(); }
  /// On the bulk lane.
  bool pump_bulk() noexcept { return bulk_out_.pump(); }
  /// Drops what waits for a peer that is lost, on the control lane; the other one is for who is on that lane.
  void cut_control(PeerState& of);
  void cut_bulk(Peer of) noexcept { bulk_out_.cut(of); }
  /// What was sent and has not left this process. Any thread.
  Unfinished& unfinished() noexcept { return unfinished_; }

 private:
  void flush(PeerState& to);

  Context& context_;
  Unfinished unfinished_;
  Outbox control_out_;
  Outbox bulk_out_;                       // the bulk lane's
  unsigned heads_ = 0;                    // sent in this round
  std::vector<PeerState*> open_batches_;  // to them; an empty one is passed over
};

}  // namespace troupe::remote
