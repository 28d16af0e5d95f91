#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"

namespace troupe::bootstrap {

/// A network address.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  bool loopback() const noexcept;
  std::string host() const;  // numeric: 127.0.0.1, ::1
  std::uint16_t port() const noexcept;
  std::string to_string() const;  // 127.0.0.1:29500, [::1]:29500
};

/// Throws Error{environment} if the name is unknown, or if its name server has not answered by the deadline.
std::vector<Address> resolve(const std::string& host, std::uint16_t port, Deadline deadline);

/// A listening socket for rank 0: on a loopback address only there, otherwise on all addresses of the host. Throws
/// Error{environment}: port in use, no permission, or an address that is not loopback without a secret.
Fd listen_at(const std::string& host, std::uint16_t port, bool has_secret, Deadline deadline);
/// A socket that listens on a free port: on loopback only, or on all addresses of the host. Throws Error{environment}.
Fd listen_at_free_port(bool only_loopback);
/// Takes over a socket that is listening already. Throws Error{environment} if it is not listening, or if it is open to
/// the network and there is no secret.
Fd adopt_listener(int fd, bool has_secret);
Address local_address(int fd);

/// The next connection, non-blocking, and its source; an empty Fd if there is none now. `exhausted`: there is one, but
/// the process has no descriptor left for it.
struct Accepted {
  Fd fd;
  Address from;
  bool exhausted = false;
};
Accepted accept_from(const Fd& listener);
/// A connection to `address`, non-blocking, or an empty Fd with errno set.
Fd connect_to(const Address& address, Deadline deadline);

/// How long sent data may be unacknowledged before a connection counts as broken.
void set_user_timeout(int fd, std::chrono::milliseconds span) noexcept;

}  // namespace troupe::bootstrap
