#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <caf/actor_system.hpp>

#include "actors/device_actor.hpp"
#include "actors/loader_actor.hpp"
#include "apps/session/host_replica.hpp"
#include "apps/session/own_model.hpp"

namespace troupe {

/// What an OwnLoop uses; all of it outlives the loop.
struct OwnLoopParts {
  AddressSpace& space;
  const BatchLayout& batch;
  Schedule schedule;
  std::vector<SessionTensor> tensors;
  const OwnModel* model = nullptr;     // null: the device computes
  LeasePool* empty_batches = nullptr;  // if the app brings its own samples; null: a loader sends batches
  std::span<const float> gradients;    // where the tensors' gradients lie, in the order of the layout
  /// This rank, if its gradients must be checked here because the exchange does not; nothing: the exchange does.
  std::optional<Rank> checked_rank;
  std::chrono::milliseconds wait_deadline{30000};  // for the stream's work before the app's work
  /// Whether totals are of all ranks, and therefore show when the run ends; otherwise ends_early() tells it.
  bool sums_are_common = true;
  std::function<void()> stop;  // asks the job to end
};

/// Connects an app that owns its loop with the session's actors. Training batches wait here until the app passes them
/// to the device, and the evaluation after each batch waits with it. Work that the app must do for its model waits for
/// the app's thread, and that thread waits for the end of its step. Threads: the app's one for next(), step(),
/// exchange() and drain(); any for the rest.
class OwnLoop {
 public:
  explicit OwnLoop(OwnLoopParts parts);

  /// The actor that receives the loader's batches instead of the device; it ends with the device.
  BatchReceiver batch_receiver(caf::actor_system& system, const DeviceActor& device);
  void post(const HostWork& work);
  void committed(Step step, const StepSums& total);
  /// The job ends with step `last`, earlier than planned: no batch and no total follow it.
  void ends_early(Step last);
  /// The run is over, with or without an error: ends all waits here.
  void close();

  /// The next training batch, the same one until it is passed on; nothing: the job has no more steps, or is over.
  std::optional<BatchView> next();
  /// Passes the batch of next() to the device and waits for the end of its step, computing the model's work meanwhile.
  /// Returns the sums over all ranks; nothing if the run ended first. Throws Error{invalid} if there is no batch.
  std::optional<StepSums> step(Blocking& blocking);
  /// The same with the gradients that the app has written to the tensors, and `own` as the sums over their samples.
  std::optional<StepSums> exchange(Blocking& blocking, const StepSums& own);
  /// Asks the job to end, unless it is at its end, and takes the steps that the other ranks still expect: steps without
  /// samples if the app computes, otherwise the device's steps.
  void drain(Blocking& blocking);

 private:
  std::optional<StepSums> run_step(Blocking& blocking, const OwnStep& compute);
  bool take_batch();
  bool is_closed();
  void give_up(const HostWork& work);
  void pass_evaluations();
  void serve(Blocking& blocking, const HostWork& work, const OwnStep& compute);
  void check_gradients(StepSums& sums) const;
  BatchView view(Memory batch, std::uint32_t rows) const;

  const OwnLoopParts parts_;
  std::optional<BatchLease> batch_;  // returned by next(); used by the app's thread
  std::mutex mutex_;                 // guards the members below
  std::condition_variable changed_;
  DeviceActor device_;
  std::deque<BatchLease> waiting_;
  std::deque<HostWork> work_;
  std::optional<StepSums> total_;  // of step next_ - 1, when that is committed
  std::uint64_t next_;             // the step of the next batch, or of the one that the app has
  std::uint64_t end_;              // one after the job's last step, as far as it is known
  std::uint64_t passed_ = 0;       // evaluation batches of the current step that were passed to the device
  bool pass_ended_ = false;        // the last of them was passed
  bool held_ = false;              // the app has a batch
  bool closed_ = false;
};

}  // namespace troupe
