#include "tools/rtrun/polled_thread.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"

namespace troupe::rtrun {

PolledThread::PolledThread(const char* name, int polled, std::function<void()> read) : end_(::eventfd(0, EFD_CLOEXEC)) {
  TROUPE_CHECK_ERRNO(end_, Code::environment, "cannot make an eventfd; check `ulimit -n`");
  thread_ = start_thread(name, [end = end_.get(), polled, read = std::move(read)] {
    std::array<pollfd, 2> both{{{polled, POLLIN, 0}, {end, POLLIN, 0}}};
    for (;;) {
      if (::poll(both.data(), both.size(), -1) < 0) continue;  // EINTR; an end is always signalled on `end`
      if (both[1].revents != 0) return;
      read();
    }
  });
}

PolledThread::~PolledThread() {
  while (::eventfd_write(end_.get(), 1) != 0 && errno == EINTR) {
  }
  thread_.join();
}

}  // namespace troupe::rtrun
