#pragma once

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/exchange/policies/policy.hpp"

namespace troupe {

/// The policies that a view's steps follow: those of the plan, or others that a request or a straggler has brought.
/// Threads: any.
class FollowedPolicies {
 public:
  explicit FollowedPolicies(const PolicySettings& first) : policies_{{Step{}, first}} {}

  /// Steps from `step` on, which is after those of earlier calls, follow `policy`.
  void add(Step step, const PolicySettings& policy) {
    const std::lock_guard lock{mutex_};
    policies_.emplace_back(step, policy);
  }
  /// The policy of a step that was enqueued.
  PolicySettings at(Step step) const {
    const std::lock_guard lock{mutex_};
    const auto later = std::upper_bound(policies_.begin() + 1, policies_.end(), step,
                                        [](Step wanted, const auto& entry) { return wanted < entry.first; });
    return std::prev(later)->second;
  }

 private:
  mutable std::mutex mutex_;                               // guards the member below
  std::vector<std::pair<Step, PolicySettings>> policies_;  // from which step on, in order
};

}  // namespace troupe
