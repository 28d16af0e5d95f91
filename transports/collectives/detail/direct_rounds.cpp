#include "transports/collectives/detail/direct_rounds.hpp"

#include <algorithm>
#include <utility>

namespace troupe::collectives {
namespace {

/// The number of calls that may be in progress at all ranks together. Series of calls are those of each bucket, plain
/// operations, and those for sums. A rank may have two calls of each in progress, and another one be two of each ahead.
std::size_t remembered_calls(const Ownership& ownership) { return 4 * (ownership.count_buckets() + 2); }

}  // namespace

DirectRounds::DirectRounds(AddressSpace& space, LaneLoop& loop, Stream& exchange, DirectGroup group)
    : space_(space),
      loop_(loop),
      plan_(space, std::move(group)),
      failure_(plan_, loop),
      calls_(space, plan_, failure_, *this),
      work_(space, exchange, plan_),
      sender_(space, loop, plan_, failure_),
      order_(remembered_calls(plan_.ownership())) {
  TROUPE_CHECK(loop.lane() == Lane::bulk, Code::invalid, "gradients travel on the bulk lane");
  const bool stages = plan_.group().device_memory;
  for (std::size_t c = 0; c < plan_.staging().count_channels(); ++c) {
    Channel& channel = channels_.emplace_back(plan_.self(), plan_.group().names);
    for (std::uint32_t i = 0; stages && i < 4 * plan_.ranks(); ++i) channel.staged.emplace_back(*this, c);
  }
}

/// This rank's round of that shape, if its call has begun.
const Round* DirectRounds::begun(const RoundShape& shape) const noexcept {
  const Channel& channel = channels_[plan_.channel_of(shape)];
  const std::size_t place = shape.sequence % 2;
  return channel.begun[place] == shape.sequence ? channel.rounds[place] : nullptr;
}

// ---- From call to call ----

void DirectRounds::arrived_at(CollectiveCall& call) noexcept {
  failure_.guarded([&] {
    const RoundShape& shape = call.rounds.front().shape;
    if (is_plain(shape) || shape.part == RoundPart::all) return begin(call);
    if (!call.begun) verdicts_.add(call);
    // Gradients are sent as soon as they are written, sums when they have been measured, parameters when it is their
    // turn.
    if (call.begun || shape.part == RoundPart::gradients) begin(call);
    advance_verdicts();
  });
}

/// Begins the rounds of a call and sends its contributions. All earlier calls of its series are over.
void DirectRounds::begin(CollectiveCall& call) {
  call.begun = true;
  const std::size_t first = call.rounds.front().channel;
  const std::size_t count = call.rounds.size();
  for (Round& round : call.rounds) {
    Status status = order_.agree(plan_.name(plan_.self()), round.shape);
    Channel& channel = channels_[round.channel];
    // Before announce(): messages that arrived early may complete the round at once, and advance() then looks it up
    // here.
    channel.rounds[round.shape.sequence % 2] = &round;
    channel.begun[round.shape.sequence % 2] = round.shape.sequence;
    if (status.ok()) status = channel.window.announce(round.shape, plan_.expected(round));
    TROUPE_CHECK(status.ok(), status.code(), status.text());
    send(round.contributions);
  }
  // The call may end within the loop, and its object may be in use for another call then, so it is not touched any
  // more.
  for (std::size_t c = first; c < first + count; ++c) advance(c);
  sender_.pump();
}

/// Brings the channel up to what its window has counted. Rounds are gathered in order, and are over in order; in one
/// call a round may be found to be both.
void DirectRounds::advance(std::size_t index) {
  Channel& channel = channels_[index];
  while (channel.gathered < channel.window.gathered()) gathered(*channel.rounds[++channel.gathered % 2]);
  while (channel.over < channel.window.published()) over(*channel.rounds[++channel.over % 2]);
}

void DirectRounds::gathered(Round& round) {
  ++round.call.gathered;
  if (is_plain(round.shape)) return work_.plain(round);
  switch (round.shape.part) {
    case RoundPart::all: return work_.add_up_and_update(round);
    case RoundPart::parameters: return work_.update_own_part(round);
    case RoundPart::gradients:
    case RoundPart::sums: return advance_verdicts();
  }
}

void DirectRounds::over(Round& round) {
  CollectiveCall& call = round.call;
  const bool last = ++call.over == call.rounds.size();
  if (last) calls_.end(call);
  calls_.release(call);
  if (last) advance_verdicts();  // a call in the queue may have waited for this one
}

/// Gives calls in the verdict queue their turns, as far as possible. A turn may call this function again;
/// between pop() and passed() next() returns null, so turns do not nest.
void DirectRounds::advance_verdicts() {
  while (CollectiveCall* const call = verdicts_.next()) {
    if (!may_take_turn(*call)) return;
    verdicts_.pop();
    take_turn(*call);
    verdicts_.passed();
    calls_.release(*call);
  }
}

bool DirectRounds::may_take_turn(CollectiveCall& call) {
  switch (call.rounds.front().shape.part) {
    case RoundPart::gradients: return call.gathered == call.rounds.size();
    case RoundPart::sums:
      if (call.gathered > 0) return true;
      // The norms must be in the sums first: when they are, finish_measuring() calls arrived_at() for this call again,
      // which then begins it.
      if (calls_.is_next(call) && !std::exchange(call.begun, true)) work_.finish_measuring(call);
      return false;
    case RoundPart::parameters:
      // Who waits for an update also reads the totals by which it was decided, so the call that agreed on them ends
      // first.
      return calls_.is_next(call) && calls_.ended(calls_.of_sums()) >= agreed_;
    case RoundPart::all: break;  // never in the queue
  }
  return false;
}

void DirectRounds::take_turn(CollectiveCall& call) {
  Round& first = call.rounds.front();
  if (first.shape.part == RoundPart::gradients) return work_.reduce_with_norm(call);
  if (first.shape.part == RoundPart::parameters) return begin(call);
  agreed_ = call.number;
  work_.add_up_sums(first);
}

void DirectRounds::own_work_done(Round& round) noexcept {
  failure_.guarded([&] {
    const std::size_t channel = round.channel;
    RoundWindow& window = channels_[channel].window;
    const std::uint64_t sequence = round.shape.sequence;
    if (plan_.has_result(round, plan_.self())) {
      window.results_leave();  // first, so that the round is not over, and its results not overwritten, before they are
                               // sent
      send(round.results);
    }
    window.own_work_done(sequence);
    advance(channel);
    sender_.pump();
  });
}

void DirectRounds::unstaged(const StagedResult& result) noexcept {
  failure_.guarded([&] {
    channels_[result.channel].window.arrived(result.sequence, result.payload_kind);
    advance(result.channel);
    sender_.pump();
  });
}

// ---- Messages ----

void DirectRounds::send(Flow& flow) {
  if (!sender_.send(flow)) finished(flow);
}

void DirectRounds::sent(Delivery& delivery, const Status& status) noexcept {
  const bool last = sender_.sent(delivery);
  if (!status.ok())
    failure_.fail({status.code(),
                   text("rank ", plan_.name(delivery.to).value, " did not get what was sent to it: ", status.text())});
  failure_.guarded([&] {
    if (last) {
      const std::size_t channel = delivery.flow.round.channel;
      finished(delivery.flow);
      advance(channel);
    }
    sender_.pump();
  });
}

/// All messages of the flow are sent: its memory is not read any more.
void DirectRounds::finished(Flow& flow) {
  RoundWindow& window = channels_[flow.round.channel].window;
  const std::uint64_t sequence = flow.round.shape.sequence;
  if (!flow.results) return window.contributions_sent(sequence);
  window.results_sent(sequence);
  calls_.release(flow.round.call);
}

/// Checks and decodes the head of a message. Throws Error for a message that must not come now. Returns nothing for
/// a message of an earlier view, which is ignored.
std::optional<DirectHead> DirectRounds::accept(Peer from, std::span<const std::byte> bytes, std::uint64_t size_bytes) {
  const DirectGroup& group = plan_.group();
  const std::optional<DirectHead> head = decode(bytes);
  TROUPE_CHECK(head, Code::corrupt, "peer ", from.value, " sent an exchange message with an invalid head of ",
               bytes.size(), " bytes");
  if (head->view < group.view.value) return std::nullopt;
  TROUPE_CHECK(head->group == group.id, Code::corrupt, "peer ", from.value, " sent an exchange message of group ",
               head->group.value, " to group ", group.id.value);
  TROUPE_CHECK(head->view == group.view.value && head->rank < plan_.ranks() && head->rank != plan_.self() &&
                   group.peers[head->rank] == from,
               Code::corrupt, "peer ", from.value, " sent an exchange message as rank ", head->rank, " of view ",
               head->view, ", which it is not in view ", group.view.value);
  const RoundShape& shape = head->round;
  const Rank sender = plan_.name(head->rank);
  TROUPE_CHECK(plan_.is_known(shape), Code::invalid, "rank ", sender.value, " is at ", describe(shape), ", which rank ",
               plan_.name(plan_.self()).value, " does not have");
  const Round* const own = begun(shape);
  const bool due = plan_.is_due(*head, own);
  const std::uint64_t expected = due ? plan_.expected_bytes(*head, size_bytes, own) : 0;
  TROUPE_CHECK(due && size_bytes == expected, Code::corrupt, "rank ", sender.value, " sent ", size_bytes, " bytes for ",
               describe(shape), ", ", expected, " were expected");
  Status status = channels_[plan_.channel_of(shape)].window.enter(head->rank, shape, head->payload_kind);
  if (status.ok()) status = order_.agree(sender, shape);
  TROUPE_CHECK(status.ok(), status.code(), status.text());
  return head;
}

/// Whether the message is an abort notice; if it is of this group's present view, this rank fails, too.
bool DirectRounds::take_abort_notice(Peer from, std::span<const std::byte> bytes) {
  const std::optional<AbortNotice> notice = decode_abort_notice(bytes);
  if (!notice) return false;
  const DirectGroup& group = plan_.group();
  const bool known = notice->rank < plan_.ranks() && group.peers[notice->rank] == from;
  if (known && notice->view == group.view.value)
    failure_.fail({notice->why.code(), text("rank ", plan_.name(notice->rank).value, ": ", notice->why.text())});
  return true;
}

Memory DirectRounds::landing(Peer from, Lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept {
  Memory place;
  failure_.guarded([&] {
    if (const std::optional<DirectHead> accepted = accept(from, head, size_bytes))
      place = plan_.landing_of(*accepted, size_bytes, begun(accepted->round));
  });
  return place;
}

void DirectRounds::arrived(Peer from, Lane, std::span<const std::byte> head, Memory payload) noexcept {
  failure_.guarded([&] {
    if (payload.size_bytes == 0 && take_abort_notice(from, head)) return;
    // A message with a payload was accepted by landing().
    const std::optional<DirectHead> here = payload.size_bytes > 0 ? decode(head) : accept(from, head, 0);
    if (!here) return;
    const RoundShape& shape = here->round;
    const std::size_t channel = plan_.channel_of(shape);
    const bool contribution = here->payload_kind == PayloadKind::contribution;
    if (contribution && carries_sums(shape))
      *space_.address_of<StepSums>(plan_.staging().sums(channel, shape.sequence, here->rank)) = here->sums;
    if (plan_.group().device_memory && !contribution && payload.size_bytes > 0 && !is_plain(shape))
      return unstage(*here);
    channels_[channel].window.arrived(shape.sequence, here->payload_kind);
    advance(channel);
    sender_.pump();
  });
}

/// In device memory, the result must first be copied to its place; only then does it count as arrived.
void DirectRounds::unstage(const DirectHead& head) {
  const RoundShape& shape = head.round;
  const std::size_t place = (shape.sequence % 2 * plan_.ranks() + head.rank) * 2;
  StagedResult& result =
      channels_[plan_.channel_of(shape)].staged[place + (head.payload_kind == PayloadKind::half_result ? 1 : 0)];
  result.sequence = shape.sequence;
  result.payload_kind = head.payload_kind;
  work_.unstage(head, result);
}

void DirectRounds::dropped(Peer from, Lane, Memory payload, const Status& why) noexcept {
  if (payload.size_bytes == 0) return;  // it was refused by landing(), which has reported why
  failure_.fail({why.code(), text(plan_.name_of(from), " did not finish what it sent: ", why.text())});
}

void DirectRounds::lost(Peer peer, const Status& why) noexcept {
  const std::vector<Peer>& peers = plan_.group().peers;
  if (std::find(peers.begin(), peers.end(), peer) != peers.end())
    failure_.fail({Code::peer_lost, text(plan_.name_of(peer), " is lost: ", why.text())});
}

}  // namespace troupe::collectives
