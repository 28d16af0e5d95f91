// Who may connect to the TCP ports of UCX.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/fd.hpp"
#include "transports/ucx/detail/admission.hpp"

namespace troupe::testing {
namespace {

const NodeIdentity kHere{"boot", 1};
const NodeIdentity kThere{"another boot", 1};

/// Hosts of this process, peer 0, and of one other.
std::vector<ProcessLocation> two_hosts(std::vector<std::string> addresses, NodeIdentity node = kHere) {
  return {{kHere, 1, {"127.0.0.1"}}, {std::move(node), 1, std::move(addresses)}};
}

Admission admission_of(std::vector<std::string> addresses, NodeIdentity node = kHere) {
  return Admission(two_hosts(std::move(addresses), std::move(node)), Peer{0});
}

sockaddr_storage address_of(const std::string& text, std::uint16_t port = 0) {
  sockaddr_storage result{};
  auto& four = reinterpret_cast<sockaddr_in&>(result);
  auto& six = reinterpret_cast<sockaddr_in6&>(result);
  if (::inet_pton(AF_INET, text.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
  } else {
    EXPECT_EQ(::inet_pton(AF_INET6, text.c_str(), &six.sin6_addr), 1) << text;
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
  }
  return result;
}

/// A listening socket on loopback, and the data with which it is found.
struct Listener {
  explicit Listener(int domain = AF_INET) {
    fd.reset(::socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_storage name = address_of(domain == AF_INET ? "127.0.0.1" : "::1");
    works = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) == 0 && ::listen(fd.get(), 64) == 0;
    socklen_t size = sizeof address;
    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  }
  /// The address that UCX would write for it.
  std::vector<std::byte> worker_address() const {
    std::vector<std::byte> bytes(9);
    std::memcpy(bytes.data() + 5, &reinterpret_cast<const sockaddr_in&>(address).sin_port, 2);
    return bytes;
  }
  Fd accept() const { return Fd{::accept4(fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)}; }
  Fd fd;
  bool works = false;
  sockaddr_storage address{};
};

bool ready(const Fd& fd, short events, std::chrono::milliseconds within) {
  pollfd poll{fd.get(), events, 0};
  return ::poll(&poll, 1, static_cast<int>(within.count())) == 1;
}

constexpr std::chrono::milliseconds kLong{10'000};
constexpr std::chrono::milliseconds kNoAnswer{200};  // that nothing comes can only be waited for

/// A connection to `listener` from an address of this host, made or under way.
Fd connect_from(const std::string& source, const Listener& listener) {
  Fd fd{::socket(listener.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  sockaddr_storage from = address_of(source);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&from), sizeof from), 0) << source;
  ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&listener.address), sizeof listener.address);
  return fd;
}

TEST(UcxAdmission, LetsPeersInAndGivesStrangersNoAnswer) {
  ListenerGuard guard{two_hosts({"127.0.0.2", "127.0.0.4", "10.0.0.1"}), Peer{0}};
  const Listener listener;
  ASSERT_EQ(guard.close_to_strangers(listener.worker_address()), 1u);
  for (const char* peer : {"127.0.0.2", "127.0.0.4"}) EXPECT_TRUE(ready(connect_from(peer, listener), POLLOUT, kLong));
  for (const char* stranger : {"127.0.0.1", "127.0.0.3", "127.0.0.5", "127.255.255.254"})
    EXPECT_FALSE(ready(connect_from(stranger, listener), POLLOUT, kNoAnswer)) << stranger;
}

TEST(UcxAdmission, HoldsForIpv6Too) {
  const Listener probe{AF_INET6};
  if (!probe.works) GTEST_SKIP() << "no IPv6 loopback here";
  ListenerGuard open{two_hosts({"::1"}), Peer{0}};
  ListenerGuard closed{two_hosts({"2001:db8::1", "fe80::1%eth0"}), Peer{0}};
  const Listener first{AF_INET6};
  ASSERT_EQ(open.close_to_strangers(first.worker_address()), 1u);
  EXPECT_TRUE(ready(connect_from("::1", first), POLLOUT, kLong));
  const Listener second{AF_INET6};
  ASSERT_EQ(closed.close_to_strangers(second.worker_address()), 1u);
  EXPECT_FALSE(ready(connect_from("::1", second), POLLOUT, kNoAnswer));
}

TEST(UcxAdmission, CarriesMuchOverAnAcceptedConnection) {
  ListenerGuard guard{two_hosts({"127.0.0.2"}), Peer{0}};
  const Listener listener;
  ASSERT_EQ(guard.close_to_strangers(listener.worker_address()), 1u);
  const Fd out = connect_from("127.0.0.2", listener);
  ASSERT_TRUE(ready(listener.fd, POLLIN, kLong));
  const Fd in = listener.accept();
  const std::vector<char> sent(1 << 20, 'x');
  std::vector<char> got(sent.size());
  std::size_t sent_bytes = 0;
  std::size_t got_bytes = 0;
  constexpr std::size_t kAll = std::size_t{64} << 20;
  while (got_bytes < kAll) {
    const ssize_t more = ::send(out.get(), sent.data(), std::min(sent.size(), kAll - sent_bytes), MSG_NOSIGNAL);
    if (more > 0) sent_bytes += static_cast<std::size_t>(more);
    ASSERT_TRUE(ready(in, POLLIN, kLong)) << "after " << got_bytes << " bytes";
    const ssize_t received = ::recv(in.get(), got.data(), got.size(), 0);
    ASSERT_GT(received, 0);
    got_bytes += static_cast<std::size_t>(received);
  }
}

TEST(UcxAdmission, EndsConnectionsThatWereMadeBefore) {
  ListenerGuard guard{two_hosts({"127.0.0.2"}), Peer{0}};
  const Listener listener;
  const Fd accepted_stranger = connect_from("127.0.0.3", listener);
  ASSERT_TRUE(ready(listener.fd, POLLIN, kLong));
  const Fd accepted = listener.accept();  // as UCX's own thread may
  ASSERT_EQ(::send(accepted_stranger.get(), "rubbish", 7, MSG_NOSIGNAL), 7);
  ASSERT_TRUE(ready(accepted, POLLIN, kLong));
  const Fd waiting_stranger = connect_from("127.0.0.4", listener);
  ASSERT_TRUE(ready(listener.fd, POLLIN, kLong));
  ASSERT_EQ(guard.close_to_strangers(listener.worker_address()), 1u);
  char byte = 0;
  EXPECT_LE(::recv(accepted.get(), &byte, 1, 0), 0) << "what the stranger sent is still there to be read";
  EXPECT_LT(listener.accept().get(), 0) << "a stranger is still in the queue";
  EXPECT_TRUE(ready(accepted_stranger, POLLIN, kLong));
  EXPECT_LE(::recv(accepted_stranger.get(), &byte, 1, 0), 0);
}

TEST(UcxAdmission, LeavesOtherListenersAlone) {
  const Listener before;
  ListenerGuard guard{two_hosts({"10.0.0.1"}), Peer{0}};
  const Listener after;
  const Listener unnamed;
  auto address = after.worker_address();
  const auto more = before.worker_address();
  address.insert(address.end(), more.begin(), more.end());
  ASSERT_EQ(guard.close_to_strangers(address), 1u);
  EXPECT_TRUE(ready(connect_from("127.0.0.1", before), POLLOUT, kLong));
  EXPECT_TRUE(ready(connect_from("127.0.0.1", unnamed), POLLOUT, kLong));
  EXPECT_FALSE(ready(connect_from("127.0.0.1", after), POLLOUT, kNoAnswer));
}

TEST(UcxAdmission, CannotBeTakenOffAgain) {
  ListenerGuard guard{two_hosts({"127.0.0.2"}), Peer{0}};
  const Listener listener;
  ASSERT_EQ(guard.close_to_strangers(listener.worker_address()), 1u);
  const int none = 0;
  EXPECT_NE(::setsockopt(listener.fd.get(), SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none), 0);
  EXPECT_EQ(errno, EPERM);
}

TEST(UcxAdmission, CountsLoopbackAddressesOfItsOwnNodeAlone) {
  EXPECT_TRUE(admission_of({"127.0.0.1", "::1"}, kHere).admits(address_of("127.0.0.1")));
  EXPECT_TRUE(admission_of({"127.0.0.1", "::1"}, kHere).admits(address_of("::1")));
  const Admission remote = admission_of({"127.0.0.1", "::1", "10.0.0.7"}, kThere);
  EXPECT_FALSE(remote.admits(address_of("127.0.0.1")));
  EXPECT_FALSE(remote.admits(address_of("::1")));
  EXPECT_TRUE(remote.admits(address_of("10.0.0.7")));
}

TEST(UcxAdmission, TakesIpv4AddressesThatAnIpv6SocketSaw) {
  const Admission admission = admission_of({"::ffff:10.0.0.7"}, kThere);
  EXPECT_TRUE(admission.admits(address_of("10.0.0.7")));
  EXPECT_FALSE(admission.admits(address_of("10.0.0.6")));
}

TEST(UcxAdmission, NamesAPeerWhoseAddressIsNone) {
  try {
    admission_of({"10.0.0.1", "nowhere"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::environment);
    EXPECT_NE(std::string{error.what()}.find("peer 1"), std::string::npos) << error.what();
    EXPECT_NE(std::string{error.what()}.find("nowhere"), std::string::npos) << error.what();
  }
}

TEST(UcxAdmission, OfThousandsOfAddressesFitsTheKernelAndLetsAllIn) {
  std::vector<std::string> addresses{"127.0.0.2"};
  for (int i = 0; i < 3000; ++i) addresses.push_back(text("10.", i / 200, '.', i % 200, '.', 1 + i * 7 % 250));
  for (int i = 0; i < 3000; ++i) addresses.push_back(text("2001:db8:", hexadecimal(i * 13), "::", hexadecimal(1 + i)));
  const Admission admission = admission_of(addresses);
  for (const std::string& address : addresses) EXPECT_TRUE(admission.admits(address_of(address))) << address;
  EXPECT_FALSE(admission.admits(address_of("127.0.0.3")));
  EXPECT_FALSE(admission.admits(address_of("192.168.0.1")));
  EXPECT_FALSE(admission.admits(address_of("2002::1")));
  ListenerGuard guard{two_hosts(addresses), Peer{0}};
  const Listener four;
  const Listener six{AF_INET6};
  auto ports = four.worker_address();
  const auto more = six.worker_address();
  ports.insert(ports.end(), more.begin(), more.end());
  EXPECT_EQ(guard.close_to_strangers(ports), six.works ? 2u : 1u);
  EXPECT_TRUE(ready(connect_from("127.0.0.2", four), POLLOUT, kLong));
  EXPECT_FALSE(ready(connect_from("127.0.0.3", four), POLLOUT, kNoAnswer));
}

}  // namespace
}  // namespace troupe::testing
