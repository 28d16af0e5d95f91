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

/// What a shard needs to host a stripe. The references outlive it.
struct HostedParts {
  Stream& stream;  // of the hosting device; used only for this stripe
  AddressSpace& space;
  Arena& arena;             // memory for readers' copies and for sums: at most one copy for each worker, and one more
  std::uint32_t shard = 0;  // its number in the group
  StripeMemory stripe;      // in memory that this process can read and write
  Rule rule;
  std::optional<RateSchedule> rate;  // by samples of all workers; nothing: the rule's constant rate
  /// Called with every update when it is enqueued, on the thread that uses the stripe. Empty: there is no log.
  std::function<void(std::span<const AppliedRecord>)> log;
  TraceRow* trace = nullptr;  // of the shard's actor; null: nothing is traced
};

/// What a worker pushes.
struct HostedContribution {
  StepSums sums;
  std::uint64_t taken = 0, computed = 0;  // PushRequest's
  Tensor values;                          // the whole stripe [count] f32
};

/// A stripe that a shard hosts: the policy decides, the stream computes, and readers get copies, each of one version.
/// It only enqueues work. Threads: one caller at a time.
class HostedStripe {
 public:
  explicit HostedStripe(HostedParts parts);

  /// Hosts under `policy` from now on; no reader may be waiting for an answer under the previous one. `elastic_alpha`:
  /// contributions are parameters, and the stripe moves toward them by this factor. `samples`: taken by all ranks so
  /// far. `idle_pushes`: how many of the versions so far were of contributions without samples, which the rule does
  /// not count.
  void start(std::shared_ptr<HostedPolicy> policy, std::optional<double> elastic_alpha, std::uint64_t samples,
             std::uint64_t idle_pushes);
  bool started() const noexcept { return policy_ != nullptr; }

  struct Answer {
    AnswerRead read;
    StepSums total;  // of the last update that the parameters contain
    Tensor values;   // valid at its point; by then the reader's own contribution has been applied
  };
  struct Outcome {
    Status wrong;  // the message was invalid, and nothing changed
    Refusal refused = Refusal::none;
    std::vector<Answer> answers;  // for the workers that waited for them
  };
  /// The status is not ok if the policy takes no more workers.
  Outcome join(Rank worker);
  Outcome leave(Rank worker);
  Outcome push(const HostedPush& push, HostedContribution contribution);
  Outcome read(const HostedRead& read);

  /// Copies some elements after all work that is enqueued now; done when enqueued() is reached.
  void copy(std::uint64_t first, std::uint64_t count, Memory to);

  /// All work that was enqueued so far is done when this point is reached.
  Point enqueued() const noexcept { return enqueued_; }
  /// Whether enqueued() is reached; then the parameters may be read in place until the next push. Releases what
  /// finished updates kept. Throws the stream's error if it has failed.
  bool collect_finished();
  bool reached(Point point) const;
  const HostedPolicy& policy() const noexcept { return *policy_; }
  const HostedParts& parts() const noexcept { return parts_; }

 private:
  struct Copy {  // for one reader, in this round of actions
    AnswerRead read;
    StepSums total;
    Memory memory;
    std::shared_ptr<const void> owner;
  };
  struct Published {  // the whole stripe at one version, shared by all its readers
    std::uint64_t version = 0;
    Memory memory;
    std::shared_ptr<const void> owner;
  };
  struct Running {  // kept until `done` is reached
    Point done;
    std::vector<Tensor> contributions;
    std::vector<Memory> sums;
  };

  Status check(const HostedContribution& contribution) const;
  Outcome perform(const HostedActions& actions);
  RuleStep rule_of(const ApplyUpdate& update, std::uint64_t computed) const;
  void enqueue_update(const ApplyUpdate& update, Running& running);
  Memory write_total(const std::vector<HostedContribution>& contributions);
  Copy enqueue_copy(const AnswerRead& read);

  HostedParts parts_;
  std::shared_ptr<HostedPolicy> policy_;  // null: it hosts nothing yet
  std::optional<double> elastic_alpha_;
  std::uint64_t samples_ = 0, idle_pushes_ = 0;
  detail::Snapshots snapshots_;
  std::map<std::pair<Rank, std::uint64_t>, HostedContribution> arrived_;  // not applied yet, by worker and sequence
  std::deque<Running> running_;
  std::vector<Memory> free_sums_;
  StepSums total_;  // of the last update
  std::optional<Published> published_;
  Point enqueued_;
};

}  // namespace troupe
