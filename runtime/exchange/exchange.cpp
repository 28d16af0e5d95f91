#include "runtime/exchange/exchange.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace troupe {

StepExchange::StepExchange(ViewId view, AddressSpace& space, Memory sums, Memory totals,
                           std::vector<Exchange*> exchanges, std::size_t buckets, GroupId reporting, Memory loss_scale)
    : view_(view),
      space_(space),
      sums_(sums),
      totals_(totals),
      exchanges_(std::move(exchanges)),
      buckets_(buckets),
      reporting_(reporting.value),
      loss_scale_(loss_scale),
      committed_(space) {
  TROUPE_CHECK(!exchanges_.empty() && buckets_ > 0, Code::invalid, "a step exchange needs a group and a bucket, got ",
               exchanges_.size(), " groups and ", buckets_, " buckets");
  TROUPE_CHECK(reporting_ < exchanges_.size(), Code::invalid, "group ", reporting_, " reports, but there are ",
               exchanges_.size());
  const std::uint64_t needed = ring_bytes(exchanges_.size()), needed_totals = total_bytes(exchanges_.size());
  TROUPE_CHECK(sums.size_bytes >= needed && totals.size_bytes >= needed_totals, Code::invalid, "a step exchange needs ",
               needed, " bytes for sums and ", needed_totals, " for totals, got ", sums.size_bytes, " and ",
               totals.size_bytes);
}

Memory StepExchange::entry(const Memory& ring, Step step, std::size_t index) const noexcept {
  const std::uint64_t place = step.value % kStepsKept * entries(exchanges_.size()) + index;
  return slice(ring, place * sizeof(StepSums), sizeof(StepSums));
}

Memory StepExchange::of_group(const Memory& ring, Step step, std::size_t group) const noexcept {
  return entry(ring, step, exchanges_.size() == 1 ? 0 : 1 + group);
}

/// The rank's reports, with which the step's sums begin.
Memory StepExchange::said(Step step) const noexcept {
  return slice(totals_, ring_bytes(exchanges_.size()) + step.value % kStepsKept * sizeof(StepSums), sizeof(StepSums));
}

/// Of a step, by its number, or behind all of these: the copied one.
Memory StepExchange::scale_place(std::uint64_t index) const noexcept {
  return slice(totals_, scales_at(exchanges_.size()) + index * sizeof(LossScaleState), sizeof(LossScaleState));
}

/// The host writes the step's totals and reports now, while work of earlier steps may still run on the stream. This is
/// safe because each step has entries of its own: an entry is used again only kStepsKept steps later, and the caller
/// lets no step begin before the one that many steps earlier is complete.
Memory StepExchange::begin(Stream& stream, const StepFacts& facts, StepVotes votes) {
  const Step step = facts.step;
  TROUPE_CHECK(!open_, Code::invalid, "step ", step.value, " begins before step ", step_.value, " was committed");
  TROUPE_CHECK(!begun_ || step == next(step_), Code::invalid, "step ", step.value, " follows step ", step_.value);
  stream.about({.step = step.value});
  for (std::size_t g = 0; g < exchanges_.size(); ++g) {
    const Memory total = of_group(totals_, step, g);
    *space_.address_of<StepSums>(total) = {};
    exchanges_[g]->begin(stream, facts, of_group(sums_, step, g), total);
  }
  StepSums fresh;
  fresh.bad_loss = votes.rank.value + 1;
  if (exchanges_[reporting_]->has_round()) {  // otherwise they are not counted now, and would be out of date later
    fresh.stop_requests = votes.stop ? 1 : 0;
    fresh.still_saving = votes.saving ? 1 : 0;
  }
  *space_.address_of<StepSums>(said(step)) = fresh;
  const Memory sums = entry(sums_, step, 0);
  stream.copy(sums, said(step));
  step_ = step;
  begun_ = open_ = true;
  ready_ = 0;
  failed_ = {};
  return sums;
}

/// Each group adds up its own samples from round to round.
void StepExchange::share_sums(Stream& stream) {
  if (exchanges_.size() == 1) return;
  const Memory own = entry(sums_, step_, 0);
  for (std::size_t g = 0; g < exchanges_.size(); ++g) stream.sum_up(of_group(sums_, step_, g), {&own, 1});
}

/// commit reports an error; after it nothing more is done, so that peers never see buckets out of order.
template <class What>
void StepExchange::guarded(const Bucket& bucket, What&& what) noexcept {
  if (!failed_.ok()) return;
  try {
    TROUPE_CHECK(open_, Code::invalid, "bucket ", bucket.index, " is used outside of a step");
    TROUPE_CHECK(bucket.group.value < exchanges_.size(), Code::invalid, "bucket ", bucket.index, " of group ",
                 bucket.group.value, ", but there are ", exchanges_.size(), " groups");
    what(*exchanges_[bucket.group.value]);
  } catch (const Error& error) {
    failed_ = error.status();
  } catch (const std::exception& error) {
    failed_ = Status{Code::device_fault, error.what()};
  }
}

void StepExchange::acquire(const Bucket& bucket, Stream& stream) noexcept {
  guarded(bucket, [&](Exchange& exchange) {
    stream.about({step_.value, bucket.index});
    exchange.acquire(stream, bucket);
    stream.about({.step = step_.value});
  });
}

void StepExchange::ready(const Bucket& bucket, Stream& stream) noexcept {
  guarded(bucket, [&](Exchange& exchange) {
    stream.about({step_.value, bucket.index});
    if (ready_ == 0) share_sums(stream);
    exchange.contribute(stream, bucket);
    ++ready_;
    stream.about({.step = step_.value});
  });
}

Point StepExchange::commit(Stream& stream) {
  TROUPE_CHECK(open_ || !failed_.ok(), Code::invalid, "commit without a step begun");
  open_ = false;
  if (!failed_.ok()) fail(failed_.code(), text("step ", step_.value, ": ", failed_.text()));
  TROUPE_CHECK(ready_ == buckets_, Code::invalid, "step ", step_.value, ": ", ready_, " of ", buckets_,
               " buckets became ready; the replica and the exchange must be given the same buckets");
  if (loss_scale_.size_bytes != 0) stream.copy(scale_place(step_.value % kStepsKept), loss_scale_);
  for (Exchange* exchange : exchanges_) exchange->commit(stream);
  const Point end = stream.mark();
  stream.about({});
  points_.clear();
  for (const Exchange* exchange : exchanges_) {
    for (const Point& point : exchange->pending())
      if (point.value != 0 && point.line != end.line) points_.push_back(point);  // the mark tells of the stream's own
  }
  if (points_.empty()) return end;
  points_.push_back(end);
  return committed_.join(points_);
}

void StepExchange::join(Stream& stream) {
  for (Exchange* exchange : exchanges_) exchange->join(stream);
}

StepSums StepExchange::total(Step step) const {
  TROUPE_CHECK(begun_ && step <= step_ && step.value + kStepsKept > step_.value, Code::invalid, "the total of step ",
               step.value, " was asked for, step ", step_.value, " is the last and ", kStepsKept, " are kept");
  return *space_.address_of<const StepSums>(of_group(totals_, step, reporting_));
}

LossScaleState StepExchange::loss_scale(Step step) const {
  if (loss_scale_.size_bytes == 0) return {};
  return *space_.address_of<const LossScaleState>(scale_place(step.value % kStepsKept));
}

void StepExchange::copy_loss_scale(Stream& stream) {
  if (loss_scale_.size_bytes != 0) stream.copy(scale_place(kStepsKept), loss_scale_);
}

std::optional<LossScale> StepExchange::copied_loss_scale() const {
  if (loss_scale_.size_bytes == 0) return {};
  return space_.address_of<const LossScaleState>(scale_place(kStepsKept))->now;
}

bool StepExchange::is_consistent() const noexcept {
  return std::all_of(exchanges_.begin(), exchanges_.end(), [](const Exchange* e) { return e->is_consistent(); });
}

std::vector<std::uint64_t> StepExchange::updates() const {
  std::vector<std::uint64_t> all;
  for (const Exchange* exchange : exchanges_) all.push_back(exchange->updates());
  return all;
}

std::vector<PolicyProgress> StepExchange::policies() const {
  std::vector<PolicyProgress> all;
  for (const Exchange* exchange : exchanges_) all.push_back(exchange->policy_progress());
  return all;
}

std::string StepExchange::refusal(const PolicySettings& policy) const {
  for (const Exchange* exchange : exchanges_) {
    if (std::string why = exchange->refusal(policy); !why.empty()) return why;
  }
  return {};
}

void StepExchange::switch_at(Step step, const PolicySettings& policy) {
  for (Exchange* exchange : exchanges_) exchange->switch_at(step, policy);
}

bool StepExchange::keeps_average() const noexcept {
  return std::any_of(exchanges_.begin(), exchanges_.end(), [](const Exchange* one) { return one->keeps_average(); });
}

void StepExchange::show_evaluated(Stream& stream) {
  show_common(stream);
  for (Exchange* exchange : exchanges_) exchange->show_average(stream);
}

void StepExchange::hide_evaluated(Stream& stream) {
  for (Exchange* exchange : exchanges_) exchange->hide_average(stream);
  show_own(stream);
}

void StepExchange::show_common(Stream& stream) {
  for (Exchange* exchange : exchanges_) exchange->show_common(stream);
}

void StepExchange::show_own(Stream& stream) {
  for (Exchange* exchange : exchanges_) exchange->show_own(stream);
}

Stripe common_part(const Stripe& stripe, const Bucket& bucket) noexcept {
  Stripe part = stripe;
  const std::uint64_t first = std::max(stripe.first, bucket.first);
  const std::uint64_t end = std::min(stripe.first + stripe.count, bucket.first + bucket.count);
  part.count = stripe.group == bucket.group && end > first ? end - first : 0;
  part.first = part.count > 0 ? first : bucket.first;
  return part;
}

StripeMemory slice_of(const StripeMemory& stripe, const Stripe& range, std::size_t slots) {
  StripeMemory part;
  part.stripe = range;
  part.copy_type = stripe.copy_type;
  part.loss_scale = stripe.loss_scale;
  part.no_decay = stripe.no_decay;
  part.scaled = stripe.scaled;
  part.squares = stripe.squares;
  const std::uint64_t count = range.count;
  if (count == 0) return part;
  const std::uint64_t first = range.first - stripe.stripe.first;
  part.parameters = elements(stripe.parameters, first, count, sizeof(float));
  part.half = elements(stripe.half, first, count, size_bytes(DType::bf16));
  for (std::size_t s = 0; s < slots; ++s) part.state[s] = elements(stripe.state[s], first, count, sizeof(float));
  return part;
}

StripeMemory common_part(const StripeMemory& stripe, const Bucket& bucket, std::size_t slots,
                         std::size_t journal_slots) {
  StripeMemory part = slice_of(stripe, common_part(stripe.stripe, bucket), slots);
  if (part.stripe.count == 0) return part;
  if (stripe.journal.size_bytes > 0) {
    const std::uint64_t each = journal_bytes(journal_slots);
    TROUPE_CHECK(stripe.journal.size_bytes >= (bucket.index + 1) * each, Code::invalid, "bucket ", bucket.index,
                 " needs a journal of its own: the stripe's has ", stripe.journal.size_bytes, " bytes, at least ",
                 (bucket.index + 1) * each, " are needed");
    part.journal = slice(stripe.journal, bucket.index * each, each);
  }
  return part;
}

StripeMemory common_part(std::span<const StripeMemory> stripes, const Bucket& bucket, std::size_t slots,
                         std::size_t journal_slots) {
  for (const StripeMemory& stripe : stripes)
    if (common_part(stripe.stripe, bucket).count > 0) return common_part(stripe, bucket, slots, journal_slots);
  return common_part(stripes.front(), bucket, slots, journal_slots);
}

std::uint64_t relief_journal_bytes(std::span<const Stripe> stripes, std::span<const Bucket> buckets,
                                   std::size_t state_slots) noexcept {
  std::uint64_t parts = 0;
  for (const Bucket& bucket : buckets)
    for (const Stripe& stripe : stripes) parts += common_part(stripe, bucket).count > 0 ? 1 : 0;
  return parts * journal_bytes(state_slots);
}

}  // namespace troupe
