#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "apps/session/session.hpp"
#include "runtime/base/clock.hpp"

namespace troupe {

/// Passes a session's events to its listener on a separate thread, in order, so that no actor waits for a stopped
/// terminal or a slow disk. Progress that the listener has not received yet is replaced by newer progress. Threads:
/// any.
class ListenerThread final : public SessionListener {
 public:
  /// `listener` outlives it. `name`: the thread's.
  explicit ListenerThread(SessionListener& listener, const std::string& name = "listener");
  /// Calls finish().
  ~ListenerThread() override;

  void note(const std::string& text) override;
  void preparing(std::uint64_t done, std::uint64_t total, const std::string& what) override;
  void lost(std::uint32_t rank, const std::string& why) override;
  void resumed(const std::string& folder, std::uint64_t steps) override;
  void started(const Plan& plan, const std::string& device, const DataPlace& data) override;
  void progress(const RunProgress& progress) override;
  void epoch(const EpochReport& line) override;
  void steps(const StepsReport& part) override;
  void step(Step step, const StepSums& total) override;
  /// Pins the thread to `cpus`; empty: not at all. Throws Error{environment} if the system refuses.
  void keep_on(std::span<const std::uint32_t> cpus);
  /// Runs `work` on the listener's thread, in order with the events; it may tell the listener more. Progress from
  /// before is not replaced by progress from behind it.
  void later(std::function<void(SessionListener&)> work);
  /// Returns when the listener has received all events so far; later ones are dropped. It takes as long as the
  /// listener does, so a rank first parts from the others, which must not wait for this rank's reader.
  void finish();
  /// The same until `deadline`. Returns whether the listener has received all events.
  bool finish(Deadline deadline);

 private:
  void post(std::function<void()> tell);
  void work();

  SessionListener& listener_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::shared_ptr<RunProgress> progress_;  // the newest one; null: no task is queued that may still report a newer one
  bool finished_ = false;
  bool ended_ = false;  // the thread calls the listener no more
  std::thread thread_;
};

}  // namespace troupe
