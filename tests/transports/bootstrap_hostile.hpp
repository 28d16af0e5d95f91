#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

#include "tests/transports/bootstrap_ranks.hpp"
#include "transports/bootstrap/detail/connection.hpp"

// Tools of processes that attack ranks.
namespace troupe::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::int64_t kMostGrowthKib = 1 << 30;  // a sanitizer keeps what was freed
#else
inline constexpr std::int64_t kMostGrowthKib = 16 << 10;
#endif

/// A line of /proc/self/status in KiB.
inline std::int64_t memory_kib(const std::string& line) {
  std::ifstream file{"/proc/self/status"};
  for (std::string word; file >> word;) {
    std::int64_t value = 0;
    if (word == line + ":" && file >> value) return value;
  }
  return -1;
}

/// The head of a frame with the largest length there is.
inline std::string head_of_4_gib(bootstrap::Kind kind) {
  bootstrap::Bytes bytes;
  for (const std::uint32_t word : {0x31505254U, static_cast<std::uint32_t>(kind), 0xffffffffU})
    bootstrap::put_u32(bytes, word);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// One connection, blocking, with deadlines in the system's hands.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {
    const timeval patience{10, 0};
    for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) setsockopt(fd, SOL_SOCKET, option, &patience, sizeof patience);
  }
  static Line accept_from(const Listener& listener) { return Line{accept(listener.fd(), nullptr, nullptr)}; }
  static Line to(std::uint16_t port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return Line{fd};
  }
  int fd() const { return fd_.get(); }
  void send(const std::string& bytes) const { ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// What is there, at least a byte; nothing at the end.
  std::string receive() const {
    char bytes[4096];
    const ssize_t got = recv(fd(), bytes, sizeof bytes, 0);
    return {bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  }
  std::string receive_all() const {
    std::string all;
    for (std::string part = receive(); !part.empty(); part = receive()) all += part;
    return all;
  }

 private:
  Fd fd_;
};

/// What both sides of a join said.
struct Recording {
  std::string connector;
  std::string listener;
};

/// Records a good join of two ranks from between them.
inline Recording record_a_join() {
  Recording recording;
  const Listener real;
  const Listener between;
  std::thread wiretap{[&] {
    const Line from_one = Line::accept_from(between);
    const Line to_zero = Line::to(real.port());
    pollfd both[2] = {{from_one.fd(), POLLIN, 0}, {to_zero.fd(), POLLIN, 0}};
    while (poll(both, 2, 10'000) > 0) {
      const bool from_connector = both[0].revents != 0;
      const std::string said = (from_connector ? from_one : to_zero).receive();
      if (said.empty()) return;
      (from_connector ? recording.connector : recording.listener) += said;
      (from_connector ? to_zero : from_one).send(said);
    }
  }};
  at_once(2, [&](std::size_t rank) {
    const Attendance one = join(rank_options(rank == 0 ? real : between, static_cast<std::uint32_t>(rank), 2));
    EXPECT_TRUE(one.status.ok()) << one.error();
  });
  wiretap.join();
  close(between.fd());
  return recording;
}

}  // namespace troupe::testing
