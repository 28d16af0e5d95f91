#include "apps/session/run_so_far.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <utility>

#include "apps/session/resume.hpp"
#include "runtime/compute/rules/verdict.hpp"

namespace troupe {
namespace {

/// How many steps that were left out get a note each.
constexpr std::uint64_t kLeftOutNotes = 5;
/// How many changes of the loss scale get one.
constexpr std::size_t kScaleNotes = 20;

/// 16777216, and not 1.67772e+07.
std::string shown(float scale) { return fmt::format("{}", static_cast<double>(scale)); }

}  // namespace

void RunSoFar::begin_early_stop(CheckpointStart& start, const std::vector<LoggedEvaluation>* seen) {
  const Settings& settings = job_.settings();
  if (settings.evaluate.patience == 0) return;
  early_stop_.emplace(settings.evaluate.patience, settings.evaluate.min_change);
  std::error_code unknown;  // a checkpoint in another folder does not belong to the log in this one
  if (seen != nullptr) {
    std::ranges::copy_if(*seen, std::back_inserter(evaluations_),
                         [&](const LoggedEvaluation& one) { return one.steps <= start.id.steps; });
  } else if (!start.folder.empty() && std::filesystem::equivalent(start.folder, checkpoint_folder(settings), unknown)) {
    evaluations_ = evaluations_in(settings.report.dir + "/log", start.id.steps);
  }
  for (const LoggedEvaluation& one : evaluations_) start.over = early_stop_->add(one.epoch, one.loss);
  if (seen == nullptr && !start.folder.empty() && evaluations_.empty())
    job_.note(text(settings.report.dir, "/log has no evaluations of this run's first ", start.id.steps,
                   " steps: evaluate.patience counts from here"));
}

bool RunSoFar::is_last_evaluation(const EpochReport& line, bool is_last_step) {
  if (!line.test_loss) return false;
  evaluations_.push_back({line.steps, line.epoch, *line.test_loss});
  if (!early_stop_->add(line.epoch, *line.test_loss) || is_last_step) return false;
  result.reason = early_stop_->reason();
  job_.note(result.reason);
  return true;
}

void RunSoFar::take_line(EpochReport line) {
  {
    const std::lock_guard lock{mutex_};
    line.ranks = window_.ranks;
    const auto later =
        std::ranges::find_if(switches_, [&](const SwitchReport& change) { return change.step >= line.steps; });
    line.switches.assign(std::make_move_iterator(switches_.begin()), std::make_move_iterator(later));
    switches_.erase(switches_.begin(), later);
    // With which the last step of the line was computed.
    for (const ScaleChange& change : scales_)
      if (change.step.value < line.steps || line.loss_scale == 0) line.loss_scale = static_cast<double>(change.scale);
  }
  note_not_finite(line);
  result.epochs.push_back(line);
  if (job_.listener() != nullptr) job_.listener()->epoch(line);
}

/// A note for each name, once.
void RunSoFar::note_not_finite(const EpochReport& line) {
  for (const ReportedValue& reported : line.values) {
    if (std::isfinite(reported.value) || !not_finite_.insert(reported.name).second) continue;
    job_.note(text("the value ", reported.name, " that the app reports is not finite in the line of step ", line.steps,
                   " (null in the log; further ones are not reported)"));
  }
}

bool RunSoFar::has_no_time_left() {
  if (!job_.options().time_limit) return false;
  if (!time_limit_) time_limit_ = Deadline::after(*job_.options().time_limit);
  return time_limit_->passed();
}

Status RunSoFar::judge(Step step, const StepSums& total, const LossScaleState& scale, PolicyKind policy) {
  const JoinedJob& joined = job_.joined();
  const Rule& rule = job_.settings().rule;
  const bool leads = joined.self().value == 0;
  if (rule.scales_loss && leads) note_scale(step, scale.now.scale);
  Status end = judge_step(rule, step, total, joined.graph, joined.layout);
  if (end.ok() && !is_skipped(rule, total)) return end;
  const std::string bad = describe_bad(total, joined.graph, joined.layout);
  if (!end.ok()) {
    bad_step_ = text("step ", step.value, ": ", bad);
    return end;
  }
  const std::string what =
      text(bad, " is not finite", rule.scales_loss ? " with a loss scale of " + shown(scale.agreed.scale) : "");
  if (rule.scales_loss && job_.settings().model.scaling.fixed == 0 && scale.agreed.scale <= kLeastLossScale)
    return {Code::device_fault, text("step ", step.value, ": ", what, ", which is the smallest; ", kAgainstNonFinite)};
  if (!leads || ++left_out_ > kLeftOutNotes) return end;
  const bool was_local = works_locally(policy);
  job_.note(text(was_local ? "local steps up to step " : "step ", step.value, was_local ? " were" : " was",
                 " left out: ", what,
                 left_out_ == kLeftOutNotes ? " (further ones are counted in the log alone)" : ""));
  return end;
}

void RunSoFar::note_scale(Step step, float scale) {
  const std::lock_guard lock{mutex_};
  if (!scales_.empty() && scales_.back().scale == scale) return;
  scales_.push_back({step, scale});
  if (scales_.size() > 1 && scales_.size() <= kScaleNotes)
    job_.note(text("from step ", step.value, " on the loss scale is ", shown(scale),
                   scales_.size() == kScaleNotes ? " (further changes are in the log alone)" : ""));
}

void RunSoFar::take_switch(Step step, std::uint64_t samples, const PolicySettings& policy, const std::string& reason) {
  const JoinedJob& joined = job_.joined();
  if (joined.self().value != 0) return;
  // The plan's next policy is the first one, after a warm start, or an entry of update.switch.
  PolicySettings first = joined.plan.groups.front().policies.front().policy;
  const bool warm_start = std::exchange(first.distributed_after, 0) != 0 && first == policy;
  SwitchReport change{.step = step.value, .samples = samples};
  change.policy = describe(policy, joined.plan.world_size());
  change.reason = !reason.empty() ? reason : warm_start ? "update.distributed_after" : "update.switch";
  job_.note(
      text("from step ", change.step, " on (", change.samples, " samples): ", change.policy, " (", change.reason, ")"));
  const std::lock_guard lock{mutex_};
  switches_.push_back(std::move(change));
}

void RunSoFar::take_window(const ShareWindow& window) {
  {
    const std::lock_guard lock{mutex_};
    window_ = window;
  }
  if (window.change) {
    shares_measured = window.change->span;
    job_.note(to_string(*window.change, window));
  }
  if (!window.straggler || window.straggler == straggler_) return;
  straggler_ = window.straggler;
  job_.note(to_string(*window.straggler, window));
}

const PolicySettings* RunSoFar::switch_for_straggler(const ShareWindow& window) {
  std::vector<const PolicyPhase*> waiting;
  for (const PolicyPhase& phase : job_.joined().plan.groups.front().policies)
    if (phase.straggler_ratio != 0) waiting.push_back(&phase);
  if (straggler_switches_ >= waiting.size() || window.ratio < waiting[straggler_switches_]->straggler_ratio)
    return nullptr;
  return &waiting[straggler_switches_++]->policy;
}

ShareWindow RunSoFar::newest_window() const {
  const std::lock_guard lock{mutex_};
  return window_;
}

}  // namespace troupe
