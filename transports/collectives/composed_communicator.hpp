#pragma once

#include <span>
#include <utility>
#include <vector>

#include "runtime/exchange/communicator.hpp"

namespace troupe {

/// A group whose ranks have a copy of the parameters each; the same in every one of them but for the memory.
struct ComposedGroup {
  std::vector<Stripe> stripes;  // each rank has at most one range of each bucket
  std::vector<Bucket> buckets;  // by index
  Memory parameters;            // [group] f32, this rank's
  Memory bf16;                  // [group] bf16, where every rank has such an image; else empty
  Memory sums;                  // a StepSums for each rank, this one's to work on
};

/// The synchronous step made of a communicator's plain operations, one bucket after the other in stream order: for
/// libraries that know collectives, and not what they are for. A communicator that can do better has its own step.
class ComposedCommunicator : public Communicator {
 public:
  Point reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                             std::span<const StripeMemory> mine) override;
  Point gather_gradients(Stream& stream, const BucketWork& work, std::span<const StripeMemory> mine) override;
  void agree(Stream& stream, const BucketWork& work) override;
  Point update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                      std::span<const StripeMemory> mine) override;

 protected:
  /// Of rank `self` of `ranks`.
  ComposedCommunicator(Rank self, std::uint32_t ranks, ComposedGroup group)
      : group_(std::move(group)), self_(self), last_{ranks - 1} {}

 private:
  std::vector<OwnedPart> parts_of(const Bucket& bucket, const Memory& whole, std::uint64_t first,
                                  std::uint64_t element_bytes) const;
  void update(Stream& stream, const BucketWork& work, const RuleStep& rule, std::span<const StripeMemory> mine);

  const ComposedGroup group_;
  const Rank self_;
  const Rank last_;  // whom a fault is laid to that no rank has by itself
};

}  // namespace troupe
