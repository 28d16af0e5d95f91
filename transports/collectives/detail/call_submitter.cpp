#include "transports/collectives/detail/call_submitter.hpp"

#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/exchange/exchange.hpp"

namespace troupe::collectives {

/// A call for a bucket, with a round for each of its chunks.
CollectiveCall& CallSubmitter::take(RoundPart part, const BucketWork& work, const StripeMemory& mine) {
  check(work, mine);
  const std::uint32_t bucket = work.bucket.index;
  CollectiveCall& call = calls_.take(bucket, {.step = work.step.value, .bucket = bucket, .part = part});
  call.work = work;
  call.work.relieved = {};
  call.work.mine = {};
  call.mine = mine;
  call.data = work.gradients;
  for (std::uint32_t c = 0; c < call.rounds.size(); ++c) {
    RoundShape& shape = call.rounds[c].shape;
    shape.chunk = c;
    shape.elements = plan_.ownership().chunks_of(bucket)[c].count;
    shape.sums = part == RoundPart::all && work.first && c == 0;
    count_uses(call, call.rounds[c]);
  }
  return call;
}

void CallSubmitter::count_uses(CollectiveCall& call, const Round& round) const {
  call.uses += plan_.has_result(round, plan_.self()) ? 2 : 1;
}

/// Passes the call to the lane when `stream` has reached this point.
Point CallSubmitter::enqueue(Stream& stream, CollectiveCall& call) {
  const Point over = calls_.end_of(call);
  const Point now = stream.mark();
  space_.timeline(now.line).wake(now.value, call);
  return over;
}

/// The same after the previous call of the series is over, since this one reads and writes the same memory.
Point CallSubmitter::enqueue_next(Stream& stream, CollectiveCall& call) {
  stream.wait(calls_.end_before(call));
  const RoundShape& shape = call.rounds.front().shape;
  if (plan_.is_staged(shape)) {
    const Bucket& bucket = call.work.bucket;
    const Memory leaving = plan_.staging().leaving(bucket.index, {bucket.first, bucket.count});
    if (plan_.is_compressed(shape))
      plan_.group().compressor->pack(stream, leaving, call.data, plan_.residual_of(bucket));
    else
      stream.copy(leaving, call.data);
  }
  if (plan_.group().device_memory && carries_sums(shape)) stream.copy(plan_.own_sums(call), call.work.sums);
  return enqueue(stream, call);
}

void CallSubmitter::check(const BucketWork& work, const StripeMemory& mine) const {
  const Bucket& bucket = work.bucket;
  const auto where = [&] { return text("step ", work.step.value, ", bucket ", bucket.index, ": "); };
  TROUPE_CHECK(bucket.index < plan_.group().buckets.size() && bucket == plan_.group().buckets[bucket.index],
               Code::invalid, where(), "the group has no such bucket");
  const ElementRange own = plan_.ownership().part_of(bucket.index, plan_.self());
  const Stripe& stripe = mine.stripe;
  TROUPE_CHECK(stripe.count == own.count &&
                   (own.count == 0 || (stripe.first == own.first && stripe.owner.value == plan_.self())),
               Code::invalid, where(), "the stripe of rank ", plan_.self(), " is not the group's");
  TROUPE_CHECK(work.gradients.size_bytes == bucket.count * sizeof(float), Code::invalid, where(), "gradients of ",
               work.gradients.size_bytes, " bytes for ", bucket.count, " elements");
  if (stripe.count == 0) return;
  const auto lies = [&](const Memory& memory, const Memory& whole, std::uint64_t element_bytes) {
    return whole.size_bytes == 0 || memory == elements(whole, stripe.first, stripe.count, element_bytes);
  };
  TROUPE_CHECK(
      lies(mine.parameters, plan_.group().parameters, sizeof(float)) && lies(mine.half, plan_.group().half, kHalfBytes),
      Code::invalid, where(), "the stripe does not lie in this rank's copy of the parameters");
}

Point CallSubmitter::update(Stream& stream, const BucketWork& work, const RuleStep& rule, const StripeMemory& mine) {
  CollectiveCall& call = take(RoundPart::all, work, mine);
  call.rule = rule;
  return enqueue_next(stream, call);
}

Point CallSubmitter::gather(Stream& stream, const BucketWork& work, const StripeMemory& mine) {
  return enqueue_next(stream, take(RoundPart::gradients, work, mine));
}

/// Not enqueue_next(): the lane begins this call after everything that was measured before, wherever the stream is.
Point CallSubmitter::agree(Stream& stream, const BucketWork& work) {
  CollectiveCall& call = calls_.take(
      calls_.of_sums(), {.step = work.step.value, .bucket = work.bucket.index, .sums = true, .part = RoundPart::sums});
  call.work = work;
  call.work.relieved = {};
  call.work.mine = {};
  count_uses(call, call.rounds.front());
  return enqueue(stream, call);
}

/// Contributions without payload tell an owner that the other ranks have agreed.
Point CallSubmitter::publish(Stream& stream, const BucketWork& work, const RuleStep& rule, const StripeMemory& mine) {
  CollectiveCall& call = take(RoundPart::parameters, work, mine);
  call.rule = rule;
  return enqueue(stream, call);
}

Point CallSubmitter::plain(Stream& stream, PlainOperation operation, std::span<const Memory> parts) {
  std::uint64_t size_bytes = 0;
  std::vector<std::uint64_t> sizes;
  for (const Memory& part : parts) {
    sizes.push_back(part.size_bytes);
    size_bytes += part.size_bytes;
  }
  CollectiveCall& call = calls_.take(
      calls_.of_plain(), {.step = xxh3(std::as_bytes(std::span{sizes})), .elements = size_bytes, .plain = operation});
  call.parts.assign(parts.begin(), parts.end());
  count_uses(call, call.rounds.front());
  return enqueue_next(stream, call);
}

}  // namespace troupe::collectives
