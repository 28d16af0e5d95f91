#include "transports/collectives/detail/call_series.hpp"

#include <algorithm>

namespace troupe::collectives {

CallSeries::CallSeries(AddressSpace& space, const RoundPlan& plan, GroupFailure& failure, DirectRounds& owner)
    : plan_(plan), failure_(failure), owner_(owner) {
  const Ownership& ownership = plan.ownership();
  for (std::uint32_t b = 0; b < ownership.count_buckets(); ++b)
    add(space, ownership.first_chunk(b), ownership.chunks_of(b).size());
  add(space, plan.staging().channel_of_plain(), 1);
  add(space, plan.staging().channel_of_sums(), 1);
}

void CallSeries::add(AddressSpace& space, std::size_t first_channel, std::size_t count_channels) {
  failure_.poisons(*series_.emplace_back(space, first_channel, count_channels).over);
}

CollectiveCall& CallSeries::take(std::size_t place, const RoundShape& common) {
  Series& series = series_[place];
  const std::lock_guard lock{mutex_};
  if (series.free.empty()) {
    series.free.push_back(&series.calls.emplace_back(owner_, place, series.first_channel, series.count_channels,
                                                     plan_.self(), plan_.ranks()));
    series.free.reserve(series.calls.size());  // so that release() never allocates
  }
  CollectiveCall& call = *series.free.back();
  series.free.pop_back();
  call.number = ++series.enqueued;
  call.verdict = is_plain(common) || common.part == RoundPart::all ? 0 : ++verdict_calls_;
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

void CallSeries::end(const CollectiveCall& call) {
  Series& series = series_[call.series];
  series.ended = call.number;
  if (!failure_.failed()) series.over->signal(call.number);
}

void CallSeries::release(CollectiveCall& call) noexcept {
  if (--call.uses != 0) return;
  const std::lock_guard lock{mutex_};
  series_[call.series].free.push_back(&call);
}

bool CallSeries::is_idle() const noexcept {
  const std::lock_guard lock{mutex_};
  return std::all_of(series_.begin(), series_.end(),
                     [](const Series& series) { return series.free.size() == series.calls.size(); });
}

}  // namespace troupe::collectives
