#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/lanes/lane_loop.hpp"

namespace troupe::collectives {

/// Where in its rank's queue a message stands: smaller numbers leave first.
struct Urgency {
  std::uint32_t kind = 0;    // contributions before results: every rank waits for the former
  std::uint32_t bucket = 0;  // in the order in which the next step reads the buckets
  std::uint64_t number = 0;  // then in the order of their coming
  friend auto operator<=>(const Urgency&, const Urgency&) = default;
};

/// Messages to other ranks that wait for their turn. Only so many bytes are on their way at once that the link always
/// has something to do, and queues stay short: what becomes ready later and is more urgent need not wait for all that
/// came before, and the answers of a round do not wait behind the next one's data. The number follows the delay that
/// messages have. Source of the rule: LEDBAT, RFC 6817, section 2.4.2, with a target of 10 ms. Threads: the lane's.
class SendQueue final : public LaneTask {
 public:
  /// One message, as its sender knows it.
  struct Message {
    std::uint32_t to = 0;
    std::uint64_t size_bytes = 0;
    Clock::time_point handed_over;  // the queue's
  };
  /// Hands over a message; false: the transport has no room now.
  using Send = std::function<bool(Message&)>;

  /// Bounds of the bytes that are on their way before a second message to the same rank may follow.
  static constexpr std::uint64_t kFewestAhead = 256 << 10;
  static constexpr std::uint64_t kMostAhead = 16 << 20;
  static constexpr std::chrono::milliseconds kTarget{10};

  SendQueue(LaneLoop& loop, std::uint32_t ranks, Send send) : loop_(loop), send_(std::move(send)), queues_(ranks) {}
  /// `message` is alive until it was sent(). Sends nothing yet: call pump().
  void add(Message& message, Urgency urgency);
  void sent(const Message& message);
  std::uint64_t bytes_ahead() const noexcept { return static_cast<std::uint64_t>(ahead_); }
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
  void take_back(const Message& message);
  void follow(const Message& message) noexcept;

  LaneLoop& loop_;
  const Send send_;
  std::vector<ToRank> queues_;  // by rank
  std::uint64_t bytes_on_way_ = 0;
  double ahead_ = 1 << 20;  // bytes
  std::uint64_t added_ = 0;
  std::size_t waiting_ = 0;
  bool posted_ = false;
};

}  // namespace troupe::collectives
