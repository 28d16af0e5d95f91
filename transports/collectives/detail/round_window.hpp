#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "transports/collectives/detail/direct_head.hpp"

namespace troupe::collectives {

/// The progress of the rounds of one chunk (or of all_reduce, or of sums alone) at one rank: what has arrived, and what
/// was sent. A pure state machine without memory or messages. The rounds of other chunks have their own windows, so
/// that no chunk waits for another.
///
/// Two rounds are enough. A rank begins a round of a chunk when its previous one is over at that rank. A peer that
/// takes part in round n has finished round n - 1, for which it needed this rank's contribution to n - 1 (or, if this
/// rank alone owns that round, its result), and this rank contributes to n - 1 after it has finished n - 2. So no
/// message of round n arrives while round n - 2 is unfinished, and a landing of a round in which this rank owned a part
/// has been read before it is used again. A message that violates this is an error.
class RoundWindow {
 public:
  /// This is rank `self`; there are as many ranks as `names`, which texts use and which outlive the window.
  RoundWindow(std::uint32_t self, std::span<const Rank> names);

  /// What one rank's part of a round consists of, in addition to its own contributions.
  struct Expected {
    std::uint32_t contributions = 0;  // number of messages
    std::uint32_t results = 0;        // number of messages
    bool own_work = false;           // whether it adds up something itself, which must be done before the round is over
    bool own_results_first = false;  // whether its results must be sent first, too: their memory is the caller's
  };
  /// This rank's own call has been reached by its stream: its contributions may be sent.
  Status announce(const RoundShape& shape, const Expected& expected);
  /// A message of `from` is about to be received, or came without payload.
  Status enter(std::uint32_t from, const RoundShape& shape, PayloadKind payload_kind);
  /// The message has arrived.
  void arrived(std::uint64_t sequence, PayloadKind payload_kind);
  /// This rank's contributions to the round are sent; their memory may be written again.
  void contributions_sent(std::uint64_t sequence);
  /// What this rank adds up is done.
  void own_work_done(std::uint64_t sequence);
  /// This rank's results are being sent, or are sent. Their memory is not written before: in between, no later round
  /// counts as gathered.
  void results_leave() { ++results_leaving_; }
  void results_sent(std::uint64_t sequence);

  /// Everything that this rank adds up has arrived, for rounds up to this one.
  std::uint64_t gathered() const noexcept { return gathered_; }
  /// All results have arrived, this rank's gradients have been sent and its own work is done, for rounds up to this
  /// one.
  std::uint64_t published() const noexcept { return published_; }

 private:
  struct Round {
    RoundShape shape;    // its sequence always belongs to this place
    bool known = false;  // whether the shape is known, from a message or from a call
    std::uint32_t known_from = 0;
    bool announced = false;
    bool contributions_sent = false;
    bool own_work_done = false;
    bool results_sent = false;
    Expected expected;
    std::uint32_t contributions = 0;
    std::uint32_t results = 0;
    std::vector<std::uint8_t> entered;  // by rank, a bit for each payload kind
  };
  Round& at(std::uint64_t sequence) noexcept { return rounds_[sequence % 2]; }
  Status agree(Round& round, std::uint32_t from, const RoundShape& shape);
  void advance();
  bool is_gathered(const Round& round) const noexcept;
  bool is_published(const Round& round) const noexcept;

  const std::uint32_t self_;
  const std::span<const Rank> names_;
  std::array<Round, 2> rounds_;
  std::uint64_t gathered_ = 0;
  std::uint64_t published_ = 0;
  std::uint32_t results_leaving_ = 0;
};

}  // namespace troupe::collectives
