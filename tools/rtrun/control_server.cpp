#include "tools/rtrun/control_server.hpp"

#include <sys/socket.h>

#include <exception>
#include <utility>

namespace troupe::rtrun {
namespace {

/// How long receiving a request and sending its answer may each take; the other process is on this machine.
constexpr std::chrono::seconds kLine{2};

}  // namespace

ControlServer::ControlServer(const std::string& folder, Handler handler)
    : handler_(std::move(handler)),
      listener_(listen_for_control(folder)),
      thread_("control", listener_.get(), [this] { serve(); }) {}

void ControlServer::serve() const {
  Blocking blocking = Blocking::on_thread("control");
  const Fd connection{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  if (connection && is_same_user(connection)) answer(blocking, connection);
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
