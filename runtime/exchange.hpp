#pragma once

#include <memory>
#include <vector>

#include "runtime/communicator.hpp"
#include "runtime/device.hpp"

namespace troupe {

/// One round of communication of one parameter group, under one view and one policy: a Communicator (bytes), a Policy
/// (when) and a Rule (arithmetic).
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Takes a bucket whose gradients `stream` has finished by now. `sums` and `total`: see BucketWork; `first`: the first
  /// bucket of the step over all groups.
  virtual void contribute(Stream& stream, const Bucket& bucket, Step step, bool first, Memory sums, Memory total) = 0;
  /// Ends the tenancy: no contribution is taken any more; what is under way ends with `why`. Gives the stripes back for
  /// the next tenant. Idempotent.
  virtual std::vector<StripeMemory> retire(const Status& why) noexcept = 0;
};

/// All groups of one view: routes each bucket to its group's exchange and counts steps. The device actor's side.
class StepExchange final : public BucketSink {
 public:
  /// How many steps' sums are kept: a total may be read until this many steps later.
  static constexpr std::uint64_t kStepsKept = 8;

  /// `sums` and `totals` are memory for kStepsKept StepSums each; exchanges[g] is group g's, and outlives this object.
  StepExchange(ViewId view, AddressSpace& space, Memory sums, Memory totals, std::vector<Exchange*> exchanges);

  ViewId view() const noexcept { return view_; }
  /// Starts `step` (one more than the last): where the replica writes its sums. `stop`: this rank asks to end.
  Memory begin(Step step, bool stop);
  void ready(const Bucket& bucket, Stream& stream) noexcept override;
  /// The step is enqueued wholly: the point at which it is committed. A bucket that could not be contributed, or one
  /// that never became ready, is an Error here.
  Point commit(Stream& stream);
  /// The sums over all ranks; to be read once the step is committed, until kStepsKept steps later.
  StepSums total(Step step) const;

 private:
  ViewId view_;
  AddressSpace& space_;
  Memory sums_;
  Memory totals_;
  std::vector<Exchange*> exchanges_;
  Step step_{};
  bool first_ = true;
  Status failed_;
};

/// The collective route for synchronous groups: every step, reduce to the stripes, update, gather.
/// `communicator` outlives it; `gradients` [group] f32 is this rank's; `mine` is the stripe this rank is tenant of.
std::unique_ptr<Exchange> collective_exchange(Communicator& communicator, const Rule& rule, Memory gradients, StripeMemory mine);

}  // namespace troupe
