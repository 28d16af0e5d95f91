#include "tools/rtrun/control.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/config/config.hpp"

namespace troupe::rtrun {
namespace {

constexpr const char* kRequests =
    "\"switch POLICY [key=value ...]\", \"rebuild\", \"stop\", \"describe\" or \"machines\"";

bool is_plain(std::string_view line) {
  return std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

/// Waits until the socket is ready; false: the deadline has passed.
bool wait_for(const Fd& socket, short events, Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
    pollfd polled{socket.get(), events, 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

struct Address {
  sockaddr_un bytes{};
  socklen_t size = 0;
};
Address address_of(const std::string& name) {
  Address address;
  address.bytes.sun_family = AF_UNIX;
  // The name begins with a zero: it belongs to the kernel (abstract namespace), not to the file system.
  std::memcpy(address.bytes.sun_path + 1, name.data(), std::min(name.size(), sizeof address.bytes.sun_path - 1));
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Fd make_socket() {
  Fd made{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  TROUPE_CHECK_ERRNO(made, Code::environment, "cannot make a socket for rtrun control");
  return made;
}

}  // namespace

ControlRequest parse_control_request(std::string_view line) {
  TROUPE_CHECK(line.size() <= kRequestBytes && is_plain(line), Code::invalid, "a request is a line of at most ",
               kRequestBytes, " plain letters: ", kRequests);
  std::vector<std::string> words;
  for (std::size_t first = 0; first <= line.size();) {
    const std::size_t end = std::min(line.find(' ', first), line.size());
    words.emplace_back(line.substr(first, end - first));
    first = end + 1;
  }
  using Kind = ControlRequest::Kind;
  if (words.size() == 1 && words[0] == "stop") return {.kind = Kind::stop, .policy = {}};
  if (words.size() == 1 && words[0] == "rebuild") return {.kind = Kind::rebuild, .policy = {}};
  if (words.size() == 1 && words[0] == "describe") return {.kind = Kind::describe, .policy = {}};
  if (words.size() == 1 && words[0] == "machines") return {.kind = Kind::machines, .policy = {}};
  TROUPE_CHECK(words.size() >= 2 && words[0] == "switch", Code::invalid, "a run takes ", kRequests);
  return {.kind = Kind::switch_policy, .policy = parse_policy(words[1], std::span{words}.subspan(2))};
}

std::string to_line(const ControlAnswer& answer) {
  std::string line = answer.done ? "ok " : "no ";
  for (const char c : answer.text) {
    if (line.size() + 2 > kAnswerBytes) break;
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\\') {
      line += "\\\\";
    } else {
      line += c;
    }
  }
  return line;
}

ControlAnswer parse_control_answer(std::string_view line) {
  ControlAnswer answer{.done = line.starts_with("ok "), .text = {}};
  TROUPE_CHECK(answer.done || line.starts_with("no "), Code::corrupt, "the run's answer cannot be read");
  for (std::size_t i = 3; i < line.size(); ++i) {
    if (line[i] != '\\') {
      answer.text += line[i];
      continue;
    }
    ++i;
    TROUPE_CHECK(i < line.size() && (line[i] == 'n' || line[i] == '\\'), Code::corrupt,
                 "the run's answer cannot be read");
    answer.text += line[i] == 'n' ? '\n' : '\\';
  }
  return answer;
}

std::string control_address(const std::string& folder) {
  struct stat facts {};
  TROUPE_CHECK_ERRNO(::stat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode), Code::environment,
                     "cannot look at the run's folder ", folder, "; give the folder that report.dir names");
  return text("troupe/control/", facts.st_dev, "/", facts.st_ino);
}

Fd listen_for_control(const std::string& folder) {
  const Address address = address_of(control_address(folder));
  Fd listener = make_socket();
  const bool bound = ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) == 0;
  TROUPE_CHECK_ERRNO(bound, Code::environment, "cannot listen for rtrun control: another run writes into ", folder,
                     "; set report.dir to a folder of its own");
  TROUPE_CHECK_ERRNO(::listen(listener.get(), 4) == 0, Code::environment, "cannot listen for rtrun control");
  return listener;
}

bool is_same_user(const Fd& connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

bool read_line(const Fd& connection, std::string& line, std::size_t most, Deadline deadline) {
  line.clear();
  std::array<char, 4096> some{};
  for (;;) {
    if (!wait_for(connection, POLLIN, deadline)) return false;
    const ssize_t got = ::recv(connection.get(), some.data(), some.size(), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return false;
    line.append(some.data(), static_cast<std::size_t>(got));
    const auto end = line.find('\n');
    if (line.size() > most + 1 && end == line.npos) return false;
    if (end == line.npos && got > 0) continue;
    line.resize(std::min(end, line.size()));
    return line.size() <= most;
  }
}

bool write_line(const Fd& connection, const std::string& line, Deadline deadline) {
  const std::string all = line + '\n';
  for (std::size_t done = 0; done < all.size();) {
    if (!wait_for(connection, POLLOUT, deadline)) return false;
    const ssize_t sent = ::send(connection.get(), all.data() + done, all.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent < 0) return false;
    done += static_cast<std::size_t>(sent);
  }
  return true;
}

ControlAnswer ask_run(Blocking&, const std::string& folder, const std::vector<std::string>& words, Deadline deadline) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  (void)parse_control_request(line);  // throws if something is wrong with it
  const Address address = address_of(control_address(folder));
  const Fd connection = make_socket();
  const bool there = ::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) == 0;
  TROUPE_CHECK_ERRNO(there, Code::environment, "no run that writes into ", folder,
                     " takes requests here: it has ended, has not begun, or its rank 0 is on another host");
  TROUPE_CHECK(is_same_user(connection), Code::environment, "the run that writes into ", folder,
               " is another user's; ask as that user");
  TROUPE_CHECK(write_line(connection, line, deadline), Code::environment, "the run that writes into ", folder,
               " does not take the request");
  std::string answer;
  if (!read_line(connection, answer, kAnswerBytes, deadline))
    return {.done = false, .text = text("the run that writes into ", folder, " gave no answer")};
  if (answer.empty())
    return {.done = false, .text = text("the run that writes into ", folder, " ended before it answered")};
  return parse_control_answer(answer);
}

}  // namespace troupe::rtrun
