#include "tools/bench/messages/end.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <iostream>

#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"
#include "tools/bench/messages/say.hpp"
#include "tools/bench/pin.hpp"

namespace troupe::bench {
namespace {

constexpr std::size_t kLargestIntroduction = 1u << 16;

/// Of all threads so far.
Clock::duration cpu_time() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

bool readable(int fd, Clock::duration patience) {
  pollfd polled{fd, POLLIN, 0};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
  return ::poll(&polled, 1, static_cast<int>(ms)) > 0;
}

Figures run_case(Blocking& blocking, const EndCase& what, Line& line) {
  if (what.endures()) return run_endurance(blocking, what, line);
  if (what.floods()) return run_flood(blocking, what, line);
  if (what.impl.starts_with("raw")) return run_raw(blocking, what, line);
  if (what.impl == "caf_io") return run_io(blocking, what, line);
  if (what.impl == "shard") return run_shard(blocking, what, line);
  if (what.impl == "local") return run_local(blocking, what, line);
  return run_actors(blocking, what, line);
}

}  // namespace

Line::Line(int fd, Clock::duration patience) : fd_(fd), patience_(patience) {}
Line::~Line() { ::close(fd_); }

/// A byte goes ahead, as an empty message would look like the other's end.
void Line::tell(std::span<const std::byte> mine) {
  std::vector<std::byte> bytes{std::byte{1}};
  bytes.insert(bytes.end(), mine.begin(), mine.end());
  TROUPE_CHECK_ERRNO(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()),
                     Code::peer_lost, "the other end of the measurement has gone");
}

std::vector<std::byte> Line::hear(Blocking&) {
  TROUPE_CHECK(readable(fd_, patience_), Code::timeout, "the other end of the measurement does not come this far");
  std::vector<std::byte> bytes(kLargestIntroduction);
  const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), 0);
  TROUPE_CHECK(got > 0, Code::peer_lost, "the other end of the measurement has gone");
  return {bytes.begin() + 1, bytes.begin() + got};
}

bool Line::rest(Blocking&, Clock::duration span) { return readable(fd_, span); }

Figures idle_cores(Blocking& blocking, const EndCase& what, Line& line) {
  line.meet(blocking);
  const auto begun = Clock::now();
  const auto before = cpu_time();
  line.rest(blocking, what.span());
  const std::chrono::duration<double> used = cpu_time() - before;
  const std::chrono::duration<double> span = Clock::now() - begun;
  double here = used / span;
  const auto bytes = line.swap(blocking, std::as_bytes(std::span(&here, 1)));
  double there = 0;
  TROUPE_CHECK(bytes.size() == sizeof there, Code::corrupt, "the other end told ", bytes.size(),
               " bytes, not a number");
  std::memcpy(&there, bytes.data(), sizeof there);
  return {{"core", here}, {"core_there", there}};
}

int run_end(const EndCase& what) {
  try {
    Blocking blocking = Blocking::on_thread("main");
    pin_to(what.cpu);
    Line line(what.line, std::chrono::seconds(30) + 20 * what.span());
    const Figures figures = run_case(blocking, what, line);
    if (what.client) std::cout << nlohmann::json(figures).dump() << std::endl;
    return 0;
  } catch (const Error& error) {
    say_error(error.what());
    return exit_code(error.code());
  }
}

}  // namespace troupe::bench
