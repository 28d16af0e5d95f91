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
#include "tools/crew/side.hpp"

namespace troupe::crew {

using Go = caf::atom_constant<caf::atom("go")>;

/// One-way messages are acknowledged by so many; so many are under way at most, a multiple.
constexpr std::uint64_t kCountedAtOnce = 64;
constexpr std::uint64_t kCountedAhead = 1024;

/// What one message of a test of endurance carries beside its number.
struct EnduranceContent {
  static constexpr std::array<std::uint64_t, 6> kTensorBytes{4096, 16384, 64 << 10, 100'008, 256 << 10, 1 << 20};
  struct TensorPlace {
    std::size_t size;  // a place in kTensorBytes, different for those of one message
    bool lent;         // it lies in memory that the other end has mapped, and goes by reference
  };
  std::uint32_t tensors = 0;  // 0, 1 or 3
  std::array<TensorPlace, 3> places{};
  std::uint64_t bytes = 0;  // inside, when it carries no tensor; 0: it is a number alone
};

/// What one end sends to the other in a test of endurance: messages with running numbers, most of them nothing else,
/// some with bytes, some, in bursts, with tensors of many sizes. Both ends know it, so that each can check what comes.
class EnduranceSchedule {
 public:
  /// Throws Error{invalid} when there are no messages, or more tensors than messages.
  EnduranceSchedule(std::uint64_t messages, std::uint64_t tensors);

  std::uint64_t messages() const noexcept { return messages_; }
  std::uint64_t tensors() const noexcept { return tensors_; }
  EnduranceContent at(std::uint64_t number) const noexcept;

 private:
  const std::uint64_t messages_;
  const std::uint64_t tensors_;
  const std::uint64_t carriers_;  // messages with tensors
  const std::uint64_t stride_;    // from one burst of them to the next
};

struct EnduranceState;  // shared by an end's actors, its tensors and whoever waits

/// One end's actors: a source that keeps the window of the other end full, and a sink that checks what comes from
/// there: each message once, in order, with the content that it was sent with. Threads: one, but where it says
/// otherwise.
class EnduranceEnd {
 public:
  /// What each of the two arenas must have room for.
  static constexpr std::uint64_t kArenaBytes = 12u << 20;

  /// Both ends send the same. Tensors lie in `own`, whose bytes have to be sent, and in `lent`; both are mapped in
  /// `space`, and may be the same when it has room for both. The source writes into all of them at once, so that later
  /// on no page is touched for the first time.
  EnduranceEnd(const Stage& stage, AddressSpace& space, Arena& own, Arena& lent, const EnduranceSchedule& schedule);

  /// For the other end's go().
  const caf::actor& sink() const noexcept { return sink_.get(); }
  /// Sends to the other end's sink until `limit` messages were sent, counted from the first.
  void go(const caf::actor& far, std::uint64_t limit);
  /// Sends no more. Any thread.
  void stop();
  /// Waits until the other end's sink has counted all that is to be sent for now, and all tensors have come back; false
  /// after `patience`. Throws Error{corrupt} when this end's sink got something else than it should have, or a message
  /// could not be sent.
  bool wait(Blocking& blocking, Clock::duration patience);

  struct Done {
    std::uint64_t counted = 0;  // messages that have arrived there
    std::uint64_t tensors_sent = 0;
    std::uint64_t received = 0;  // messages that have arrived here
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
