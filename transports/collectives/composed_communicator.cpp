#include "transports/collectives/composed_communicator.hpp"

#include <array>

#include "runtime/exchange/exchange.hpp"

namespace troupe {
namespace {

/// What of the bucket's gradients the part covers.
Memory gradients_of(const BucketWork& work, const Stripe& stripe) noexcept {
  return elements(work.gradients, stripe.first - work.bucket.first, stripe.count, sizeof(float));
}

}  // namespace

/// Each rank's part of the bucket in `whole`, which begins at the group's element `first`.
std::vector<OwnedPart> ComposedCommunicator::parts_of(const Bucket& bucket, const Memory& whole, std::uint64_t first,
                                                      std::uint64_t element_bytes) const {
  std::vector<OwnedPart> parts;
  for (const Stripe& stripe : group_.stripes) {
    const Stripe common = common_part(stripe, bucket);
    if (common.count > 0)
      parts.push_back({common.tenant, elements(whole, common.first - first, common.count, element_bytes)});
  }
  return parts;
}

Point ComposedCommunicator::reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                                                 std::span<const StripeMemory> mine) {
  if (work.first) agree(stream, work);
  reduce_scatter(stream, parts_of(work.bucket, work.gradients, work.bucket.first, sizeof(float)));
  update(stream, work, rule, mine);
  return {};
}

/// Who made a gradient that is not finite is seen before it is one of a sum.
Point ComposedCommunicator::gather_gradients(Stream& stream, const BucketWork& work,
                                             std::span<const StripeMemory> mine) {
  stream.reduce_with_norm(work.gradients, std::array{work.gradients},
                          {work.sums, work.bucket.first, {&self_, 1}, /*squares=*/false});
  reduce_scatter(stream, parts_of(work.bucket, work.gradients, work.bucket.first, sizeof(float)));
  for (const StripeMemory& part : mine) {
    if (part.stripe.count == 0) continue;
    const Memory sum = gradients_of(work, part.stripe);
    stream.reduce_with_norm(sum, std::array{sum}, {work.sums, part.stripe.first, {&last_, 1}});
  }
  return {};
}

void ComposedCommunicator::agree(Stream& stream, const BucketWork& work) {
  std::vector<OwnedPart> parts;
  std::vector<Memory> all;
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    all.push_back(slice(group_.sums, r * sizeof(StepSums), sizeof(StepSums)));
    parts.push_back({Rank{r}, all.back()});
  }
  stream.copy(all[rank().value], work.sums);
  all_gather(stream, parts);
  stream.sum_up(work.total, all);
}

Point ComposedCommunicator::update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                                          std::span<const StripeMemory> mine) {
  update(stream, work, rule, mine);
  return {};
}

/// With the sums that lie in this rank's gradients; then every rank gets the new parameters.
void ComposedCommunicator::update(Stream& stream, const BucketWork& work, const RuleStep& rule,
                                  std::span<const StripeMemory> mine) {
  for (const StripeMemory& part : mine) {
    if (part.stripe.count == 0) continue;
    stream.update(rule, work.update, part, std::array{gradients_of(work, part.stripe)}, work.total);
  }
  all_gather(stream, parts_of(work.bucket, group_.parameters, 0, sizeof(float)));
  if (group_.bf16.size_bytes > 0) all_gather(stream, parts_of(work.bucket, group_.bf16, 0, size_bytes(DType::bf16)));
}

}  // namespace troupe
