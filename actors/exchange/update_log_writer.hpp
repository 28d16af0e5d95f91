#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/io_threads.hpp"
#include "runtime/exchange/policies/update_log.hpp"

namespace troupe {

/// Passes the records of a shard's updates to a separate thread, a page at a time, since a handler must not wait for a
/// disk. Threads: one at a time.
class UpdateLogWriter {
 public:
  /// Writes records, on that thread; may throw Error.
  using Write = std::function<void(std::span<const AppliedRecord>)>;
  static constexpr std::size_t kPageRecords = 256;
  /// The most pages that may wait for the disk.
  static constexpr std::size_t kMostPages = 4096;

  /// Throws Error{environment} if no thread can be started.
  explicit UpdateLogWriter(Write write);
  /// Waits until everything is written.
  ~UpdateLogWriter();
  UpdateLogWriter(const UpdateLogWriter&) = delete;
  UpdateLogWriter& operator=(const UpdateLogWriter&) = delete;

  /// Never waits. Throws the error of an earlier write, and Error{environment} if more than kMostPages wait.
  void append(std::span<const AppliedRecord> records);

 private:
  struct State {
    Write write;
    std::atomic<std::size_t> waiting{0};  // number of pages
    std::atomic<bool> failed{false};
    Status why;  // written before `failed`
  };
  void hand_over();

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::vector<AppliedRecord> page_;
  IoThreads thread_{"update log", 1};  // the last member: it ends before the members that its tasks use
};

}  // namespace troupe
