#include "transports/collectives/detail/direct_rounds.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/exchange/exchange.hpp"

// The lane's side, and what both sides need. The caller's side is in direct_communicator.cpp.
namespace troupe::collectives {
namespace {

bool is_plain(const RoundShape& shape) noexcept { return shape.plain != PlainOperation::none; }

bool reduces(const RoundShape& shape) noexcept {
  return shape.plain == PlainOperation::all_reduce || shape.plain == PlainOperation::reduce_scatter;
}

/// Whether what a plain operation makes of a part goes to the ranks that do not own it; otherwise they only hear that
/// it is made, so that none goes on before all have come so far.
bool spreads(const RoundShape& shape) noexcept {
  return shape.plain == PlainOperation::all_reduce || shape.plain == PlainOperation::all_gather;
}

bool carries_gradients(const RoundShape& shape) noexcept {
  return shape.part == RoundPart::all || shape.part == RoundPart::gradients;
}

bool carries_parameters(const RoundShape& shape) noexcept {
  return shape.part == RoundPart::all || shape.part == RoundPart::parameters;
}

DirectGroup with_names(DirectGroup group) {
  for (std::uint32_t r = 0; group.names.size() < group.peers.size(); ++r) group.names.push_back({r});
  if (group.blamed.empty()) group.blamed = group.names;
  return group;
}

/// Calls that may be under way at all ranks together, on any line: two of each.
std::size_t remembered_calls(const Ownership& ownership) { return 4 * (ownership.count_buckets() + 2); }

}  // namespace

StagingNeeds staging_needs(const DirectGroup& group) noexcept {
  return {.packed_bytes = group.filter != nullptr ? group.filter->packed_bytes() : 0,
          .device_memory = group.device_memory,
          .bf16 = group.bf16.size_bytes > 0};
}

bool carries_sums(const RoundShape& shape) noexcept {
  return !is_plain(shape) && (shape.part == RoundPart::all || shape.part == RoundPart::sums);
}

DirectRounds::DirectRounds(AddressSpace& space, LaneLoop& loop, Stream& exchange, DirectGroup group)
    : space_(space),
      loop_(loop),
      exchange_(exchange),
      group_(with_names(std::move(group))),
      self_(group_.rank.value),
      ownership_(group_.stripes, group_.buckets, static_cast<std::uint32_t>(group_.peers.size()), group_.chunk),
      staging_(ownership_, self_, staging_needs(group_)),
      order_(remembered_calls(ownership_)),
      outbox_(loop, ranks(), [this](Outbox::Message& message) { return try_send(static_cast<Delivery&>(message)); }) {
  TROUPE_CHECK(loop.lane() == Lane::bulk, Code::invalid, "gradients travel on the bulk lane");
  TROUPE_CHECK(self_ < ranks() && !group_.buckets.empty(), Code::invalid, "rank ", self_, " of ", ranks(), " with ",
               group_.buckets.size(), " buckets");
  std::uint64_t end = 0;
  for (const Bucket& bucket : group_.buckets) end = std::max(end, bucket.first + bucket.count);
  TROUPE_CHECK(group_.parameters.size_bytes >= end * sizeof(float) &&
                   (group_.bf16.size_bytes == 0 || group_.bf16.size_bytes * 2 == group_.parameters.size_bytes),
               Code::invalid, end, " elements are exchanged, the memory is of ", group_.parameters.size_bytes,
               " bytes of parameters and ", group_.bf16.size_bytes, " of their bf16 image");
  TROUPE_CHECK(group_.residual.size_bytes == 0 ||
                   (group_.filter != nullptr && group_.residual.size_bytes == group_.parameters.size_bytes),
               Code::invalid, "a residual of ", group_.residual.size_bytes, " bytes for ", group_.parameters.size_bytes,
               " of parameters, ", group_.filter != nullptr ? "which are packed" : "of which nothing is packed");
  TROUPE_CHECK(group_.staging.size_bytes >= staging_.size_bytes(), Code::invalid, "the staging memory has ",
               group_.staging.size_bytes, " bytes, ", staging_.size_bytes(), " are needed");
  for (const Memory& memory : {group_.parameters, group_.bf16, group_.residual, group_.staging}) {
    if (memory.size_bytes == 0) continue;
    (void)space_.address(memory);  // throws when it is not mapped here
    const bool passes = group_.device_memory && memory != group_.staging;
    TROUPE_CHECK(passes || space_.kind(memory.arena) != MemoryKind::device, Code::invalid,
                 "a transport reaches no device memory: DirectGroup::device_memory must say that what travels is "
                 "staged, and the staging memory must be the host's");
  }
  staging_.place(group_.staging);
  const auto add_line = [this](std::size_t first_channel, std::size_t count_channels) {
    Line& line = lines_.emplace_back();
    line.own.emplace(space_);
    line.over = &line.own->line();
    line.first_channel = first_channel;
    line.count_channels = count_channels;
  };
  for (std::uint32_t b = 0; b < group_.buckets.size(); ++b)
    add_line(ownership_.first_chunk(b), ownership_.chunks_of(b).size());
  add_line(staging_.channel_of_plain(), 1);
  add_line(staging_.channel_of_sums(), 1);
  for (std::size_t c = 0; c < staging_.count_channels(); ++c) {
    ChunkRounds& channel = channels_.emplace_back(self_, group_.names);
    for (std::uint32_t i = 0; group_.device_memory && i < 4 * ranks(); ++i) channel.staged.emplace_back(*this, c);
  }
  parts_.reserve(ranks());
  for (std::uint32_t r = 0; r < ranks(); ++r)
    blamed_so_far_.push_back({group_.blamed[r == 1 ? 0 : r], group_.blamed[r]});
  for (std::uint32_t r = 0; group_.trace != nullptr && r < ranks(); ++r) {
    const bool other = r != self_;
    links_.push_back({other ? &group_.trace->row(text("to rank ", name(r).value)) : nullptr, {}});
  }
}

// ---- What rounds are about ----

const Chunk& DirectRounds::chunk_of(const RoundShape& shape) const noexcept {
  return ownership_.chunks_of(shape.bucket)[shape.chunk];
}

/// What of an update's round `rank` adds up and sends the result of.
Part DirectRounds::part_of(const RoundShape& shape, std::uint32_t rank) const {
  if (shape.part == RoundPart::sums) return {};
  return ownership_.part_of(chunk_of(shape), rank);
}

/// Whether something of the round is `rank`'s to add up, to update or to send to all.
bool DirectRounds::owns(const Round& round, std::uint32_t rank) const {
  if (is_plain(round.shape)) return round.call.parts[rank].size_bytes > 0;
  return part_of(round.shape, rank).count > 0;
}

/// Whether `rank` tells everybody else of a result, with payload or without.
bool DirectRounds::has_result(const Round& round, std::uint32_t rank) const {
  return (is_plain(round.shape) || carries_parameters(round.shape)) && owns(round, rank);
}

/// Whether `rank` gets a contribution from everybody else: it owns something, or adds up at least the sums. Without
/// payload it says that the sender has come so far.
bool DirectRounds::contributes_to(const Round& round, std::uint32_t rank) const {
  return round.shape.plain == PlainOperation::barrier || round.shape.sums || owns(round, rank);
}

bool DirectRounds::is_filtered(const RoundShape& shape) const noexcept {
  return group_.filter != nullptr && ranks() > 1 && !is_plain(shape) && carries_gradients(shape);
}

/// Whether contributions leave from the staging memory.
bool DirectRounds::is_staged(const RoundShape& shape) const noexcept {
  return ranks() > 1 && (group_.filter != nullptr || group_.device_memory) && !is_plain(shape) &&
         carries_gradients(shape);
}

/// Where the call's sums are read from when they leave: of all its rounds in one place.
Memory DirectRounds::own_sums(const Call& call) const noexcept {
  if (!group_.device_memory) return call.work.sums;
  const Round& first = call.rounds.front();
  return staging_.sums(first.channel, first.shape.sequence, self_);
}

bool DirectRounds::has_own_work(const Round& round) const { return contributes_to(round, self_); }

RoundWindow::Expected DirectRounds::expected(const Round& round) const {
  RoundWindow::Expected all;
  if (contributes_to(round, self_)) all.contributions = ranks() - 1;
  const bool plain = is_plain(round.shape);
  const std::uint32_t each = !plain && group_.bf16.size_bytes > 0 ? 2 : 1;
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    if (r != self_ && has_result(round, r)) all.results += each;
  }
  all.own_work = has_own_work(round);
  // An update's results lie in the parameters, which the chunk's next update writes, and that one waits for them. What
  // a plain operation leaves is the caller's at once.
  all.own_results_first = plain && has_result(round, self_);
  return all;
}

std::size_t DirectRounds::channel_of(const RoundShape& shape) const noexcept {
  if (is_plain(shape)) return staging_.channel_of_plain();
  if (shape.part == RoundPart::sums) return staging_.channel_of_sums();
  return ownership_.first_chunk(shape.bucket) + shape.chunk;
}

/// This rank's round of that shape, if its call has come so far.
const Round* DirectRounds::begun(const RoundShape& shape) const noexcept {
  const ChunkRounds& channel = channels_[channel_of(shape)];
  const std::size_t place = shape.sequence % 2;
  return channel.begun[place] == shape.sequence ? channel.rounds[place] : nullptr;
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
    if (is_plain(shape) || shape.part == RoundPart::all) return begin(call);
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
    Status status = order_.agree(name(self_), round.shape);
    ChunkRounds& channel = channels_[round.channel];
    channel.rounds[round.shape.sequence % 2] = &round;
    channel.begun[round.shape.sequence % 2] = round.shape.sequence;
    if (status.ok()) status = channel.window.announce(round.shape, expected(round));
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
  exchange_.about(label_of(round.shape));
  if (is_plain(round.shape)) return do_plain(round);
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
        exchange_.about(label_of(call.rounds.front().shape));
        reduce_with_norm(call);
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
        if (group_.device_memory) exchange_.copy(own_sums(call), call.work.sums);
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

bool DirectRounds::is_idle() const noexcept {
  const std::lock_guard lock{mutex_};
  return std::all_of(lines_.begin(), lines_.end(),
                     [](const Line& line) { return line.free.size() == line.calls.size(); });
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

WorkLabel DirectRounds::label_of(const RoundShape& shape) const noexcept {
  if (is_plain(shape)) return {};
  return {shape.step, shape.bucket / group_.ranges_a_bucket};
}

void DirectRounds::watch_own_work(Round& round) {
  const Point done = exchange_.mark();
  space_.timeline(done.line).wake(done.value, round);
}

/// Of a bucket's `gradients`, this rank's over `own` and others', in the order of ranks; or added up where they came
/// packed.
std::span<const Memory> DirectRounds::gradients_of(const RoundShape& shape, const Memory& gradients, const Part& own) {
  const std::uint32_t bucket = shape.bucket;
  const Memory mine = elements(gradients, own.first - group_.buckets[bucket].first, own.count, sizeof(float));
  if (!is_filtered(shape))
    return in_rank_order(mine, [&](std::uint32_t r) { return staging_.contribution(bucket, r, own); });
  parts_.assign({add_up_packed(bucket, mine, own)});
  return parts_;
}

/// What `rank` has packed of `own`; empty: this rank's gradients are added up as they are. With error feedback its own
/// are packed like all others, so that what stands in its residual counts, whoever owns the element.
Memory DirectRounds::packed(std::uint32_t bucket, std::uint32_t rank, const Part& own) const noexcept {
  if (rank != self_) return staging_.contribution(bucket, rank, own);
  return group_.residual.size_bytes != 0 ? staging_.leaving(bucket, own) : Memory{};
}

Memory DirectRounds::add_up_packed(std::uint32_t bucket, const Memory& mine, const Part& own) {
  const Memory sum = staging_.summed(own.count);
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    const Memory part = packed(bucket, r, own);
    if (part.size_bytes == 0)
      r == 0 ? exchange_.copy(sum, mine) : exchange_.reduce(sum, std::array{sum, mine});
    else
      r == 0 ? group_.filter->unpack(exchange_, sum, part) : group_.filter->unpack_add(exchange_, sum, part);
  }
  return sum;
}

/// Into `mine`, part by part, so that it is seen with whose part the sum stops being finite; the least element, and of
/// that the first rank, stays in `sums`.
void DirectRounds::add_up_packed_with_norm(std::uint32_t bucket, const Memory& mine, const Part& own,
                                           const Memory& sums) {
  Memory so_far;
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    const Memory from = packed(bucket, r, own);
    const Memory part = from.size_bytes == 0 ? mine
                        : r == 0             ? staging_.summed(own.count)
                                             : staging_.unpacked(own.count);
    if (from.size_bytes != 0) group_.filter->unpack(exchange_, part, from);
    const bool last = r + 1 == ranks();
    if (r > 0) {
      const Memory to = last ? mine : staging_.summed(own.count);
      exchange_.reduce_with_norm(to, std::array{so_far, part}, {sums, own.first, blamed_so_far_[r], last});
      so_far = to;
    } else {
      so_far = part;
    }
  }
}

void DirectRounds::add_up_and_update(Round& round) {
  const Call& call = round.call;
  if (!has_own_work(round)) return;
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
    stage_results(own);
  }
  watch_own_work(round);
}

/// Others are sent copies.
void DirectRounds::stage_results(const Part& own) {
  if (!group_.device_memory) return;
  exchange_.copy(staging_.results(own), elements(group_.parameters, own.first, own.count, sizeof(float)));
  if (group_.bf16.size_bytes > 0)
    exchange_.copy(staging_.image(own), elements(group_.bf16, own.first, own.count, kBf16Bytes));
}

/// What has arrived goes where it belongs; only then has the round come so far.
void DirectRounds::unstage(const DirectHead& head) {
  const RoundShape& shape = head.round;
  const Part part = part_of(shape, head.rank);
  const bool image = head.cargo == Cargo::bf16_result;
  exchange_.about(label_of(shape));
  if (image)
    exchange_.copy(elements(group_.bf16, part.first, part.count, kBf16Bytes), staging_.image(part));
  else
    exchange_.copy(elements(group_.parameters, part.first, part.count, sizeof(float)), staging_.results(part));
  StagedResult& result =
      channels_[channel_of(shape)].staged[(shape.sequence % 2 * ranks() + head.rank) * 2 + (image ? 1 : 0)];
  result.sequence = shape.sequence;
  result.cargo = head.cargo;
  const Point done = exchange_.mark();
  space_.timeline(done.line).wake(done.value, result);
}

void DirectRounds::unstaged(const StagedResult& result) noexcept {
  guarded([&] {
    channels_[result.channel].window.arrived(result.sequence, result.cargo);
    advance(result.channel);
    outbox_.pump();
  });
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
  stage_results(own);
  watch_own_work(round);
}

/// Over this rank's whole part of the bucket at once: what is measured is added up in the same order, however the
/// bucket was cut.
void DirectRounds::reduce_with_norm(Call& call) {
  const RoundShape& shape = call.rounds.front().shape;
  const Part own = ownership_.part_of(shape.bucket, self_);
  if (own.count == 0) return;
  const Memory sum = elements(call.data, own.first - call.work.bucket.first, own.count, sizeof(float));
  if (is_filtered(shape))
    add_up_packed_with_norm(shape.bucket, sum, own, call.work.sums);
  else
    exchange_.reduce_with_norm(sum, gradients_of(shape, call.data, own), {call.work.sums, own.first, group_.blamed});
  const Point done = exchange_.mark();
  for (Round& round : call.rounds)
    if (has_own_work(round)) space_.timeline(done.line).wake(done.value, round);
}

void DirectRounds::add_up_sums(Round& round) {
  exchange_.sum_up(round.call.work.total, sums_of(round));
  watch_own_work(round);
}

void DirectRounds::do_plain(Round& round) {
  if (!has_own_work(round)) return;
  const Memory& own = round.call.parts[self_];
  if (reduces(round.shape))
    exchange_.reduce(own, in_rank_order(own, [&](std::uint32_t r) { return staging_.reduced(r, own.size_bytes); }));
  watch_own_work(round);
}

void DirectRounds::own_work_done(Round& round) noexcept {
  guarded([&] {
    const std::size_t channel = round.channel;
    RoundWindow& window = channels_[channel].window;
    const std::uint64_t sequence = round.shape.sequence;
    if (has_result(round, self_)) {
      window.results_leave();
      send(round.results);
    }
    window.own_work_done(sequence);
    advance(channel);
    outbox_.pump();
  });
}

// ---- Messages ----

/// The next step reads the buckets in the opposite order of that in which a backward pass finishes them.
Urgency DirectRounds::urgency_of(const Flow& flow) const noexcept {
  return {.kind = flow.results ? 1U : 0U, .bucket = ~(flow.round.shape.bucket / group_.ranges_a_bucket)};
}

Memory DirectRounds::payload_of(const Delivery& delivery) const {
  const Flow& flow = delivery.flow;
  const RoundShape& shape = flow.round.shape;
  const Call& call = flow.round.call;
  const std::uint32_t owner = flow.results ? self_ : delivery.to;
  if (is_plain(shape)) return (flow.results ? spreads(shape) : reduces(shape)) ? call.parts[owner] : Memory{};
  const Part part = part_of(shape, owner);
  if (part.count == 0) return {};
  if (group_.device_memory && flow.results) return delivery.bf16 ? staging_.image(part) : staging_.results(part);
  if (delivery.bf16) return elements(group_.bf16, part.first, part.count, kBf16Bytes);
  if (flow.results) return elements(group_.parameters, part.first, part.count, sizeof(float));
  if (!carries_gradients(shape)) return {};
  if (is_staged(shape)) return staging_.leaving(shape.bucket, part);
  return elements(call.data, part.first - group_.buckets[shape.bucket].first, part.count, sizeof(float));
}

void DirectRounds::send(Flow& flow) {
  const auto is_due = [&](const Delivery& delivery) {
    if (!flow.results) return contributes_to(flow.round, delivery.to);
    return !delivery.bf16 || (!is_plain(flow.round.shape) && group_.bf16.size_bytes > 0);
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
  head.cargo = !flow.results ? Cargo::contribution : delivery.bf16 ? Cargo::bf16_result : Cargo::result;
  head.view = group_.view.value;
  head.rank = self_;
  head.group = group_.id;
  head.round = flow.round.shape;
  if (!flow.results && carries_sums(head.round))
    head.sums = *space_.address_of<const StepSums>(own_sums(flow.round.call));
  const Memory payload = payload_of(delivery);
  const std::span<const Memory> pieces{&payload, payload.size_bytes > 0 ? 1u : 0u};
  return loop_.transport().send(group_.peers[delivery.to], Lane::bulk, Class::gradient, Channel::exchange, encode(head),
                                pieces, delivery);
}

/// Messages to one rank leave one after the other, so one is on the link from when the one before it was out.
void DirectRounds::note(const Delivery& delivery) noexcept {
  Link& link = links_[delivery.to];
  const Clock::time_point begun = std::max(delivery.handed_over, link.sent);
  link.sent = Clock::now();
  const RoundShape& shape = delivery.flow.round.shape;
  const char* const phase = delivery.size_bytes == 0 ? "send sums"
                            : delivery.flow.results  ? "send parameters"
                                                     : "send gradients";
  link.row->span(is_plain(shape) ? "send" : phase, begun, link.sent, label_of(shape));
}

void DirectRounds::sent(Delivery& delivery, const Status& status) noexcept {
  outbox_.sent(delivery);
  if (!links_.empty()) note(delivery);
  if (!status.ok())
    fail({status.code(), text("rank ", name(delivery.to).value, " did not get what was sent to it: ", status.text())});
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
  const Rank sender = name(head->rank);
  TROUPE_CHECK(is_known(shape), Code::invalid, "rank ", sender.value, " is at ", describe(shape), ", which rank ",
               name(self_).value, " does not have");
  const bool due = is_due(*head);
  const std::uint64_t expected = due ? expected_bytes(*head, size_bytes) : 0;
  TROUPE_CHECK(due && size_bytes == expected, Code::corrupt, "rank ", sender.value, " sent ", size_bytes, " bytes for ",
               describe(shape), ", ", expected, " were expected");
  Status status = channels_[channel_of(shape)].window.enter(head->rank, shape, head->cargo);
  if (status.ok()) status = order_.agree(sender, shape);
  TROUPE_CHECK(status.ok(), status.code(), status.text());
  return head;
}

/// Whether this group has such a round, so that the rest can be looked up.
bool DirectRounds::is_known(const RoundShape& shape) const {
  if (is_plain(shape)) return !shape.sums && shape.part == RoundPart::all;
  if (shape.bucket >= group_.buckets.size()) return false;
  if (shape.part == RoundPart::sums) return shape.sums && shape.chunk == 0 && shape.elements == 0;
  return shape.chunk < ownership_.chunks_of(shape.bucket).size() && shape.elements == chunk_of(shape).count &&
         (!shape.sums || shape.part == RoundPart::all);
}

/// Of a plain operation that this rank has not come to, only others know the parts; that they are the same everywhere
/// is seen when it comes there.
bool DirectRounds::is_due(const DirectHead& head) const {
  const RoundShape& shape = head.round;
  const bool contributes = head.cargo == Cargo::contribution;
  if (is_plain(shape)) {
    const Round* const own = begun(shape);
    if (own == nullptr) return head.cargo != Cargo::bf16_result;
    return contributes ? contributes_to(*own, self_) : has_result(*own, head.rank) && head.cargo == Cargo::result;
  }
  if (contributes) return shape.sums || part_of(shape, self_).count > 0;
  const bool image = group_.bf16.size_bytes > 0;
  return carries_parameters(shape) && part_of(shape, head.rank).count > 0 && (head.cargo == Cargo::result || image);
}

/// How many there must be where `found` came.
std::uint64_t DirectRounds::expected_bytes(const DirectHead& head, std::uint64_t found) const {
  const RoundShape& shape = head.round;
  const bool contributes = head.cargo == Cargo::contribution;
  if (is_plain(shape)) {
    if (!(contributes ? reduces(shape) : spreads(shape))) return 0;
    const Round* const own = begun(shape);
    if (own == nullptr) return std::min(found / sizeof(float) * sizeof(float), most_reduced());
    return own->call.parts[contributes ? self_ : head.rank].size_bytes;
  }
  if (!contributes)
    return part_of(shape, head.rank).count * (head.cargo == Cargo::bf16_result ? kBf16Bytes : sizeof(float));
  if (!carries_gradients(shape)) return 0;
  return part_of(shape, self_).count * (is_filtered(shape) ? group_.filter->packed_bytes() : sizeof(float));
}

/// Whether the message says that a rank's exchange has ended; if so, this one ends.
bool DirectRounds::hear_abort(Peer from, std::span<const std::byte> bytes) {
  const std::optional<AbortNotice> notice = decode_abort_notice(bytes);
  if (!notice) return false;
  const bool known = notice->rank < ranks() && group_.peers[notice->rank] == from;
  if (known && notice->view == group_.view.value) {
    fail({notice->why.code(), text("rank ", name(notice->rank).value, ": ", notice->why.text())});
  }
  return true;
}

Memory DirectRounds::landing_of(const DirectHead& head, std::uint64_t size_bytes) const {
  const RoundShape& shape = head.round;
  if (is_plain(shape)) {
    if (head.cargo == Cargo::contribution) return staging_.reduced(head.rank, size_bytes);
    // In place: its owner has read what this rank contributed before it has a result to send.
    return begun(shape)->call.parts[head.rank];
  }
  if (head.cargo == Cargo::contribution) {
    const Part own = part_of(shape, self_);
    return staging_.contribution(shape.bucket, head.rank, own);
  }
  const Part part = part_of(shape, head.rank);
  if (group_.device_memory) return head.cargo == Cargo::bf16_result ? staging_.image(part) : staging_.results(part);
  if (head.cargo == Cargo::bf16_result) return elements(group_.bf16, part.first, part.count, kBf16Bytes);
  return elements(group_.parameters, part.first, part.count, sizeof(float));
}

Memory DirectRounds::landing(Peer from, Lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept {
  Memory place;
  guarded([&] {
    if (const std::optional<DirectHead> accepted = accept(from, head, size_bytes))
      place = landing_of(*accepted, size_bytes);
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
    if (group_.device_memory && here->cargo != Cargo::contribution && payload.size_bytes > 0 && !is_plain(shape))
      return unstage(*here);
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
  return place == group_.peers.end()
             ? text("peer ", peer.value)
             : text("rank ", group_.names[static_cast<std::size_t>(place - group_.peers.begin())].value);
}

}  // namespace troupe::collectives
