#include "transports/collectives/detail/send_queue.hpp"

#include <algorithm>
#include <utility>

namespace troupe::collectives {

void SendQueue::add(Message& message, Urgency urgency) {
  urgency.number = added_++;
  queues_[message.to].waiting.push({urgency, &message});
  ++waiting_;
}

void SendQueue::sent(const Message& message) {
  follow(message);
  take_back(message);
}

void SendQueue::take_back(const Message& message) {
  --queues_[message.to].on_way;
  bytes_on_way_ -= message.size_bytes;
}

/// The window grows by the number of bytes sent if messages take no time, and shrinks by that number if they take twice
/// the target. It grows only if it was the reason why messages waited.
void SendQueue::follow(const Message& message) noexcept {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  const Milliseconds delay = Clock::now() - message.handed_over;
  const double off = std::max(-1.0, 1.0 - delay / Milliseconds{kTarget});
  if (off > 0 && waiting_ == 0) return;
  const double share = static_cast<double>(message.size_bytes) / ahead_;  // of the bytes that one round trip carries
  constexpr double kGain = 256 << 10;
  ahead_ = std::clamp(ahead_ + kGain * off * share, double{kFewestAhead}, double{kMostAhead});
}

/// May be called from a callback of the transport, which must not be called from there. Therefore it is posted.
void SendQueue::pump() {
  if (waiting_ > 0 && !std::exchange(posted_, true)) loop_.post(*this);
}

/// The queue whose first message is the most urgent one that may be sent.
SendQueue::ToRank* SendQueue::next() noexcept {
  ToRank* best = nullptr;
  for (ToRank& queue : queues_) {
    if (queue.waiting.empty()) continue;
    const Waiting& first = queue.waiting.top();
    if (queue.on_way > 0 && bytes_on_way_ + first.message->size_bytes > bytes_ahead()) continue;
    if (best == nullptr || best->waiting.top() > first) best = &queue;
  }
  return best;
}

void SendQueue::run() noexcept {
  posted_ = false;
  while (ToRank* const queue = next()) {
    const Waiting first = queue->waiting.top();
    queue->waiting.pop();
    // Counted first: the transport may report it as sent before send_() returns.
    --waiting_;
    ++queue->on_way;
    bytes_on_way_ += first.message->size_bytes;
    first.message->handed_over = Clock::now();
    if (send_(*first.message)) continue;
    take_back(*first.message);
    ++waiting_;
    queue->waiting.push(first);
    return pump();  // no space: again in the lane's next round
  }
}

}  // namespace troupe::collectives
