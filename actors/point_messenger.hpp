#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include <caf/actor_cast.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/message_id.hpp>
#include <caf/send.hpp>

#include "actors/caf_compatibility.hpp"
#include "runtime/memory/arena.hpp"
#include "runtime/memory/timeline.hpp"

namespace troupe {

/// Sends a message to an actor when a point is reached. The message is allocated in send_at(), so the thread that
/// reaches the point (a device's) allocates nothing; only a failure, which replaces the message's `status`, allocates
/// another one. Outlives every point that it waits for. Threads: send_at() by one caller at a time.
template <class Message, std::size_t kCapacity>
class PointMessenger {
 public:
  explicit PointMessenger(AddressSpace& space) : space_(space) {}

  /// Sends `message` to `to` when `point` is reached, or, if its line is poisoned, with the poison as its status.
  template <class Handle>
  void send_at(Point point, const Handle& to, Message message) {
    Letter& letter = free_letter();
    letter.to = caf::actor_cast<caf::strong_actor_ptr>(to);
    letter.element = caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, message);
    letter.message = std::move(message);
    space_.timeline(point.line).wake(point.value, letter);
  }

 private:
  struct Letter final : Waker {
    std::atomic<bool> used{false};
    caf::strong_actor_ptr to;
    caf::mailbox_element_ptr element;
    Message message;

    void reached(Point, Status status) noexcept override {
      auto receiver = std::move(to);
      auto what = std::move(element);
      if (!status.ok()) {
        message.status = std::move(status);
        what = caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, std::move(message));
      }
      used.store(false, std::memory_order_release);
      receiver->enqueue(std::move(what), nullptr);
    }
  };

  Letter& free_letter() {
    for (Letter& letter : letters_)
      if (!letter.used.exchange(true, std::memory_order_acq_rel)) return letter;
    fail(Code::invalid, text("more than ", kCapacity, " messages wait for points: credits were not counted"));
  }

  AddressSpace& space_;
  std::array<Letter, kCapacity> letters_;
};

}  // namespace troupe
