#include "runtime/exchange.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

namespace troupe {
namespace {

Memory slot_of(const Memory& ring, Step step) noexcept {
  return slice(ring, step.value % StepExchange::kStepsKept * sizeof(StepSums), sizeof(StepSums));
}

/// Elements [first, first + count) of `whole`, whose element 0 is the stripe's; nothing of nothing.
Memory elements(const Memory& whole, std::uint64_t first, std::uint64_t count, std::uint64_t element_bytes) noexcept {
  return whole.size_bytes == 0 ? Memory{} : slice(whole, first * element_bytes, count * element_bytes);
}

class CollectiveExchange final : public Exchange {
 public:
  CollectiveExchange(Communicator& communicator, const Rule& rule, Memory gradients, StripeMemory mine)
      : communicator_(communicator), rule_(rule), gradients_(gradients), mine_(std::move(mine)) {}

  void contribute(Stream& stream, const Bucket& bucket, Step step, bool first, Memory sums, Memory total) override {
    TROUPE_CHECK(!retired_.load(std::memory_order_acquire), Code::aborted, "step ", step.value, ", bucket ",
                 bucket.index, ": the exchange of group ", bucket.group.value, " was retired");
    TROUPE_CHECK(bucket.count > 0 && (bucket.first + bucket.count) * sizeof(float) <= gradients_.size_bytes,
                 Code::invalid, "bucket ", bucket.index, " covers elements ", bucket.first, " to ",
                 bucket.first + bucket.count, " of group ", bucket.group.value, ", which has ",
                 gradients_.size_bytes / sizeof(float));
    BucketWork work;
    work.bucket = bucket;
    work.step = step;
    work.update = step.value + 1;
    work.first = first;
    work.gradients = elements(gradients_, bucket.first, bucket.count, sizeof(float));
    work.sums = sums;
    work.total = total;
    communicator_.reduce_update_gather(stream, work, rule_step(rule_, work.update),
                                       common_part(mine_, bucket, rule_.kind));
  }

  std::vector<StripeMemory> retire(const Status& why) noexcept override {
    if (!retired_.exchange(true, std::memory_order_acq_rel)) communicator_.abort(why);
    return {mine_};
  }

 private:
  Communicator& communicator_;
  const Rule rule_;
  const Memory gradients_;
  const StripeMemory mine_;
  std::atomic<bool> retired_{false};
};

}  // namespace

StepExchange::StepExchange(ViewId view, AddressSpace& space, Memory sums, Memory totals,
                           std::vector<Exchange*> exchanges, std::size_t buckets)
    : view_(view), space_(space), sums_(sums), totals_(totals), exchanges_(std::move(exchanges)), buckets_(buckets) {
  const std::uint64_t needed = kStepsKept * sizeof(StepSums);
  TROUPE_CHECK(sums.size_bytes >= needed && totals.size_bytes >= needed, Code::invalid, "a step exchange needs ",
               needed, " bytes each for sums and totals, got ", sums.size_bytes, " and ", totals.size_bytes);
  TROUPE_CHECK(!exchanges_.empty() && buckets_ > 0, Code::invalid, "a step exchange needs a group and a bucket, got ",
               exchanges_.size(), " groups and ", buckets_, " buckets");
}

Memory StepExchange::begin(Step step, StepVotes votes) {
  TROUPE_CHECK(!open_, Code::invalid, "step ", step.value, " begins before step ", step_.value, " was committed");
  TROUPE_CHECK(!begun_ || step == next(step_), Code::invalid, "step ", step.value, " follows step ", step_.value);
  const Memory sums = slot_of(sums_, step);
  StepSums fresh;
  fresh.stop = votes.stop ? 1 : 0;
  fresh.saving = votes.saving ? 1 : 0;
  *space_.address_of<StepSums>(sums) = fresh;
  step_ = step;
  begun_ = open_ = true;
  ready_ = 0;
  failed_ = {};
  return sums;
}

void StepExchange::ready(const Bucket& bucket, Stream& stream) noexcept {
  if (!failed_.ok()) return;  // told by commit; peers must not see buckets out of order
  try {
    TROUPE_CHECK(open_, Code::invalid, "bucket ", bucket.index, " is ready outside of a step");
    TROUPE_CHECK(bucket.group.value < exchanges_.size(), Code::invalid, "bucket ", bucket.index, " of group ",
                 bucket.group.value, ", but there are ", exchanges_.size(), " groups");
    exchanges_[bucket.group.value]->contribute(stream, bucket, step_, ready_ == 0, slot_of(sums_, step_),
                                               slot_of(totals_, step_));
    ++ready_;
  } catch (const Error& error) {
    failed_ = error.status();
  } catch (const std::exception& error) {
    failed_ = Status{Code::device_fault, error.what()};
  }
}

Point StepExchange::commit(Stream& stream) {
  TROUPE_CHECK(open_ || !failed_.ok(), Code::invalid, "commit without a step begun");
  open_ = false;
  if (!failed_.ok()) fail(failed_.code(), text("step ", step_.value, ": ", failed_.text()));
  TROUPE_CHECK(ready_ == buckets_, Code::invalid, "step ", step_.value, ": ", ready_, " of ", buckets_,
               " buckets became ready; the replica and the exchange must be given the same buckets");
  return stream.mark();
}

StepSums StepExchange::total(Step step) const {
  TROUPE_CHECK(begun_ && step <= step_ && step.value + kStepsKept > step_.value, Code::invalid, "the total of step ",
               step.value, " was asked for, step ", step_.value, " is the last and ", kStepsKept, " are kept");
  return *space_.address_of<const StepSums>(slot_of(totals_, step));
}

Stripe common_part(const Stripe& stripe, const Bucket& bucket) noexcept {
  Stripe part = stripe;
  const std::uint64_t first = std::max(stripe.first, bucket.first);
  const std::uint64_t end = std::min(stripe.first + stripe.count, bucket.first + bucket.count);
  part.count = stripe.group == bucket.group && end > first ? end - first : 0;
  part.first = part.count > 0 ? first : bucket.first;
  return part;
}

StripeMemory common_part(const StripeMemory& stripe, const Bucket& bucket, RuleKind rule) {
  StripeMemory part;
  part.stripe = common_part(stripe.stripe, bucket);
  part.no_decay = stripe.no_decay;
  const std::uint64_t count = part.stripe.count;
  if (count == 0) return part;
  const std::uint64_t first = part.stripe.first - stripe.stripe.first;
  part.parameters = elements(stripe.parameters, first, count, sizeof(float));
  part.half = elements(stripe.half, first, count, size_bytes(DType::bf16));
  for (std::size_t s = 0; s < state_slots(rule); ++s)
    part.state[s] = elements(stripe.state[s], first, count, sizeof(float));
  if (stripe.journal.size_bytes > 0) {
    const std::uint64_t each = journal_bytes(state_slots(rule));
    TROUPE_CHECK(stripe.journal.size_bytes >= (bucket.index + 1) * each, Code::invalid, "bucket ", bucket.index,
                 " needs a journal of its own: the stripe's has ", stripe.journal.size_bytes, " bytes, at least ",
                 (bucket.index + 1) * each, " are needed");
    part.journal = slice(stripe.journal, bucket.index * each, each);
  }
  return part;
}

std::unique_ptr<Exchange> collective_exchange(Communicator& communicator, const Rule& rule, Memory gradients,
                                              StripeMemory mine) {
  return std::make_unique<CollectiveExchange>(communicator, rule, gradients, std::move(mine));
}

}  // namespace troupe
