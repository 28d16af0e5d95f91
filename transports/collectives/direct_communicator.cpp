#include "transports/collectives/direct_communicator.hpp"

#include <algorithm>
#include <utility>

#include "runtime/exchange.hpp"
#include "transports/collectives/detail/direct_rounds.hpp"

namespace troupe {
namespace collectives {

Call& DirectRounds::take_call(bool reduces, std::uint64_t count, bool owns) {
  const std::lock_guard lock{mutex_};
  if (free_.empty()) {
    free_.push_back(&calls_.emplace_back(*this, self_, ranks()));
    free_.reserve(calls_.size());  // giving back never allocates
  }
  Call& call = *free_.back();
  free_.pop_back();
  for (Sending* sending : {&call.contribute, &call.publish}) {
    sending->begun = false;
    sending->next = sending->count = sending->on_way = 0;
  }
  call.shape = {};
  call.shape.sequence = ++sequence_;
  call.shape.reduces = reduces;
  call.shape.elements = count;
  call.sums = call.half = {};
  call.uses.store(owns ? 2 : 1, std::memory_order_relaxed);
  return call;
}

void DirectRounds::watch(Sending& sending, Point mark) { space_.timeline(mark.line).wake(mark.value, sending); }

/// `own` in this rank's place among what the others' lay at `staged_for`.
template <class StagedFor>
std::span<const Memory> DirectRounds::in_rank_order(Memory own, StagedFor&& staged_for) {
  parts_.clear();
  for (std::uint32_t r = 0; r < ranks(); ++r) parts_.push_back(r == self_ ? own : staged_for(r));
  return parts_;
}

void DirectRounds::check(const BucketWork& work, const StripeMemory& mine) const {
  const Bucket& bucket = work.bucket;
  const auto where = [&] { return text("step ", work.step.value, ", bucket ", bucket.index, ": "); };
  TROUPE_CHECK(bucket.index < group_.buckets.size() && bucket == group_.buckets[bucket.index], Code::invalid, where(),
               "the group has no such bucket");
  TROUPE_CHECK(mine.stripe == common_part(group_.stripes[self_], bucket), Code::invalid, where(), "the stripe of rank ",
               self_, " is not the group's");
  TROUPE_CHECK(work.gradients.size_bytes == bucket.count * sizeof(float), Code::invalid, where(), "gradients of ",
               work.gradients.size_bytes, " bytes for ", bucket.count, " elements");
  if (mine.stripe.count == 0) return;
  const auto lies = [&](const Memory& memory, const Memory& whole, std::uint64_t element_bytes) {
    return whole.size_bytes == 0 || memory == elements(whole, mine.stripe.first, mine.stripe.count, element_bytes);
  };
  TROUPE_CHECK(lies(mine.parameters, group_.parameters, sizeof(float)) && lies(mine.half, group_.half, kHalfBytes),
               Code::invalid, where(), "the stripe does not lie in this rank's copy of the parameters");
}

void DirectRounds::update(Stream& stream, const BucketWork& work, const RuleStep& rule, const StripeMemory& mine) {
  check(work, mine);
  const bool owns = mine.stripe.count > 0;
  Call& call = take_call(false, work.bucket.count, owns);
  call.shape.step = work.step.value;
  call.shape.bucket = work.bucket.index;
  call.shape.sums = work.first;
  call.contributions = work.gradients;
  call.sums = work.sums;
  call.result = mine.parameters;
  call.half = mine.half;
  const std::uint64_t round = call.shape.sequence;
  watch(call.contribute, stream.mark());
  if (owns || work.first) stream.wait({gathered_.id(), round});
  if (work.first) {
    stream.sum_up(work.total, in_rank_order(work.sums, [&](std::uint32_t r) { return staged_sums(round, r); }));
  }
  if (owns) {
    const std::uint64_t count = mine.stripe.count;
    const Memory own = elements(work.gradients, mine.stripe.first - work.bucket.first, count, sizeof(float));
    stream.update(rule, work.update, mine, in_rank_order(own, [&](std::uint32_t r) { return staged(r, count); }),
                  work.total);
    watch(call.publish, stream.mark());
  }
  stream.wait({published_.id(), round});
}

Call& DirectRounds::take_part(RoundPart part, const BucketWork& work, bool owns) {
  Call& call = take_call(false, work.bucket.count, owns);
  call.shape.part = part;
  call.shape.step = work.step.value;
  call.shape.bucket = work.bucket.index;
  call.contributions = call.result = {};
  return call;
}

/// Tenants answer without payload that they have added up.
void DirectRounds::gather(Stream& stream, const BucketWork& work, const StripeMemory& mine) {
  check(work, mine);
  const bool owns = mine.stripe.count > 0;
  Call& call = take_part(RoundPart::gradients, work, owns);
  call.contributions = work.gradients;
  const std::uint64_t round = call.shape.sequence;
  watch(call.contribute, stream.mark());
  if (owns) {
    stream.wait({gathered_.id(), round});
    const std::uint64_t count = mine.stripe.count;
    const Memory own = elements(work.gradients, mine.stripe.first - work.bucket.first, count, sizeof(float));
    stream.measure(own, in_rank_order(own, [&](std::uint32_t r) { return staged(r, count); }), work.sums,
                   mine.stripe.first);
    watch(call.publish, stream.mark());
  }
  stream.wait({published_.id(), round});
}

void DirectRounds::agree(Stream& stream, const BucketWork& work) {
  Call& call = take_part(RoundPart::sums, work, false);
  call.shape.sums = true;
  call.sums = work.sums;
  const std::uint64_t round = call.shape.sequence;
  watch(call.contribute, stream.mark());
  stream.wait({gathered_.id(), round});
  stream.sum_up(work.total, in_rank_order(work.sums, [&](std::uint32_t r) { return staged_sums(round, r); }));
  stream.wait({published_.id(), round});
}

/// The others tell a tenant, without payload, that they are there.
void DirectRounds::publish(Stream& stream, const BucketWork& work, const RuleStep& rule, const StripeMemory& mine) {
  check(work, mine);
  const bool owns = mine.stripe.count > 0;
  Call& call = take_part(RoundPart::parameters, work, owns);
  call.result = mine.parameters;
  call.half = mine.half;
  const std::uint64_t round = call.shape.sequence;
  watch(call.contribute, stream.mark());
  if (owns) {
    stream.wait({gathered_.id(), round});
    const Memory own =
        elements(work.gradients, mine.stripe.first - work.bucket.first, mine.stripe.count, sizeof(float));
    stream.update(rule, work.update, mine, {&own, 1}, work.total);
    watch(call.publish, stream.mark());
  }
  stream.wait({published_.id(), round});
}

void DirectRounds::reduce(Stream& stream, Memory data) {
  RoundShape shape;
  shape.reduces = true;
  shape.elements = data.size_bytes / sizeof(float);
  const Part mine = part_of(shape, self_);
  const bool owns = mine.count > 0;
  Call& call = take_call(true, shape.elements, owns);
  call.contributions = data;
  call.result = elements(data, mine.first, mine.count, sizeof(float));
  const std::uint64_t round = call.shape.sequence;
  watch(call.contribute, stream.mark());
  if (owns) {
    stream.wait({gathered_.id(), round});
    const Memory own = call.result;
    stream.reduce(own, in_rank_order(own, [&](std::uint32_t r) { return staged(r, mine.count); }));
    watch(call.publish, stream.mark());
  }
  stream.wait({published_.id(), round});
}

}  // namespace collectives

std::uint64_t direct_staging_bytes(std::span<const Stripe> stripes, std::span<const Bucket> buckets) {
  if (stripes.size() < 2) return 0;
  return 2 * stripes.size() * sizeof(StepSums) +
         (stripes.size() - 1) * collectives::capacity_of(stripes, buckets) * sizeof(float);
}

std::uint64_t direct_sending_bytes(std::span<const Bucket> buckets, Filter filter) {
  std::uint64_t longest = 0;
  for (const Bucket& bucket : buckets) longest = std::max(longest, bucket.count);
  return filter == Filter::bf16 ? longest * collectives::kHalfBytes : 0;
}

DirectCommunicator::DirectCommunicator(AddressSpace& space, LaneLoop& loop, DirectGroup group, DirectChannel* channel) {
  const GroupId id = group.id;
  rounds_ = std::make_unique<collectives::DirectRounds>(space, loop, std::move(group));
  if (channel != nullptr) {
    channel->add(id, *rounds_);
  } else {
    loop.transport().receive(Channel::exchange, *rounds_);
  }
}

DirectCommunicator::~DirectCommunicator() = default;

void DirectCommunicator::all_reduce(Stream& stream, Memory data) {
  TROUPE_CHECK(data.size_bytes % sizeof(float) == 0, Code::invalid, data.size_bytes,
               " bytes are no whole number of f32");
  if (rounds_->ranks() == 1) return;
  const std::uint64_t most = rounds_->chunk_elements() * sizeof(float);
  for (std::uint64_t done = 0; done < data.size_bytes; done += most) {
    rounds_->reduce(stream, slice(data, done, std::min(most, data.size_bytes - done)));
  }
}

namespace {

/// Ranks that do not reach each other's stripes update their own.
const StripeMemory& only_one(std::span<const StripeMemory> mine) {
  TROUPE_CHECK(mine.size() == 1, Code::invalid, mine.size(), " parts of a bucket, but only the own one is in reach");
  return mine.front();
}

}  // namespace

void DirectCommunicator::reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                                              std::span<const StripeMemory> mine) {
  rounds_->update(stream, work, rule, only_one(mine));
}

void DirectCommunicator::gather_gradients(Stream& stream, const BucketWork& work, std::span<const StripeMemory> mine) {
  rounds_->gather(stream, work, only_one(mine));
}

void DirectCommunicator::agree(Stream& stream, const BucketWork& work) { rounds_->agree(stream, work); }

void DirectCommunicator::update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                                       std::span<const StripeMemory> mine) {
  rounds_->publish(stream, work, rule, only_one(mine));
}

void DirectCommunicator::abort(const Status& why) noexcept { rounds_->fail(why); }

}  // namespace troupe
