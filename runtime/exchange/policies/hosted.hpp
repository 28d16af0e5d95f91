#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/exchange/policies/policy.hpp"
#include "runtime/exchange/policies/staleness_histogram.hpp"
#include "runtime/exchange/policies/update_log.hpp"

// Policies of hosted shards: workers push contributions to a shard and read its parameters, and the shard decides when
// what is applied and who is answered. Pure state machines, events in, actions out: no clock, no thread, no memory.
namespace troupe {

/// A worker's contribution arrived. Numbers count per worker and shard.
struct HostedPush {
  Rank worker;
  std::uint64_t sequence = 0;      // from 1; makes retries safe
  std::uint64_t clock = 0;         // contributions this worker committed before
  std::uint64_t base_version = 0;  // of this shard's parameters that it was computed from
  friend bool operator==(const HostedPush&, const HostedPush&) = default;
};

/// A worker wants the parameters with which it computes its contribution of this clock.
struct HostedRead {
  Rank worker;
  std::uint64_t clock = 0;
  /// Not 0: its n-th meeting, from 1. Answered when all workers have come to theirs, with the same parameters to all.
  std::uint64_t meeting = 0;
};

/// Why an event changed nothing.
enum class Refusal : std::uint8_t {
  none,
  duplicate,     // taken before: the sender may be told so
  out_of_order,  // an earlier one is missing
  stranger,      // not (any more) one of the workers
  wrong_clock,   // the worker's clock, or its meeting, is another
};
std::string_view name_of(Refusal refusal) noexcept;

/// Apply these contributions, summed in this order, as one update.
struct ApplyUpdate {
  std::uint64_t version = 0;  // that the parameters have afterwards; the update's number, from 1
  double rate_scale = 1;      // by which the rule's rate is multiplied
  std::vector<HostedPush> contributions;
};

/// Answer the read of this worker with the parameters as they are at this point of the actions.
struct AnswerRead {
  Rank worker;
  std::uint64_t clock = 0;    // of the read
  std::uint64_t version = 0;  // of the parameters
  std::uint64_t content = 0;  // which contributions they contain: equal at two shards when these are the same
  std::uint64_t meeting = 0;  // of the read
  friend bool operator==(const AnswerRead&, const AnswerRead&) = default;
};

struct HostedActions {
  Refusal refused = Refusal::none;
  std::vector<std::variant<ApplyUpdate, AnswerRead>> orders;  // in this order
};

/// What every hosted policy keeps: who takes part, what has come from whom, what is applied.
class HostedLedger {
 public:
  /// As a shard goes on that has applied `version` updates, with no workers yet. Clocks of the first ones start at
  /// `clock`.
  explicit HostedLedger(std::uint64_t version = 0, std::uint64_t clock = 0) noexcept;

  /// Lets a worker take part from the smallest clock of those that do. False: it does already.
  bool join(Rank worker);
  /// False: it took no part.
  bool leave(Rank worker) noexcept;
  bool takes_part(Rank worker) const noexcept;
  std::size_t count_workers() const noexcept;

  /// Whether the push is the next of its worker.
  Refusal check(const HostedPush& push) const noexcept;
  /// Counts it as taken, unless it is refused.
  Refusal take(const HostedPush& push) noexcept;
  /// Whether a read makes sense: its clock is not beyond what the worker has pushed.
  Refusal check(const HostedRead& read) const noexcept;
  /// Contributions that were taken are applied as one update.
  ApplyUpdate apply(std::vector<HostedPush> contributions, double rate_scale);
  AnswerRead answer(const HostedRead& read) const noexcept;

  /// Sequences taken from this worker.
  std::uint64_t taken(Rank worker) const noexcept;
  /// Its clock by contributions that were taken, and by those applied.
  std::uint64_t pushed(Rank worker) const noexcept;
  std::uint64_t committed(Rank worker) const noexcept;
  /// The smallest committed clock of those who take part; when nobody does, the last that was.
  std::uint64_t smallest_clock() const noexcept;
  /// Of all who take part the contribution of this clock is taken.
  bool everyone_pushed(std::uint64_t clock) const noexcept;
  std::uint64_t version() const noexcept { return version_; }
  /// Sequences applied of each worker: which contributions the parameters contain.
  std::vector<std::uint64_t> version_vector() const;
  /// How many updates of others came between a contribution's base and its being applied.
  std::uint64_t staleness(const HostedPush& push) const noexcept;
  const StalenessHistogram& histogram() const noexcept { return histogram_; }

 private:
  struct Worker {
    bool present = false;
    std::uint64_t sequence = 0;  // taken
    std::uint64_t applied = 0;   // sequences
    std::uint64_t pushed = 0;    // clocks taken
    std::uint64_t committed = 0;
  };
  const Worker* find(Rank worker) const noexcept;

  std::vector<Worker> workers_;  // by rank
  std::uint64_t version_;
  std::uint64_t content_ = 0;
  std::uint64_t last_smallest_;
  StalenessHistogram histogram_;
};

/// What a shard does with what comes. Threads: one caller at a time.
class HostedPolicy {
 public:
  virtual ~HostedPolicy() = default;
  /// Throws Error{invalid} when the policy's settings do not allow one more worker.
  virtual HostedActions joined(Rank worker) = 0;
  /// The worker announced its leave, or is gone: nothing waits for it any more. What it pushed is applied.
  virtual HostedActions left(Rank worker) = 0;
  virtual HostedActions pushed(const HostedPush& push) = 0;
  virtual HostedActions read(const HostedRead& read) = 0;
  virtual const HostedLedger& ledger() const noexcept = 0;
  /// How stale what was applied was, in the policy's measure: updates of others between a contribution's base and its
  /// being applied, or what the policy bounds.
  virtual const StalenessHistogram& staleness() const noexcept { return ledger().histogram(); }
  /// The unit of that, for people.
  virtual std::string_view staleness_unit() const noexcept { return "updates of other ranks"; }
  /// Whether no update comes before every worker that takes part has used what it read last, so that readers need no
  /// copies.
  virtual bool updates_wait_for_readers() const noexcept { return false; }
};

/// `policy` with meetings, at which the shard contains exactly what its workers have contributed: after one, nothing is
/// applied until worker `host` has contributed again or left, so that its process may copy the stripe as it lies.
std::unique_ptr<HostedPolicy> with_meetings(std::unique_ptr<HostedPolicy> policy, Rank host);

/// `policy` (with its meetings) in the order of an earlier run, which `replay` goes through from phase to phase: what
/// workers push waits for its turn, and each reads the version that its next contribution was computed from then.
/// Behind the log's end, or once a worker has left, as `policy` decides. A run that differs from that one waits
/// forever: its workers' deadlines tell.
std::unique_ptr<HostedPolicy> with_replay(std::unique_ptr<HostedPolicy> policy, std::shared_ptr<UpdateReplay> replay);

/// The shards' side of a hosted policy, with no workers yet, for at most `ranks`; it goes on from `ledger`. Throws
/// Error{invalid} for policies that exchange in rounds, and with what check_policy says.
std::unique_ptr<HostedPolicy> make_plain_hosted_policy(const PolicySettings& settings, std::uint32_t ranks,
                                                       HostedLedger ledger = HostedLedger{});
/// The same with meetings, in the process of worker `host`, for a view of `ranks` workers, all of which take part from
/// the start, so that none runs ahead of those that are not there yet.
std::unique_ptr<HostedPolicy> make_hosted_policy(const PolicySettings& settings, std::uint32_t ranks, Rank host,
                                                 HostedLedger ledger = HostedLedger{});

/// Whether shards add up all workers' pushes of a clock, and apply them as one update.
bool sums_clocks(const PolicySettings& settings);
/// Where workers push weights, and they and the shard's weights pull each other: alpha, the part of their distance.
/// Nothing: workers push gradients.
std::optional<double> elastic_alpha(const PolicySettings& settings, std::uint32_t ranks);
/// The elastic pull p -= alpha * (p - c) as a rule's step, for Stream::update with `c` as the only contribution and a
/// total of one sample.
RuleStep elastic_pull(double alpha) noexcept;

}  // namespace troupe
