#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "actors/remote/calls.hpp"
#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/frame_sender.hpp"
#include "actors/remote/detail/known_actors.hpp"
#include "actors/remote/detail/open_calls.hpp"
#include "actors/remote/wire.hpp"

namespace troupe::remote {

class InlineUnit;

/// Calls in both directions (ADR 0015). Every call that was made ends exactly once: with its answer, or here, if it
/// cannot be sent, if its actor or its peer has ended, or if this process's remote actors end. Threads: the control
/// lane's, unless stated otherwise.
class CallTable {
 public:
  CallTable(Context& context, FrameSender& frames, KnownActors& actors, InlineUnit& inline_unit)
      : context_(context), frames_(frames), actors_(actors), inline_(inline_unit) {}

  // Any thread:
  Callee callee(const caf::actor& actor);
  void call(Callee callee, std::span<const std::byte> question, CallDone& done);
  const std::shared_ptr<LaneAccess>& lane_access() const noexcept { return context_.lane_access; }

  void take_in_call(PeerState& from, const wire::Header& header, std::span<const std::byte> question);
  void take_in_answer(PeerState& from, const wire::Header& header, std::span<const std::byte> body);
  /// Used by calls: answers a call of `to`.
  void answer(Peer to, std::uint64_t ticket, const Status& status, std::span<const std::byte> bytes);
  /// The same without a copy: `frame` has space for the header, then the answer.
  void send_answer(Peer to, std::uint64_t ticket, std::span<std::byte> frame);
  /// Ends all calls to a peer that is lost; or all calls.
  void fail_all(Peer callee, const Status& why);
  void fail_all(const Status& why);

 private:
  void take(Peer from, caf::actor_id callee, std::uint64_t ticket, std::span<const std::byte> question);
  void end(Peer of, std::uint64_t ticket, const Status& status, std::span<const std::byte> answer);

  Context& context_;
  FrameSender& frames_;
  KnownActors& actors_;
  InlineUnit& inline_;
  OpenCalls open_;
};

}  // namespace troupe::remote
