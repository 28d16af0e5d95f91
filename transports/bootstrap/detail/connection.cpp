#include "transports/bootstrap/detail/connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

namespace troupe::bootstrap {
namespace {

constexpr std::uint32_t kMagic = 0x31505254;  // "TRP1"
constexpr std::size_t kMaxTextBytes = 2048;
constexpr std::size_t kReadPerCall = 4 << 20;  // then it is the turn of other connections

std::uint32_t u32_at(const std::byte* from) noexcept {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= static_cast<std::uint32_t>(from[i]) << (8 * i);
  return value;
}

int poll_timeout(Deadline deadline) noexcept {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
  return static_cast<int>(std::min<std::chrono::milliseconds>(left, std::chrono::hours{1}).count());
}

}  // namespace

void put_u32(Bytes& to, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) to.push_back(static_cast<std::byte>(value >> shift));
}

std::uint32_t take_u32(std::span<const std::byte>& from) {
  TROUPE_CHECK(from.size() >= 4, Code::corrupt, "a frame ends in the middle of a number");
  const std::uint32_t value = u32_at(from.data());
  from = from.subspan(4);
  return value;
}

void put_text(Bytes& to, std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  to.insert(to.end(), first, first + std::min(text.size(), kMaxTextBytes));
}

std::string take_text(std::span<const std::byte> from) {
  std::string text{reinterpret_cast<const char*>(from.data()), std::min(from.size(), kMaxTextBytes)};
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

Bytes status_body(const Status& status) {
  Bytes body;
  put_u32(body, static_cast<std::uint32_t>(status.code()));
  put_text(body, status.text());
  return body;
}

Status take_status(std::span<const std::byte> from) {
  const std::uint32_t code = take_u32(from);
  TROUPE_CHECK(code > 0 && code <= static_cast<std::uint32_t>(Code::corrupt), Code::corrupt, "unknown error code ",
               code);
  return {static_cast<Code>(code), take_text(from)};
}

void Connection::send(Kind kind, std::shared_ptr<const Bytes> body) {
  Bytes head;
  put_u32(head, kMagic);
  put_u32(head, static_cast<std::uint32_t>(kind));
  put_u32(head, static_cast<std::uint32_t>(body->size()));
  Outgoing& out = outbox_.emplace_back();
  std::copy(head.begin(), head.end(), out.head.begin());
  out.body = std::move(body);
  flush();
}

void Connection::flush() noexcept {
  while (!outbox_.empty()) {
    Outgoing& out = outbox_.front();
    const std::size_t head_sent = std::min(out.sent, kHeadBytes);
    const std::size_t body_sent = out.sent - head_sent;
    iovec parts[2] = {{out.head.data() + head_sent, kHeadBytes - head_sent},
                      {const_cast<std::byte*>(out.body->data()) + body_sent, out.body->size() - body_sent}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t sent = open() ? sendmsg(fd(), &message, MSG_NOSIGNAL) : -1;
    if (sent < 0) {
      if (open() && errno == EINTR) continue;
      if (!open() || (errno != EAGAIN && errno != EWOULDBLOCK)) outbox_.clear();  // broken: the next read reports it
      return;
    }
    out.sent += static_cast<std::size_t>(sent);
    if (out.sent == kHeadBytes + out.body->size()) outbox_.pop_front();
  }
}

bool Connection::end(std::string why) {
  why_ = std::move(why);
  over_ = true;
  return false;
}

/// Checks a complete head; nothing is allocated for a body that is too long.
bool Connection::begin_body() {
  const std::uint32_t magic = u32_at(head_.data());
  const std::uint32_t kind = u32_at(head_.data() + 4);
  const std::uint32_t length = u32_at(head_.data() + 8);
  if (magic != kMagic) return end("it does not speak this protocol");
  if (kind < 1 || kind > static_cast<std::uint32_t>(Kind::bye))
    return end(text("it sent a frame of unknown kind ", kind));
  if (length > max_bytes_) return end(text("it sent a frame of ", length, " bytes, over the limit of ", max_bytes_));
  incoming_.kind = static_cast<Kind>(kind);
  incoming_.body.resize(length);
  body_filled_ = 0;
  return true;
}

bool Connection::receive() {
  if (!open()) return false;
  for (std::size_t total = 0; total < kReadPerCall;) {
    const bool in_head = head_filled_ < kHeadBytes;
    std::byte* to = in_head ? head_.data() + head_filled_ : incoming_.body.data() + body_filled_;
    const std::size_t wanted = in_head ? kHeadBytes - head_filled_ : incoming_.body.size() - body_filled_;
    const ssize_t got = wanted == 0 ? 0 : recv(fd(), to, wanted, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      return end(text("its connection broke (", std::generic_category().message(errno), ")"));
    }
    if (got == 0 && wanted != 0) return end("it closed the connection");
    total += static_cast<std::size_t>(got);
    if (in_head) {
      head_filled_ += static_cast<std::size_t>(got);
      if (head_filled_ == kHeadBytes && !begin_body()) return false;
    } else {
      body_filled_ += static_cast<std::size_t>(got);
    }
    if (head_filled_ == kHeadBytes && body_filled_ == incoming_.body.size()) {
      inbox_.push_back(std::move(incoming_));
      incoming_ = {};
      head_filled_ = 0;
    }
  }
  return true;
}

std::optional<Frame> Connection::take() {
  if (inbox_.empty()) return std::nullopt;
  Frame frame = std::move(inbox_.front());
  inbox_.pop_front();
  return frame;
}

void Connection::end_sending() noexcept {
  if (open()) shutdown(fd(), SHUT_WR);
}

std::vector<bool> wait_ready(std::span<Connection* const> connections, int extra_fd, Deadline deadline) {
  std::vector<pollfd> entries;
  entries.reserve(connections.size() + 1);
  for (const Connection* connection : connections) {
    const short events = connection->has_unsent() ? POLLIN | POLLOUT : POLLIN;
    entries.push_back({connection->open() ? connection->fd() : -1, events, 0});  // poll() ignores -1
  }
  entries.push_back({extra_fd, POLLIN, 0});
  const int count = poll(entries.data(), entries.size(), poll_timeout(deadline));
  TROUPE_CHECK_ERRNO(count >= 0 || errno == EINTR, Code::environment, "cannot wait for ", connections.size(),
                     " sockets");
  std::vector<bool> ready(entries.size(), false);
  if (count > 0)
    std::transform(entries.begin(), entries.end(), ready.begin(), [](const pollfd& e) { return e.revents != 0; });
  return ready;
}

bool flush_all(std::span<Connection* const> connections, Deadline deadline) {
  for (;;) {
    std::vector<pollfd> unsent;
    for (Connection* connection : connections) {
      connection->flush();
      if (connection->has_unsent()) unsent.push_back({connection->fd(), POLLOUT, 0});
    }
    if (unsent.empty()) return true;
    if (deadline.passed()) return false;
    poll(unsent.data(), unsent.size(), poll_timeout(deadline));
  }
}

void part(std::span<Connection* const> connections, Deadline deadline) {
  for (;;) {
    std::vector<Connection*> left;
    for (Connection* connection : connections) {
      connection->flush();
      if (!connection->has_unsent()) connection->end_sending();
      if (connection->open()) left.push_back(connection);
    }
    if (left.empty() || deadline.passed()) return;
    const std::vector<bool> ready = wait_ready(left, -1, deadline);
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (ready[i]) left[i]->receive();
      while (left[i]->take()) {
      }
    }
  }
}

}  // namespace troupe::bootstrap
