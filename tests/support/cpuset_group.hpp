#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace troupe::testing {

/// A control group (version 1) whose processes may run on some CPUs alone, "0" or "0-3,8". Removed with the object,
/// when they have ended.
class CpusetGroup {
 public:
  /// Why there can be none here; empty: there can.
  static std::string why_not() {
    try {
      const CpusetGroup any{"0"};
      return any.set_ ? "" : "the control groups for CPUs (version 1) cannot be written";
    } catch (const std::filesystem::filesystem_error& error) {
      return error.what();
    }
  }
  explicit CpusetGroup(const std::string& cpus) {
    static std::atomic<int> count{0};
    folder_ = std::filesystem::path{"/sys/fs/cgroup/cpuset"} /
              ("troupe-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directory(folder_);
    std::ifstream mems{folder_.parent_path() / "cpuset.mems"};
    std::string nodes;
    std::getline(mems, nodes);
    set_ = write("cpuset.cpus", cpus) && write("cpuset.mems", nodes);
  }
  ~CpusetGroup() {
    std::error_code error;
    for (int tries = 0; tries < 100 && !std::filesystem::remove(folder_, error); ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // its last process is still leaving
  }
  CpusetGroup(const CpusetGroup&) = delete;
  CpusetGroup& operator=(const CpusetGroup&) = delete;

  /// What to put before a program's arguments to start it there.
  std::vector<std::string> enter() const {
    return {"/bin/sh", "-c", "echo $$ > " + (folder_ / "cgroup.procs").string() + " && exec \"$@\"", "sh"};
  }

 private:
  bool write(const char* name, const std::string& value) const {
    std::ofstream file{folder_ / name};
    file << value << std::flush;
    return file.good();
  }
  std::filesystem::path folder_;
  bool set_ = false;
};

}  // namespace troupe::testing
