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

/// A message in a mailbox; its contents are copies.
struct Letter {
  Peer from;
  Channel channel;
  std::vector<std::byte> head;
  std::vector<std::byte> payload;
};

/// Where one lane of one peer receives. Any thread posts; the lane's owner takes.
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
  /// False if it will never be taken.
  bool post(Letter letter);
  void announce_death(Peer peer);
  Content take();
  bool empty() const;
  /// Refuses letters from now on.
  void close();
  int fd() const noexcept { return fd_; }
  /// Clears the state that made fd() readable.
  void reset_fd() noexcept;

 private:
  void ring() noexcept;
  const int fd_;
  mutable std::mutex mutex_;  // guards the members below
  Content content_;
  bool closed_ = false;
};

/// One peer's end of the network: a mailbox for each lane.
struct Station {
  std::array<Mailbox, 2> lanes;
  std::atomic<bool> dead{false};
};

/// Knows all stations.
class LoopbackHub {
 public:
  explicit LoopbackHub(LoopbackAdversity how) : adversity(how) {}
  /// Throws Error{invalid} if `peer` has entered before.
  std::shared_ptr<Station> enter(Peer peer);
  /// Null if there is none with that number.
  std::shared_ptr<Station> find(Peer peer) const;
  /// Stops a station and tells the others, once.
  void kill(Peer peer);

  const LoopbackAdversity adversity;

 private:
  mutable std::mutex mutex_;  // guards stations_; a mailbox's mutex is locked within it
  std::map<Peer, std::shared_ptr<Station>> stations_;
};

std::unique_ptr<Transport> make_loopback_endpoint(std::shared_ptr<LoopbackHub> hub, Peer self, AddressSpace& space);

}  // namespace troupe
