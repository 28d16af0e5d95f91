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

/// The position of a message in its rank's queue: smaller numbers are sent first.
struct Urgency {
  std::uint64_t step = 0;    // a step's results before the next step's contributions: other ranks still wait for them
  std::uint32_t kind = 0;    // of one step, contributions before results: every rank waits for the former
  std::uint32_t bucket = 0;  // in the order in which the next step reads the buckets
  std::uint64_t number = 0;  // then in the order of add()
  friend auto operator<=>(const Urgency&, const Urgency&) = default;
};

/// Messages to other ranks that wait for their turn. Only as many bytes are in transit at once as keep the link busy,
/// so that queues stay short: a later, more urgent message need not wait for all earlier ones, and the answers of a
/// round do not wait behind the next round's data. The number follows the measured delay of messages. Source of the
/// rule: LEDBAT, RFC 6817, section 2.4.2, with a target of 10 ms. Threads: the lane's.
class SendQueue final : public LaneTask {
 public:
  /// One message, as its sender sees it.
  struct Message {
    std::uint32_t to = 0;
    std::uint64_t size_bytes = 0;
    Clock::time_point handed_over;  // set by the queue
  };
  /// Sends a message; false: the transport has no space now.
  using Send = std::function<bool(Message&)>;

  /// Limits of the bytes in transit beyond which no second message to the same rank is sent.
  static constexpr std::uint64_t kFewestAhead = 256 << 10;
  static constexpr std::uint64_t kMostAhead = 16 << 20;
  static constexpr std::chrono::milliseconds kTarget{10};

  SendQueue(LaneLoop& loop, std::uint32_t ranks, Send send) : loop_(loop), send_(std::move(send)), queues_(ranks) {}
  /// `message` must live until it was sent(). Sends nothing yet: call pump().
  void add(Message& message, Urgency urgency);
  void sent(const Message& message);
  std::uint64_t bytes_ahead() const noexcept { return static_cast<std::uint64_t>(ahead_); }
  /// Sends the messages that may be sent, now or soon.
  void pump();
  void run() noexcept override;

 private:
  struct Waiting {
    Urgency urgency;
    Message* message;
    bool operator>(const Waiting& other) const noexcept { return urgency > other.urgency; }
  };
  struct ToRank {
    std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting;
    std::uint32_t on_way = 0;  // number of messages
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
