#include <algorithm>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/exchange/policies/policy.hpp"

namespace troupe {
namespace {

bool has_come(const PolicyPhase& phase, std::uint64_t step, std::uint64_t samples) noexcept {
  return step >= phase.from_step && samples >= phase.from_samples;
}

}  // namespace

PolicySequence::PolicySequence(const std::vector<PolicyPhase>& phases, std::uint32_t ranks, MakeRoundPolicy make_own)
    : ranks_(ranks), make_own_(std::move(make_own)) {
  TROUPE_CHECK(!phases.empty(), Code::invalid, "a group needs a policy");
  TROUPE_CHECK(phases.front().straggler_ratio == 0, Code::invalid, "a group's first policy waits for no straggler");
  for (const PolicyPhase& phase : phases)
    if (phase.straggler_ratio == 0) add(phase);
  works_locally_ = needs_of(phases).whole_state;
  const auto hosted = [](const PolicyPhase& p) { return is_hosted(p.policy.kind); };
  hosted_only_ =
      std::all_of(phases_.begin(), phases_.end(), hosted) && std::all_of(phases.begin(), phases.end(), hosted);
}

/// A synchronous start is a phase of its own.
void PolicySequence::add(PolicyPhase phase) {
  phase.policy = resolved(phase.policy, ranks_);
  const std::uint64_t warm = std::exchange(phase.policy.distributed_after, 0);
  if (warm != 0 && phases_.empty()) phases_.push_back({.policy = {}});
  phase.from_samples = std::max(phase.from_samples, warm);
  phases_.push_back(std::move(phase));
}

std::unique_ptr<RoundPolicy> PolicySequence::make_current() const {
  std::unique_ptr<RoundPolicy> own;
  if (make_own_ && !troupe::is_hosted(policy().kind)) own = make_own_(policy(), ranks_);
  return own ? std::move(own) : make_round_policy(policy(), ranks_);
}

void PolicySequence::switch_at(Step step, const PolicySettings& policy) {
  TROUPE_CHECK(!begun_ || step > step_, Code::invalid, "a switch at step ", step.value, ", but step ", step_.value,
               " has begun");
  // Ranks receive an order while they are at different steps. Therefore its effect may depend only on its own step:
  // every phase that begins before that step stays.
  while (!ordered_.empty() && ordered_.back().from_step >= step.value) ordered_.pop_back();
  ordered_.push_back({.from_step = step.value, .policy = resolved(policy, ranks_)});
}

bool PolicySequence::is_ordered(std::uint64_t step) const noexcept {
  return !ordered_.empty() && ordered_.front().from_step <= step;
}

bool PolicySequence::changes(std::uint64_t step, std::uint64_t samples) const noexcept {
  return is_ordered(step) || (current_ + 1 < phases_.size() && has_come(phases_[current_ + 1], step, samples));
}

/// Makes the phase of `step` the current one.
void PolicySequence::advance(std::uint64_t step, std::uint64_t samples) {
  while (changes(step, samples)) {
    if (is_ordered(step)) {
      phases_.resize(current_ + 1);  // an ordered switch replaces all later phases
      phases_.push_back(std::move(ordered_.front()));
      ordered_.pop_front();
    }
    ++current_;
  }
}

const PolicySettings& PolicySequence::at(Step step, std::uint64_t samples) const noexcept {
  std::size_t phase = 0;
  while (phase + 1 < phases_.size() && has_come(phases_[phase + 1], step.value, samples)) ++phase;
  return phases_[phase].policy;
}

StepActions PolicySequence::next(const StepFacts& facts) {
  const bool worked_locally = policy_ && troupe::works_locally(policy().kind);
  const std::size_t first = current_;
  advance(facts.step.value, facts.samples_before);
  if (!begun_)
    since_ = resumed_ ? facts.step.value - std::min(facts.step.value, *resumed_) : phases_[current_].from_step;
  else if (current_ != first)
    since_ = facts.step.value;
  if (!policy_ || current_ != first) policy_ = make_current();
  const bool switched = begun_ && current_ != first;
  begun_ = true;
  step_ = facts.step;

  StepFacts told = facts;
  ends_ = changes(facts.step.value + 1, facts.samples_before + facts.samples);
  told.last = facts.last || ends_;
  StepActions actions = policy_->next(told);
  TROUPE_CHECK(actions.hosted == troupe::is_hosted(policy().kind), Code::invalid, "step ", step_.value,
               ": the app's policy in place of ", name_of(policy().kind), " orders shards, which rounds do not have");
  actions.switched = switched;
  actions.gather_state = switched && troupe::works_locally(policy().kind) && !worked_locally;
  return actions;
}

}  // namespace troupe
