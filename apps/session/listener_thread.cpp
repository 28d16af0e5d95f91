#include "apps/session/listener_thread.hpp"

#include <utility>

#include "runtime/base/thread.hpp"

namespace troupe {

ListenerThread::ListenerThread(SessionListener& listener, const std::string& name)
    : listener_(listener), thread_(start_thread(name, [this] { work(); })) {}

ListenerThread::~ListenerThread() { finish(); }

void ListenerThread::keep_on(std::span<const std::uint32_t> cpus) {
  if (!cpus.empty()) troupe::keep_on(thread_, cpus, "the listener's thread");
}

void ListenerThread::note(const std::string& text) {
  post([this, text] { listener_.note(text); });
}

void ListenerThread::preparing(std::uint64_t done, std::uint64_t total, const std::string& what) {
  post([this, done, total, what] { listener_.preparing(done, total, what); });
}

void ListenerThread::lost(std::uint32_t rank, const std::string& why) {
  post([this, rank, why] { listener_.lost(rank, why); });
}

void ListenerThread::resumed(const std::string& folder, std::uint64_t steps) {
  post([this, folder, steps] { listener_.resumed(folder, steps); });
}

void ListenerThread::started(const Plan& plan, const std::string& device, const DataPlace& data) {
  post([this, plan, device, data] { listener_.started(plan, device, data); });
}

void ListenerThread::progress(const RunProgress& progress) {
  std::shared_ptr<RunProgress> mine;
  {
    const std::lock_guard lock(mutex_);
    if (progress_) return static_cast<void>(*progress_ = progress);  // a task that reports it is queued already
    mine = progress_ = std::make_shared<RunProgress>(progress);
  }
  post([this, mine] {
    RunProgress newest;
    {
      const std::lock_guard lock(mutex_);
      newest = *mine;
      if (progress_ == mine) progress_.reset();
    }
    listener_.progress(newest);
  });
}

void ListenerThread::later(std::function<void(SessionListener&)> work) {
  {
    const std::lock_guard lock(mutex_);
    progress_.reset();
  }
  post([this, work = std::move(work)] { work(listener_); });
}

void ListenerThread::epoch(const EpochReport& line) {
  post([this, line] { listener_.epoch(line); });
}

void ListenerThread::steps(const StepsReport& part) {
  post([this, part] { listener_.steps(part); });
}

void ListenerThread::step(Step step, const StepSums& total) {
  post([this, step, total] { listener_.step(step, total); });
}

void ListenerThread::finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool ListenerThread::finish(Deadline deadline) {
  {
    std::unique_lock lock(mutex_);
    finished_ = true;
    changed_.notify_all();
    if (!changed_.wait_until(lock, deadline.at(), [this] { return ended_; })) return false;
  }
  finish();
  return true;
}

void ListenerThread::post(std::function<void()> tell) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  queue_.push_back(std::move(tell));
  changed_.notify_all();
}

void ListenerThread::work() {
  for (;;) {
    std::function<void()> tell;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return finished_ || !queue_.empty(); });
      if (queue_.empty()) {
        ended_ = true;
        return changed_.notify_all();
      }
      tell = std::move(queue_.front());
      queue_.pop_front();
    }
    tell();
  }
}

}  // namespace troupe
