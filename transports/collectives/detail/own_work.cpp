#include "transports/collectives/detail/own_work.hpp"

#include "runtime/exchange/exchange.hpp"

namespace troupe::collectives {

OwnWork::OwnWork(AddressSpace& space, Stream& exchange, const RoundPlan& plan)
    : space_(space),
      exchange_(exchange),
      plan_(plan),
      group_(plan.group()),
      staging_(plan.staging()),
      self_(plan.self()) {
  parts_.reserve(plan.ranks());
  for (std::uint32_t r = 0; r < plan.ranks(); ++r)
    blamed_so_far_.push_back({group_.blamed[r == 1 ? 0 : r], group_.blamed[r]});
}

void OwnWork::tell(Waker& waker) {
  const Point done = exchange_.mark();
  space_.timeline(done.line).wake(done.value, waker);
}

/// A list by rank: `own` for this rank, and `of_rank(r)` for each other rank.
template <class OfRank>
std::span<const Memory> OwnWork::in_rank_order(Memory own, OfRank&& of_rank) {
  parts_.clear();
  for (std::uint32_t r = 0; r < plan_.ranks(); ++r) parts_.push_back(r == self_ ? own : of_rank(r));
  return parts_;
}

std::span<const Memory> OwnWork::sums_of(const Round& round) {
  return in_rank_order(round.call.work.sums,
                       [&](std::uint32_t r) { return staging_.sums(round.channel, round.shape.sequence, r); });
}

/// The contributions to `own` in the order of ranks, this rank's from the bucket's `gradients`. If contributions are
/// packed, they are added up first, and the list has only the sum.
std::span<const Memory> OwnWork::gradients_of(const RoundShape& shape, const Memory& gradients,
                                              const ElementRange& own) {
  const std::uint32_t bucket = shape.bucket;
  const Memory mine = elements(gradients, own.first - group_.buckets[bucket].first, own.count, sizeof(float));
  if (!plan_.is_compressed(shape))
    return in_rank_order(mine, [&](std::uint32_t r) { return staging_.contribution(bucket, r, own); });
  parts_.assign({add_up_packed(bucket, mine, own)});
  return parts_;
}

Memory OwnWork::add_up_packed(std::uint32_t bucket, const Memory& mine, const ElementRange& own) {
  const Memory sum = staging_.summed(own.count);
  for (std::uint32_t r = 0; r < plan_.ranks(); ++r) {
    const Memory part = plan_.packed(bucket, r, own);
    if (part.size_bytes == 0)
      r == 0 ? exchange_.copy(sum, mine) : exchange_.reduce(sum, std::array{sum, mine});
    else
      r == 0 ? group_.compressor->unpack(exchange_, sum, part) : group_.compressor->unpack_add(exchange_, sum, part);
  }
  return sum;
}

/// Adds up packed contributions into `mine`, one rank after the other, to find at whose contribution the sum stops
/// being finite. The sums keep the lowest such element and, for it, the first rank.
void OwnWork::add_up_packed_with_norm(std::uint32_t bucket, const Memory& mine, const ElementRange& own,
                                      const BucketWork& work) {
  Memory so_far;
  for (std::uint32_t r = 0; r < plan_.ranks(); ++r) {
    const Memory from = plan_.packed(bucket, r, own);
    const Memory part = from.size_bytes == 0 ? mine
                        : r == 0             ? staging_.summed(own.count)
                                             : staging_.unpacked(own.count);
    if (from.size_bytes != 0) group_.compressor->unpack(exchange_, part, from);
    const bool last = r + 1 == plan_.ranks();
    if (r > 0) {
      const Memory to = last ? mine : staging_.summed(own.count);
      exchange_.reduce(to, std::array{so_far, part}, {work.sums, own.first, blamed_so_far_[r], last && work.squares});
      so_far = to;
    } else {
      so_far = part;
    }
  }
}

void OwnWork::update(const CollectiveCall& call, const ElementRange& own, std::span<const Memory> gradients,
                     const Memory& total) {
  Stripe stripe = call.mine.stripe;
  stripe.first = own.first;
  stripe.count = own.count;
  exchange_.update(call.rule, call.work.update, slice_of(call.mine, stripe, state_slots(call.rule)), gradients, total);
  stage_results(own);
}

void OwnWork::add_up_and_update(Round& round) {
  about(round.shape);
  const CollectiveCall& call = round.call;
  if (!plan_.has_own_work(round)) return;
  const Memory total = staging_.total(round.channel, round.shape.sequence);
  exchange_.sum_up(total, sums_of(round));
  if (round.shape.sums) exchange_.copy(call.work.total, total);
  const ElementRange own = plan_.part_of(round.shape, self_);
  if (own.count > 0) update(call, own, gradients_of(round.shape, call.data, own), total);
  tell(round);
}

void OwnWork::update_own_part(Round& round) {
  about(round.shape);
  const CollectiveCall& call = round.call;
  const ElementRange own = plan_.part_of(round.shape, self_);
  if (own.count == 0) return;
  const Memory summed = elements(call.data, own.first - call.work.bucket.first, own.count, sizeof(float));
  update(call, own, {&summed, 1}, call.work.total);
  tell(round);
}

/// If the transport does not read the device's memory, the messages to others are sent from copies in the staging
/// memory.
void OwnWork::stage_results(const ElementRange& own) {
  if (!plan_.stages_what_is_sent()) return;
  exchange_.copy(staging_.results(own), elements(group_.parameters, own.first, own.count, sizeof(float)));
  if (group_.half.size_bytes > 0)
    exchange_.copy(staging_.image(own), elements(group_.half, own.first, own.count, kHalfBytes));
}

void OwnWork::unstage(const DirectHead& head, StagedResult& result) {
  const RoundShape& shape = head.round;
  const ElementRange part = plan_.part_of(shape, head.rank);
  about(shape);
  if (head.payload_kind == PayloadKind::half_result)
    exchange_.copy(elements(group_.half, part.first, part.count, kHalfBytes), staging_.image(part));
  else
    exchange_.copy(elements(group_.parameters, part.first, part.count, sizeof(float)), staging_.results(part));
  tell(result);
}

void OwnWork::reduce_with_norm(CollectiveCall& call) {
  const RoundShape& shape = call.rounds.front().shape;
  about(shape);
  const ElementRange own = plan_.ownership().part_of(shape.bucket, self_);
  if (own.count == 0) return;
  const Memory sum = elements(call.data, own.first - call.work.bucket.first, own.count, sizeof(float));
  if (plan_.is_compressed(shape))
    add_up_packed_with_norm(shape.bucket, sum, own, call.work);
  else
    exchange_.reduce(sum, gradients_of(shape, call.data, own),
                     {call.work.sums, own.first, group_.blamed, call.work.squares});
  const Point done = exchange_.mark();
  for (Round& round : call.rounds)
    if (plan_.has_own_work(round)) space_.timeline(done.line).wake(done.value, round);
}

void OwnWork::finish_measuring(CollectiveCall& call) {
  about(call.rounds.front().shape);
  if (group_.device_memory) exchange_.copy(plan_.own_sums(call), call.work.sums);
  tell(call);
}

void OwnWork::add_up_sums(Round& round) {
  about(round.shape);
  exchange_.sum_up(round.call.work.total, sums_of(round));
  tell(round);
}

void OwnWork::plain(Round& round) {
  about(round.shape);
  if (!plan_.has_own_work(round)) return;
  const Memory& own = round.call.parts[self_];
  if (reduces(round.shape))
    exchange_.reduce(own, in_rank_order(own, [&](std::uint32_t r) { return staging_.reduced(r, own.size_bytes); }));
  tell(round);
}

}  // namespace troupe::collectives
