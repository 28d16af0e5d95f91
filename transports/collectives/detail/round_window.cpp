#include "transports/collectives/detail/round_window.hpp"

#include <algorithm>

namespace troupe::collectives {

RoundWindow::RoundWindow(std::uint32_t self, std::span<const Rank> names) : self_(self), names_(names) {
  for (std::uint64_t sequence : {1, 2}) {
    Round& round = at(sequence);
    round.shape.sequence = sequence;
    round.entered.assign(names.size(), 0);
  }
}

Status RoundWindow::agree(Round& round, std::uint32_t from, const RoundShape& shape) {
  if (shape.sequence != round.shape.sequence) {
    return {Code::corrupt, text("rank ", names_[from].value, " is at ", describe(shape), ", exchange ", shape.sequence,
                                ", rank ", names_[self_].value, " at ", published_ + 1)};
  }
  if (!round.known) {
    round.known = true;
    round.known_from = from;
    round.shape = shape;
  }
  if (round.shape == shape) return {};
  const bool differ = describe(shape) != describe(round.shape);
  const auto at = [&](const RoundShape& where) {
    return differ ? describe(where) : text(describe(where), " of ", where.elements, where.sums ? " with sums" : "");
  };
  return {Code::invalid, text("rank ", names_[from].value, " is at ", at(shape), ", rank ",
                              names_[round.known_from].value, " at ", at(round.shape))};
}

Status RoundWindow::announce(const RoundShape& shape, const Expected& expected) {
  Round& round = at(shape.sequence);
  if (Status status = agree(round, self_, shape); !status.ok()) return status;
  round.announced = true;
  round.expected = expected;
  advance();
  return {};
}

Status RoundWindow::enter(std::uint32_t from, const RoundShape& shape, PayloadKind payload_kind) {
  Round& round = at(shape.sequence);
  if (Status status = agree(round, from, shape); !status.ok()) return status;
  const auto bit = static_cast<std::uint8_t>(1u << static_cast<unsigned>(payload_kind));
  if ((round.entered[from] & bit) != 0) {
    return {Code::corrupt, text("rank ", names_[from].value, " sent a part of ", describe(shape), " twice")};
  }
  if (payload_kind != PayloadKind::contribution && !round.announced) {
    return {Code::corrupt, text("rank ", names_[from].value, " sent a result of ", describe(shape), " before rank ",
                                names_[self_].value, " contributed to it")};
  }
  round.entered[from] |= bit;
  return {};
}

void RoundWindow::arrived(std::uint64_t sequence, PayloadKind payload_kind) {
  Round& round = at(sequence);
  ++(payload_kind == PayloadKind::contribution ? round.contributions : round.results);
  advance();
}

void RoundWindow::contributions_sent(std::uint64_t sequence) {
  at(sequence).contributions_sent = true;
  advance();
}

void RoundWindow::own_work_done(std::uint64_t sequence) {
  at(sequence).own_work_done = true;
  advance();
}

void RoundWindow::results_sent(std::uint64_t sequence) {
  --results_leaving_;
  if (at(sequence).shape.sequence == sequence) at(sequence).results_sent = true;  // otherwise the round ended long ago
  advance();
}

bool RoundWindow::is_gathered(const Round& round) const noexcept {
  if (!round.announced) return false;
  if (round.expected.contributions == 0) return true;  // this rank adds nothing up in this round
  return round.contributions == round.expected.contributions && results_leaving_ == 0;
}

bool RoundWindow::is_published(const Round& round) const noexcept {
  return round.announced && round.contributions_sent && round.results == round.expected.results &&
         (round.own_work_done || !round.expected.own_work) && (round.results_sent || !round.expected.own_results_first);
}

/// Counts in order, and frees the place of a round for the round after next when both counts have passed it.
void RoundWindow::advance() {
  for (;;) {
    const std::uint64_t before = std::min(gathered_, published_);
    if (at(gathered_ + 1).shape.sequence == gathered_ + 1 && is_gathered(at(gathered_ + 1))) {
      ++gathered_;
    } else if (at(published_ + 1).shape.sequence == published_ + 1 && is_published(at(published_ + 1))) {
      ++published_;
    } else {
      return;
    }
    if (std::min(gathered_, published_) == before) continue;
    Round& finished = at(before + 1);
    std::vector<std::uint8_t> entered = std::move(finished.entered);
    std::fill(entered.begin(), entered.end(), std::uint8_t{0});
    finished = Round{};
    finished.entered = std::move(entered);
    finished.shape.sequence = before + 3;
  }
}

}  // namespace troupe::collectives
