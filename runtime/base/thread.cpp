#include "runtime/base/thread.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <cerrno>
#include <latch>
#include <system_error>
#include <utility>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

/// Blocks every signal while it exists: a new thread inherits the signal mask of the thread that starts it.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// Threads that exist until this object ends.
class WaitingThreads {
 public:
  explicit WaitingThreads(std::size_t most) { threads_.reserve(most); }
  ~WaitingThreads() {
    end_.count_down();
    for (std::thread& thread : threads_) thread.join();
  }
  WaitingThreads(const WaitingThreads&) = delete;
  WaitingThreads& operator=(const WaitingThreads&) = delete;

  std::size_t count() const noexcept { return threads_.size(); }
  void add() {
    threads_.push_back(start_thread("trial", [this] { end_.wait(); }));
  }

 private:
  std::latch end_{1};
  std::vector<std::thread> threads_;
};

}  // namespace

std::thread start_thread(const std::string& name, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    return std::thread{[name = name.substr(0, 15), body = std::move(body)] {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    }};
  } catch (const std::system_error& error) {
    fail(Code::environment,
         text("cannot start thread ", name, ": ", error.what(),
              "; raise the limit of processes (ulimit -u, pids.max of the cgroup), or of a process's "
              "memory (ulimit -d, ulimit -v)"));
  }
}

void check_threads(std::size_t count) {
  WaitingThreads threads{count};
  try {
    while (threads.count() < count) threads.add();
  } catch (const Error& error) {
    fail(error.code(),
         text("this process needs ", count, " more threads and can start ", threads.count(), ": ", error.what()));
  }
}

void keep_on(std::thread& thread, std::span<const std::uint32_t> cpus, const std::string& what) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string names;
  for (const std::uint32_t cpu : cpus) {
    TROUPE_CHECK(cpu < CPU_SETSIZE, Code::invalid, "cpu ", cpu, " is beyond the ", CPU_SETSIZE, " that can be named");
    CPU_SET(cpu, &set);
    names += text(' ', cpu);
  }
  errno = pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
  TROUPE_CHECK_ERRNO(errno == 0, Code::environment, "cannot keep ", what, " on cpus", names,
                     " (are they among those this process may use?)");
}

std::vector<std::uint32_t> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<std::uint32_t> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace troupe
