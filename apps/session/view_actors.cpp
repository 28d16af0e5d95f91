// What the actors of a view are given.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "apps/session/resume.hpp"
#include "apps/session/view.hpp"
#include "runtime/compute/rules/verdict.hpp"

namespace troupe {

using namespace std::chrono_literals;

void View::make_actors() {
  const PolicySequence planned(joined_.plan.groups.front().policies, joined_.plan.world_size());
  followed_.emplace(continues_ ? work_.steps->policy() : planned.at({schedule_.first_step}, schedule_.first_sample));
  TrainingParts parts{.loader = {},
                      .device = device_parts(),
                      .view = view_,
                      .self = joined_.self(),
                      .hosts = joined_.hosts(),
                      .start_within = settings().faults.start,
                      .end_within = settings().faults.exchange + (saves() ? settings().checkpoint.save : 0ms),
                      .report = report_targets(),
                      .abort_view = [this](const Status& why) { abort_exchanges(why); },
                      .ended = [this](const RunEnd& end) { end_run(end); },
                      .committed = [this](Step step) { note_committed(step); },
                      .checkpoints = {},
                      .balancer = {},
                      .answer_within = settings().faults.exchange,
                      .so_far = report_so_far(),
                      .evaluator_trace = trace_.evaluator_actor,
                      .membership_trace = trace_.membership_actor,
                      .coordinator_trace = trace_.step_coordinator};
  for (const auto& group : work_.hosted) {
    if (!group) continue;
    for (caf::actor& actor : group->actors()) parts.hosting.push_back(std::move(actor));
  }
  for (const Parameter& parameter : joined_.graph.parameters()) parts.tensors.push_back(parameter.name);
  if (options_.own_samples == 0) add_loader(parts);
  if (!is_alone()) parts.balancer.emplace(balancer_parts());
  if (saves()) parts.checkpoints.emplace(checkpointer_parts());
  actors_ = std::make_unique<TrainingActors>(system_, std::move(parts));
}

DeviceParts View::device_parts() {
  DeviceParts parts{*work_.stream,
                    *work_.replica,
                    *work_.steps,
                    space_,
                    *work_.step_messages,
                    *work_.evaluation_messages,
                    memory_.evaluations,
                    schedule_,
                    *work_.snapshot_messages,
                    save_plan(),
                    joined_.self()};
  parts.verdict = [this](Step step, const StepSums& total) {
    return so_far_->judge(step, total, work_.steps->loss_scale(step), work_.steps->policy().kind);
  };
  parts.switched = [this](Step step, const PolicySettings& policy, const std::string& reason) {
    followed_->add(step, policy);
    so_far_->take_switch(step, schedule_.samples_before(step), policy, reason);
  };
  parts.ends_early = [this](Step last) { loop_->ends_early(last); };
  parts.sums_are_common = sums_are_common();
  parts.order_within = 2 * settings().faults.exchange;  // rank 0 may wait for the others so long
  parts.digests = digest_plan();
  if (auto texts = text_plan()) parts.texts.emplace(std::move(*texts));
  parts.awaits_verdicts = settings().evaluate.patience != 0;
  keep_progress(parts);
  parts.trace = trace_.device_actor;
  parts.recorded.push_back({*work_.stream, work_.programs});
  if (joined_.plan.uses_nccl() && joined_.plan.has_two_levels())
    parts.recorded.push_back({*lane_resources_->node_streams.front(), lane_resources_->node_programs});
  return parts;
}

/// On the thread of Membership, as note_committed().
void View::end_run(const RunEnd& end) {
  end_.put(end);
  loop_->close();
}

void View::note_committed(Step step) {
  committed_ = step.value + 1;
  if (step.value == schedule_.first_step) job_.look_again();  // kernels have their threads now
  if (owned_) loop_->committed(step, work_.steps->total(step));
}

/// What rank 0's reporter had before the first step.
ReportSoFar View::report_so_far() const {
  if (before_) return before_->report;
  ReportSoFar report;
  if (resumed_) {
    const EpochSoFar& epoch = resumed_->manifest().epoch;
    report.line_sums = {.loss = epoch.loss, .correct = epoch.correct, .samples = epoch.samples};
  }
  return report;
}

void View::add_loader(TrainingParts& parts) {
  const SampleLedger ledger = joined_.ledger(schedule_, places_[0].rows);
  const bool blocks =
      joined_.data.train != nullptr && (joined_.data.train->reads_files() || joined_.data.test->reads_files());
  data_threads_ = std::make_unique<IoThreads>("data", std::max(joined_.plan.decoding_threads, blocks ? 1U : 0U));
  if (!joined_.plan.node_loader) {
    parts.loader.emplace(LoaderParts{*pool_, *joined_.data.train, *joined_.data.test, joined_.batch, schedule_,
                                     joined_.self(), *data_threads_, joined_.plan.seed, ledger, trace_.loader_actor});
    return;
  }
  parts.lent = pool_.get();
  if (!leads_node()) return;
  NodeLoaderParts loader{space_, *joined_.data.train, *joined_.data.test, joined_.batch, schedule_,
                         {},     *data_threads_,      joined_.plan.seed,  ledger,        trace_.loader_actor};
  for (const RankPlan& rank : joined_.plan.ranks) {
    if (rank.node != joined_.mine().node) continue;
    loader.ranks.push_back(rank.rank);
    // Otherwise this memory is mapped already.
    if (joined_.plan.uses_transport() && !joined_.plan.has_two_levels() && rank.rank != joined_.self())
      map_arena(rank.rank);
  }
  parts.node_loader.emplace(std::move(loader));
}

std::optional<SavePlan> View::save_plan() const {
  if (!saves()) return {};
  return SavePlan{.every_steps = settings().checkpoint.every_steps,
                  .evaluated = settings().checkpoint.keep_best,
                  .first_number = places_[0].start.first_number,
                  .parts = copies_of(snapshot_pieces())};
}

CheckpointerParts View::checkpointer_parts() {
  const CheckpointStart& start = places_[0].start;
  io_ = std::make_unique<IoThreads>("io", 1);
  CheckpointManifest manifest{.seed = joined_.plan.seed, .model = joined_.plan.model};
  manifest.groups.clear();
  for (const GroupPlan& group : joined_.plan.groups)
    manifest.groups.push_back(
        {.name = group.name, .rule = std::string(name_of(group.kind)), .parameters = group.parameters});
  manifest.plan = joined_.plan.to_string();
  manifest.run = start.run;
  manifest.first_run = first_run_;
  manifest.roll_backs = lineage_.roll_backs;
  for (const Parameter& parameter : joined_.graph.parameters()) manifest.shapes[parameter.name] = parameter.extents;
  for (const EffectiveValue& value : options_.configuration.values)
    manifest.settings.push_back(text(value.key, " = ", value.value, "  # ", value.origin));
  CheckpointerParts parts{.store = CheckpointStore(checkpoint_folder(settings())),
                          .io = *io_,
                          .space = space_,
                          .self = joined_.self(),
                          .ranks = joined_.plan.world_size(),
                          .pieces = snapshot_pieces(),
                          .schedule = schedule_,
                          .keep = settings().checkpoint.keep,
                          .save_within = settings().checkpoint.save,
                          .manifest = std::move(manifest)};
  if (resumed_) parts.epoch = resumed_->manifest().epoch;
  if (before_) parts.epoch = before_->epoch;
  parts.retired = [this](const EpochSoFar& epoch) { left_->epoch = epoch; };
  parts.note = [this](const std::string& what) { note(what); };
  parts.trace = trace_.checkpointer_actor;
  parts.io_trace = trace_.files;
  return parts;
}

BalancerParts View::balancer_parts() {
  const LoadBalancerOptions options{.adapts = joined_.plan.measured,
                                    .range = joined_.plan.range,
                                    .rows = places_[0].rows,
                                    .ahead = joined_.steps_ahead()};
  BalancerParts parts{.schedule = schedule_,
                      .self = joined_.self(),
                      .options = options,
                      .ledger = joined_.ledger(schedule_, places_[0].rows),
                      .times = [this] { return work_.stream->times(); },
                      .windows = {},
                      .trace = trace_.balancer_actor};
  if (!leads_job()) return parts;
  parts.windows = [this](const ShareWindow& window) {
    so_far_->take_window(window);
    if (const PolicySettings* const policy = so_far_->switch_for_straggler(window))
      switch_for_straggler(*policy, window);
  };
  return parts;
}

ReportTargets View::report_targets() {
  ReportTargets targets;
  ListenerThread* const listener = listener_;
  targets.trace = trace_.reporter_actor;
  targets.line = [this](EpochReport line) { so_far_->take_line(std::move(line)); };
  // The first group's, as the other figures.
  targets.rate = [this, rate = rate(settings().rule)](Step step) {
    return rate.at(schedule_.samples_before(step), schedule_.computed_rows(step) * followed_->at(step).accumulate);
  };
  targets.skipped = [this](const StepSums& total) { return is_skipped(settings().rule, total); };
  targets.total = [this](const RunTotal& total) { so_far_->result.total = total; };
  targets.retired = [this](const ReportSoFar& report) { left_->report = report; };
  if (so_far_->stops_early()) {
    targets.tested = [this](Step step, const EpochReport& line) {
      const bool is_last = schedule_.is_last(step), ends = so_far_->is_last_evaluation(line, is_last);
      if (!is_last) actors_->judge({.step = step.value, .end = ends});  // else no device waits for a verdict
    };
  }
  targets.texts = settings().evaluate.text.bytes != 0;
  targets.value_ranks = joined_.plan.world_size();
  targets.values_within = settings().faults.exchange / 2;
  targets.times = [this] { return work_.stream->times(); };  // the actors end before the stream
  if (listener != nullptr && has_step_lines(settings().report.format)) {
    targets.steps = [listener](const StepsReport& part) { listener->steps(part); };
    targets.steps_every = settings().report.every_steps;
  }
  if (listener != nullptr) targets.progress = [listener](const RunProgress& progress) { listener->progress(progress); };
  if (!options_.every_step && !options_.time_limit) return targets;
  targets.step = [this, listener](Step step, const StepSums& total) {
    if (listener != nullptr && options_.every_step) listener->step(step, total);
    if (so_far_->has_no_time_left()) request_stop();
  };
  return targets;
}

}  // namespace troupe
