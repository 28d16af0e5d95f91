#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "runtime/ids.hpp"
#include "runtime/lane_loop.hpp"

namespace troupe::collectives {

/// Where in its rank's queue a message stands: smaller numbers leave first.
struct Urgency {
  std::uint32_t kind = 0;    // contributions before results: every rank waits for the former
  std::uint32_t bucket = 0;  // in the order in which the next step reads the buckets
  std::uint64_t number = 0;  // then in the order of their coming
  friend auto operator<=>(const Urgency&, const Urgency&) = default;
};

/// Messages to other ranks that wait for their turn. Only so many bytes are handed to the transport at once that the
/// link has always something to do: what becomes ready later and is more urgent need not wait for all that came before.
/// Threads: the lane's.
class Outbox final : public LaneTask {
 public:
  /// One message, as its sender knows it.
  struct Message {
    std::uint32_t to = 0;
    std::uint64_t size_bytes = 0;
  };
  /// Hands over a message; false: the transport has no room now.
  using Send = std::function<bool(Message&)>;

  /// Bytes that are on their way before a second message to the same rank may follow: the product of bandwidth and delay
  /// of 100 Mbit/s with 100 ms, of 1 Gbit/s with 10 ms, and of 100 Gbit/s with 100 us is less.
  static constexpr std::uint64_t kBytesAhead = 2 << 20;

  Outbox(LaneLoop& loop, std::uint32_t ranks, Send send) : loop_(loop), send_(std::move(send)), queues_(ranks) {}
  /// `message` is alive until it was sent(). Sends nothing yet: call pump().
  void add(Message& message, Urgency urgency);
  void sent(const Message& message);
  /// Hands over what may go now, now or soon.
  void pump();
  /// Forgets what waits.
  void clear();
  void run() noexcept override;

 private:
  struct Waiting {
    Urgency urgency;
    Message* message;
    bool operator>(const Waiting& other) const noexcept { return urgency > other.urgency; }
  };
  struct ToRank {
    std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting;
    std::uint32_t on_way = 0;  // messages
  };
  ToRank* next() noexcept;

  LaneLoop& loop_;
  const Send send_;
  std::vector<ToRank> queues_;  // by rank
  std::uint64_t bytes_on_way_ = 0;
  std::uint64_t added_ = 0;
  std::size_t waiting_ = 0;
  bool posted_ = false;
};

}  // namespace troupe::collectives
