#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transports/loopback/loopback_transport.hpp"

namespace troupe {

/// A message in a mailbox: everything is copied.
struct Letter {
  Peer from;
  Channel channel;
  std::vector<std::byte> head;
  std::vector<std::byte> payload;
};

/// Where one lane of one peer receives. Any thread posts, the lane's owner takes.
class Mailbox {
 public:
  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  struct Content {
    std::deque<Letter> letters;
    std::vector<Peer> deaths;
  };
  /// False when nobody will ever take it.
  bool post(Letter letter);
  void announce_death(Peer peer);
  Content take();
  bool empty() const;
  /// Refuses letters from now on.
  void close();
  int fd() const noexcept { return fd_; }
  /// Takes back what made fd() readable.
  void reset_fd() noexcept;

 private:
  void ring() noexcept;
  const int fd_;
  mutable std::mutex mutex_;  // guards the rest
  Content content_;
  bool closed_ = false;
};

/// One peer's end of the network: a mailbox a lane.
struct Station {
  std::array<Mailbox, 2> lanes;
  std::atomic<bool> dead{false};
};

/// Knows every station.
class LoopbackHub {
 public:
  explicit LoopbackHub(LoopbackAdversity how) : adversity(how) {}
  /// Throws Error{invalid} when `peer` was here before.
  std::shared_ptr<Station> enter(Peer peer);
  /// Null when there is none of that name.
  std::shared_ptr<Station> find(Peer peer) const;
  /// Stops a station and tells the others, once.
  void kill(Peer peer);

  const LoopbackAdversity adversity;

 private:
  mutable std::mutex mutex_;  // guards stations_; mailboxes' own are taken inside
  std::map<Peer, std::shared_ptr<Station>> stations_;
};

std::unique_ptr<Transport> make_loopback_endpoint(std::shared_ptr<LoopbackHub> hub, Peer self, AddressSpace& space);

}  // namespace troupe
