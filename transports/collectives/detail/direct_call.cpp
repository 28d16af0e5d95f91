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

Round::Round(Call& its_call, std::size_t its_channel, std::uint32_t self, std::uint32_t ranks)
    : call(its_call),
      channel(its_channel),
      contributions(*this, false, self, ranks),
      results(*this, true, self, ranks) {}

void Round::reached(Point, Status status) noexcept {
  if (!status.ok()) return call.owner.fail_everywhere(status);
  call.owner.post(*this);
}

void Round::run() noexcept { call.owner.own_work_done(*this); }

void StagedResult::reached(Point, Status status) noexcept {
  if (!status.ok()) return owner.fail_everywhere(status);
  owner.post(*this);
}

void StagedResult::run() noexcept { owner.unstaged(*this); }

Call::Call(DirectRounds& its_rounds, std::size_t its_line, std::size_t first_channel, std::size_t count,
           std::uint32_t self, std::uint32_t ranks)
    : owner(its_rounds), line(its_line) {
  for (std::size_t i = 0; i < count; ++i) rounds.emplace_back(*this, first_channel + i, self, ranks);
}

void Call::reached(Point, Status status) noexcept {
  if (!status.ok()) return owner.fail_everywhere(status);
  owner.post(*this);
}

void Call::run() noexcept { owner.arrived_at(*this); }

void AbortNotices::run() noexcept {
  for (; told < rounds.ranks(); ++told) {
    if (rounds.try_tell(*this, told)) continue;
    rounds.post(*this);  // no room: again after the lane has moved on
    return;
  }
}

}  // namespace troupe::collectives
