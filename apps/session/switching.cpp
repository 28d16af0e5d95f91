// How a running session changes to another policy, and whether the weights of all ranks are the same.

#include <future>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "apps/session/view.hpp"

namespace troupe {

/// On the balancer's thread.
void View::switch_for_straggler(const PolicySettings& policy, const ShareWindow& window) {
  const auto told = [this](const StepOutcome& outcome) {
    if (!outcome.status.ok()) note(text("no switch for a straggler: ", outcome.status.text()));
  };
  actors_->request({policy,
                    fmt::format("a straggler takes {:.2f} times the median over {} steps", window.ratio, window.steps),
                    told});
}

std::optional<DigestPlan> View::digest_plan() const {
  if (joined_.plan.digest_steps == 0) return {};
  DigestPlan plan{.every_steps = joined_.plan.digest_steps, .tensors = {}, .results = memory_.digests};
  for (const Layout::Entry& entry : joined_.layout.entries())
    plan.tensors.push_back(elements(memory_.replica.parameters, entry.first, entry.count, sizeof(float)));
  return plan;
}

/// Sends `request` to the ranks' coordinator and waits for its answer. `what`: for people.
template <class Request>
std::uint64_t View::agree(Request request, const char* what, Deadline deadline) {
  TROUPE_CHECK(leads_job(), Code::invalid, "rank ", joined_.self().value, " was asked for ", what, "; ask rank 0");
  auto answer = std::make_shared<std::promise<StepOutcome>>();
  std::future<StepOutcome> answered = answer->get_future();
  // Only the request holds the promise: the promise breaks if the coordinator ends, or has ended, without an answer.
  request.done = [answer = std::move(answer)](const StepOutcome& outcome) { answer->set_value(outcome); };
  actors_->request(std::move(request));
  TROUPE_CHECK(answered.wait_until(deadline.at()) == std::future_status::ready, Code::timeout,
               "the ranks have not agreed on a step for ", what, " yet: check whether all of them train");
  StepOutcome outcome;
  try {
    outcome = answered.get();
  } catch (const std::future_error&) {  // the actor that should have answered has ended
    outcome.status = {Code::aborted,
                      text("the run, or its view, ended before its ranks could agree on a step for ", what)};
  }
  if (!outcome.status.ok()) fail(outcome.status.code(), std::string{outcome.status.text()});
  return outcome.first;
}

std::uint64_t View::switch_policy(Blocking&, const PolicySettings& policy, const std::string& reason,
                                  Deadline deadline) {
  return agree(PolicyRequest{policy, reason, {}}, "another policy", deadline);
}

std::uint64_t View::end_view(Blocking&, const std::string& reason, Deadline deadline) {
  return agree(RebuildRequest{reason, {}}, "another view", deadline);
}

}  // namespace troupe
