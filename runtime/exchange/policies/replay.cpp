#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "runtime/exchange/policies/hosted.hpp"

namespace troupe {
namespace {

/// The part of a log that belongs to one phase of a shard: from where the phase before has stopped, as long as the
/// numbers of updates continue. Where they do not, the next phase begins.
class Script {
 public:
  Script(std::shared_ptr<UpdateReplay> replay, std::uint64_t version) : replay_(std::move(replay)) {
    const UpdateLog& log = replay_->log;
    for (std::size_t i = replay_->next; i < log.size(); ++i) {
      const std::uint64_t last = records_.empty() ? version : records_.back().sequence;
      if (log[i].sequence != last + 1 && (records_.empty() || log[i].sequence != last)) break;
      records_.push_back(log[i]);
      bases_[Rank{log[i].worker}].push_back(log[i].base);
    }
  }

  bool over() const noexcept { return records_.empty(); }
  const AppliedRecord& next() const { return records_.front(); }
  /// The version from which the worker's next contribution was computed.
  std::optional<std::uint64_t> base(Rank worker) const {
    const auto found = bases_.find(worker);
    return found == bases_.end() || found->second.empty() ? std::nullopt : std::optional{found->second.front()};
  }
  const std::map<Rank, std::deque<std::uint64_t>>& bases() const noexcept { return bases_; }
  void advance() {
    bases_[Rank{records_.front().worker}].pop_front();
    records_.pop_front();
    ++replay_->next;
  }
  void end() noexcept {
    records_.clear();
    bases_.clear();
  }

 private:
  const std::shared_ptr<UpdateReplay> replay_;
  std::deque<AppliedRecord> records_;
  std::map<Rank, std::deque<std::uint64_t>> bases_;  // by worker, the bases of its records in order
};

/// Events wait in pushes_ and reads_ (at most one each per worker) until it is their turn; what is then passed to the
/// policy is in the log's order. A push has its turn when it is the log's next record, and when every worker whose next
/// contribution was computed from the present version has read that version: after the update nobody can read it any
/// more. A read has its turn when the version from which the worker's next contribution was computed exists; because
/// updates wait for readers, there is no later version then. So each worker computes from the same versions as in the
/// earlier run, and each shard adds in the same order: the parameters have the same bits.
class ReplayPolicy final : public HostedPolicy {
 public:
  ReplayPolicy(std::unique_ptr<HostedPolicy> policy, std::shared_ptr<UpdateReplay> replay)
      : policy_(std::move(policy)), replay_(std::move(replay)) {}

  HostedActions joined(Rank worker) override { return policy_->joined(worker); }

  /// The log does not contain leaves, so from here on the policy decides.
  HostedActions left(Rank worker) override {
    script().end();
    pushes_.erase(worker);
    reads_.erase(worker);
    HostedActions actions;
    advance(actions);
    add(actions, policy_->left(worker));
    return actions;
  }

  HostedActions pushed(const HostedPush& push) override {
    HostedActions actions{.refused = progress().check(push), .orders = {}};
    if (pushes_.contains(push.worker)) actions.refused = Refusal::duplicate;  // a worker has at most one outstanding
    if (actions.refused != Refusal::none) return actions;
    pushes_.emplace(push.worker, push);
    advance(actions);
    return actions;
  }

  HostedActions read(const HostedRead& read) override {
    HostedActions actions;
    const auto held = pushes_.find(read.worker);
    if (held == pushes_.end() || read.clock != held->second.clock + 1) actions.refused = progress().check(read);
    if (actions.refused != Refusal::none) return actions;
    const auto [waiting, fresh] = reads_.try_emplace(read.worker, read);
    if (!fresh && read.clock >= waiting->second.clock) waiting->second = read;
    advance(actions);
    return actions;
  }

  const HostedProgress& progress() const noexcept override { return policy_->progress(); }
  const StalenessHistogram& staleness() const noexcept override { return policy_->staleness(); }
  std::string_view staleness_unit() const noexcept override { return policy_->staleness_unit(); }
  bool updates_wait_for_readers() const noexcept override { return policy_->updates_wait_for_readers(); }

 private:
  /// Created by the first event, because the phase before has ended only by then.
  Script& script() {
    if (!script_) script_.emplace(replay_, progress().version());
    return *script_;
  }

  void add(HostedActions& to, HostedActions more) {
    for (auto& order : more.orders) {
      if (const auto* answer = std::get_if<AnswerRead>(&order);
          answer != nullptr && answer->clock == progress().pushed(answer->worker)) {
        has_read_[answer->worker] = true;  // not a repeated answer to an earlier read
      }
      to.orders.push_back(std::move(order));
    }
    if (more.refused != Refusal::none) to.refused = more.refused;
  }

  /// Passes on all reads and pushes whose turn it is.
  void advance(HostedActions& actions) {
    while (pass_reads(actions) || pass_push(actions)) {
    }
  }

  bool pass_reads(HostedActions& actions) {
    const auto due = std::ranges::find_if(reads_, [this](const auto& each) { return is_due(each.second); });
    if (due == reads_.end()) return false;
    add(actions, policy_->read(reads_.extract(due).mapped()));
    return true;
  }

  bool is_due(const HostedRead& read) {
    if (pushes_.contains(read.worker)) return false;  // the push comes first
    const auto base = script().base(read.worker);
    return read.barrier != 0 || !base || *base <= progress().version();
  }

  bool pass_push(HostedActions& actions) {
    const bool over = script().over();
    const auto next = over ? pushes_.begin() : pushes_.find(Rank{script().next().worker});
    if (next == pushes_.end() || (!over && waits_for_readers())) return false;
    if (!over) script().advance();
    has_read_[next->first] = false;
    add(actions, policy_->pushed(pushes_.extract(next).mapped()));
    return true;
  }

  /// Whether a worker has still to read the present version before the next update replaces it.
  bool waits_for_readers() {
    return std::ranges::any_of(script().bases(), [this](const auto& each) {
      const auto& [worker, bases] = each;
      const auto read = has_read_.find(worker);
      return !bases.empty() && bases.front() == progress().version() && (read == has_read_.end() || !read->second);
    });
  }

  const std::unique_ptr<HostedPolicy> policy_;
  const std::shared_ptr<UpdateReplay> replay_;
  std::optional<Script> script_;
  std::map<Rank, HostedPush> pushes_;  // whose turn has not come
  std::map<Rank, HostedRead> reads_;
  std::map<Rank, bool> has_read_;  // whether the worker has read what its next contribution is computed from
};

}  // namespace

std::unique_ptr<HostedPolicy> with_replay(std::unique_ptr<HostedPolicy> policy, std::shared_ptr<UpdateReplay> replay) {
  return std::make_unique<ReplayPolicy>(std::move(policy), std::move(replay));
}

}  // namespace troupe
