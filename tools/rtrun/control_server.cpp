#include "tools/rtrun/control_server.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"

namespace troupe::rtrun {
namespace {

/// How long receiving a request and sending its answer may each take; the other process is on this machine.
constexpr std::chrono::seconds kLine{2};

}  // namespace

ControlServer::ControlServer(const std::string& folder, Handler handler)
    : handler_(std::move(handler)), listener_(listen_for_control(folder)), end_(::eventfd(0, EFD_CLOEXEC)) {
  TROUPE_CHECK_ERRNO(end_, Code::environment, "cannot make an eventfd; check `ulimit -n`");
  thread_ = start_thread("control", [this] { serve(); });
}

ControlServer::~ControlServer() {
  const std::uint64_t one = 1;
  while (::write(end_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void ControlServer::serve() {
  Blocking blocking = Blocking::on_thread("control");
  std::array<pollfd, 2> polled{{{listener_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}}};
  for (;;) {
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;  // EINTR; an end is always signalled on end_
    if (polled[1].revents != 0) return;
    const Fd connection{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (connection && is_same_user(connection)) answer(blocking, connection);
  }
}

void ControlServer::answer(Blocking& blocking, const Fd& connection) const {
  std::string line;
  if (!read_line(connection, line, kRequestBytes, Deadline::after(kLine))) return;
  ControlAnswer answer;
  try {
    answer.text = handler_(blocking, parse_control_request(line));
    answer.done = true;
  } catch (const std::exception& error) {
    answer.text = error.what();
  }
  (void)write_line(connection, to_line(answer), Deadline::after(kLine));  // a client that has left needs no answer
}

}  // namespace troupe::rtrun
