#include "runtime/thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

#include "runtime/error.hpp"

namespace troupe {
namespace {

/// Blocks every signal while it lives: a thread inherits the mask of the one that starts it.
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

}  // namespace

std::thread start_thread(const std::string& name, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    return std::thread{[name = name.substr(0, 15), body = std::move(body)] {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    }};
  } catch (const std::system_error& error) {
    fail(Code::environment, text("cannot start thread ", name, ": ", error.what(),
                                 "; raise the limit of processes (ulimit -u, pids.max of the cgroup)"));
  }
}

}  // namespace troupe
