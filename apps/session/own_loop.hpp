#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include <caf/actor_system.hpp>

#include "actors/device_actor.hpp"
#include "actors/loader_actor.hpp"
#include "apps/session/host_replica.hpp"
#include "apps/session/own_model.hpp"

namespace troupe {

/// What an OwnLoop works with; all outlive it.
struct OwnLoopParts {
  AddressSpace& space;
  const BatchLayout& batch;
  Schedule schedule;
  std::vector<SessionTensor> tensors;
  const OwnModel* model = nullptr;     // null: the device computes
  LeasePool* empty_batches = nullptr;  // of an app that brings its own samples; null: a loader sends batches
  std::chrono::milliseconds wait_deadline{30000};  // for what the stream does before the app's work
  /// Whether totals are of all ranks, and so say when the run ends; otherwise ends_early() does.
  bool sums_are_common = true;
  std::function<void()> stop;  // asks the job to end
};

/// Where an app that owns its loop meets the session's actors. Training batches wait here until the app passes them on
/// to the device, and behind each the evaluation that follows it; the model's work that the app does waits for the
/// app's thread, and that for the end of its step. Threads: the app's one for next(), step(), exchange() and drain();
/// any for the rest.
class OwnLoop {
 public:
  explicit OwnLoop(OwnLoopParts parts);

  /// What stands before the device for a loader, and ends with it.
  BatchReceiver gate(caf::actor_system& system, const DeviceActor& device);
  void post(const HostWork& work);
  void committed(Step step, const StepSums& total);
  /// The job ends with `last`, before its plan does: there is no batch behind it, and no total of a step behind it.
  void ends_early(Step last);
  /// The run is over, well or not: nobody waits here any more.
  void close();

  /// The next training batch, the same one until it is passed on; nothing: the job has no more steps, or is over.
  std::optional<BatchView> next();
  /// Passes the batch that next() gave on and waits for the end of its step, doing the model's work meanwhile. Gives
  /// the sums over all ranks; nothing when the run was over before. Throws Error{invalid} without a batch.
  std::optional<StepSums> step(Blocking& blocking);
  /// The same with the gradients that lie in the tensors, and the sums over the samples that made them.
  std::optional<StepSums> exchange(Blocking& blocking, const StepSums& own);
  /// Asks the job to end, unless it is at its end, and gives the others what they still count on: steps without samples
  /// where the app computes, the device's steps otherwise.
  void drain(Blocking& blocking);

 private:
  std::optional<StepSums> run_step(Blocking& blocking, const OwnStep& compute);
  bool take_batch();
  bool is_closed();
  void give_up(const HostWork& work);
  void pass_evaluations();
  void serve(Blocking& blocking, const HostWork& work, const OwnStep& compute);
  BatchView view(Memory batch, std::uint32_t rows) const;

  const OwnLoopParts parts_;
  std::optional<BatchLease> batch_;  // that next() gave; the app's thread's
  std::mutex mutex_;                 // guards what follows
  std::condition_variable changed_;
  DeviceActor device_;
  std::deque<BatchLease> waiting_;
  std::deque<HostWork> work_;
  std::optional<StepSums> total_;  // of step next_ - 1, once it is committed
  std::uint64_t next_;             // the step of the batch that comes next, or of the one the app has
  std::uint64_t end_;              // one after the job's last step, as far as is known
  std::uint64_t passed_ = 0;       // evaluation batches of the step under way that went to the device
  bool pass_ended_ = false;        // the last of them did
  bool held_ = false;              // the app has a batch
  bool closed_ = false;
};

}  // namespace troupe
