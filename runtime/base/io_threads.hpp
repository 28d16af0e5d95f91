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

/// Threads for what blocks on files or takes long, so that actors need not. Threads: any may post.
class IoThreads {
 public:
  using Work = std::function<void(Blocking&)>;

  /// `name`: of the threads, for people. Without threads work is done where it is posted. Throws Error{environment}
  /// when there are no threads to be had.
  IoThreads(const std::string& name, std::size_t count);
  /// close().
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  /// Runs `work` on one of the threads; a single one does what is posted one after the other. It must not throw.
  /// Forgotten after close().
  void post(Work work);
  /// Does what was posted, then ends the threads. Idempotent.
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
