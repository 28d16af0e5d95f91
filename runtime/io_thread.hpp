#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/blocking.hpp"

namespace troupe {

/// A thread for what blocks on files, so that actors need not. Threads: any may post.
class IoThread {
 public:
  using Work = std::function<void(Blocking&)>;

  /// `name`: of the thread, for people. Throws Error{environment} when there is no thread to be had.
  explicit IoThread(const std::string& name);
  /// close().
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  /// Runs `work` on the thread, after what was posted before. It must not throw. Forgotten after close().
  void post(Work work);
  /// Does what was posted, then ends the thread. Idempotent.
  void close();

 private:
  void run();

  std::mutex mutex_;  // guards work_ and ending_
  std::condition_variable changed_;
  std::deque<Work> work_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace troupe
