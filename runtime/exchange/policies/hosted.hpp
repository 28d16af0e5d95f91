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

// Policies of hosted shards: workers push contributions to a shard and read its parameters; the shard decides when each
// is applied and when each read is answered. Pure state machines: events in, actions out; no clock, thread or memory.
namespace troupe {

/// A worker's contribution arrived. Numbers are counted for each worker and shard.
struct HostedPush {
  Rank worker;
  std::uint64_t sequence = 0;      // counted from 1; makes retries safe
  std::uint64_t clock = 0;         // number of contributions that this worker committed before
  std::uint64_t base_version = 0;  // version of this shard's parameters that it was computed from
  friend bool operator==(const HostedPush&, const HostedPush&) = default;
};

/// A worker asks for the parameters with which it computes its contribution of this clock.
struct HostedRead {
  Rank worker;
  std::uint64_t clock = 0;
  /// Not 0: the number of the worker's barrier, from 1. Answered when all workers are at it, with the same parameters.
  std::uint64_t barrier = 0;
};

/// Why an event changed nothing.
enum class Refusal : std::uint8_t {
  none,
  duplicate,     // already taken: the sender may be told so
  out_of_order,  // an earlier one is missing
  stranger,      // not, or no longer, one of the workers
  wrong_clock,   // not the worker's clock, or not the number of its barrier
};
std::string_view name_of(Refusal refusal) noexcept;

/// Apply these contributions, summed in this order, as one update.
struct ApplyUpdate {
  std::uint64_t version = 0;  // of the parameters afterwards; the update's number, from 1
  double rate_scale = 1;      // factor for the rule's rate
  std::vector<HostedPush> contributions;
};

/// Answer this worker's read with the parameters as they are after the preceding actions.
struct AnswerRead {
  Rank worker;
  std::uint64_t clock = 0;    // of the read
  std::uint64_t version = 0;  // of the parameters
  std::uint64_t content = 0;  // identifies the contributions in the parameters: equal at two shards if those are
  std::uint64_t barrier = 0;  // of the read
  friend bool operator==(const AnswerRead&, const AnswerRead&) = default;
};

struct HostedActions {
  Refusal refused = Refusal::none;
  std::vector<std::variant<ApplyUpdate, AnswerRead>> orders;  // in this order
};

/// The state that all hosted policies have: the workers, what each has pushed, what is applied.
class HostedProgress {
 public:
  /// The ledger of a shard that has applied `version` updates; there are no workers yet. The clocks of the first
  /// workers start at `clock`.
  explicit HostedProgress(std::uint64_t version = 0, std::uint64_t clock = 0) noexcept;

  /// Adds a worker, whose clock starts at the smallest clock of the present workers. False: it is already one of them.
  bool join(Rank worker);
  /// Removes a worker. False: it was not one.
  bool leave(Rank worker) noexcept;
  bool takes_part(Rank worker) const noexcept;
  std::size_t count_workers() const noexcept;

  /// Whether the push is the next one of its worker.
  Refusal check(const HostedPush& push) const noexcept;
  /// Counts the push as taken, unless it is refused.
  Refusal take(const HostedPush& push) noexcept;
  /// Whether the read is valid: its clock is not beyond the contributions that the worker has pushed.
  Refusal check(const HostedRead& read) const noexcept;
  /// Records that contributions, all taken before, are applied as one update.
  ApplyUpdate apply(std::vector<HostedPush> contributions, double rate_scale);
  AnswerRead answer(const HostedRead& read) const noexcept;

  /// Number of pushes taken from this worker.
  std::uint64_t taken(Rank worker) const noexcept;
  /// The worker's clock: contributions taken, and contributions applied.
  std::uint64_t pushed(Rank worker) const noexcept;
  std::uint64_t committed(Rank worker) const noexcept;
  /// The smallest committed clock of the workers; without workers, the smallest one before the last worker left.
  std::uint64_t smallest_clock() const noexcept;
  /// Whether the contribution of this clock is taken from every worker.
  bool everyone_pushed(std::uint64_t clock) const noexcept;
  std::uint64_t version() const noexcept { return version_; }
  /// For each worker, the pushes applied: says which contributions the parameters contain.
  std::vector<std::uint64_t> version_vector() const;
  /// How many updates of other workers were applied between the base of a contribution and the contribution itself.
  std::uint64_t staleness(const HostedPush& push) const noexcept;
  const StalenessHistogram& histogram() const noexcept { return histogram_; }

 private:
  struct Worker {
    bool present = false;
    std::uint64_t sequence = 0;  // number of pushes taken
    std::uint64_t applied = 0;   // number of pushes applied
    std::uint64_t pushed = 0;    // number of clocks taken
    std::uint64_t committed = 0;
  };
  const Worker* find(Rank worker) const noexcept;

  std::vector<Worker> workers_;  // by rank
  std::uint64_t version_;
  std::uint64_t content_ = 0;
  std::uint64_t last_smallest_;
  StalenessHistogram histogram_;
};

/// Decides what a shard does with each event. Threads: one caller at a time.
class HostedPolicy {
 public:
  virtual ~HostedPolicy() = default;
  /// Throws Error{invalid} if the policy's settings do not allow another worker.
  virtual HostedActions joined(Rank worker) = 0;
  /// The worker announced that it leaves, or is lost: nothing waits for it any more. Its pushes are applied.
  virtual HostedActions left(Rank worker) = 0;
  virtual HostedActions pushed(const HostedPush& push) = 0;
  virtual HostedActions read(const HostedRead& read) = 0;
  virtual const HostedProgress& progress() const noexcept = 0;
  /// How stale the applied contributions were, in the policy's unit: updates of other workers between a contribution's
  /// base and the contribution, or the quantity that the policy bounds.
  virtual const StalenessHistogram& staleness() const noexcept { return progress().histogram(); }
  /// The unit of staleness(), for people.
  virtual std::string_view staleness_unit() const noexcept { return "updates of other ranks"; }
  /// Whether an update happens only after every worker has used the parameters that it read last, so that readers need
  /// no copies.
  virtual bool updates_wait_for_readers() const noexcept { return false; }
};

/// `policy` with barriers, at which the shard contains exactly its workers' contributions. After a barrier nothing is
/// applied until worker `host` has contributed again or left, so its process may copy the stripe in place.
std::unique_ptr<HostedPolicy> with_barriers(std::unique_ptr<HostedPolicy> policy, Rank host);

/// `policy` (with its barriers) in the order of an earlier run, whose log `replay` follows from phase to phase: a
/// worker's push waits for its turn, and a worker reads the version from which its next contribution was computed then.
/// After the end of the log, or once a worker has left, `policy` decides. A run that differs from the earlier one waits
/// forever; the workers' deadlines end it.
std::unique_ptr<HostedPolicy> with_replay(std::unique_ptr<HostedPolicy> policy, std::shared_ptr<UpdateReplay> replay);

/// The shards' side of a hosted policy, without workers yet, for at most `ranks`; it continues from `ledger`. Throws
/// Error{invalid} for policies that exchange in rounds, and for the reasons of check_policy.
std::unique_ptr<HostedPolicy> make_plain_hosted_policy(const PolicySettings& settings, std::uint32_t ranks,
                                                       HostedProgress progress = HostedProgress{});
/// The same with barriers, in the process of worker `host`, for a view of `ranks` workers. All of them take part from
/// the start, so that none runs ahead of those that have not joined yet.
std::unique_ptr<HostedPolicy> make_hosted_policy(const PolicySettings& settings, std::uint32_t ranks, Rank host,
                                                 HostedProgress progress = HostedProgress{});

/// Whether shards add up all workers' pushes of a clock and apply the sum as one update.
bool sums_clocks(const PolicySettings& settings);
/// If workers push weights, and they and the shard's weights pull each other: alpha, the fraction of their distance.
/// Empty: workers push gradients.
std::optional<double> elastic_alpha(const PolicySettings& settings, std::uint32_t ranks);
/// The elastic pull p -= alpha * (p - c) as a step of a rule, for Stream::update, with `c` as the only contribution and
/// a total of one sample.
RuleStep elastic_pull(double alpha) noexcept;

}  // namespace troupe
