#include "transports/bootstrap/detail/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <memory>

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"

namespace troupe::bootstrap {
namespace {

// A rank that loads its data may leave a blob unread for this long; when ranks only watch each other the time is
// shorter.
constexpr std::chrono::seconds kUserTimeout{60};

void set_option(int fd, int level, int option, int value) noexcept {
  setsockopt(fd, level, option, &value, sizeof value);
}

/// Small frames are sent at once, and a host that has vanished is noticed within seconds, even if nothing is sent.
void set_options(int fd) noexcept {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 5);
  set_user_timeout(fd, kUserTimeout);
}

enum class Reach { loopback, everywhere };

/// The address at which a socket of this host listens.
Address listening_address(int family, std::uint16_t port, Reach reach) {
  Address address;
  if (family == AF_INET6) {
    auto& to = reinterpret_cast<sockaddr_in6&>(address.storage);
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(port);
    to.sin6_addr = reach == Reach::everywhere ? in6addr_any : in6addr_loopback;
    address.size = sizeof to;
  } else {
    auto& to = reinterpret_cast<sockaddr_in&>(address.storage);
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(reach == Reach::everywhere ? INADDR_ANY : INADDR_LOOPBACK);
    address.size = sizeof to;
  }
  return address;
}

/// An empty Fd with errno if the address cannot be bound.
Fd try_listen(const Address& address) {
  Fd fd{socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (fd.get() < 0) return fd;
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.storage.ss_family == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  if (bind(fd.get(), name, address.size) == 0 && listen(fd.get(), SOMAXCONN) == 0) return fd;
  const int reason = errno;
  fd.reset();
  errno = reason;
  return fd;
}

/// Whether `host` means the local host on every host: a loopback number, or localhost.
bool only_this_host(const std::string& host) {
  in6_addr number;
  return host == "localhost" || inet_pton(AF_INET, host.c_str(), &number) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &number) == 1;
}

/// A connection on one host to a port on which no process listens can connect to itself, and would then keep rank 0
/// from using that port.
bool met_itself(int fd) {
  Address peer;
  peer.size = sizeof peer.storage;
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.size) == 0 &&
         peer.to_string() == local_address(fd).to_string();
}

const char* cure_for(int reason) noexcept {
  switch (reason) {
    case EADDRINUSE: return "another program listens there; end it or choose another MASTER_PORT";
    case EACCES: return "ports below 1024 need a privilege; choose a higher MASTER_PORT";
    case EADDRNOTAVAIL: return "this host has no such address; rank 0 must run on the host MASTER_ADDR names";
    default: return "see MASTER_ADDR and MASTER_PORT";
  }
}

}  // namespace

bool Address::loopback() const noexcept {
  if (storage.ss_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24) == 127;
  }
  if (storage.ss_family != AF_INET6) return false;
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

std::string Address::host() const {
  char host[NI_MAXHOST];
  const auto* name = reinterpret_cast<const sockaddr*>(&storage);
  return getnameinfo(name, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 ? host : "?";
}

std::uint16_t Address::port() const noexcept {
  // The offset is the same in both families.
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

std::string Address::to_string() const {
  return storage.ss_family == AF_INET6 ? text("[", host(), "]:", port()) : text(host(), ":", port());
}

namespace {

/// The results of the C library, and their memory.
struct Lookup {
  addrinfo* list = nullptr;

  Lookup() = default;
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;
  ~Lookup() {
    if (list) freeaddrinfo(list);
  }
  int run(const std::string& host, std::uint16_t port, int flags) noexcept {
    addrinfo hints{};
    hints.ai_flags = flags;
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    return getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  }
};

}  // namespace

std::vector<Address> resolve(const std::string& host, std::uint16_t port, Deadline deadline) {
  const auto lookup = std::make_shared<Lookup>();
  int failed = lookup->run(host, port, AI_NUMERICHOST);
  if (failed != 0) {
    // On a separate thread, which may outlive the wait: the C library's lookups take as long as the name servers.
    auto result = std::make_shared<std::promise<int>>();
    std::future<int> answer = result->get_future();
    start_thread("lookup", [=] { result->set_value(lookup->run(host, port, 0)); }).detach();
    TROUPE_CHECK(answer.wait_until(deadline.at()) == std::future_status::ready, Code::environment, "MASTER_ADDR '",
                 host, "' was not resolved in time: is its name server reachable? A numeric address needs none");
    failed = answer.get();
  }
  TROUPE_CHECK(failed == 0, Code::environment, "MASTER_ADDR '", host, "' cannot be resolved: ", gai_strerror(failed));
  std::vector<Address> addresses;
  for (const addrinfo* entry = lookup->list; entry != nullptr; entry = entry->ai_next) {
    Address& address = addresses.emplace_back();
    address.size = std::min<socklen_t>(entry->ai_addrlen, sizeof address.storage);
    std::copy_n(reinterpret_cast<const char*>(entry->ai_addr), address.size, reinterpret_cast<char*>(&address.storage));
  }
  return addresses;
}

Fd listen_at(const std::string& host, std::uint16_t port, bool has_secret, Deadline deadline) {
  TROUPE_CHECK(port != 0, Code::environment, "rank 0 needs a MASTER_PORT other than 0, where the other ranks find it");
  std::vector<Address> candidates = resolve(host, port, deadline);
  const bool loopback =
      std::all_of(candidates.begin(), candidates.end(), [](const Address& a) { return a.loopback(); });
  // A host's own name may mean 127.0.1.1 on that host, and its real address on other hosts.
  const bool everywhere = !loopback || (has_secret && !only_this_host(host));
  if (everywhere) {
    TROUPE_CHECK(
        has_secret, Code::environment, "rank 0 will not listen at ", host, ":", port,
        " without a job secret: anybody on the network could join; set TROUPE_SECRET_FILE on every rank, or use a "
        "loopback address");
    candidates = {listening_address(AF_INET6, port, Reach::everywhere),
                  listening_address(AF_INET, port, Reach::everywhere)};
  }
  for (const Address& address : candidates) {
    Fd fd = try_listen(address);
    if (fd.get() >= 0) return fd;
    if (errno == EADDRINUSE || errno == EACCES) break;  // the result of the next family would hide this error
  }
  const int reason = errno;
  fail_errno(Code::environment, text("rank 0 cannot listen at ", host, ":", port, " (", cure_for(reason), ")"));
}

Fd listen_at_free_port(bool only_loopback) {
  const Reach reach = only_loopback ? Reach::loopback : Reach::everywhere;
  const int families[] = {only_loopback ? AF_INET : AF_INET6, only_loopback ? AF_INET6 : AF_INET};
  for (const int family : families) {
    Fd fd = try_listen(listening_address(family, 0, reach));
    if (fd.get() >= 0) return fd;
  }
  fail_errno(Code::environment, text("rank 0 finds no free port to listen at ",
                                     only_loopback ? "on loopback" : "that other hosts could reach"));
}

Fd adopt_listener(int fd, bool has_secret) {
  int listening = 0;
  socklen_t size = sizeof listening;
  TROUPE_CHECK(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening == 1, Code::environment,
               "descriptor ", fd, " (TROUPE_LISTEN_FD) is not a socket that listens");
  Fd listener{fd};
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  const Address address = local_address(fd);
  TROUPE_CHECK(has_secret || address.loopback(), Code::environment, "the socket that rank 0 was given listens at ",
               address.to_string(),
               ", open to the network, but there is no job secret; set TROUPE_SECRET_FILE on every rank");
  return listener;
}

Address local_address(int fd) {
  Address address;
  address.size = sizeof address.storage;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  return address;
}

Accepted accept_from(const Fd& listener) {
  Accepted accepted;
  for (;;) {
    accepted.from.size = sizeof accepted.from.storage;
    const int fd = accept4(listener.get(), reinterpret_cast<sockaddr*>(&accepted.from.storage), &accepted.from.size,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      set_options(fd);
      accepted.fd.reset(fd);
      return accepted;
    }
    if (errno == ECONNABORTED || errno == EINTR) continue;
    accepted.exhausted = errno != EAGAIN && errno != EWOULDBLOCK;
    return accepted;
  }
}

Fd connect_to(const Address& address, Deadline deadline) {
  Fd fd{socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (fd.get() < 0) return fd;
  set_options(fd.get());
  int reason = 0;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) {
    reason = errno;
    if (reason == EINPROGRESS) {
      pollfd entry{.fd = fd.get(), .events = POLLOUT, .revents = 0};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
      socklen_t size = sizeof reason;
      if (poll(&entry, 1, static_cast<int>(left.count())) <= 0) {
        reason = ETIMEDOUT;
      } else if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &reason, &size) != 0) {
        reason = errno;
      }
    }
  }
  if (reason == 0 && met_itself(fd.get())) reason = ECONNREFUSED;
  if (reason != 0) fd.reset();
  errno = reason;
  return fd;
}

void set_user_timeout(int fd, std::chrono::milliseconds span) noexcept {
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(span.count()));
}

}  // namespace troupe::bootstrap
