#include <fmt/format.h>
#include <xxhash.h>

#include "apps/session/view.hpp"
#include "runtime/compute/library_stream.hpp"

namespace troupe {
namespace {

/// Without this message, a user who resumes from the newest checkpoint would not know that the last steps are trained
/// again.
std::string not_saved(const RunEnd& end) {
  const std::string there = end.saved_steps != 0
                                ? text("the newest checkpoint of this run is of step ", end.saved_steps)
                                : std::string{"this run has saved none"};
  return text("the run ended after step ", end.steps, ", but its state is not saved: ", end.unsaved.text(), "; ",
              there);
}

/// What streams spent beside their own work: the whole exchange, if it is one over NCCL.
StreamTimes::Span spent_beside(const Stream* stream) {
  const auto* const lanes = dynamic_cast<const LibraryStream*>(stream);
  if (lanes == nullptr) return {};
  const StreamTimes times = lanes->times_beside();
  return times.total() - times.idle;
}

/// Over `steps`, of which the stream waited for `waited` in all.
std::string overlap_text(StreamTimes::Span beside, StreamTimes::Span waited, std::uint64_t steps) {
  const StreamTimes::Span hidden = std::max(beside - waited, StreamTimes::Span::zero());
  const auto ms_a_step = [&](StreamTimes::Span span) {
    return std::chrono::duration<double, std::milli>{span}.count() / static_cast<double>(steps);
  };
  return fmt::format(
      "the exchange over NCCL took {:.3f} ms of a step at rank 0, {:.3f} ms ({:.0f} %) of it beside forward "
      "and backward passes",
      ms_a_step(beside), ms_a_step(hidden),
      100 * static_cast<double>(hidden.count()) / static_cast<double>(beside.count()));
}

}  // namespace

/// The actors of other ranks that this rank's need.
CoordinatorHandles View::find_actors(Blocking& blocking, Deadline deadline) {
  CoordinatorHandles found;
  if (!leads_job()) {
    found.membership = find<MembershipPeer>(blocking, {0}, "membership", deadline);
    found.evaluator = find<TestPartReceiver>(blocking, {0}, "evaluator", deadline);
    if (saves()) found.checkpointer = find<PartReceiver>(blocking, {0}, "checkpointer", deadline);
    found.balancer = find<BalancerPeer>(blocking, {0}, "balancer", deadline);
    found.steps = find<StepCoordinatorPeer>(blocking, {0}, "steps", deadline);
    if (joined_.plan.digest_steps != 0) found.digests = find<RankDigestReceiver>(blocking, {0}, "digests", deadline);
    found.values = find<RankValuesReceiver>(blocking, {0}, "reporter", deadline);
    if (!sums_are_common()) found.sums = find<RankSumsReceiver>(blocking, {0}, "sums", deadline);
  }
  if (joined_.plan.node_loader && !leads_node()) {
    const Peer leader{joined_.plan.nodes[joined_.mine().node].leader};
    found.loader = find<SlotBorrower>(blocking, leader, "loader", deadline);
  }
  return found;
}

void View::start_actors(Blocking& blocking) {
  const Deadline deadline = Deadline::after(settings().faults.start);
  const CoordinatorHandles others = find_actors(blocking, deadline);
  for (const auto& group : work_.hosted)
    if (group) group->connect_shards(blocking, deadline);
  TrainingActors::MakeBatchReceiver make_batch_receiver;
  if (owned_)
    make_batch_receiver = [this](const DeviceActor& device) { return loop_->batch_receiver(system_, device); };
  values_.to = leads_job() ? actors_->for_other_ranks().values : others.values;
  actors_->start(others, make_batch_receiver);
  if (!owned_) hand_over_values(values_.taken, true);  // no app can report anything
}

/// Before the first step of the run.
void View::note_begin() {
  const DeviceTraits& traits = lane_resources_->device->traits();
  if (listener_) listener_->started(joined_.plan, traits.description, options_.data.value_or(DataPlace{}));
  if (joined_.graph.dtype() == DType::bf16 && !options_.model && leads_node() && !traits.bf16)
    note(text(
        joined_.plan.nodes[joined_.mine().node].host,
        " has no instructions for bf16: batches, activations and weights are kept in bf16, products are computed in "
        "f32; model.dtype = \"f32\" may be faster"));
}

/// Joins the view at the first call. `owned`: the app decides when steps are taken.
void View::begin(Blocking& blocking, bool owned) {
  if (begun_) {
    TROUPE_CHECK(owned == owned_, Code::invalid, "a session either runs, or its app owns the loop; make another one");
    return;
  }
  begun_ = true;
  owned_ = owned;
  if (owned || options_.model)
    for (const auto& exchange : work_.exchanges) exchange->show_between_steps();
  if (!continues_) note_begin();
  RunEnd end{.status = {}, .steps = schedule_.first_step};
  if (!nothing_left()) {
    try {
      return start_actors(blocking);
    } catch (const Error& error) {
      end = {.status = error.status()};
    }
  }
  end_run(end);
}

RunResult View::run(Blocking& blocking) {
  if (!options_.model) {
    begin(blocking, false);
    return wait_for_end(blocking);
  }
  TROUPE_CHECK(
      options_.model->step && options_.own_samples == 0, Code::invalid,
      "run() needs a model that computes its steps on the session's data; write the loop yourself and call exchange()");
  const ScopedPlacement in_place(job_.place());
  while (next(blocking)) {
    if (!step(blocking)) break;
  }
  return finish(blocking);
}

RunResult View::finish(Blocking& blocking) {
  begin(blocking, true);
  hand_over_values(values_.taken, true);
  loop_->drain(blocking);
  return wait_for_end(blocking);
}

/// Every contribution reaches every shard, so this rank's shard can report for all.
void View::note_staleness() const {
  for (const GroupPlan& group : joined_.plan.groups) {
    if (!work_.hosted[group.id.value]) continue;
    const auto report = work_.hosted[group.id.value]->staleness(Deadline::after(settings().faults.stop));
    if (!report) continue;
    note(text("staleness of group ", group.name, " in ", report->staleness_unit, ", over ", report->staleness.updates,
              " contributions: ", to_string(report->staleness)));
  }
}

void View::note_overlap() const {
  StreamTimes::Span beside = spent_beside(work_.stream.get());
  for (const auto& stream : work_.side_streams) beside += spent_beside(stream.get());
  const std::uint64_t before = schedule_.first_step, steps = committed_;
  if (beside.count() > 0 && steps > before) note(overlap_text(beside, work_.stream->times().exchange, steps - before));
}

/// Of a run without a failure: the device's stream has joined the exchange behind the last step. After a failure other
/// streams, or NCCL's kernels for other ranks, may still write parameters.
void View::hash_parameters(RunResult& result) {
  try {
    copies_->read(memory_.parameters, [&](std::span<const std::byte> parameters) {
      result.parameters_hash = XXH3_64bits(parameters.data(), parameters.size());
    });
  } catch (const Error& error) {
    result.status = error.status();
  }
}

RunResult View::wait_for_end(Blocking& blocking) {
  RunEnd end = end_.take(blocking);
  over_ = true;
  job_.quiet(true);
  retired_ = end.retired;
  RunResult& result = so_far_->result;
  if (end.saved_steps == 0) end.saved_steps = result.saved_steps;  // saved by an earlier view
  result.status = std::move(end.status);
  result.stopped = end.stopped;
  result.judged = end.judged;
  result.total.steps = end.steps;
  result.saved_steps = end.saved_steps;
  if (retired_) {
    RunResult so_far;
    so_far.total = result.total;
    return so_far;
  }
  if (leads_job()) {
    note_staleness();
    note_overlap();
  }
  take_down(blocking);
  if (result.status.ok()) hash_parameters(result);
  if (result.status.ok() && !end.unsaved.ok()) result.status = {end.unsaved.code(), not_saved(end)};
  return std::move(result);
}

/// Of the node's ranks.
std::string View::nccl_progress() const {
  std::string all;
  for (const Rank rank : joined_.plan.node_members(joined_.self())) {
    for (const GroupPlan& group : joined_.plan.groups) {
      const NcclMember its = find_nccl_member(space_.arena(places_[rank.value].arena.id), group);
      const std::uint64_t progress = space_.timeline(its.progress).value();
      all += text("rank ", rank.value, joined_.plan.groups.size() == 1 ? "" : ", group " + group.name, ": ",
                  (progress + 1) / 2, " calls of NCCL begun, ", progress / 2, " done\n");
    }
  }
  return all;
}

std::string View::describe(Blocking& blocking, Deadline deadline) {
  const std::uint64_t committed = committed_;
  std::string all =
      text("rank ", joined_.self().value, " of ", schedule_.ranks, " on node ", joined_.hosts()[joined_.self().value],
           ": ", committed, " of ", schedule_.steps, " steps committed, in epoch ",
           schedule_.epoch_number({std::min(committed, schedule_.steps - 1)}), '\n');
  if (joined_.plan.shares_memory() && !is_alone()) {
    for (const Rank rank : joined_.plan.node_members(joined_.self())) {
      const RankMemory its = find_rank_memory(space_.arena(places_[rank.value].arena.id), joined_.plan, rank);
      for (const GroupPlan& group : joined_.plan.groups) {
        const GroupMemory& memory = its.groups[group.id.value];
        all += text("rank ", rank.value, its.groups.size() == 1 ? "" : ", group " + group.name, ": ");
        if (joined_.plan.uses_transport()) {
          all += text("gradients of ", space_.timeline(memory.handed).value(), " buckets ready for its node\n");
        } else {
          all += text("gradients of ", space_.timeline(memory.ready).value(), " exchanges ready, parameters of ",
                      space_.timeline(memory.published).value(), " published\n");
        }
      }
    }
  }
  if (joined_.plan.uses_nccl()) all += nccl_progress();
  all += job_.placement_check().describe(arena_.get());
  if (is_alone()) return all + "the job is this one process: no messages to others\n";
  try {
    return all + job_.group().remote().describe(blocking, deadline);
  } catch (const Error& error) {
    return all + error.what() + '\n';
  }
}

/// Ends the actors first, then the streams. What the lanes may still use is passed to the group.
void View::take_down(Blocking& blocking) noexcept {
  if (taken_down_) return;
  taken_down_ = true;
  given_up_ = begun_ && !over_;
  over_ = true;
  const Deadline deadline = Deadline::after(settings().faults.stop);
  // This comes first, so that the other ranks get this reason, not the end of an actor.
  if (given_up_) abort_exchanges({Code::peer_lost, text("rank ", joined_.self().value, " gave its session up")});
  if (loop_) loop_->close();
  if (actors_) actors_->end(blocking, deadline);
  losses_.reset();
  joined_.stop_waiting_for_data();
  if (data_threads_) data_threads_->close();
  if (io_) io_->close();
  if (text_thread_) text_thread_->close();
  abort_exchanges({Code::aborted, "the session is over"});
  work_.stream.reset();
  if (!retired_) work_.hosted.clear();  // otherwise hand_over() needs their progress
}

void View::end_imports() noexcept {
  if (!uses_device_memory() || !begun_ || given_up_ || !so_far_->result.status.ok()) return;
  try {
    if (creator_of(memory_.parameters.arena).value != joined_.self().value) last_parameters_ = parameters();
    lane_resources_->device->end_imports();
  } catch (const Error& error) {
    note(text("this rank can still access memory of other ranks' GPUs when they end: ", error.what()));
  }
}

}  // namespace troupe
