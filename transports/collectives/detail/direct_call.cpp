#include "transports/collectives/detail/direct_call.hpp"

#include "transports/collectives/detail/direct_rounds.hpp"

namespace troupe::collectives {

void Delivery::sent(Status status) noexcept { flow.round.call.owner.sent(*this, status); }

Flow::Flow(Round& its_round, bool sends_results, std::uint32_t self, std::uint32_t ranks)
    : round(its_round), results(sends_results) {
  for (std::uint32_t i = 1; i < ranks; ++i) {
    const std::uint32_t to = (self + i) % ranks;
    deliveries.emplace_back(*this, to, false);
    if (results) deliveries.emplace_back(*this, to, true);
  }
}

Round::Round(CollectiveCall& its_call, std::size_t its_channel, std::uint32_t self, std::uint32_t ranks)
    : call(its_call),
      channel(its_channel),
      contributions(*this, false, self, ranks),
      results(*this, true, self, ranks) {}

void Round::reached(Point, Status status) noexcept {
  if (!status.ok()) return call.owner.failure().fail_everywhere(status);
  call.owner.post(*this);
}

void Round::run() noexcept { call.owner.own_work_done(*this); }

void StagedResult::reached(Point, Status status) noexcept {
  if (!status.ok()) return owner.failure().fail_everywhere(status);
  owner.post(*this);
}

void StagedResult::run() noexcept { owner.unstaged(*this); }

CollectiveCall::CollectiveCall(DirectRounds& its_rounds, std::size_t its_series, std::size_t first_channel,
                               std::size_t count, std::uint32_t self, std::uint32_t ranks)
    : owner(its_rounds), series(its_series) {
  for (std::size_t i = 0; i < count; ++i) rounds.emplace_back(*this, first_channel + i, self, ranks);
}

void CollectiveCall::reached(Point, Status status) noexcept {
  if (!status.ok()) return owner.failure().fail_everywhere(status);
  owner.post(*this);
}

void CollectiveCall::run() noexcept { owner.arrived_at(*this); }

}  // namespace troupe::collectives
