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
#include <utility>
#include <vector>

namespace troupe::testing {

/// A control group (version 1) for processes of a test. Removed with the object, when they have ended.
class ControlGroup {
 public:
  ~ControlGroup() {
    std::error_code error;
    for (int tries = 0; tries < 100 && !std::filesystem::remove(folder_, error); ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // its last process is still leaving
  }
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;

  /// What to put before a program's arguments to start it there.
  std::vector<std::string> enter() const {
    return {"/bin/sh", "-c", "echo $$ > " + (folder_ / "cgroup.procs").string() + " && exec \"$@\"", "sh"};
  }

 protected:
  using Values = std::vector<std::pair<std::string, std::string>>;
  /// `controller`: cpu, cpuset. `values`: of its files, written in this order.
  ControlGroup(const std::string& controller, const Values& values) {
    static std::atomic<int> count{0};
    folder_ = root(controller) / ("troupe-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directory(folder_);
    for (const auto& [name, value] : values) {
      std::ofstream file{folder_ / name};
      file << value << std::flush;
      set_ = set_ && file.good();
    }
  }
  static std::filesystem::path root(const std::string& controller) {
    return std::filesystem::path{"/sys/fs/cgroup"} / controller;
  }
  /// Why there can be no Group of `value` here; empty: there can.
  template <class Group, class Value>
  static std::string why_no(const Value& value) {
    try {
      const Group any{value};
      return any.set_ ? "" : "control groups (version 1) cannot be written";
    } catch (const std::filesystem::filesystem_error& error) {
      return error.what();
    }
  }

 private:
  std::filesystem::path folder_;
  bool set_ = true;
};

/// Its processes together get a part of a core, in periods of 10 ms.
class CpuQuota : public ControlGroup {
 public:
  static std::string why_not() { return why_no<CpuQuota>(0.5); }
  explicit CpuQuota(double cores)
      : ControlGroup("cpu", {{"cpu.cfs_period_us", std::to_string(kPeriodUs)},
                             {"cpu.cfs_quota_us", std::to_string(std::lround(cores * kPeriodUs))}}) {}

 private:
  static constexpr int kPeriodUs = 10'000;
};

/// Its processes may run on some CPUs alone, "0" or "0-3,8".
class CpusetGroup : public ControlGroup {
 public:
  static std::string why_not() { return why_no<CpusetGroup>("0"); }
  explicit CpusetGroup(const std::string& cpus)
      : ControlGroup("cpuset", {{"cpuset.cpus", cpus}, {"cpuset.mems", all_memory()}}) {}

 private:
  static std::string all_memory() {
    std::ifstream mems{root("cpuset") / "cpuset.mems"};
    std::string nodes;
    std::getline(mems, nodes);
    return nodes;
  }
};

}  // namespace troupe::testing
