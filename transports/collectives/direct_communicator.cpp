#include "transports/collectives/direct_communicator.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/hash.hpp"
#include "runtime/exchange/exchange.hpp"
#include "transports/collectives/detail/direct_rounds.hpp"

namespace troupe {
namespace collectives {

// The caller's side: it only enqueues.

Call& DirectRounds::take(std::size_t place, const RoundShape& common) {
  Line& line = lines_[place];
  const std::lock_guard lock{mutex_};
  if (line.free.empty()) {
    line.free.push_back(
        &line.calls.emplace_back(*this, place, line.first_channel, line.count_channels, self_, ranks()));
    line.free.reserve(line.calls.size());  // giving back never allocates
  }
  Call& call = *line.free.back();
  line.free.pop_back();
  call.number = ++line.enqueued;
  call.verdict = common.plain != PlainOperation::none || common.part == RoundPart::all ? 0 : ++verdict_calls_;
  call.begun = false;
  call.gathered = call.over = 0;
  call.uses = call.verdict != 0 ? 1 : 0;
  ++calls_;
  for (Round& round : call.rounds) {
    round.shape = common;
    round.shape.sequence = call.number;
    round.shape.call = calls_;
  }
  return call;
}

/// A call about a bucket, with a round for each of its chunks.
Call& DirectRounds::take(RoundPart part, const BucketWork& work, const StripeMemory& mine) {
  check(work, mine);
  const std::uint32_t bucket = work.bucket.index;
  Call& call = take(bucket, {.step = work.step.value, .bucket = bucket, .part = part});
  call.work = work;
  call.work.relieved = {};
  call.mine = mine;
  call.data = work.gradients;
  for (std::uint32_t c = 0; c < call.rounds.size(); ++c) {
    RoundShape& shape = call.rounds[c].shape;
    shape.chunk = c;
    shape.elements = ownership_.chunks_of(bucket)[c].count;
    shape.sums = part == RoundPart::all && work.first && c == 0;
    count_uses(call, call.rounds[c]);
  }
  return call;
}

void DirectRounds::count_uses(Call& call, const Round& round) const { call.uses += has_result(round, self_) ? 2 : 1; }

/// Hands the call over to the lane once `stream` has come so far.
Point DirectRounds::enqueue(Stream& stream, Call& call) {
  const Point over{lines_[call.line].over->id(), call.number};
  const Point now = stream.mark();
  space_.timeline(now.line).wake(now.value, call);
  return over;
}

/// The same, and the line's last call must be over: it reads and writes the same memory.
Point DirectRounds::enqueue_next(Stream& stream, Call& call) {
  stream.wait({lines_[call.line].over->id(), call.number - 1});
  const RoundShape& shape = call.rounds.front().shape;
  if (is_staged(shape)) {
    const Bucket& bucket = call.work.bucket;
    const Memory leaving = staging_.leaving(bucket.index, {bucket.first, bucket.count});
    if (is_filtered(shape))
      group_.filter->pack(stream, leaving, call.data, residual_of(bucket));
    else
      stream.copy(leaving, call.data);
  }
  if (group_.device_memory && carries_sums(shape)) stream.copy(own_sums(call), call.work.sums);
  return enqueue(stream, call);
}

Memory DirectRounds::residual_of(const Bucket& bucket) const noexcept {
  if (group_.residual.size_bytes == 0) return {};
  return elements(group_.residual, bucket.first, bucket.count, sizeof(float));
}

void DirectRounds::check(const BucketWork& work, const StripeMemory& mine) const {
  const Bucket& bucket = work.bucket;
  const auto where = [&] { return text("step ", work.step.value, ", bucket ", bucket.index, ": "); };
  TROUPE_CHECK(bucket.index < group_.buckets.size() && bucket == group_.buckets[bucket.index], Code::invalid, where(),
               "the group has no such bucket");
  const Part own = ownership_.part_of(bucket.index, self_);
  const Stripe& stripe = mine.stripe;
  TROUPE_CHECK(
      stripe.count == own.count && (own.count == 0 || (stripe.first == own.first && stripe.tenant.value == self_)),
      Code::invalid, where(), "the stripe of rank ", self_, " is not the group's");
  TROUPE_CHECK(work.gradients.size_bytes == bucket.count * sizeof(float), Code::invalid, where(), "gradients of ",
               work.gradients.size_bytes, " bytes for ", bucket.count, " elements");
  if (stripe.count == 0) return;
  const auto lies = [&](const Memory& memory, const Memory& whole, std::uint64_t element_bytes) {
    return whole.size_bytes == 0 || memory == elements(whole, stripe.first, stripe.count, element_bytes);
  };
  TROUPE_CHECK(lies(mine.parameters, group_.parameters, sizeof(float)) && lies(mine.bf16, group_.bf16, kBf16Bytes),
               Code::invalid, where(), "the stripe does not lie in this rank's copy of the parameters");
}

Point DirectRounds::update(Stream& stream, const BucketWork& work, const RuleStep& rule, const StripeMemory& mine) {
  Call& call = take(RoundPart::all, work, mine);
  call.rule = rule;
  return enqueue_next(stream, call);
}

Point DirectRounds::gather(Stream& stream, const BucketWork& work, const StripeMemory& mine) {
  return enqueue_next(stream, take(RoundPart::gradients, work, mine));
}

/// The lane begins it after what was measured before, whatever the stream does meanwhile.
void DirectRounds::agree(Stream& stream, const BucketWork& work) {
  Call& call = take(line_of_sums(),
                    {.step = work.step.value, .bucket = work.bucket.index, .sums = true, .part = RoundPart::sums});
  call.work = work;
  call.work.relieved = {};
  count_uses(call, call.rounds.front());
  enqueue(stream, call);
}

/// Without payload, the others tell a tenant that they have agreed.
Point DirectRounds::publish(Stream& stream, const BucketWork& work, const RuleStep& rule, const StripeMemory& mine) {
  Call& call = take(RoundPart::parameters, work, mine);
  call.rule = rule;
  return enqueue(stream, call);
}

Point DirectRounds::plain(Stream& stream, PlainOperation operation, std::span<const Memory> parts) {
  std::uint64_t size_bytes = 0;
  std::vector<std::uint64_t> sizes;
  for (const Memory& part : parts) {
    sizes.push_back(part.size_bytes);
    size_bytes += part.size_bytes;
  }
  Call& call = take(line_of_plain(),
                    {.step = xxh3(std::as_bytes(std::span{sizes})), .elements = size_bytes, .plain = operation});
  call.parts.assign(parts.begin(), parts.end());
  count_uses(call, call.rounds.front());
  return enqueue_next(stream, call);
}

}  // namespace collectives

DirectGroup between_nodes(const CounterpartGroup& group, Rank self, std::span<const std::vector<Rank>> nodes) {
  DirectGroup made;
  made.rank = self;
  made.stripes = group.stripes;
  made.buckets = group.ranges;
  made.names = group.ranks;
  made.ranges_a_bucket = group.ranges_a_bucket;
  for (const Rank rank : group.ranks) made.peers.push_back({rank.value});
  // A fault that no rank of the node has by itself comes of their sum.
  for (const std::vector<Rank>& node : nodes) made.blamed.push_back(node.back());
  return made;
}

std::uint64_t direct_staging_bytes(const DirectGroup& group) {
  const collectives::Ownership ownership(group.stripes, group.buckets, static_cast<std::uint32_t>(group.peers.size()),
                                         group.chunk);
  return collectives::Staging(ownership, group.rank.value, collectives::staging_needs(group)).size_bytes();
}

DirectCommunicator::DirectCommunicator(AddressSpace& space, LaneLoop& loop, Stream& exchange, DirectGroup group,
                                       DirectChannel* channel) {
  const GroupId id = group.id;
  rounds_ = std::make_unique<collectives::DirectRounds>(space, loop, exchange, std::move(group));
  if (channel != nullptr) {
    channel->add(id, *rounds_);
  } else {
    loop.transport().receive(Channel::exchange, *rounds_);
  }
}

DirectCommunicator::~DirectCommunicator() = default;

CommunicatorTraits DirectCommunicator::traits() const noexcept { return {.device_memory = rounds_->stages()}; }

Rank DirectCommunicator::rank() const noexcept { return Rank{rounds_->self()}; }

std::uint32_t DirectCommunicator::ranks() const noexcept { return rounds_->ranks(); }

/// In as many rounds as it takes: one part of each rank at a time, and of what is reduced as much as the staging takes.
void DirectCommunicator::plain(Stream& stream, collectives::PlainOperation operation,
                               std::span<const OwnedPart> parts) {
  if (rounds_->ranks() == 1) return;
  const bool reduces = operation != collectives::PlainOperation::all_gather;
  std::vector<Memory> round(rounds_->ranks());
  const auto enqueue = [&] {
    std::uint64_t longest = 0;
    for (const Memory& part : round) longest = std::max(longest, part.size_bytes);
    const std::uint64_t most = reduces || rounds_->stages() ? rounds_->most_reduced() : longest;
    for (std::uint64_t first = 0; first < longest; first += most) {
      std::vector<Memory> pieces;
      for (const Memory& part : round) {
        const std::uint64_t begin = std::min(first, part.size_bytes);
        pieces.push_back(slice(part, begin, std::min(most, part.size_bytes - begin)));
      }
      plain_round(stream, operation, pieces);
    }
    std::fill(round.begin(), round.end(), Memory{});
  };
  for (const OwnedPart& part : parts) {
    TROUPE_CHECK(!reduces || part.data.size_bytes % sizeof(float) == 0, Code::invalid, part.data.size_bytes,
                 " bytes are no whole number of f32");
    Memory& place = round.at(part.owner.value);
    if (place.size_bytes != 0) enqueue();
    place = part.data;
  }
  enqueue();
}

/// One round; where memory is the device's, on copies of the pieces.
void DirectCommunicator::plain_round(Stream& stream, collectives::PlainOperation operation,
                                     std::span<const Memory> pieces) {
  if (!rounds_->stages()) return stream.wait(rounds_->plain(stream, operation, pieces));
  std::vector<Memory> copies;
  const bool gathers = operation == collectives::PlainOperation::all_gather;
  const bool scatters = operation == collectives::PlainOperation::reduce_scatter;
  for (std::uint32_t r = 0; r < pieces.size(); ++r) {
    copies.push_back(rounds_->staged_piece(r, pieces[r].size_bytes));
    if (pieces[r].size_bytes > 0 && (!gathers || r == rounds_->self())) stream.copy(copies[r], pieces[r]);
  }
  stream.wait(rounds_->plain(stream, operation, copies));
  for (std::uint32_t r = 0; r < pieces.size(); ++r) {
    if (pieces[r].size_bytes > 0 && (!scatters || r == rounds_->self())) stream.copy(pieces[r], copies[r]);
  }
}

void DirectCommunicator::reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) {
  plain(stream, collectives::PlainOperation::reduce_scatter, parts);
}

void DirectCommunicator::all_gather(Stream& stream, std::span<const OwnedPart> parts) {
  plain(stream, collectives::PlainOperation::all_gather, parts);
}

void DirectCommunicator::all_reduce(Stream& stream, Memory data) {
  plain(stream, collectives::PlainOperation::all_reduce, equal_parts(data, rounds_->ranks()));
}

void DirectCommunicator::barrier(Stream& stream) {
  if (rounds_->ranks() == 1) return;
  const std::vector<Memory> nothing(rounds_->ranks());
  stream.wait(rounds_->plain(stream, collectives::PlainOperation::barrier, nothing));
}

namespace {

/// Ranks that do not reach each other's stripes update their own.
const StripeMemory& only_one(std::span<const StripeMemory> mine) {
  TROUPE_CHECK(mine.size() == 1, Code::invalid, mine.size(), " parts of a bucket, but only the own one is in reach");
  return mine.front();
}

}  // namespace

Point DirectCommunicator::reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                                               std::span<const StripeMemory> mine) {
  return rounds_->update(stream, work, rule, only_one(mine));
}

Point DirectCommunicator::gather_gradients(Stream& stream, const BucketWork& work, std::span<const StripeMemory> mine) {
  return rounds_->gather(stream, work, only_one(mine));
}

void DirectCommunicator::agree(Stream& stream, const BucketWork& work) { rounds_->agree(stream, work); }

Point DirectCommunicator::update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                                        std::span<const StripeMemory> mine) {
  return rounds_->publish(stream, work, rule, only_one(mine));
}

void DirectCommunicator::abort(const Status& why) noexcept { rounds_->fail(why); }

}  // namespace troupe
