#include "tools/rtrun/launcher_line.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/base/words.hpp"

namespace troupe::rtrun {
namespace {

constexpr std::size_t kLongestLaunchLine = 64;  // longer lines do not come from a launcher

/// Raises the signal that a line names, if it is one of the three that a launcher passes on.
void obey(std::string_view line) {
  constexpr std::string_view kSignal = "signal ";
  if (!line.starts_with(kSignal)) return;
  const int signal = number_in<int>(line.substr(kSignal.size())).value_or(0);
  if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGUSR1) ::kill(::getpid(), signal);
}

}  // namespace

LauncherLine::LauncherLine() : end_(::eventfd(0, EFD_CLOEXEC)) {
  TROUPE_CHECK_ERRNO(end_, Code::environment, "cannot make an eventfd; check `ulimit -n`");
  thread_ = start_thread("launcher", [this] { watch(); });
}

LauncherLine::~LauncherLine() {
  const std::uint64_t one = 1;
  while (::write(end_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void LauncherLine::watch() const {
  std::array<pollfd, 2> polled{{{STDIN_FILENO, POLLIN, 0}, {end_.get(), POLLIN, 0}}};
  std::string pending;
  for (;;) {
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;  // EINTR; an end is always signalled on end_
    if (polled[1].revents != 0) return;
    std::array<char, kLongestLaunchLine> buffer;
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) ::kill(::getpid(), SIGKILL);
    pending.append(buffer.data(), static_cast<std::size_t>(got));
    for (std::size_t end; (end = pending.find('\n')) != pending.npos; pending.erase(0, end + 1))
      obey(std::string_view{pending}.substr(0, end));
    if (pending.size() > kLongestLaunchLine) pending.clear();
  }
}

}  // namespace troupe::rtrun
