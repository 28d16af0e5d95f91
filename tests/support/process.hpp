#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.hpp"

namespace troupe::testing {

/// The parameters with which a program is started.
struct ProgramStart {
  /// Makes another program start it, such as `ip netns exec NAME`.
  void run_by(const std::vector<std::string>& command) {
    arguments.insert(arguments.begin(), command.begin(), command.end());
  }

  std::vector<std::string> arguments;                            // the program's path first
  std::vector<std::pair<std::string, std::string>> environment;  // set on top of the test's own
  std::vector<std::string> unset;                                // taken out of it
  std::string folder;                                            // working directory; empty: the test's
};

/// A running program whose output is kept. It dies with the test, and at the latest when the object ends.
class Program {
 public:
  explicit Program(const ProgramStart& start);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const noexcept { return pid_; }
  void signal(int number) const;
  /// Waits until it has ended: its exit code, or 128 + the signal that killed it; -1 when it runs on after `span`.
  int wait(std::chrono::milliseconds span);
  /// Waits until what it wrote fulfils `condition`; false when that has not happened after `span` or by its end.
  bool wait_until(const std::function<bool(const Program&)>& condition, std::chrono::milliseconds span);
  /// The most memory it had in use at once, once it has ended.
  std::uint64_t peak_bytes() const noexcept { return peak_bytes_; }
  /// Its output so far.
  const std::string& out() const noexcept { return out_; }
  const std::string& err() const noexcept { return err_; }

 private:
  bool pump(Deadline deadline);
  void read_from(int& fd, std::string& text);
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  std::optional<int> ended_;
  std::uint64_t peak_bytes_ = 0;
  std::string out_;
  std::string err_;
};

/// Direct children of a process, by starting time.
std::vector<pid_t> children_of(pid_t parent);
/// Live processes whose starting environment holds `entry` ("NAME=value").
std::vector<pid_t> processes_with(const std::string& entry);
/// Processes that have `target` open, as far as this user may look: a file's path, or "socket:[INODE]".
std::vector<pid_t> processes_with_open(const std::string& target);
/// Looks every few milliseconds until `condition` holds; false after `span`. For what no descriptor tells.
bool becomes_true(const std::function<bool()>& condition, std::chrono::milliseconds span);

}  // namespace troupe::testing
