#include "tools/crew/line.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "runtime/base/error.hpp"

namespace troupe::crew {

using nlohmann::json;

bool Line::say(const json& what) const {
  const std::vector<std::uint8_t> bytes = json::to_cbor(what);
  return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

std::optional<json> Line::hear_now() { return receive(MSG_DONTWAIT); }

void Line::tell(const json& mine) const {
  TROUPE_CHECK(say(mine), Code::peer_lost, "the other end of the measurement has gone");
}

json Line::await(Blocking& blocking) {
  TROUPE_CHECK(rest(blocking, patience_), Code::timeout, "the other end of the measurement does not come this far");
  auto said = hear();
  TROUPE_CHECK(said, Code::peer_lost, "the other end of the measurement has gone");
  return std::move(*said);
}

bool Line::rest(Blocking&, Clock::duration span) const {
  pollfd polled{fd_.get(), POLLIN, 0};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(span).count();
  return ::poll(&polled, 1, static_cast<int>(ms)) > 0;
}

std::optional<json> Line::receive(int flags) {
  constexpr std::size_t kLongest = 1u << 16;
  std::vector<std::uint8_t> bytes(kLongest);
  ssize_t got = 0;
  do {
    got = ::recv(fd_.get(), bytes.data(), bytes.size(), flags);
    // ECONNRESET comes once, before the data: the other end has closed its socket without reading everything.
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  if (got <= 0) return {};
  bytes.resize(static_cast<std::size_t>(got));
  auto what = json::from_cbor(bytes, true, false);
  TROUPE_CHECK(!what.is_discarded(), Code::corrupt, "a process of this measurement told ", got,
               " bytes that cannot be read");
  return what;
}

json binary(std::span<const std::byte> bytes) {
  const auto* const first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return json::binary({first, first + bytes.size()});
}

std::vector<std::byte> bytes_of(const json& binary) {
  const auto bytes = std::as_bytes(std::span(binary.get_binary()));
  return {bytes.begin(), bytes.end()};
}

std::pair<Fd, Fd> make_line() {
  std::array<int, 2> ends{};
  TROUPE_CHECK_ERRNO(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0, Code::environment,
                     "cannot connect two processes; check `ulimit -n`");
  return {Fd{ends[0]}, Fd{ends[1]}};
}

std::int64_t nanoseconds_of(Clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

double milliseconds_since(Clock::time_point begin, std::int64_t at_ns) {
  return static_cast<double>(at_ns - nanoseconds_of(begin)) / 1e6;
}

}  // namespace troupe::crew
