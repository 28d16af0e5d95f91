#include "tools/bench/group/control_line.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"

namespace troupe::bench {
namespace {

constexpr std::size_t kLongest = 1u << 16;

}  // namespace

bool ControlLine::say(const nlohmann::json& what) const {
  const std::string bytes = what.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

std::optional<nlohmann::json> ControlLine::hear() { return receive(0); }
std::optional<nlohmann::json> ControlLine::hear_now() { return receive(MSG_DONTWAIT); }

std::optional<nlohmann::json> ControlLine::receive(int flags) {
  std::string bytes(kLongest, '\0');
  ssize_t got = 0;
  do {
    got = ::recv(fd_.get(), bytes.data(), bytes.size(), flags);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return {};
  bytes.resize(static_cast<std::size_t>(got));
  auto what = nlohmann::json::parse(bytes, nullptr, false);
  TROUPE_CHECK(what.is_object(), Code::corrupt, "what a process of this measurement told is no JSON object: ", bytes);
  return what;
}

std::pair<ControlLine, ControlLine> make_control_line() {
  std::array<int, 2> ends{};
  TROUPE_CHECK_ERRNO(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0, Code::environment,
                     "cannot connect two processes; look at `ulimit -n`");
  return {ControlLine{Fd{ends[0]}}, ControlLine{Fd{ends[1]}}};
}

std::int64_t nanoseconds_of(Clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

double milliseconds_since(Clock::time_point begin, std::int64_t at_ns) {
  return static_cast<double>(at_ns - nanoseconds_of(begin)) / 1e6;
}

}  // namespace troupe::bench
