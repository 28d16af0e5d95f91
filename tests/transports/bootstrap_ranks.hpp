#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::testing {

using namespace std::chrono_literals;

/// A TCP socket bound to a free loopback port.
class BoundPort {
 public:
  BoundPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    EXPECT_EQ(setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  int fd() const { return fd_; }
  std::uint16_t port() const { return port_; }

 private:
  int fd_;
  std::uint16_t port_;
};

/// A socket that listens, as a launcher hands it to rank 0, who closes it.
class Listener : public BoundPort {
 public:
  Listener() { EXPECT_EQ(listen(fd(), SOMAXCONN), 0); }
};

/// A port where nobody listens, though rank 0 may; kept from other programs meanwhile.
class QuietPort : public BoundPort {
 public:
  ~QuietPort() { close(fd()); }
};

/// A client that speaks no protocol at all.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~RawClient() { close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  void send(std::string_view bytes) const { ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// Waits until the other side closes.
  void drain() const {
    char bytes[4096];
    while (recv(fd_, bytes, sizeof bytes, 0) > 0) {
    }
  }

 private:
  int fd_;
};

/// All parameters with which one rank joins.
struct RankOptions {
  LaunchPlace place;
  Hello hello;
  Clock::duration patience = 20s;
};

inline RankOptions rank_options(const BoundPort& listener, std::uint32_t rank, std::uint32_t world_size) {
  RankOptions options;
  options.place.rank = rank;
  options.place.world_size = world_size;
  options.place.local_rank = rank;
  options.place.master_address = "127.0.0.1";
  options.place.master_port = listener.port();
  options.place.listen_fd = rank == 0 ? listener.fd() : -1;
  options.place.secret = "the job's secret";
  options.hello.rank = rank;
  options.hello.troupe_version = "0.1.0";
  options.hello.caf_version = "0.17.6";
  options.hello.ucx_version = "1.13.1";
  options.hello.settings_hash = 0x1234;
  options.hello.settings = {"data.batch = 100", "train.seed = 7"};
  options.hello.type_table_hash = 0x5678;
  options.hello.pid = getpid();
  options.hello.pid_namespace = 4026531836;
  options.hello.topology.identity = {"boot", 17};
  options.hello.topology.host = "host" + std::to_string(rank);
  return options;
}

/// The result of one rank's join, and the notes that it got during it.
struct Attendance {
  std::unique_ptr<Bootstrap> bootstrap;
  Status status;
  std::vector<std::string> told;

  std::string error() const { return std::string{status.text()}; }
  bool heard(const std::string& part) const {
    for (const std::string& line : told) {
      if (line.find(part) != std::string::npos) return true;
    }
    return false;
  }
};

inline Attendance join(const RankOptions& options, const std::function<void(const std::string&)>& hook = {}) {
  Attendance result;
  Blocking blocking = Blocking::on_thread("test");
  try {
    result.bootstrap = Bootstrap::join(blocking, options.place, options.hello, Deadline::after(options.patience),
                                       [&](const std::string& line) {
                                         result.told.push_back(line);
                                         if (hook) hook(line);
                                       });
  } catch (const Error& error) {
    result.status = error.status();
  }
  return result;
}

/// Calls `body(i)` for 0..count-1 on a thread each, and waits for all.
inline void at_once(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

inline std::vector<Attendance> join_all(const std::vector<RankOptions>& ranks) {
  std::vector<Attendance> result(ranks.size());
  at_once(ranks.size(), [&](std::size_t i) { result[i] = join(ranks[i]); });
  return result;
}

inline std::vector<RankOptions> whole_world(const Listener& listener, std::uint32_t world_size) {
  std::vector<RankOptions> ranks;
  for (std::uint32_t rank = 0; rank < world_size; ++rank) ranks.push_back(rank_options(listener, rank, world_size));
  return ranks;
}

/// Records the peers that a watch reports.
class Losses {
 public:
  Bootstrap::Lost callback() {
    return [this](Peer peer, const Status& why) {
      const std::lock_guard lock{mutex_};
      peers_.push_back(peer.value);
      reasons_.push_back(why);
    };
  }
  std::vector<std::uint32_t> peers() const {
    const std::lock_guard lock{mutex_};
    return peers_;
  }
  Status reason(std::size_t i) const {
    const std::lock_guard lock{mutex_};
    return reasons_.at(i);
  }

 private:
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::uint32_t> peers_;
  std::vector<Status> reasons_;
};

}  // namespace troupe::testing
