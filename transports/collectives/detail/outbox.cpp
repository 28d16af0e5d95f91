#include "transports/collectives/detail/outbox.hpp"

#include <utility>

namespace troupe::collectives {

void Outbox::add(Message& message, Urgency urgency) {
  urgency.number = added_++;
  queues_[message.to].waiting.push({urgency, &message});
  ++waiting_;
}

void Outbox::sent(const Message& message) {
  --queues_[message.to].on_way;
  bytes_on_way_ -= message.size_bytes;
}

/// From a callback of the transport, too, which may not be called back there: so it is posted.
void Outbox::pump() {
  if (waiting_ > 0 && !std::exchange(posted_, true)) loop_.post(*this);
}

void Outbox::clear() {
  for (ToRank& queue : queues_) queue.waiting = {};
  waiting_ = 0;
}

/// The rank with the most urgent message that may go.
Outbox::ToRank* Outbox::next() noexcept {
  ToRank* best = nullptr;
  for (ToRank& queue : queues_) {
    if (queue.waiting.empty()) continue;
    const Waiting& first = queue.waiting.top();
    if (queue.on_way > 0 && bytes_on_way_ + first.message->size_bytes > kBytesAhead) continue;
    if (best == nullptr || best->waiting.top() > first) best = &queue;
  }
  return best;
}

void Outbox::run() noexcept {
  posted_ = false;
  while (ToRank* const queue = next()) {
    const Waiting first = queue->waiting.top();
    queue->waiting.pop();
    // Counted first: the transport may tell that it is sent before it returns.
    --waiting_;
    ++queue->on_way;
    bytes_on_way_ += first.message->size_bytes;
    if (send_(*first.message)) continue;
    sent(*first.message);
    ++waiting_;
    queue->waiting.push(first);
    return pump();  // no room: again after the lane has moved on
  }
}

}  // namespace troupe::collectives
