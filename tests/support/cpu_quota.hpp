#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace troupe::testing {

/// A control group (version 1) whose processes together get a part of a core, in periods of 10 ms. Removed with the
/// object, when they have ended.
class CpuQuota {
 public:
  /// Why there can be none here; empty: there can.
  static std::string why_not() {
    try {
      const CpuQuota any{0.5};
      return any.set_ ? "" : "the processor's control groups (version 1) cannot be written";
    } catch (const std::filesystem::filesystem_error& error) {
      return error.what();
    }
  }
  explicit CpuQuota(double cores) {
    static std::atomic<int> count{0};
    folder_ = std::filesystem::path{"/sys/fs/cgroup/cpu"} /
              ("troupe-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directory(folder_);
    const int quota_us = static_cast<int>(std::lround(cores * kPeriodUs));
    set_ = write("cpu.cfs_period_us", kPeriodUs) && write("cpu.cfs_quota_us", quota_us);
  }
  ~CpuQuota() {
    std::error_code error;
    for (int tries = 0; tries < 100 && !std::filesystem::remove(folder_, error); ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // its last process is still leaving
  }
  CpuQuota(const CpuQuota&) = delete;
  CpuQuota& operator=(const CpuQuota&) = delete;

  /// What to put before a program's arguments to start it there.
  std::vector<std::string> enter() const {
    return {"/bin/sh", "-c", "echo $$ > " + (folder_ / "cgroup.procs").string() + " && exec \"$@\"", "sh"};
  }

 private:
  static constexpr int kPeriodUs = 10'000;
  bool write(const char* name, int value) const {
    std::ofstream file{folder_ / name};
    file << value << std::flush;
    return file.good();
  }
  std::filesystem::path folder_;
  bool set_ = false;
};

}  // namespace troupe::testing
