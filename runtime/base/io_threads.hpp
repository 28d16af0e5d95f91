#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/blocking.hpp"

namespace troupe {

/// Threads for work that blocks on files or takes long, so that actors never block. Threads: any may post.
class IoThreads {
 public:
  using Work = std::function<void(Blocking&)>;

  /// `name`: the name of the threads, for people. With `count` 0, work is done on the thread that posts it. Throws
  /// Error{environment} if the threads cannot be started.
  IoThreads(const std::string& name, std::size_t count);
  /// Calls close().
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  /// Runs `work` on one of the threads; a single thread runs the work in the order of posting. `work` must not throw.
  /// After close() it is dropped.
  void post(Work work);
  /// Runs all work that was posted, then ends the threads. Idempotent.
  void close();

 private:
  void run();

  std::mutex mutex_;  // guards work_ and ending_
  std::condition_variable changed_;
  std::deque<Work> work_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace troupe
