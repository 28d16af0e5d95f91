#pragma once

#include <array>
#include <caf/actor_addr.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/dialect.hpp"
#include "actors/remote/wire.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

// Calls: short questions to an actor of any process, answered past the mailboxes of both sides where that actor runs
// inline. A call has no order among messages, and takes none of the window.
namespace troupe {

namespace remote {
class CallTable;
}

/// Of a question, and of an answer. Plain bytes, as the processes of a job have the same layout.
inline constexpr std::size_t kMostCallBytes = 2048;
/// Calls of one process to another that may wait for their answers; a further one fails.
inline constexpr std::uint32_t kMostCalls = 64;

/// Whom to call; see RemoteActors::callee().
struct Callee {
  Peer peer;
  std::uint64_t actor = 0;
};

/// Waits for the answer to one call at a time, and lives until it is told.
class CallDone {
 public:
  virtual ~CallDone() = default;
  /// On the control lane's thread, or at once by the thread that calls, when it cannot be; must not block. `answer`
  /// lives during the call; there is none when `status` is not ok: the actor's own failure, Error{aborted} when it has
  /// ended or takes no calls, Error{peer_lost}, Error{out_of_memory} beyond kMostCalls.
  virtual void answered(const Status& status, std::span<const std::byte> answer) noexcept = 0;
};

/// A call that is answered later. A handle: the last copy that ends without an answer fails the call. Any thread.
class LateCall {
 public:
  /// Answers, once; `bytes` at most kMostCallBytes. Too late for a caller that is gone.
  void answer(std::span<const std::byte> bytes) const;
  void fail(const Status& why) const;

 private:
  friend class Call;
  friend class remote::CallTable;
  class State;
  explicit LateCall(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// A call as it arrives, on the control lane's thread, for as long as it is dealt with.
class Call {
 public:
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  std::span<const std::byte> question() const noexcept { return question_; }
  /// kMostCallBytes for the answer to be written to.
  std::span<std::byte> room() noexcept { return std::span(frame_).subspan(wire::kHeaderBytes); }
  /// Answers with the first `bytes` of room().
  void answer(std::size_t bytes);
  void fail(const Status& why);
  /// To be answered later.
  LateCall keep();

 private:
  friend class remote::CallTable;
  Call(remote::CallTable& calls, Peer from, std::uint64_t ticket, std::span<const std::byte> question) noexcept
      : calls_(calls), from_(from), ticket_(ticket), question_(question) {}

  remote::CallTable& calls_;
  const Peer from_;
  const std::uint64_t ticket_;
  const std::span<const std::byte> question_;
  bool dealt_with_ = false;
  std::array<std::byte, wire::kHeaderBytes + kMostCallBytes> frame_;  // not set
};

/// What an actor class derives from to be called where it runs, when that is the control lane.
class CallTaker {
 public:
  /// Deals with the call: answers, fails or keeps it. As a handler that costs a microsecond or so and never throws; it
  /// is not the turn of a message, so there is no sender.
  virtual void take(Call& call) noexcept = 0;

 protected:
  ~CallTaker() = default;
};

/// The same call as a message: to an actor that is not inline (or no longer), or in the middle of a turn.
struct CallMessage {
  std::vector<std::byte> question;
  LateCall call;
};

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::CallMessage)
