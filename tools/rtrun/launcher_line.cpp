#include "tools/rtrun/launcher_line.hpp"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

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

LauncherLine::LauncherLine() : thread_("launcher", STDIN_FILENO, [this] { read(); }) {}

void LauncherLine::read() {
  std::array<char, kLongestLaunchLine> buffer;
  const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) ::kill(::getpid(), SIGKILL);
  pending_.append(buffer.data(), static_cast<std::size_t>(got));
  for (std::size_t end; (end = pending_.find('\n')) != pending_.npos; pending_.erase(0, end + 1))
    obey(std::string_view{pending_}.substr(0, end));
  if (pending_.size() > kLongestLaunchLine) pending_.clear();
}

}  // namespace troupe::rtrun
