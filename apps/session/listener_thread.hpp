#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "apps/session/session.hpp"

namespace troupe {

/// Hands what a session tells to its listener on a thread of its own, in order: a terminal that is held, or a slow
/// disk, keeps no actor waiting. Progress that the listener has not taken yet gives way to newer. Threads: any.
class ListenerThread final : public SessionListener {
 public:
  /// `listener` outlives it.
  explicit ListenerThread(SessionListener& listener);
  /// As finish().
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
  /// Keeps the thread on `cpus`; empty: where it is. Throws Error{environment} when the system refuses.
  void keep_on(std::span<const std::uint32_t> cpus);
  /// Does something on the listener's thread, in turn with what is told, which may tell the listener more.
  void later(std::function<void(SessionListener&)> work) {
    post([this, work = std::move(work)] { work(listener_); });
  }
  /// Returns when the listener has been told everything so far.
  void flush();
  /// The same, and nothing is told any more.
  void finish();

 private:
  void post(std::function<void()> tell);
  void work();

  SessionListener& listener_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::optional<RunProgress> progress_;  // the newest, once it is queued
  bool telling_ = false;
  bool finished_ = false;
  std::thread thread_;
};

}  // namespace troupe
