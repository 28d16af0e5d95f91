#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/compute/rules/rule.hpp"

namespace troupe {

/// Every policy. A name here is an enumerator, a word of update.policy, and the name of the source that has the
/// policy's entry (table.hpp) and its state machine.
#define TROUPE_POLICIES(X) \
  X(sync)                  \
  X(double_buffered)       \
  X(local_sgd)             \
  X(post_local_sgd)        \
  X(model_averaging)       \
  X(block_momentum)        \
  X(diloco)                \
  X(async)                 \
  X(ssp)                   \
  X(easgd)

#define TROUPE_ENUMERATOR(name) name,
enum class PolicyKind : std::uint8_t { TROUPE_POLICIES(TROUPE_ENUMERATOR) };
#undef TROUPE_ENUMERATOR
#define TROUPE_ENUMERATOR(name) PolicyKind::name,
inline constexpr std::array kPolicyKinds{TROUPE_POLICIES(TROUPE_ENUMERATOR)};
#undef TROUPE_ENUMERATOR
std::string_view name_of(PolicyKind kind) noexcept;
/// Whether shard actors host the group's stripes; otherwise the devices update them in stream order, in rounds.
bool is_hosted(PolicyKind kind) noexcept;
/// Whether ranks work on weights of their own between exchanges, so that each needs the whole of the rule's state.
bool works_locally(PolicyKind kind) noexcept;
/// Whether each update has a round of all ranks, in which they can agree on a verdict (needs_verdict).
bool has_verdicts(PolicyKind kind) noexcept;

/// Which formula block momentum follows; docs/policies.md has both.
enum class BlockRule : std::uint8_t { paper, cntk };
std::string_view name_of(BlockRule rule) noexcept;

/// How one parameter group's ranks exchange. What each member means is in the table of settings (settings.cpp), which
/// policies read it in their entries. Where a policy has a default of its own, the value here means that it was left
/// open.
struct PolicySettings {
  PolicyKind kind = PolicyKind::sync;
  std::uint64_t distributed_after = 0;
  std::uint32_t accumulate = 1;
  std::uint32_t every_steps = 0;
  std::uint64_t block_samples = 0;
  BlockRule block_rule = BlockRule::paper;
  double outer_momentum = -1;
  double time_constant = 0;
  double outer_rate = 0;
  bool nesterov = true;
  bool reset_momentum = true;
  std::uint32_t staleness = 3;
  bool divide_by_staleness = false;
  double ramp_from = 1;
  double ramp_by = 0.2;
  std::uint32_t ramp_every = 600;
  double elasticity = 0;
  friend bool operator==(const PolicySettings&, const PolicySettings&) = default;
};
/// What the policy reads, with every number that was left to it.
PolicySettings resolved(PolicySettings given, std::uint32_t ranks);
/// The policy for parameters that are averages themselves, running statistics, where the others have `policy`: it
/// averages at the same steps. An outer momentum would carry them beyond all that was averaged.
PolicySettings without_outer_momentum(const PolicySettings& policy);
/// Canonical text with every member that the policy reads.
std::string to_string(const PolicySettings& settings);
/// On the way to another process: the kind, then every setting's bits.
std::vector<std::uint64_t> to_words(const PolicySettings& settings);
/// Takes what to_words gave. False: the words are no policy's, and `settings` are as they were.
bool from_words(const std::vector<std::uint64_t>& words, PolicySettings& settings);

/// What a round carries.
enum class Sent : std::uint8_t {
  nothing,   // no round
  gradient,  // sums of gradients over samples; the stripes' tenants apply the optimizer's rule
  delta,     // how far the rank's weights have moved since the last round, times its samples; an outer rule applies
};

/// What a policy is told of a step before it is enqueued; the same at every rank.
struct StepFacts {
  Step step;
  std::uint64_t samples_before = 0;  // of all ranks, taken before this step
  std::uint64_t samples = 0;         // of all ranks, in this step
  bool last = false;                 // of the run
  bool consistent = false;           // what follows (a save, an evaluation) wants every gradient so far applied
  std::span<const Rank>
      relieved{};  // do no update in this step if others reach their stripes (relief.hpp); in rank order
};

/// What a group whose policy exchanges in rounds does in one step; actions are executed in the order of the fields.
struct StepOrders {
  bool switched = false;         // the group has another policy than in the step before
  bool hosted = false;           // shards apply what ranks push; `finish`: the step ends with a meeting
  bool finish_previous = false;  // the round under way ends, and the weights become its result
  bool gather_state = false;     // the tenants' parts of the rule's state are given to every rank first
  bool local_update = false;     // the rank applies the rule to its own weights, with its own gradients
  bool keep = false;             // the gradients are kept, to be added to the next step's
  Sent sent = Sent::nothing;     // a round begins
  Rule outer;                    // Sent::delta: the rule applied to the deltas
  bool finish = false;           // and ends in this step; otherwise it is under way until a later one
  bool clear_state = false;      // the optimizer's local state starts again from zero
};

/// When a group exchanges: a state machine without clocks, memory or threads. Every rank asks its own the same
/// questions and gets the same answers.
class RoundPolicy {
 public:
  virtual ~RoundPolicy() = default;
  /// The next step's orders. Steps come in order.
  virtual StepOrders next(const StepFacts& facts) = 0;
};

/// The policy of `settings`, without its warm start, for `ranks` ranks: of a hosted one, the ranks' side.
std::unique_ptr<RoundPolicy> make_round_policy(const PolicySettings& settings, std::uint32_t ranks);

/// A policy, and the first step that it is asked about: the first by both numbers.
struct PolicyPhase {
  std::uint64_t from_step = 0;
  std::uint64_t from_samples = 0;  // of all ranks, taken before
  PolicySettings policy;
  double straggler_ratio = 0;  // not 0: it may come, when a rank is so much slower than the median, and not by numbers
  friend bool operator==(const PolicyPhase&, const PolicyPhase&) = default;
};

/// A change of policy as it was written: at the beginning of the given step or epoch (counted from 1), when so many
/// samples of all ranks were taken, or once the slowest rank takes `ratio` times the median in a window of steps.
struct PolicySwitch {
  enum class Trigger : std::uint8_t { step, epoch, samples, straggler };
  Trigger trigger = Trigger::step;
  std::uint64_t at = 0;
  double ratio = 0;  // of straggler
  PolicySettings policy;
  friend bool operator==(const PolicySwitch&, const PolicySwitch&) = default;
};
std::string_view name_of(PolicySwitch::Trigger trigger) noexcept;

/// Several policies one after the other. Each one's last step leaves nothing under way, so that the next begins with
/// weights that are everywhere the same.
class PolicySequence final : public RoundPolicy {
 public:
  /// At least one phase, whose from_step and from_samples mean nothing; in the order of their beginnings. Those that
  /// wait for a straggler come by switch_at alone.
  PolicySequence(const std::vector<PolicyPhase>& phases, std::uint32_t ranks);

  StepOrders next(const StepFacts& facts) override;
  /// Whether any of the phases does.
  bool works_locally() const noexcept { return works_locally_; }
  /// From `step` on, which was not asked about, `policy` it is, and phases whose numbers are reached later come no
  /// more; what begins before `step` stays. All ranks must say so, in the same order, before they ask about the step
  /// before it. Of several switches at one step the last one counts.
  void switch_at(Step step, const PolicySettings& policy);
  /// That of a step before which all ranks have taken `samples`, as long as nothing but the phases switches.
  const PolicySettings& at(Step step, std::uint64_t samples) const noexcept;
  /// That of the step that was asked about last.
  const PolicySettings& policy() const noexcept { return phases_[current_].policy; }
  /// Steps under it before the one that was asked about last, as far as its beginning is known.
  std::uint64_t steps_taken() const noexcept { return step_.value - std::min(step_.value, since_); }
  bool is_hosted_only() const noexcept { return hosted_only_; }

 private:
  void add(PolicyPhase phase);
  void advance(std::uint64_t step, std::uint64_t samples);
  bool changes(std::uint64_t step, std::uint64_t samples) const noexcept;
  bool is_ordered(std::uint64_t step) const noexcept;

  const std::uint32_t ranks_;
  std::vector<PolicyPhase> phases_;  // those that were, the current one, and those to come by numbers
  std::deque<PolicyPhase> ordered_;  // to come by switch_at, by their steps
  std::unique_ptr<RoundPolicy> policy_;
  std::size_t current_ = 0;
  Step step_{};
  std::uint64_t since_ = 0;  // the current policy's first step
  bool begun_ = false;
  bool works_locally_ = false;
  bool hosted_only_ = false;
};

/// The most f32 per parameter that an outer rule keeps.
inline constexpr std::size_t kMaxOuterSlots = 1;

/// What memory a group needs beyond gradients, parameters and the stripes' state.
struct PolicyNeeds {
  bool own_weights = false;  // ranks compute with weights of their own
  bool held = false;         // gradients, or weights, put aside
  bool whole_state = false;  // every rank has the whole of the rule's state
  bool outer_state = false;  // a momentum of the outer update
  bool side_stream = false;  // a round goes on behind the next step
  bool hosted = false;       // shards and workers, with streams of their own
  bool landing = false;      // what is read from shards does not land in the weights
  PolicyNeeds& operator|=(const PolicyNeeds& other) noexcept {
    own_weights |= other.own_weights;
    held |= other.held;
    whole_state |= other.whole_state;
    outer_state |= other.outer_state;
    side_stream |= other.side_stream;
    hosted |= other.hosted;
    landing |= other.landing;
    return *this;
  }
};
PolicyNeeds needs_of(const PolicySettings& settings);
/// For any of them.
PolicyNeeds needs_of(const std::vector<PolicyPhase>& phases);

/// Why `settings` cannot work with `ranks` ranks and `batch` rows a rank and step, with what to do; empty: they can.
std::string check_policy(const PolicySettings& settings, std::uint32_t ranks, std::uint32_t batch);
/// The same whatever the ranks.
inline std::string contradiction(const PolicySettings& settings) { return check_policy(settings, 0, 0); }

/// A plan's line for people: what is sent, when, how stale it may be.
std::string describe(const PolicySettings& settings, std::uint32_t ranks);

}  // namespace troupe
