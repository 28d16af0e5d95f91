#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "devices/cuda/cuda_device.hpp"

// For tests that need a GPU. They run on the driver that the loader finds: in ctest that is the stand-in, whose folder
// is in LD_LIBRARY_PATH, in a bundle on a machine with a GPU it is NVIDIA's. Where there is none, all tests of a
// program that includes this file are skipped.
namespace troupe::gpu {

inline constexpr const char* kDriver = "libcuda.so.1";

/// What `call` returns in a process of its own, at most 4 KiB: this process does not touch the driver.
inline std::string in_child(const std::function<std::string()>& call) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string said = call();
    const ssize_t written = ::write(ends[1], said.data(), said.size());
    ::_exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  (void)::close(ends[1]);
  std::array<char, 4096> said{};
  const ssize_t size = ::read(ends[0], said.data(), said.size());
  (void)::close(ends[0]);
  int status = 0;
  (void)::waitpid(child, &status, 0);
  return {said.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

/// The exit code of a process of its own that runs `call` and ends as programs do: the stand-in then reports what the
/// process has not given back.
inline int exit_code_of(const std::function<void()>& call) {
  (void)std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    call();
    std::exit(0);
  }
  int status = 0;
  (void)::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Whether the driver is the stand-in of tests/support/cuda_host.
inline bool is_stand_in() {
  void* const driver = ::dlopen(kDriver, RTLD_LAZY | RTLD_LOCAL);
  return driver != nullptr && ::dlsym(driver, "troupe_cuda_host_reports") != nullptr;
}

/// Why no GPU can be used, with what to do; empty: one can.
inline std::string why_none() {
  return in_child([] { return std::string{find_cuda_gpus(kDriver).refusal.text()}; });
}

/// How many GPUs the driver shows. Counted before the first test: no child of a process that has used a driver may use
/// it.
inline std::size_t count() {
  static const std::size_t found =
      std::stoul(in_child([] { return std::to_string(find_cuda_gpus(kDriver).gpus.size()); }));
  return found;
}

class Needed final : public ::testing::Environment {
  void SetUp() override {
    (void)count();
    if (const std::string why = why_none(); !why.empty()) GTEST_SKIP() << "skipped: no GPU: " << why;
  }
};
inline ::testing::Environment* const kNeeded = ::testing::AddGlobalTestEnvironment(new Needed);

}  // namespace troupe::gpu
