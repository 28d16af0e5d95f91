#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "actors/remote/detail/budget.hpp"
#include "actors/remote/detail/slab_pool.hpp"
#include "actors/remote/tensor.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/lanes/lane_loop.hpp"

namespace troupe::remote {

/// The number of sends that have begun and not ended, so that stop() can wait for them. Threads: any.
class SendsInProgress {
 public:
  void begin() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  void end() noexcept;
  /// False if the deadline passed first.
  bool wait_for_none(Deadline deadline);

 private:
  std::atomic<std::size_t> count_{0};
  std::atomic<bool> waited_for_{false};
  std::mutex mutex_;  // guards nothing; needed by the condition variable
  std::condition_variable none_;
};

class Outbox;

/// An encoded body, shared by the frames with its pieces.
struct Body {
  std::vector<char> bytes;
  Charge charge;
};

/// A frame that cannot be sent from the buffer in which it was written: it has a payload, or the transport had no
/// space. Owned by an outbox, or by the transport until sent() is called.
class Frame final : public LaneTask, public SendDone {
 public:
  Frame(Outbox& outbox, Peer to, std::vector<std::byte> head);
  ~Frame();

  Outbox* outbox;
  const Peer to;
  std::vector<std::byte> head;
  std::vector<Tensor> tensors;  // their bytes are the first part of the payload
  Memory piece;                 // a piece of a payload: the whole payload of this frame; empty: it is none
  std::shared_ptr<const void> piece_owner;
  std::shared_ptr<const Body> body;  // its bytes from `body_begin` to `body_end` are the last part; null: no body
  std::size_t body_begin = 0;
  std::size_t body_end = 0;

  /// Called on the lane's thread: passes itself to the outbox.
  void run() noexcept override;
  void sent(Status status) noexcept override;

 private:
  friend class Outbox;
  std::vector<Memory> parts_;        // empty until the body has its slab
  std::uint64_t payload_bytes_ = 0;  // set when the outbox takes it
  Memory slab_;
  const Charge charge_;
};

/// Sends on one lane, and keeps frames for which the transport has no space. Threads: the lane's, unless stated
/// otherwise.
class Outbox {
 public:
  /// `budget` counts the frames that wait here. One peer may use at most a quarter of `pool`, so that a slow peer does
  /// not stop the others.
  Outbox(Transport& transport, Lane lane, AddressSpace& space, std::shared_ptr<SlabPool> pool,
         std::shared_ptr<Budget> budget, std::uint64_t pool_bytes, SendsInProgress& unfinished);

  Lane lane() const noexcept { return lane_; }
  /// Bytes of payloads that wait here or are with the transport.
  std::uint64_t payloads() const noexcept { return payloads_; }
  /// Sends a frame without a payload.
  void send(Peer to, std::span<const std::byte> head) noexcept;
  void send(std::unique_ptr<Frame> frame) noexcept;
  /// Tries to send waiting frames. True if one was sent, or if no event would cause another try.
  bool pump() noexcept { return !waiting_.empty() && send_waiting(); }
  /// Drops frames for `peer`, now and later.
  void cut(Peer peer) noexcept;

 private:
  friend class Frame;
  /// For heads, which keep nothing alive.
  class HeadSent final : public SendDone {
   public:
    explicit HeadSent(Outbox& outbox) noexcept : outbox_(outbox) {}
    void sent(Status) noexcept override {
      --outbox_.in_flight_;
      outbox_.unfinished_.end();
    }

   private:
    Outbox& outbox_;
  };

  bool send_waiting() noexcept;
  bool prepare(Frame& frame) noexcept;
  bool try_send(std::unique_ptr<Frame>& frame) noexcept;
  bool is_cut(Peer peer) const noexcept;

  Transport& transport_;
  const Lane lane_;
  AddressSpace& space_;
  const std::shared_ptr<SlabPool> pool_;
  const std::shared_ptr<Budget> budget_;
  const std::uint64_t most_slab_bytes_;  // of one peer
  SendsInProgress& unfinished_;
  HeadSent head_sent_;
  Memory padding_;  // empty until first needed
  std::vector<Peer> cut_;
  std::map<Peer, std::uint64_t> slab_bytes_;  // of the pool, with the transport
  std::size_t in_flight_ = 0;                 // with the transport
  std::uint64_t payloads_ = 0;
  std::map<Peer, std::deque<std::unique_ptr<Frame>>> waiting_;  // last member: destroyed frames update the counts
};

}  // namespace troupe::remote
