#include "actors/remote/calls.hpp"

#include <algorithm>
#include <atomic>
#include <caf/message.hpp>
#include <cstring>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/call_table.hpp"
#include "actors/remote/detail/inline_unit.hpp"

namespace troupe {

class LateCall::State {
 public:
  State(remote::CallTable& calls, Peer from, std::uint64_t ticket)
      : calls_(calls), lane_access_(calls.lane_access()), from_(from), ticket_(ticket) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { answer({Code::aborted, "the call was not answered"}, {}); }

  void answer(const Status& status, std::span<const std::byte> bytes) {
    if (answered_.exchange(true, std::memory_order_relaxed)) return;
    lane_access_->run(
        [calls = &calls_, from = from_, ticket = ticket_, status,
         kept = std::vector<std::byte>(bytes.begin(), bytes.end())] { calls->answer(from, ticket, status, kept); });
  }

 private:
  remote::CallTable& calls_;  // used only on the control lane
  const std::shared_ptr<remote::LaneAccess> lane_access_;
  const Peer from_;
  const std::uint64_t ticket_;
  std::atomic<bool> answered_{false};
};

void LateCall::answer(std::span<const std::byte> bytes) const {
  TROUPE_CHECK(bytes.size() <= kMostCallBytes, Code::invalid, "an answer of ", bytes.size(),
               " bytes to a call; at most ", kMostCallBytes, " fit");
  state_->answer({}, bytes);
}

void LateCall::fail(const Status& why) const { state_->answer(why, {}); }

void Call::answer(std::size_t bytes) {
  TROUPE_CHECK(!has_answer_ && bytes <= kMostCallBytes, Code::invalid,
               "a call is answered twice, or with more bytes than fit: ", bytes);
  has_answer_ = true;
  calls_.send_answer(from_, ticket_, std::span(frame_).first(wire::kHeaderBytes + bytes));
}

void Call::fail(const Status& why) {
  TROUPE_CHECK(!has_answer_, Code::invalid, "a call is answered twice");
  has_answer_ = true;
  calls_.answer(from_, ticket_, why, {});
}

LateCall Call::keep() {
  TROUPE_CHECK(!has_answer_, Code::invalid, "a call is answered twice");
  has_answer_ = true;
  return LateCall(std::make_shared<LateCall::State>(calls_, from_, ticket_));
}

namespace remote {

Callee CallTable::callee(const caf::actor& actor) {
  const PeerState* const of = context_.peer(actor.node());
  TROUPE_CHECK(of != nullptr || actor.node() == context_.system.node(), Code::invalid,
               "a call to an actor of a process that is not a peer of this one");
  if (of == nullptr)
    context_.lane_access->run([this, known = caf::actor_cast<caf::strong_actor_ptr>(actor)] {
      if (!context_.ended) actors_.make_known(known);
    });
  return {of != nullptr ? of->number : context_.self, actor.id()};
}

void CallTable::call(Callee callee, std::span<const std::byte> question, CallDone& done) {
  PeerState* const to = context_.peer(callee.peer);
  TROUPE_CHECK(to != nullptr || callee.peer == context_.self, Code::invalid, "peer ", callee.peer.value,
               " is not known here; add_peer comes first");
  if (!context_.control.on_thread()) {
    const bool posted = context_.lane_access->run(
        [this, callee, &done, kept = std::vector<std::byte>(question.begin(), question.end())] {
          call(callee, kept, done);
        });
    if (!posted) done.answered({Code::aborted, "this process has ended its connection to other processes"}, {});
    return;
  }
  if (context_.ended) return done.answered({Code::aborted, "this process is ending"}, {});
  if (to == nullptr) {
    const std::uint64_t ticket = open_.open(context_.self, done);
    // Posted, not called now: the caller may hold locks or be within a handler of the callee.
    const bool posted = context_.lane_access->run(
        [this, actor = callee.actor, ticket, kept = std::vector<std::byte>(question.begin(), question.end())] {
          if (!context_.ended) take(context_.self, actor, ticket, kept);
        });
    if (!posted) end(context_.self, ticket, {Code::aborted, "this process is ending"}, {});
    return;
  }
  if (to->dead) return done.answered(to->why, {});
  if (to->calls_there == kMostCalls) {
    return done.answered({Code::out_of_memory, text(kMostCalls, " calls to peer ", to->number.value,
                                                    " wait for their answers already; wait for one of them")},
                         {});
  }
  ++to->calls_there;
  std::array<std::byte, wire::kHeaderBytes + kMostCallBytes> frame;
  wire::store({.kind = wire::Kind::call, .message_id = open_.open(to->number, done), .target = callee.actor},
              std::span(frame).first<wire::kHeaderBytes>());
  if (!question.empty()) std::memcpy(frame.data() + wire::kHeaderBytes, question.data(), question.size());
  frames_.send(*to, std::span(frame).first(wire::kHeaderBytes + question.size()));
}

void CallTable::take_in_call(PeerState& from, const wire::Header& header, std::span<const std::byte> question) {
  if (question.size() > kMostCallBytes) return context_.lose_later(from, "it asks more in a call than fits");
  if (from.calls_here == kMostCalls) return context_.lose_later(from, "it made more calls than it may");
  ++from.calls_here;
  take(from.number, header.target, header.message_id, question);
}

void CallTable::take(Peer from, caf::actor_id callee, std::uint64_t ticket, std::span<const std::byte> question) {
  KnownActor* const to = actors_.find(callee);
  if (to == nullptr) return answer(from, ticket, {Code::aborted, "the actor that was called has ended"}, {});
  Call call(*this, from, ticket, question);
  if (to->inline_handler == nullptr || !inline_.hand(*to->inline_handler, *to->actor->get(), call)) {
    to->actor->enqueue(nullptr, caf::make_message_id(),
                       caf::make_message(CallMessage{{question.begin(), question.end()}, call.keep()}), &context_.unit);
  } else if (!call.has_answer_) {
    call.fail({Code::aborted, "the call was not answered"});
  }
}

void CallTable::send_answer(Peer to, std::uint64_t ticket, std::span<std::byte> frame) {
  if (to == context_.self) return end(context_.self, ticket, {}, frame.subspan(wire::kHeaderBytes));
  PeerState* const of = context_.peer(to);
  if (of->dead || context_.ended) return;
  --of->calls_here;
  wire::store({.kind = wire::Kind::answer, .message_id = ticket}, frame.first<wire::kHeaderBytes>());
  frames_.send(*of, frame);
}

void CallTable::answer(Peer to, std::uint64_t ticket, const Status& status, std::span<const std::byte> bytes) {
  if (to == context_.self) return end(context_.self, ticket, status, bytes);
  PeerState* const of = context_.peer(to);
  if (of->dead || context_.ended) return;
  --of->calls_here;
  wire::Header header{.kind = wire::Kind::answer, .message_id = ticket};
  std::vector<char> frame(wire::kHeaderBytes + (status.ok() ? bytes.size() : 0));
  if (status.ok()) {
    std::ranges::copy(bytes, std::as_writable_bytes(std::span(frame)).begin() + wire::kHeaderBytes);
  } else {
    header.flags = wire::kFailed;
    context_.codec.encode(to_caf(shortened(status)), frame);
  }
  wire::store(header, std::as_writable_bytes(std::span(frame)).first<wire::kHeaderBytes>());
  frames_.send(*of, std::as_bytes(std::span(frame)));
}

void CallTable::take_in_answer(PeerState& from, const wire::Header& header, std::span<const std::byte> body) {
  if (!open_.is_open(header.message_id, from.number))
    return context_.lose_later(from, "it answered a call that nobody made");
  if (body.size() > kMostCallBytes && (header.flags & wire::kFailed) == 0)
    return context_.lose_later(from, "it answers more to a call than fits");
  --from.calls_there;
  if ((header.flags & wire::kFailed) == 0) return end(from.number, header.message_id, {}, body);
  caf::error error;
  Status status = context_.codec.decode(body, error);
  if (status.ok()) status = from_caf(error);
  if (status.ok()) status = {Code::corrupt, text("peer ", from.number.value, " failed a call without a reason")};
  end(from.number, header.message_id, status, {});
}

void CallTable::end(Peer of, std::uint64_t ticket, const Status& status, std::span<const std::byte> answer) {
  if (CallDone* const done = open_.close(ticket, of)) done->answered(status, answer);
}

void CallTable::fail_all(Peer callee, const Status& why) {
  for (CallDone* const done : open_.close_all(callee)) done->answered(why, {});
}

void CallTable::fail_all(const Status& why) {
  for (CallDone* const done : open_.close_all()) done->answered(why, {});
}

}  // namespace remote
}  // namespace troupe
