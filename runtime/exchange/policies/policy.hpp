#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/compute/rules/rule.hpp"

namespace troupe {

/// Every policy. A name here is an enumerator, a value of update.policy, and the name of the source file with the
/// policy's entry (policy_entry.hpp) and state machine. docs/extending.md lists all that a new policy needs.
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
/// Whether shard actors host the group's stripes. Otherwise devices update them in stream order, in rounds.
bool is_hosted(PolicyKind kind) noexcept;
/// Whether ranks have weights of their own between exchanges, so that each needs the rule's whole state.
bool works_locally(PolicyKind kind) noexcept;
/// Whether each update has a round of all ranks, in which they can agree on a verdict (needs_verdict).
bool has_verdicts(PolicyKind kind) noexcept;

/// Which formula block momentum follows; docs/policies.md has both.
enum class BlockRule : std::uint8_t { paper, cntk };
std::string_view name_of(BlockRule rule) noexcept;

/// How one parameter group's ranks exchange. The table of settings (settings.cpp) describes the members; the
/// policies' entries say which policy reads which. If a policy has a default of its own, the value here means "not
/// given".
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
/// The settings with the policy's own default for every member that was not given.
PolicySettings resolved(PolicySettings given, std::uint32_t ranks);
/// The policy for parameters that are averages themselves (running statistics), when the other parameters have
/// `policy`: it averages at the same steps. An outer momentum would move them beyond all averaged values.
PolicySettings without_outer_momentum(const PolicySettings& policy);
/// Canonical text with every member that the policy reads.
std::string to_string(const PolicySettings& settings);
/// The form in which it is sent to another process: the kind, then every setting's bits.
std::vector<std::uint64_t> to_words(const PolicySettings& settings);
/// Reads the form of to_words. False: the words are not a policy, and `settings` are unchanged.
bool from_words(const std::vector<std::uint64_t>& words, PolicySettings& settings);

/// What a round sends.
enum class Sent : std::uint8_t {
  nothing,   // no round
  gradient,  // sums of gradients over samples; the owners of the stripes apply the optimizer's rule
  delta,     // the change of the rank's weights since the last round, times its samples; an outer rule applies it
};

/// The facts about a step that a policy gets before the step is enqueued; the same at every rank except for `idle`.
struct StepFacts {
  Step step;
  std::uint64_t samples_before = 0;  // taken by all ranks before this step
  std::uint64_t samples = 0;         // of all ranks in this step
  bool last = false;                 // of the run
  bool consistent = false;           // a save or an evaluation follows: every gradient so far must be applied
  bool idle = false;                 // this rank has no samples in the step; not the same at every rank, so no policy
                                     // may decide by it
  std::span<const Rank> relieved{};  // do no update in this step if other ranks can access their stripes
                                     // (relieved_ranks.hpp); in rank order
  std::uint64_t repeated = 0;        // samples that ranks compute besides, to fill up an epoch (Scatter::equal)

  /// The samples that all ranks compute: those of the step's mean gradient.
  std::uint64_t computed() const noexcept { return samples + repeated; }
};

/// Actions of one step for a group whose policy exchanges in rounds; executed in the order of the fields.
struct StepActions {
  bool switched = false;         // by PolicySequence alone: the policy is another one than in the previous step
  bool hosted = false;           // by hosted policies alone: shards apply pushes; `finish`: ends with a barrier
  bool finish_previous = false;  // the round in progress ends, and the weights become its result
  bool gather_state = false;     // by PolicySequence alone: first all ranks get all owners' parts of the rule's state
  bool local_update = false;     // the rank applies the rule to its own weights, with its own gradients
  bool keep = false;             // the gradients are kept and added to the next step's
  Sent sent = Sent::nothing;     // not nothing: a round begins
  Rule outer{};                  // Sent::delta: the rule applied to the deltas
  bool finish = false;           // the round ends in this step; otherwise it continues until a later step
  bool clear_state = false;      // the optimizer's local state is set to zero
};

/// When a group exchanges: a state machine without clocks, memory or threads. All ranks ask their own copies the same
/// questions and get the same answers.
class RoundPolicy {
 public:
  virtual ~RoundPolicy() = default;
  /// The next step's orders. Steps come in order.
  virtual StepActions next(const StepFacts& facts) = 0;
};

/// The policy of `settings` for `ranks` ranks, without its synchronous start; for a hosted policy, the ranks' side.
std::unique_ptr<RoundPolicy> make_round_policy(const PolicySettings& settings, std::uint32_t ranks);

/// Makes an app's own policy in place of the one that `settings` name, for a group of `ranks` ranks; null: that one
/// stays. It decides when the group exchanges. The named policy decides what memory the group has (needs_of), and
/// whether the rule's whole state is at each rank.
using MakeRoundPolicy =
    std::function<std::unique_ptr<RoundPolicy>(const PolicySettings& settings, std::uint32_t ranks)>;

/// A policy, and the first step that it is asked about: the first one that has reached both numbers.
struct PolicyPhase {
  std::uint64_t from_step = 0;
  std::uint64_t from_samples = 0;  // taken by all ranks before
  PolicySettings policy;
  double straggler_ratio = 0;  // not 0: begins when a rank is so many times slower than the median, not by the numbers
  friend bool operator==(const PolicyPhase&, const PolicyPhase&) = default;
};

/// A change of policy as written in the settings: at the beginning of a step or epoch (counted from 1), when all ranks
/// have taken so many samples, or when the slowest rank takes `ratio` times the median in a window of steps.
struct PolicySwitch {
  enum class Trigger : std::uint8_t { step, epoch, samples, straggler };
  Trigger trigger = Trigger::step;
  std::uint64_t at = 0;
  double ratio = 0;  // for straggler
  PolicySettings policy;
  friend bool operator==(const PolicySwitch&, const PolicySwitch&) = default;
};
std::string_view name_of(PolicySwitch::Trigger trigger) noexcept;

/// A group's policy after a step, for the run that resumes from there.
struct PolicyProgress {
  PolicyKind kind = PolicyKind::sync;  // of that step
  std::optional<std::uint64_t> steps;  // under it; 0: another policy begins with the next step; nothing: not known
  friend bool operator==(const PolicyProgress&, const PolicyProgress&) = default;
};

/// Several policies one after the other. The last step of each completes its exchange, so that the next begins with
/// weights that are the same everywhere.
class PolicySequence final : public RoundPolicy {
 public:
  /// `phases`: at least one, in the order in which they begin; the first one's from_step and from_samples are ignored.
  /// Phases for a straggler begin only by switch_at. `make_own` is asked when a phase that exchanges in rounds begins;
  /// empty: the app has no policies of its own.
  PolicySequence(const std::vector<PolicyPhase>& phases, std::uint32_t ranks, MakeRoundPolicy make_own = {});

  StepActions next(const StepFacts& facts) override;
  /// Whether any phase works locally.
  bool works_locally() const noexcept { return works_locally_; }
  /// From `step` on, for which next() was not called yet, the policy is `policy`, and phases that would begin later are
  /// dropped; phases that begin before `step` stay. All ranks must make the same calls, in the same order, before
  /// they ask about the step before `step`. Of several switches at one step the last one counts.
  void switch_at(Step step, const PolicySettings& policy);
  /// The policy of a step before which all ranks have taken `samples`, if only the phases switch.
  const PolicySettings& at(Step step, std::uint64_t samples) const noexcept;
  /// The policy of the step that was asked about last.
  const PolicySettings& policy() const noexcept { return phases_[current_].policy; }
  /// Number of steps under it before the step that was asked about last, if its first step is known.
  std::uint64_t steps_taken() const noexcept { return step_.value - std::min(step_.value, since_); }
  /// What a checkpoint of the state after that step says of the policy.
  PolicyProgress progress() const noexcept { return {policy().kind, ends_ ? 0 : steps_taken() + 1}; }
  /// Before the first call of next(): the run was interrupted, and had taken `steps` steps under the policy with which
  /// it continues.
  void resume(std::uint64_t steps) noexcept { resumed_ = steps; }
  bool is_hosted_only() const noexcept { return hosted_only_; }

 private:
  void add(PolicyPhase phase);
  std::unique_ptr<RoundPolicy> make_current() const;
  void advance(std::uint64_t step, std::uint64_t samples);
  bool changes(std::uint64_t step, std::uint64_t samples) const noexcept;
  bool is_ordered(std::uint64_t step) const noexcept;

  const std::uint32_t ranks_;
  const MakeRoundPolicy make_own_;
  std::vector<PolicyPhase> phases_;  // past phases, the current one, and those that begin later by numbers
  std::deque<PolicyPhase> ordered_;  // those that begin by switch_at, by their steps
  std::unique_ptr<RoundPolicy> policy_;
  std::size_t current_ = 0;
  Step step_{};
  std::uint64_t since_ = 0;               // first step of the current policy
  std::optional<std::uint64_t> resumed_;  // steps under the current policy before the first one that is asked about
  bool begun_ = false;
  bool ends_ = false;  // with step_, since another policy follows
  bool works_locally_ = false;
  bool hosted_only_ = false;
};

/// The most f32 per parameter that an outer rule keeps as state.
inline constexpr std::size_t kMaxOuterSlots = 1;

/// The memory that a group needs besides gradients, parameters and the stripes' state.
struct PolicyNeeds {
  bool own_weights = false;  // ranks compute with weights of their own
  bool held = false;         // gradients or weights put aside
  bool whole_state = false;  // every rank has the rule's whole state
  bool outer_state = false;  // a momentum of the outer update
  bool side_stream = false;  // a round runs beside the next step
  bool hosted = false;       // shards and workers, with streams of their own
  bool landing = false;      // parameters read from shards are not read into the weights
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
/// The needs of all of them together.
PolicyNeeds needs_of(const std::vector<PolicyPhase>& phases);

/// Why `settings` cannot work with `ranks` ranks and `batch` rows per rank and step, and what to do; empty: they can.
std::string check_policy(const PolicySettings& settings, std::uint32_t ranks, std::uint32_t batch);
/// The same for any number of ranks.
inline std::string contradiction(const PolicySettings& settings) { return check_policy(settings, 0, 0); }

/// A plan's line for people: what is sent, when, and how stale it may be.
std::string describe(const PolicySettings& settings, std::uint32_t ranks);

}  // namespace troupe
