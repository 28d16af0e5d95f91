#include "transports/collectives/detail/direct_rounds.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/exchange.hpp"

// The lane's side, and what both sides need. The caller's side is in direct_communicator.cpp.
namespace troupe::collectives {
namespace {

bool carries_gradients(const RoundShape& shape) noexcept {
  return shape.part == RoundPart::all || shape.part == RoundPart::gradients;
}

bool carries_parameters(const RoundShape& shape) noexcept {
  return shape.part == RoundPart::all || shape.part == RoundPart::parameters;
}

/// Whether contributions to the round come with the sender's sums. While gradients are measured they are being written.
bool carries_sums(const RoundShape& shape) noexcept {
  return !shape.reduces && (shape.part == RoundPart::all || shape.part == RoundPart::sums);
}

/// Calls that may be under way at all ranks together, on any line: two of each.
std::size_t remembered_calls(const Ownership& ownership) { return 4 * (ownership.count_buckets() + 2); }

}  // namespace

DirectRounds::DirectRounds(AddressSpace& space, LaneLoop& loop, Stream& exchange, DirectGroup group)
    : space_(space),
      loop_(loop),
      exchange_(exchange),
      group_(std::move(group)),
      self_(group_.rank.value),
      ownership_(group_.stripes, group_.buckets, static_cast<std::uint32_t>(group_.peers.size()), group_.chunk),
      staging_(ownership_, self_, group_.filter != nullptr ? group_.filter->packed_bytes() : 0),
      order_(remembered_calls(ownership_)),
      outbox_(loop, ranks(), [this](Outbox::Message& message) { return try_send(static_cast<Delivery&>(message)); }) {
  TROUPE_CHECK(loop.lane() == Lane::bulk, Code::invalid, "gradients travel on the bulk lane");
  TROUPE_CHECK(self_ < ranks() && !group_.buckets.empty(), Code::invalid, "rank ", self_, " of ", ranks(), " with ",
               group_.buckets.size(), " buckets");
  std::uint64_t count = 0;
  for (const Bucket& bucket : group_.buckets) count += bucket.count;
  TROUPE_CHECK(group_.parameters.size_bytes == count * sizeof(float) &&
                   (group_.half.size_bytes == 0 || group_.half.size_bytes * 2 == group_.parameters.size_bytes),
               Code::invalid, count, " elements have tenants, the memory is of ", group_.parameters.size_bytes,
               " bytes of parameters and ", group_.half.size_bytes, " of their bf16 image");
  TROUPE_CHECK(group_.staging.size_bytes >= staging_.size_bytes(), Code::invalid, "the staging memory has ",
               group_.staging.size_bytes, " bytes, ", staging_.size_bytes(), " are needed");
  for (const Memory& memory : {group_.parameters, group_.half, group_.staging}) {
    if (memory.size_bytes > 0) (void)space_.address(memory);  // throws when it is not mapped here
  }
  staging_.place(group_.staging);
  const auto add_line = [this](std::size_t first_channel, std::size_t count_channels) {
    Line& line = lines_.emplace_back();
    line.over = &space_.timeline(space_.make_private_timeline());
    line.first_channel = first_channel;
    line.count_channels = count_channels;
  };
  for (std::uint32_t b = 0; b < group_.buckets.size(); ++b)
    add_line(ownership_.first_chunk(b), ownership_.chunks_of(b).size());
  add_line(staging_.channel_of_reduce(), 1);
  add_line(staging_.channel_of_sums(), 1);
  for (std::size_t c = 0; c < staging_.count_channels(); ++c) channels_.emplace_back(group_.rank, ranks());
  parts_.reserve(ranks());
}

// ---- What rounds are about ----

const Chunk& DirectRounds::chunk_of(const RoundShape& shape) const noexcept {
  return ownership_.chunks_of(shape.bucket)[shape.chunk];
}

/// What of a round `rank` adds up and sends the result of.
Part DirectRounds::part_of(const RoundShape& shape, std::uint32_t rank) const {
  if (shape.part == RoundPart::sums) return {};
  if (!shape.reduces) return ownership_.part_of(chunk_of(shape), rank);
  constexpr std::uint64_t kBlock = Layout::kAlignElements;
  const std::uint64_t each = (shape.elements + kBlock * ranks() - 1) / (kBlock * ranks()) * kBlock;
  const std::uint64_t first = std::min(rank * each, shape.elements);
  return {first, std::min(each, shape.elements - first)};
}

/// Whether `rank` tells everybody else of a result, with payload or without.
bool DirectRounds::has_result(const RoundShape& shape, std::uint32_t rank) const {
  return (shape.reduces || carries_parameters(shape)) && part_of(shape, rank).count > 0;
}

/// Whether `rank` gets a contribution from everybody else: it adds something up, or at least the sums.
bool DirectRounds::contributes_to(const RoundShape& shape, std::uint32_t rank) const {
  return shape.sums || part_of(shape, rank).count > 0;
}

bool DirectRounds::is_filtered(const RoundShape& shape) const noexcept {
  return group_.filter != nullptr && !shape.reduces && carries_gradients(shape);
}

bool DirectRounds::has_own_work(const RoundShape& shape) const { return shape.sums || part_of(shape, self_).count > 0; }

RoundWindow::Expected DirectRounds::expected(const RoundShape& shape) const {
  RoundWindow::Expected all;
  if (contributes_to(shape, self_)) all.contributions = ranks() - 1;
  const std::uint32_t each = !shape.reduces && group_.half.size_bytes > 0 ? 2 : 1;
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    if (r != self_ && has_result(shape, r)) all.results += each;
  }
  all.own_work = has_own_work(shape);
  // An update's results lie in the parameters, which the chunk's next update writes, and that one waits for them. What
  // an all_reduce leaves is the caller's at once.
  all.own_results_first = shape.reduces && part_of(shape, self_).count > 0;
  return all;
}

std::size_t DirectRounds::channel_of(const RoundShape& shape) const noexcept {
  if (shape.reduces) return staging_.channel_of_reduce();
  if (shape.part == RoundPart::sums) return staging_.channel_of_sums();
  return ownership_.first_chunk(shape.bucket) + shape.chunk;
}

// ---- Failure ----

void DirectRounds::fail(const Status& why) noexcept {
  failed_.store(true, std::memory_order_release);
  for (const Line& line : lines_) line.over->poison(why);  // the first reason stays
}

void DirectRounds::fail_everywhere(const Status& why) noexcept {
  const bool first = !failed();
  fail(why);
  if (!first || others_told_.exchange(true)) return;
  notices_.why = why;
  loop_.post(notices_);
}

bool DirectRounds::try_tell(AbortNotices& notices, std::uint32_t rank) {
  if (rank == self_) return true;
  return loop_.transport().send(group_.peers[rank], Lane::bulk, Class::control, Channel::exchange,
                                encode(AbortNotice{group_.view.value, self_, notices.why, group_.id}), {}, notices);
}

template <class What>
void DirectRounds::guarded(What&& what) noexcept {
  if (failed()) return;
  try {
    what();
  } catch (const Error& error) {
    fail_everywhere(error.status());
  } catch (const std::exception& error) {
    fail_everywhere({Code::device_fault, error.what()});
  }
}

// ---- From call to call ----

/// The caller's stream has come to `call`; or the exchange's, to the sums of a step with a verdict.
void DirectRounds::arrived_at(Call& call) noexcept {
  guarded([&] {
    const RoundShape& shape = call.rounds.front().shape;
    if (shape.reduces || shape.part == RoundPart::all) return begin(call);
    if (!call.begun) {
      // What a line tells of different points may come by different threads, and so in any order.
      const auto later = [&](const Call* other) { return other->verdict > call.verdict; };
      verdict_.insert(std::find_if(verdict_.begin(), verdict_.end(), later), &call);
    }
    if (call.begun || shape.part == RoundPart::gradients) begin(call);
    advance_verdict();
  });
}

/// Its contributions leave. The line's calls before it are over.
void DirectRounds::begin(Call& call) {
  call.begun = true;
  const Line& line = lines_[call.line];
  for (Round& round : call.rounds) {
    Status status = order_.agree(group_.rank, round.shape);
    ChunkRounds& channel = channels_[round.channel];
    channel.rounds[round.shape.sequence % 2] = &round;
    if (status.ok()) status = channel.window.announce(round.shape, expected(round.shape));
    TROUPE_CHECK(status.ok(), status.code(), status.text());
    send(round.contributions);
  }
  // The call may be over, and another one's, before the loop ends.
  for (std::size_t c = line.first_channel; c < line.first_channel + line.count_channels; ++c) advance(c);
  outbox_.pump();
}

void DirectRounds::advance(std::size_t index) {
  ChunkRounds& channel = channels_[index];
  while (channel.gathered < channel.window.gathered()) gathered(*channel.rounds[++channel.gathered % 2]);
  while (channel.over < channel.window.published()) over(*channel.rounds[++channel.over % 2]);
}

void DirectRounds::gathered(Round& round) {
  ++round.call.gathered;
  if (round.shape.reduces) return reduce_own_part(round);
  switch (round.shape.part) {
    case RoundPart::all: return add_up_and_update(round);
    case RoundPart::parameters: return update_own_part(round);
    case RoundPart::gradients:
    case RoundPart::sums: return advance_verdict();
  }
}

void DirectRounds::over(Round& round) {
  Call& call = round.call;
  if (++call.over == call.rounds.size()) {
    Line& line = lines_[call.line];
    line.ended = call.number;
    if (!failed()) line.over->signal(call.number);
    release(call);
    return advance_verdict();
  }
  release(call);
}

/// Goes through the calls of steps with a verdict as far as they may go on.
void DirectRounds::advance_verdict() {
  while (!verdict_.empty() && verdict_.front()->verdict == verdict_ended_ + 1) {
    Call& call = *verdict_.front();
    const bool follows = lines_[call.line].ended + 1 == call.number;
    switch (call.rounds.front().shape.part) {
      case RoundPart::gradients:
        if (call.gathered < call.rounds.size()) return;
        verdict_.pop_front();
        measure(call);
        break;
      case RoundPart::sums:
        if (call.gathered > 0) {
          verdict_.pop_front();
          agreed_ = call.number;
          add_up_sums(call.rounds.front());
          break;
        }
        if (!follows || std::exchange(call.begun, true)) return;
        // It begins when all that was measured so far stands in the sums.
        {
          const Point measured = exchange_.mark();
          space_.timeline(measured.line).wake(measured.value, call);
        }
        return;
      case RoundPart::parameters:
        // Whoever waits for the update reads what was agreed on, too.
        if (!follows || lines_[line_of_sums()].ended < agreed_) return;
        verdict_.pop_front();
        begin(call);
        break;
      case RoundPart::all: return;  // never here
    }
    ++verdict_ended_;
    release(call);
  }
}

void DirectRounds::release(Call& call) noexcept {
  if (--call.uses != 0) return;
  const std::lock_guard lock{mutex_};
  lines_[call.line].free.push_back(&call);
}

// ---- This rank's own work ----

/// `own` in this rank's place among what the others' lay at `of_rank`.
template <class OfRank>
std::span<const Memory> DirectRounds::in_rank_order(Memory own, OfRank&& of_rank) {
  parts_.clear();
  for (std::uint32_t r = 0; r < ranks(); ++r) parts_.push_back(r == self_ ? own : of_rank(r));
  return parts_;
}

std::span<const Memory> DirectRounds::sums_of(const Round& round) {
  return in_rank_order(round.call.work.sums,
                       [&](std::uint32_t r) { return staging_.sums(round.channel, round.shape.sequence, r); });
}

void DirectRounds::watch_own_work(Round& round) {
  const Point done = exchange_.mark();
  space_.timeline(done.line).wake(done.value, round);
}

/// Others' gradients over `own`, a part of a bucket, and this rank's, which begin at element `first`.
std::span<const Memory> DirectRounds::gradients_of(const RoundShape& shape, const Memory& gradients, const Part& own) {
  const std::uint32_t bucket = shape.bucket;
  if (is_filtered(shape)) {
    for (std::uint32_t r = 0; r < ranks(); ++r) {
      if (r == self_) continue;
      group_.filter->unpack(exchange_, staging_.gradients(bucket, r, own), staging_.packed(bucket, r, own));
    }
  }
  const std::uint64_t first = group_.buckets[bucket].first;
  return in_rank_order(elements(gradients, own.first - first, own.count, sizeof(float)),
                       [&](std::uint32_t r) { return staging_.gradients(bucket, r, own); });
}

void DirectRounds::add_up_and_update(Round& round) {
  const Call& call = round.call;
  if (!has_own_work(round.shape)) return;
  const Memory total = staging_.total(round.channel, round.shape.sequence);
  exchange_.sum_up(total, sums_of(round));
  if (round.shape.sums) exchange_.copy(call.work.total, total);
  const Part own = part_of(round.shape, self_);
  if (own.count > 0) {
    Stripe stripe = call.mine.stripe;
    stripe.first = own.first;
    stripe.count = own.count;
    exchange_.update(call.rule, call.work.update, slice_of(call.mine, stripe, call.rule.kind),
                     gradients_of(round.shape, call.data, own), total);
  }
  watch_own_work(round);
}

void DirectRounds::update_own_part(Round& round) {
  const Call& call = round.call;
  const Part own = part_of(round.shape, self_);
  if (own.count == 0) return;
  Stripe stripe = call.mine.stripe;
  stripe.first = own.first;
  stripe.count = own.count;
  const Memory summed = elements(call.data, own.first - call.work.bucket.first, own.count, sizeof(float));
  exchange_.update(call.rule, call.work.update, slice_of(call.mine, stripe, call.rule.kind), {&summed, 1},
                   call.work.total);
  watch_own_work(round);
}

/// Over this rank's whole part of the bucket at once: what is measured is added up in the same order, however the
/// bucket was cut.
void DirectRounds::measure(Call& call) {
  const RoundShape& shape = call.rounds.front().shape;
  const Part own = ownership_.part_of(shape.bucket, self_);
  if (own.count == 0) return;
  const Memory sum = elements(call.data, own.first - call.work.bucket.first, own.count, sizeof(float));
  exchange_.measure(sum, gradients_of(shape, call.data, own), call.work.sums, own.first);
  const Point done = exchange_.mark();
  for (Round& round : call.rounds)
    if (has_own_work(round.shape)) space_.timeline(done.line).wake(done.value, round);
}

void DirectRounds::add_up_sums(Round& round) {
  exchange_.sum_up(round.call.work.total, sums_of(round));
  watch_own_work(round);
}

void DirectRounds::reduce_own_part(Round& round) {
  const Part own = part_of(round.shape, self_);
  if (own.count == 0) return;
  const Memory sum = elements(round.call.data, own.first, own.count, sizeof(float));
  exchange_.reduce(sum, in_rank_order(sum, [&](std::uint32_t r) { return staging_.reduced(r, own.count); }));
  watch_own_work(round);
}

void DirectRounds::own_work_done(Round& round) noexcept {
  guarded([&] {
    const std::size_t channel = round.channel;
    RoundWindow& window = channels_[channel].window;
    const std::uint64_t sequence = round.shape.sequence;
    if (has_result(round.shape, self_)) {
      window.results_leave();
      send(round.results);
    }
    window.own_work_done(sequence);
    advance(channel);
    outbox_.pump();
  });
}

// ---- Messages ----

namespace {

/// The next step reads the buckets in the opposite order of that in which a backward pass finishes them.
Urgency urgency_of(const Flow& flow) noexcept {
  const RoundShape& shape = flow.round.shape;
  return {.kind = flow.results ? 1U : 0U, .bucket = ~shape.bucket};
}

}  // namespace

Memory DirectRounds::payload_of(const Delivery& delivery) const {
  const Flow& flow = delivery.flow;
  const RoundShape& shape = flow.round.shape;
  const Call& call = flow.round.call;
  const Part part = part_of(shape, flow.results ? self_ : delivery.to);
  if (part.count == 0) return {};
  if (flow.results) {
    if (shape.reduces) return elements(call.data, part.first, part.count, sizeof(float));
    if (delivery.bf16) return elements(group_.half, part.first, part.count, kBf16Bytes);
    return elements(group_.parameters, part.first, part.count, sizeof(float));
  }
  if (shape.reduces) return elements(call.data, part.first, part.count, sizeof(float));
  if (!carries_gradients(shape)) return {};
  if (is_filtered(shape)) return staging_.leaving(shape.bucket, part);
  return elements(call.data, part.first - group_.buckets[shape.bucket].first, part.count, sizeof(float));
}

void DirectRounds::send(Flow& flow) {
  const RoundShape& shape = flow.round.shape;
  const auto is_due = [&](const Delivery& delivery) {
    if (!flow.results) return contributes_to(shape, delivery.to);
    return !delivery.bf16 || (!shape.reduces && group_.half.size_bytes > 0);
  };
  flow.left = static_cast<std::uint32_t>(std::count_if(flow.deliveries.begin(), flow.deliveries.end(), is_due));
  if (flow.left == 0) return finished(flow);
  for (Delivery& delivery : flow.deliveries) {
    if (!is_due(delivery)) continue;
    delivery.size_bytes = payload_of(delivery).size_bytes;
    outbox_.add(delivery, urgency_of(flow));
  }
}

/// False: the transport has no room.
bool DirectRounds::try_send(Delivery& delivery) {
  if (failed()) return true;  // nobody waits for it
  const Flow& flow = delivery.flow;
  DirectHead head;
  head.cargo = !flow.results ? Cargo::contribution : delivery.bf16 ? Cargo::half_result : Cargo::result;
  head.view = group_.view.value;
  head.rank = self_;
  head.group = group_.id;
  head.round = flow.round.shape;
  if (!flow.results && carries_sums(head.round)) head.sums = *space_.address_of<const StepSums>(flow.round.call.work.sums);
  const Memory payload = payload_of(delivery);
  const std::span<const Memory> pieces{&payload, payload.size_bytes > 0 ? 1u : 0u};
  return loop_.transport().send(group_.peers[delivery.to], Lane::bulk, Class::gradient, Channel::exchange, encode(head),
                                pieces, delivery);
}

void DirectRounds::sent(Delivery& delivery, const Status& status) noexcept {
  outbox_.sent(delivery);
  if (!status.ok())
    fail({status.code(), text("rank ", delivery.to, " did not get what was sent to it: ", status.text())});
  guarded([&] {
    Flow& flow = delivery.flow;
    const std::size_t channel = flow.round.channel;
    if (--flow.left == 0) {
      finished(flow);
      advance(channel);
    }
    outbox_.pump();
  });
}

/// All of it is out: its memory is not read any more.
void DirectRounds::finished(Flow& flow) {
  RoundWindow& window = channels_[flow.round.channel].window;
  const std::uint64_t sequence = flow.round.shape.sequence;
  if (!flow.results) return window.contributions_sent(sequence);
  window.results_sent(sequence);
  release(flow.round.call);
}

/// The head of a message that may come now; Error for one that may not, nothing for one of an earlier view.
std::optional<DirectHead> DirectRounds::accept(Peer from, std::span<const std::byte> bytes, std::uint64_t size_bytes) {
  const std::optional<DirectHead> head = decode(bytes);
  TROUPE_CHECK(head, Code::corrupt, "peer ", from.value, " sent an exchange message with a head of ", bytes.size(),
               " bytes that is none");
  if (head->view < group_.view.value) return std::nullopt;
  TROUPE_CHECK(head->group == group_.id, Code::corrupt, "peer ", from.value, " sent an exchange message of group ",
               head->group.value, " to group ", group_.id.value);
  TROUPE_CHECK(head->view == group_.view.value && head->rank < ranks() && head->rank != self_ &&
                   group_.peers[head->rank] == from,
               Code::corrupt, "peer ", from.value, " sent an exchange message as rank ", head->rank, " of view ",
               head->view, ", which it is not in view ", group_.view.value);
  const RoundShape& shape = head->round;
  TROUPE_CHECK(is_known(shape), Code::invalid, "rank ", head->rank, " is at ", describe(shape), ", which rank ", self_,
               " does not have");
  const bool due = is_due(*head);
  const std::uint64_t expected = due ? expected_bytes(*head) : 0;
  TROUPE_CHECK(due && size_bytes == expected, Code::corrupt, "rank ", head->rank, " sent ", size_bytes, " bytes for ",
               describe(shape), ", ", expected, " were expected");
  Status status = channels_[channel_of(shape)].window.enter(Rank{head->rank}, shape, head->cargo);
  if (status.ok()) status = order_.agree(Rank{head->rank}, shape);
  TROUPE_CHECK(status.ok(), status.code(), status.text());
  return head;
}

/// Whether this group has such a round, so that the rest can be looked up.
bool DirectRounds::is_known(const RoundShape& shape) const {
  if (shape.reduces) {
    return shape.elements > 0 && shape.elements <= most_reduced() && !shape.sums && shape.part == RoundPart::all;
  }
  if (shape.bucket >= group_.buckets.size()) return false;
  if (shape.part == RoundPart::sums) return shape.sums && shape.chunk == 0 && shape.elements == 0;
  return shape.chunk < ownership_.chunks_of(shape.bucket).size() && shape.elements == chunk_of(shape).count &&
         (!shape.sums || shape.part == RoundPart::all);
}

bool DirectRounds::is_due(const DirectHead& head) const {
  const RoundShape& shape = head.round;
  if (head.cargo == Cargo::contribution) return contributes_to(shape, self_);
  const bool image = group_.half.size_bytes > 0 && !shape.reduces;
  return has_result(shape, head.rank) && (head.cargo == Cargo::result || image);
}

std::uint64_t DirectRounds::expected_bytes(const DirectHead& head) const {
  const RoundShape& shape = head.round;
  if (head.cargo != Cargo::contribution)
    return part_of(shape, head.rank).count * (head.cargo == Cargo::half_result ? kBf16Bytes : sizeof(float));
  if (!shape.reduces && !carries_gradients(shape)) return 0;
  return part_of(shape, self_).count * (is_filtered(shape) ? group_.filter->packed_bytes() : sizeof(float));
}

/// Whether the message says that a rank's exchange has ended; if so, this one ends.
bool DirectRounds::hear_abort(Peer from, std::span<const std::byte> bytes) {
  const std::optional<AbortNotice> notice = decode_abort_notice(bytes);
  if (!notice) return false;
  const bool known = notice->rank < ranks() && group_.peers[notice->rank] == from;
  if (known && notice->view == group_.view.value) {
    fail({notice->why.code(), text("rank ", notice->rank, ": ", notice->why.text())});
  }
  return true;
}

Memory DirectRounds::landing_of(const DirectHead& head) const {
  const RoundShape& shape = head.round;
  if (head.cargo == Cargo::contribution) {
    const Part own = part_of(shape, self_);
    if (shape.reduces) return staging_.reduced(head.rank, own.count);
    return is_filtered(shape) ? staging_.packed(shape.bucket, head.rank, own)
                              : staging_.gradients(shape.bucket, head.rank, own);
  }
  const Part part = part_of(shape, head.rank);
  if (head.cargo == Cargo::half_result) return elements(group_.half, part.first, part.count, kBf16Bytes);
  if (!shape.reduces) return elements(group_.parameters, part.first, part.count, sizeof(float));
  // In place: its owner has read what this rank contributed before it has a result to send.
  const Round& own = *channels_[channel_of(shape)].rounds[shape.sequence % 2];
  return elements(own.call.data, part.first, part.count, sizeof(float));
}

Memory DirectRounds::landing(Peer from, Lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept {
  Memory place;
  guarded([&] {
    if (const std::optional<DirectHead> accepted = accept(from, head, size_bytes)) place = landing_of(*accepted);
  });
  return place;
}

void DirectRounds::arrived(Peer from, Lane, std::span<const std::byte> head, Memory payload) noexcept {
  guarded([&] {
    if (payload.size_bytes == 0 && hear_abort(from, head)) return;
    // With a payload, landing() has accepted it.
    const std::optional<DirectHead> here = payload.size_bytes > 0 ? decode(head) : accept(from, head, 0);
    if (!here) return;
    const RoundShape& shape = here->round;
    const std::size_t channel = channel_of(shape);
    if (here->cargo == Cargo::contribution && carries_sums(shape))
      *space_.address_of<StepSums>(staging_.sums(channel, shape.sequence, here->rank)) = here->sums;
    channels_[channel].window.arrived(shape.sequence, here->cargo);
    advance(channel);
    outbox_.pump();
  });
}

void DirectRounds::dropped(Peer from, Lane, Memory payload, const Status& why) noexcept {
  if (payload.size_bytes == 0) return;  // refused by landing(), which has said why
  fail({why.code(), text(name_of(from), " did not finish what it sent: ", why.text())});
}

void DirectRounds::lost(Peer peer, const Status& why) noexcept {
  const bool ours = std::find(group_.peers.begin(), group_.peers.end(), peer) != group_.peers.end();
  if (ours) fail({Code::peer_lost, text(name_of(peer), " is lost: ", why.text())});
}

std::string DirectRounds::name_of(Peer peer) const {
  const auto place = std::find(group_.peers.begin(), group_.peers.end(), peer);
  return place == group_.peers.end() ? text("peer ", peer.value) : text("rank ", place - group_.peers.begin());
}

}  // namespace troupe::collectives
