#include "apps/session/session.hpp"

#include <xxhash.h>

#include <iostream>

#include "apps/session/log_writer.hpp"
#include "apps/session/rank_session.hpp"
#include "apps/session/roll_back.hpp"

namespace troupe {
namespace {

/// Who goes on from the newest checkpoint, thinking it is the end's, would train its last steps again, or for ever.
std::string not_saved(const RunEnd& end) {
  const std::string there = end.saved_steps != 0
                                ? text("the newest checkpoint of this run is of step ", end.saved_steps)
                                : std::string{"this run has saved none"};
  return text("the run ended after step ", end.steps, ", but its state is not saved: ", end.unsaved.text(), "; ",
              there);
}

}  // namespace

/// Joins the view, the first time. `owned`: steps are taken when the app says so.
void RankSession::begin(Blocking& blocking, bool owned) {
  if (begun_) {
    TROUPE_CHECK(owned == owned_, Code::invalid, "a session either runs, or its app owns the loop; make another one");
    return;
  }
  begun_ = true;
  owned_ = owned;
  if (owned || options_.model)
    for (const auto& exchange : exchanges_) exchange->show_between_steps();
  if (listener_) listener_->started(job_.plan, device_->traits().description, options_.data.value_or(DataPlace{}));
  if (job_.graph.dtype() == DType::bf16 && !options_.model && leads_node() && !device_->traits().bf16)
    note(text(
        job_.plan.nodes[job_.mine().node].host,
        " has no instructions for bf16: batches, activations and weights are kept in bf16, products are computed in "
        "f32; model.dtype = \"f32\" may be faster"));
  const Deadline deadline = Deadline::after(settings().faults.start);
  CoordinatorHandles coordinator;
  try {
    if (!nothing_left() && job_.self().value != 0) {
      coordinator.membership = caf::actor_cast<MembershipPeer>(remote_->resolve(blocking, {0}, "membership", deadline));
      coordinator.evaluator = caf::actor_cast<TestPartReceiver>(remote_->resolve(blocking, {0}, "evaluator", deadline));
      if (saves())
        coordinator.checkpointer =
            caf::actor_cast<PartReceiver>(remote_->resolve(blocking, {0}, "checkpointer", deadline));
      coordinator.balancer = caf::actor_cast<BalancerPeer>(remote_->resolve(blocking, {0}, "balancer", deadline));
      coordinator.steps = caf::actor_cast<StepCoordinatorPeer>(remote_->resolve(blocking, {0}, "steps", deadline));
      if (job_.plan.digest_steps != 0)
        coordinator.digests = caf::actor_cast<RankDigestReceiver>(remote_->resolve(blocking, {0}, "digests", deadline));
      coordinator.values = caf::actor_cast<RankValuesReceiver>(remote_->resolve(blocking, {0}, "reporter", deadline));
      if (!sums_are_common())
        coordinator.sums = caf::actor_cast<RankSumsReceiver>(remote_->resolve(blocking, {0}, "sums", deadline));
    }
    if (!nothing_left() && job_.plan.node_loader && !leads_node()) {
      const Peer leader{job_.plan.nodes[job_.mine().node].leader};
      coordinator.loader = caf::actor_cast<SlotBorrower>(remote_->resolve(blocking, leader, "loader", deadline));
    }
    for (const auto& group : hosted_)
      if (group && !nothing_left()) group->meet(blocking, deadline);
    if (nothing_left()) {
      end_.put({{}, false, schedule_.first_step, 0});
      loop_->close();
    } else {
      TrainingActors::Gate gate;
      if (owned) gate = [this](const DeviceActor& device) { return loop_->gate(system_, device); };
      values_to_ = actors_->reporter() ? RankValuesReceiver{actors_->reporter()} : coordinator.values;
      actors_->start(coordinator, gate);
      if (!owned) hand_over_values(taken_, true);  // no app can report anything
    }
  } catch (const Error& error) {
    end_.put({error.status(), false, 0});
    loop_->close();
  }
}

RunResult RankSession::run(Blocking& blocking) {
  if (!options_.model) {
    begin(blocking, false);
    return wait_for_end(blocking);
  }
  TROUPE_CHECK(
      options_.model->step && options_.own_samples == 0, Code::invalid,
      "run() needs a model that computes its steps on the session's data; write the loop yourself and call exchange()");
  const ThreadAffinity stay(job_.mine().cpus);
  while (next(blocking)) {
    if (!step(blocking)) break;
  }
  return finish(blocking);
}

RunResult RankSession::finish(Blocking& blocking) {
  begin(blocking, true);
  hand_over_values(taken_, true);
  loop_->drain(blocking);
  return wait_for_end(blocking);
}

/// Every contribution reaches every shard, so this rank's one can tell.
void RankSession::note_staleness() const {
  for (const GroupPlan& group : job_.plan.groups) {
    if (!hosted_[group.id.value]) continue;
    const auto report = hosted_[group.id.value]->staleness(Deadline::after(settings().faults.stop));
    if (!report) continue;
    note(text("staleness of group ", group.name, " in ", report->staleness_unit, ", over ", report->staleness.updates,
              " contributions: ", to_string(report->staleness)));
  }
}

RunResult RankSession::wait_for_end(Blocking& blocking) {
  RunEnd end = end_.take(blocking);
  over_ = true;
  if (leads_job()) note_staleness();
  take_down(blocking);
  if (listener_) listener_->finish();
  result_.status = std::move(end.status);
  result_.stopped = end.stopped;
  result_.judged = end.judged;
  result_.total.steps = end.steps;
  result_.saved_steps = end.saved_steps;
  if (result_.status.ok() && !end.unsaved.ok()) result_.status = {end.unsaved.code(), not_saved(end)};
  try {
    copies_->read(memory_.parameters, [this](std::span<const std::byte> parameters) {
      result_.parameters_hash = XXH3_64bits(parameters.data(), parameters.size());
    });
  } catch (const Error& error) {  // a device that has failed reads nothing any more
    if (result_.status.ok()) result_.status = error.status();
  }
  return std::move(result_);
}

std::string RankSession::describe(Blocking& blocking, Deadline deadline) {
  const std::uint64_t committed = committed_;
  std::string all =
      text("rank ", job_.self().value, " of ", schedule_.ranks, " on node ", job_.hosts()[job_.self().value], ": ",
           committed, " of ", schedule_.steps, " steps committed, in epoch ",
           schedule_.epoch_number({std::min(committed, schedule_.steps - 1)}), '\n');
  if (job_.plan.shares_memory()) {
    for (const Rank rank : job_.plan.node_members(job_.self())) {
      const RankMemory its = find_rank_memory(space_.arena(places_[rank.value].arena.id), job_.plan, rank);
      for (const GroupPlan& group : job_.plan.groups) {
        const GroupMemory& memory = its.groups[group.id.value];
        all += text("rank ", rank.value, its.groups.size() == 1 ? "" : ", group " + group.name, ": ");
        if (job_.plan.crosses_nodes()) {
          all += text("gradients of ", space_.timeline(memory.handed).value(), " buckets ready for its node\n");
        } else {
          all += text("gradients of ", space_.timeline(memory.ready).value(), " exchanges ready, parameters of ",
                      space_.timeline(memory.published).value(), " published\n");
        }
      }
    }
  }
  if (!remote_) return all + "the job is this one process: no messages to others\n";
  try {
    return all + remote_->describe(blocking, deadline);
  } catch (const Error& error) {
    return all + error.what() + '\n';
  }
}

/// From the outside in: nobody counts on this rank any more, its actors end, then its stream, then its lanes.
void RankSession::take_down(Blocking& blocking) noexcept {
  if (taken_down_) return;
  taken_down_ = true;
  const bool given_up = begun_ && !over_;
  over_ = true;
  const Deadline deadline = Deadline::after(settings().faults.stop);
  if (loop_) loop_->close();
  if (actors_) actors_->end(blocking, deadline);
  if (data_threads_) data_threads_->close();
  if (io_) io_->close();
  abort_exchanges(given_up ? Status{Code::peer_lost, text("rank ", job_.self().value, " gave its session up")}
                           : Status{Code::aborted, "the session is over"});
  stream_.reset();
  hosted_.clear();
  if (remote_) remote_->stop(blocking, deadline);
  if (job_.bootstrap) job_.bootstrap->leave();
  if (control_) control_->stop(deadline);
  if (bulk_) bulk_->stop(deadline);
  const std::string said = trace_.write(job_.self().value, job_.plan.world_size(), job_.hosts()[job_.self().value]);
  if (!said.empty()) note(said);
  lineage_.lock.reset();  // nobody of this session writes any more
}

namespace {

/// A program that its user started by itself has one rank, whatever cluster.nodes says. Without a listener to tell,
/// that is the one thing that a session prints.
void note_lone_rank(const SessionOptions& options) {
  if (options.place) return;
  const Settings::Cluster& cluster = options.configuration.settings.cluster;
  std::uint32_t ranks = cluster.local;
  for (const HostSlots& host : host_list(options.configuration).hosts) ranks += host.slots;
  if (ranks <= 1) return;
  const std::string what =
      text("cluster.nodes asks for ", ranks,
           " ranks, but no launcher started this process: it is a job of one rank; `rtrun app.toml "
           "-- PROGRAM ARGUMENTS` starts a program as all of them");
  if (options.listener != nullptr)
    options.listener->note(what);
  else
    std::cerr << text("troupe: ", what, "\n");
}

}  // namespace

std::unique_ptr<Session> Session::start(Blocking& blocking, SessionOptions options) {
  note_lone_rank(options);
  std::unique_ptr<LogWriter> log;
  if (options.log && (!options.place || options.place->rank == 0)) {
    log = std::make_unique<LogWriter>(options.configuration.settings, options.listener);
    options.listener = log.get();
  }
  if (options.configuration.settings.rule.stops_non_finite)
    return std::make_unique<RollBackSession>(blocking, std::move(options), std::move(log));
  return std::make_unique<RankSession>(blocking, std::move(options), Lineage{}, std::move(log));
}

}  // namespace troupe
