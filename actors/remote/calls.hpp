#pragma once

#include <array>
#include <caf/actor_addr.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/caf_compatibility.hpp"
#include "actors/remote/wire.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

// Calls: short questions to an actor of any process. If that actor is inline, the answer bypasses the mailboxes of both
// sides. A call has no order among messages, and does not count for a window.
namespace troupe {

namespace remote {
class CallTable;
}

/// Of a question, and of an answer. Plain bytes, since the processes of a job have the same layout.
inline constexpr std::size_t kMostCallBytes = 2048;
/// The number of calls from one process to another that may wait for answers; a further call fails.
inline constexpr std::uint32_t kMostCalls = 64;

/// An actor that can be called; see RemoteActors::callee().
struct Callee {
  Peer peer;
  std::uint64_t actor = 0;
};

/// Waits for the answer to one call at a time. It must live until answered() has been called.
class CallDone {
 public:
  virtual ~CallDone() = default;
  /// Called on the control lane's thread, or at once on the calling thread if the call cannot be sent; must not block.
  /// `answer` is valid during this call; it is empty if `status` is not ok: the actor's own error, Error{aborted} if it
  /// has ended or takes no calls, Error{peer_lost}, Error{out_of_memory} if there are more than kMostCalls.
  virtual void answered(const Status& status, std::span<const std::byte> answer) noexcept = 0;
};

/// A call that is answered later. A handle: if its last copy is destroyed without an answer, the call fails. Any
/// thread.
class LateCall {
 public:
  /// Answers, once; `bytes` has at most kMostCallBytes. Ignored if the caller has ended.
  void answer(std::span<const std::byte> bytes) const;
  void fail(const Status& why) const;

 private:
  friend class Call;
  friend class remote::CallTable;
  class State;
  explicit LateCall(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// A call when it arrives, on the control lane's thread; valid while take() runs.
class Call {
 public:
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  std::span<const std::byte> question() const noexcept { return question_; }
  /// kMostCallBytes of space into which the answer can be written.
  std::span<std::byte> buffer() noexcept { return std::span(frame_).subspan(wire::kHeaderBytes); }
  /// Answers with the first `bytes` of buffer().
  void answer(std::size_t bytes);
  void fail(const Status& why);
  /// Keeps the call, to answer it later.
  LateCall keep();

 private:
  friend class remote::CallTable;
  Call(remote::CallTable& calls, Peer from, std::uint64_t ticket, std::span<const std::byte> question) noexcept
      : calls_(calls), from_(from), ticket_(ticket), question_(question) {}

  remote::CallTable& calls_;
  const Peer from_;
  const std::uint64_t ticket_;
  const std::span<const std::byte> question_;
  bool has_answer_ = false;
  std::array<std::byte, wire::kHeaderBytes + kMostCallBytes> frame_;  // not initialized
};

/// A base class of actors that are called on the control lane's thread if they run there.
class CallTaker {
 public:
  /// Handles the call: answers, fails or keeps it. It should take about a microsecond, like an inline handler, and must
  /// not throw. There is no sender, since it is not called for a message.
  virtual void take(Call& call) noexcept = 0;

 protected:
  ~CallTaker() = default;
};

/// The same call as a message: for an actor that is not inline (at present), or whose handler is running.
struct CallMessage {
  std::vector<std::byte> question;
  LateCall call;
};

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::CallMessage)
