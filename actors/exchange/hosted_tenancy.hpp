#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/exchange/detail/snapshots.hpp"
#include "actors/remote/tensor.hpp"
#include "runtime/compute/rules/rate_schedule.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/exchange/policies/hosted.hpp"
#include "runtime/exchange/policies/update_log.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

/// What hosts a stripe. The references outlive the tenancy.
struct HostedParts {
  Stream& stream;  // the hosting device's, for this stripe alone
  AddressSpace& space;
  Arena& arena;             // copies for readers and sums are taken from it: at most a copy a worker, and one
  std::uint32_t shard = 0;  // its number in the group
  StripeMemory stripe;      // in memory that this process can read and write
  Rule rule;
  std::optional<RateSchedule> rate;  // the rule's, by samples of all workers; nothing: as the rule says
  /// Told of every update as it is enqueued; called by the one who calls the tenancy. Empty: no log is kept.
  std::function<void(std::span<const AppliedRecord>)> log;
  TraceRow* trace = nullptr;  // of the actor in charge; null: nothing is noted
};

/// What a worker pushes.
struct HostedContribution {
  StepSums sums;
  Tensor values;  // the whole stripe [count] f32
};

/// A stripe that a shard hosts: the policy decides, the stream computes, readers get copies of one version each. It
/// only enqueues. Threads: one caller at a time.
class HostedTenancy {
 public:
  explicit HostedTenancy(HostedParts parts);

  /// Hosts under `policy` from now on; nobody waits for an answer of the one before. `elastic_alpha`: contributions
  /// are parameters, and pull the stripe toward them. `samples` were taken by all ranks.
  void start(std::shared_ptr<HostedPolicy> policy, std::optional<double> elastic_alpha, std::uint64_t samples);
  bool started() const noexcept { return policy_ != nullptr; }

  struct Answer {
    AnswerRead read;
    StepSums total;  // of the last update that the parameters contain
    Tensor values;   // valid at its point; by then the reader's own contribution is applied
  };
  struct Outcome {
    Status wrong;  // nothing changed: the message made no sense
    Refusal refused = Refusal::none;
    std::vector<Answer> answers;  // for whoever waited for them
  };
  /// `wrong` when the policy takes no more workers.
  Outcome join(Rank worker);
  Outcome leave(Rank worker);
  Outcome push(const HostedPush& push, HostedContribution contribution);
  Outcome read(const HostedRead& read);

  /// Copies some elements as they are behind what is enqueued; there when enqueued() is reached.
  void copy(std::uint64_t first, std::uint64_t count, Memory to);

  /// Everything enqueued so far is done when this is reached.
  Point enqueued() const noexcept { return enqueued_; }
  /// Whether it is, so that the parameters may be read as they lie until the next push. Lets go of what finished
  /// updates held. Throws the stream's error when it has ended with one.
  bool collect_finished();
  bool reached(Point point) const;
  const HostedPolicy& policy() const noexcept { return *policy_; }
  const HostedParts& parts() const noexcept { return parts_; }

 private:
  struct Copy {  // a reader's, of this round of actions
    AnswerRead read;
    StepSums total;
    Memory memory;
    std::shared_ptr<const void> owner;
  };
  struct Published {  // the whole stripe at a version; shared by all who read that
    std::uint64_t version = 0;
    Memory memory;
    std::shared_ptr<const void> owner;
  };
  struct Running {  // until its point is reached
    Point done;
    std::vector<Tensor> contributions;
    std::vector<Memory> sums;
  };

  Status check(const HostedContribution& contribution) const;
  Outcome perform(const HostedActions& actions);
  RuleStep rule_of(const ApplyUpdate& update) const;  // its contributions' total is written
  void enqueue_update(const ApplyUpdate& update, Running& running);
  Memory write_total(const std::vector<HostedContribution>& contributions);
  Copy enqueue_copy(const AnswerRead& read);

  HostedParts parts_;
  std::shared_ptr<HostedPolicy> policy_;  // null: it hosts nothing yet
  std::optional<double> elastic_alpha_;
  std::uint64_t samples_ = 0;
  detail::Snapshots snapshots_;
  std::map<std::pair<Rank, std::uint64_t>, HostedContribution> arrived_;  // and not applied; by worker and sequence
  std::deque<Running> running_;
  std::vector<Memory> free_sums_;
  StepSums total_;  // of the last update
  std::optional<Published> published_;
  Point enqueued_;
};

}  // namespace troupe
