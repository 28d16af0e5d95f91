#include "apps/session/training.hpp"

#include <condition_variable>
#include <mutex>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/send.hpp>

#include "actors/caf_error.hpp"

namespace troupe {

/// Counts the actors that have ended; each actor's exit function shares it.
struct TrainingActors::Gone {
  std::mutex mutex;  // guards left
  std::condition_variable changed;
  std::size_t left = 0;
};

TrainingActors::TrainingActors(caf::actor_system& system, TrainingParts parts)
    : system_(system), parts_(std::move(parts)) {
  membership_ = spawn_membership(system_);
  if (parts_.balancer) balancer_ = spawn_balancer(system_, std::move(*parts_.balancer));
  if (parts_.node_loader) node_loader_ = spawn_node_loader(system_, *parts_.node_loader);
  if (parts_.checkpoints) checkpointer_ = spawn_checkpointer(system_, std::move(*parts_.checkpoints));
  if (parts_.self.value != 0) return;
  const Schedule& schedule = parts_.device.schedule;
  const auto ranks = static_cast<std::uint32_t>(parts_.hosts.size());
  steps_ = spawn_step_coordinator(system_, {.schedule = schedule,
                                            .hosts = parts_.hosts,
                                            .answer_within = parts_.answer_within,
                                            .rows = schedule.rows,
                                            .trace = parts_.coordinator_trace});
  if (parts_.device.digests) digests_ = spawn_digests(system_, ranks, std::move(parts_.tensors));
  reporter_ = spawn_reporter(system_, schedule, std::move(parts_.report), membership_, parts_.so_far);
  std::vector<TestReceiver> test_receivers{reporter_};
  if (checkpointer_) test_receivers.emplace_back(checkpointer_);
  if (!parts_.device.sums_are_common) {
    GathererReceivers receivers{{reporter_}, std::exchange(test_receivers, {}), {reporter_}};
    if (checkpointer_) {
      receivers.committed.emplace_back(checkpointer_);
      receivers.finished.emplace_back(checkpointer_);
    }
    sums_ = spawn_sums_gatherer(system_, parts_.view, ranks, {schedule.first_step}, std::move(receivers));
    test_receivers = {sums_};
  }
  evaluator_ = spawn_evaluator(system_, ranks, std::move(test_receivers), parts_.evaluator_trace);
}

CoordinatorHandles TrainingActors::for_other_ranks() const {
  CoordinatorHandles all;
  all.membership = membership_;
  all.loader = node_loader_;
  if (parts_.self.value != 0) return all;
  all.evaluator = evaluator_;
  all.checkpointer = checkpointer_;
  all.balancer = balancer_;
  all.steps = steps_;
  all.sums = sums_;
  all.digests = digests_;
  all.values = reporter_;
  return all;
}

/// The actors to which the device sends. If a gatherer sends to rank 0's reporter and checkpointer, the device does
/// not.
DeviceReceivers TrainingActors::receivers(const CoordinatorHandles& coordinator) const {
  DeviceReceivers all{.committed = {membership_}, .evaluated = evaluator_, .finished = {membership_}, .snapshots = {}};
  const auto add = [&all](const auto& actor) {
    if (!actor) return;
    all.committed.emplace_back(actor);
    all.finished.emplace_back(actor);
  };
  if (sums_) {
    all.finished.emplace_back(sums_);
  } else {
    add(reporter_);
    add(checkpointer_);
  }
  if (checkpointer_) all.snapshots = checkpointer_;
  if (balancer_) all.committed.emplace_back(balancer_);
  all.coordinator = steps_ ? StepCoordinatorPeer{steps_} : coordinator.steps;
  all.sums = sums_ ? RankSumsReceiver{sums_} : coordinator.sums;
  all.texts = reporter_;
  all.digests = digests_ ? RankDigestReceiver{digests_} : coordinator.digests;
  return all;
}

/// All that have been spawned, but for Membership itself and what receives batches before the device.
std::vector<caf::actor> TrainingActors::watched_actors() const {
  std::vector<caf::actor> all;
  const auto add = [&all](const auto&... actors) {
    for (const auto& actor : {caf::actor_cast<caf::actor>(actors)...})
      if (actor) all.push_back(actor);
  };
  add(loader_, node_loader_, lender_, device_, evaluator_, reporter_, checkpointer_, balancer_, steps_, sums_,
      digests_);
  all.insert(all.end(), parts_.hosting.begin(), parts_.hosting.end());
  return all;
}

void TrainingActors::start(const CoordinatorHandles& coordinator, const MakeBatchReceiver& make_batch_receiver) {
  if (!evaluator_)
    evaluator_ = spawn_remote_evaluator(system_, parts_.self, coordinator.evaluator, parts_.evaluator_trace);
  {
    const std::lock_guard lock(mutex_);
    device_ = spawn_device(system_, parts_.device, receivers(coordinator));
    if (stop_requested_) caf::anon_send(device_, StopRequest{});
  }
  batches_ = make_batch_receiver ? make_batch_receiver(device_) : BatchReceiver{device_};
  if (parts_.loader) loader_ = spawn_loader(system_, *parts_.loader, batches_);
  if (parts_.lent != nullptr) {
    const SlotBorrower borrower = node_loader_ ? SlotBorrower{node_loader_} : coordinator.loader;
    lender_ = spawn_slot_lender(system_, *parts_.lent, parts_.self, borrower, batches_);
  }
  if (checkpointer_)
    caf::anon_send(checkpointer_, CheckpointerReceivers{device_, membership_, coordinator.checkpointer});

  LedgerReceiver loads = loader_;
  if (node_loader_) loads = node_loader_;
  if (balancer_) caf::anon_send(balancer_, BalancerReceivers{coordinator.balancer, loads});

  MembershipParts membership{.view = parts_.view, .self = parts_.self, .hosts = parts_.hosts};
  membership.coordinator = coordinator.membership;
  if (balancer_) membership.begin.emplace_back(balancer_);
  if (reporter_) membership.begin.emplace_back(reporter_);
  membership.begin.emplace_back(device_);
  membership.watched = watched_actors();
  membership.waits_for_report = static_cast<bool>(reporter_);
  membership.waits_for_checkpoints = static_cast<bool>(checkpointer_);
  membership.start_within = parts_.start_within;
  membership.end_within = parts_.end_within;
  membership.abort_view = parts_.abort_view;
  membership.ended = parts_.ended;
  listener_->ended = parts_.ended;
  membership.committed = parts_.committed;
  membership.trace = parts_.membership_trace;
  // Membership watches the other actors; nothing else would report that it has ended itself.
  membership_->attach_functor([listener = listener_](const caf::error& reason) {
    const std::lock_guard lock(listener->mutex);
    if (!listener->ended) return;
    const Status why = from_caf(reason);
    listener->ended({{why.ok() ? Code::device_fault : why.code(), text("the membership actor ended: ", why.text())}});
  });
  caf::anon_send(membership_, std::move(membership));
}

void TrainingActors::request_stop() noexcept {
  const std::lock_guard lock(mutex_);
  stop_requested_ = true;
  if (device_) caf::anon_send(device_, StopRequest{});
}

void TrainingActors::request(PolicyRequest request) { caf::anon_send(steps_, std::move(request)); }

void TrainingActors::request(RebuildRequest request) { caf::anon_send(steps_, std::move(request)); }

void TrainingActors::judge(EvaluationVerdict verdict) { caf::anon_send(steps_, verdict); }

bool TrainingActors::end(Blocking&, Deadline deadline) {
  const auto gone = std::make_shared<Gone>();
  std::vector<caf::actor> actors = watched_actors();
  if (batches_ && batches_ != BatchReceiver{device_}) actors.push_back(caf::actor_cast<caf::actor>(batches_));
  actors.push_back(caf::actor_cast<caf::actor>(membership_));
  gone->left = actors.size();
  for (const auto& actor : actors) {
    actor->attach_functor([gone] {
      const std::lock_guard lock(gone->mutex);
      if (--gone->left == 0) gone->changed.notify_all();
    });
    caf::anon_send_exit(actor, caf::exit_reason::kill);
  }
  const bool all = [&] {
    std::unique_lock lock(gone->mutex);
    return gone->changed.wait_until(lock, deadline.at(), [&] { return gone->left == 0; });
  }();
  const std::lock_guard lock(listener_->mutex);  // Membership may just be reporting its end
  listener_->ended = nullptr;
  return all;
}

}  // namespace troupe
