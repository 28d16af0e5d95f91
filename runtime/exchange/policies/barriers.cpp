#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "runtime/exchange/policies/hosted.hpp"

namespace troupe {
namespace {

/// An event that arrived while nothing may be applied.
using Held = std::variant<HostedPush, HostedRead, Rank>;  // a Rank: that worker left

/// The shard is in one of two states. Open: events go to the policy; the reads of workers at the next barrier are
/// collected, and answered together when all workers are there. Held (holding_): from the end of a barrier until the
/// host contributes again or leaves, contributions and leaves of other workers are kept in the order of arrival and
/// then passed on in that order. Without this state the host's process could copy the stripe while an update changes
/// it. A worker's read after a held contribution is held behind it: the policy does not know of the contribution yet,
/// and would refuse the read.
class BarrierPolicy final : public HostedPolicy {
 public:
  BarrierPolicy(std::unique_ptr<HostedPolicy> policy, Rank host) : policy_(std::move(policy)), host_(host) {}

  HostedActions joined(Rank worker) override { return policy_->joined(worker); }

  HostedActions left(Rank worker) override {
    if (holding_ && worker != host_) {
      held_.emplace_back(worker);
      return {};
    }
    HostedActions actions = policy_->left(worker);
    waiting_.erase(worker);
    if (std::exchange(holding_, false)) let_go(actions);
    conclude(actions);
    return actions;
  }

  HostedActions pushed(const HostedPush& push) override {
    if (!holding_) return policy_->pushed(push);
    if (push.worker != host_) return hold(push);
    HostedActions actions = policy_->pushed(push);
    if (actions.refused != Refusal::none) return actions;
    holding_ = false;
    let_go(actions);
    return actions;
  }

  HostedActions read(const HostedRead& read) override {
    if (const HostedPush* push = held_push(read.worker); push != nullptr && read.clock == push->clock + 1) {
      held_.emplace_back(read);
      return {};
    }
    HostedActions actions{.refused = progress().check(read), .orders = {}};
    if (actions.refused != Refusal::none) return actions;
    if (read.barrier == passed_ + 1) {
      waiting_[read.worker] = read;
      conclude(actions);
      return actions;
    }
    actions.refused = read.barrier > passed_ ? Refusal::wrong_clock : Refusal::none;
    if (actions.refused == Refusal::none) add(actions, policy_->read(read));  // a duplicate, or an ordinary read
    return actions;
  }

  const HostedProgress& progress() const noexcept override { return policy_->progress(); }
  const StalenessHistogram& staleness() const noexcept override { return policy_->staleness(); }
  std::string_view staleness_unit() const noexcept override { return policy_->staleness_unit(); }
  bool updates_wait_for_readers() const noexcept override { return policy_->updates_wait_for_readers(); }

 private:
  static void add(HostedActions& to, HostedActions more) {
    to.orders.insert(to.orders.end(), std::make_move_iterator(more.orders.begin()),
                     std::make_move_iterator(more.orders.end()));
  }

  const HostedPush* held_push(Rank worker) const noexcept {
    for (const Held& one : held_)
      if (const auto* push = std::get_if<HostedPush>(&one); push != nullptr && push->worker == worker) return push;
    return nullptr;
  }

  /// At most one contribution per worker is held back, because the worker then waits for the answer.
  HostedActions hold(const HostedPush& push) {
    HostedActions actions{.refused = progress().check(push), .orders = {}};
    if (held_push(push.worker) != nullptr) actions.refused = Refusal::duplicate;
    if (actions.refused == Refusal::none) held_.emplace_back(push);
    return actions;
  }

  void let_go(HostedActions& actions) {
    for (const Held& one : std::exchange(held_, {})) {
      if (const auto* push = std::get_if<HostedPush>(&one))
        add(actions, policy_->pushed(*push));
      else if (const auto* read = std::get_if<HostedRead>(&one))
        add(actions, this->read(*read));
      else
        add(actions, left(std::get<Rank>(one)));
    }
  }

  /// If all workers are at the barrier, everything that they contributed is applied: a worker contributes again only
  /// after it was answered. From then on contributions are held back until the host has contributed again.
  void conclude(HostedActions& actions) {
    if (waiting_.empty() || waiting_.size() < progress().count_workers()) return;
    ++passed_;
    for (const auto& [worker, read] : std::exchange(waiting_, {})) add(actions, policy_->read(read));
    holding_ = progress().takes_part(host_) && !updates_wait_for_readers();
  }

  const std::unique_ptr<HostedPolicy> policy_;
  const Rank host_;
  std::uint64_t passed_ = 0;  // number of barriers completed
  std::map<Rank, HostedRead> waiting_;
  bool holding_ = false;    // held_ is used until the host's next contribution
  std::vector<Held> held_;  // events of that time, in the order of arrival
};

}  // namespace

std::unique_ptr<HostedPolicy> with_barriers(std::unique_ptr<HostedPolicy> policy, Rank host) {
  return std::make_unique<BarrierPolicy>(std::move(policy), host);
}

}  // namespace troupe
