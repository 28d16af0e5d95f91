#pragma once

#include <array>
#include <caf/actor.hpp>
#include <caf/atom.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <nlohmann/json.hpp>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/memory/arena.hpp"
#include "tools/crew/measured_process.hpp"

namespace troupe::crew {

using Go = caf::atom_constant<caf::atom("go")>;

/// The number of one-way messages that one acknowledgement covers; the most in transit is a multiple of it.
constexpr std::uint64_t kCountedAtOnce = 64;
constexpr std::uint64_t kCountedAhead = 1024;

/// The content of one message of a test of endurance, beside its number.
struct EnduranceContent {
  static constexpr std::array<std::uint64_t, 6> kTensorBytes{4096, 16384, 64 << 10, 100'008, 256 << 10, 1 << 20};
  struct TensorPlace {
    std::size_t size;  // an index into kTensorBytes, different for the tensors of one message
    bool lent;         // it is in memory that the other end has mapped, and is sent by reference
  };
  std::uint32_t tensors = 0;  // 0, 1 or 3
  std::array<TensorPlace, 3> places{};
  std::uint64_t bytes = 0;  // if it has no tensor; 0: it is only a number
};

/// The messages that one end sends to the other in a test of endurance. They are numbered; most of them are only the
/// number, some have bytes, some, in bursts, have tensors of many sizes. Both ends know the schedule, so each can check
/// what it receives.
class EnduranceSchedule {
 public:
  /// Throws Error{invalid} if there are no messages, or more tensors than messages.
  EnduranceSchedule(std::uint64_t messages, std::uint64_t tensors);

  std::uint64_t messages() const noexcept { return messages_; }
  std::uint64_t tensors() const noexcept { return tensors_; }
  EnduranceContent at(std::uint64_t number) const noexcept;

 private:
  const std::uint64_t messages_;
  const std::uint64_t tensors_;
  const std::uint64_t carriers_;  // number of messages with tensors
  const std::uint64_t stride_;    // from one burst to the next
};

struct EnduranceState;  // shared by an end's actors, its tensors and the waiting thread

/// The actors of one end: a source that keeps the window of the other end full, and a sink that checks that each
/// message from there arrives once, in order, with the content that was sent. Threads: one, unless stated otherwise.
class EnduranceEnd {
 public:
  /// The space that each of the two arenas must have.
  static constexpr std::uint64_t kArenaBytes = 12u << 20;

  /// Both ends send the same messages. Tensors are in `own`, whose bytes are sent, and in `lent`; both are mapped in
  /// `space`, and may be the same arena if it has space for both. The source writes to all buffers in the constructor,
  /// so that later no page is touched for the first time.
  EnduranceEnd(const Stage& stage, AddressSpace& space, Arena& own, Arena& lent, const EnduranceSchedule& schedule);

  /// An argument for the other end's go().
  const caf::actor& sink() const noexcept { return sink_.get(); }
  /// Sends messages to the other end's sink until `limit` have been sent since the construction.
  void go(const caf::actor& far, std::uint64_t limit);
  /// Stops sending. Any thread.
  void stop();
  /// Waits until the other end's sink has counted all messages that are to be sent for now, and all tensors have
  /// returned; false after `patience`. Throws Error{corrupt} if this end's sink has received anything unexpected, or if
  /// a message could not be sent.
  bool wait(Blocking& blocking, Clock::duration patience);

  struct Done {
    std::uint64_t counted = 0;  // messages that have arrived at the other end
    std::uint64_t tensors_sent = 0;
    std::uint64_t received = 0;  // messages that have arrived at this end
    std::uint64_t tensors_received = 0;
    bool operator==(const Done&) const = default;
    NLOHMANN_DEFINE_TYPE_INTRUSIVE(Done, counted, tensors_sent, received, tensors_received)
  };
  Done done() const;

 private:
  const std::shared_ptr<EnduranceState> state_;
  const Ending sink_;
  const Ending source_;
};

}  // namespace troupe::crew
