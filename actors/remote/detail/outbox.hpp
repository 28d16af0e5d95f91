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

/// Sends that have begun and not ended, so that an end can wait for them. Threads: any.
class Unfinished {
 public:
  void begin() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  void end() noexcept;
  /// False when the deadline passed first.
  bool wait_for_none(Deadline deadline);

 private:
  std::atomic<std::size_t> count_{0};
  std::atomic<bool> waited_for_{false};
  std::mutex mutex_;  // guards nothing but the sleep
  std::condition_variable none_;
};

class Outbox;

/// A written body, shared by the frames that carry its pieces.
struct Body {
  std::vector<char> bytes;
  Charge charge;
};

/// A frame that cannot be sent from where it was written: it has a payload, or there was no room. Owned by an outbox,
/// or by the transport until that says sent().
class Frame final : public LaneTask, public SendDone {
 public:
  Frame(Outbox& outbox, Peer to, std::vector<std::byte> head);
  ~Frame();

  Outbox* outbox;
  const Peer to;
  std::vector<std::byte> head;
  std::vector<Tensor> tensors;       // whose bytes begin the payload
  std::shared_ptr<const Body> body;  // whose bytes from `body_begin` to `body_end` end it; null: no body
  std::size_t body_begin = 0;
  std::size_t body_end = 0;

  /// On the lane's thread: gives itself to the outbox.
  void run() noexcept override;
  void sent(Status status) noexcept override;

 private:
  friend class Outbox;
  std::vector<Memory> parts_;        // empty until the body has its slab
  std::uint64_t payload_bytes_ = 0;  // since the outbox has it
  Memory slab_;
  const Charge charge_;
};

/// Sends on one lane, and keeps what the transport has no room for. Threads: the lane's, but where it says otherwise.
class Outbox {
 public:
  /// `budget` bears what waits here. Of `pool` one peer takes a quarter at most, so that one that is slow stops no
  /// other.
  Outbox(Transport& transport, Lane lane, AddressSpace& space, std::shared_ptr<SlabPool> pool,
         std::shared_ptr<Budget> budget, std::uint64_t pool_bytes, Unfinished& unfinished);

  Lane lane() const noexcept { return lane_; }
  /// Bytes of payloads that wait here or are with the transport.
  std::uint64_t payloads() const noexcept { return payloads_; }
  /// Sends a frame that is only a head.
  void send(Peer to, std::span<const std::byte> head) noexcept;
  void send(std::unique_ptr<Frame> frame) noexcept;
  /// Tries again what waits; true when something went, or nothing else will call for another try.
  bool pump() noexcept;
  /// Drops what waits for `peer`, now and later.
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

  bool prepare(Frame& frame) noexcept;
  bool try_send(std::unique_ptr<Frame>& frame) noexcept;
  bool is_cut(Peer peer) const noexcept;

  Transport& transport_;
  const Lane lane_;
  AddressSpace& space_;
  const std::shared_ptr<SlabPool> pool_;
  const std::shared_ptr<Budget> budget_;
  const std::uint64_t most_slab_bytes_;  // of one peer
  Unfinished& unfinished_;
  HeadSent head_sent_;
  Memory padding_;  // empty until first needed
  std::vector<Peer> cut_;
  std::map<Peer, std::uint64_t> slab_bytes_;  // of the pool, with the transport
  std::size_t in_flight_ = 0;                 // with the transport
  std::uint64_t payloads_ = 0;
  std::map<Peer, std::deque<std::unique_ptr<Frame>>> waiting_;  // last: a frame that ends takes itself off the counts
};

}  // namespace troupe::remote
