#pragma once

// The room lanes: messages between processes: what a transport must do (transport.hpp) and the loop that drives its
// lanes. transports/ implements it. It does not know what a message says: actors and communicators do.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/memory/timeline.hpp"

namespace troupe {

/// Small messages must not wait behind tensors, so a transport has two workers.
enum class Lane : std::uint8_t { control, bulk };
/// Who goes first when both want to.
enum class Class : std::uint8_t { control, gradient, bulk };
/// Who at the other end is meant: each has one receiver.
enum class Channel : std::uint8_t { actors = 1, exchange = 2 };

/// Takes what arrives on one channel; called on the thread that drives the lane, must not block nor throw.
class Receiver {
 public:
  /// Where the payload of an announced message shall go: memory of exactly or at least `size_bytes`, left alone until
  /// arrived() or dropped(). Empty memory refuses the message. Not called for messages without payload.
  virtual Memory landing(Peer from, Lane lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept = 0;
  /// A whole message; `payload` is what landing() gave, cut to size. `head` is valid during the call only.
  virtual void arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept = 0;
  /// A payload for which landing() gave `payload` will not come.
  virtual void dropped(Peer from, Lane lane, Memory payload, const Status& why) noexcept = 0;
  /// The transport found `peer` dead; nothing more arrives from it. At most once a peer and lane.
  virtual void lost(Peer peer, const Status& why) noexcept = 0;

 protected:
  ~Receiver() = default;
};

/// Told what became of a send. Not deleted through this interface; alive until told. Same rules as a Waker.
class SendDone {
 public:
  virtual void sent(Status status) noexcept = 0;

 protected:
  ~SendDone() = default;
};

/// Messages between processes: a head of up to kMaxHeadBytes and a payload of any size, delivered exactly once or not
/// at all. No order is promised between two messages. It owns no thread: each lane is driven by its present owner, one
/// thread at a time, and everything below that names a lane is called by that thread. Memory is resolved in the address
/// space the transport was made with.
class Transport {
 public:
  static constexpr std::size_t kMaxHeadBytes = 4096;

  virtual ~Transport() = default;
  /// For people: the name and the lanes' means (tcp, posix, ...).
  virtual std::string description() const = 0;
  /// Whether payloads may be sent from, and land in, memory of that kind. Any thread.
  virtual bool carries(MemoryKind kind) const noexcept = 0;
  /// What a peer needs to reach this process, both lanes. Any thread.
  virtual std::vector<std::byte> address() const = 0;
  /// Makes `peer` reachable; nothing is sent yet. Before the lanes are driven, or by the control lane's owner. Throws
  /// Error{environment}.
  virtual void connect(Peer peer, std::span<const std::byte> address) = 0;
  /// Names the receiver of a channel, in the place of the one before, which is still told of what it let land. A
  /// receiver outlives the transport. Any thread.
  virtual void receive(Channel channel, Receiver& receiver) = 0;
  /// Sends. `head` is copied before the call returns; the payload (concatenated in order) stays untouched until `done`
  /// is told, exactly once: ok when the memory may be reused, peer_lost when the peer is gone (then the memory is no
  /// longer read either). False: no room now, nothing was taken and `done` will not be told; try again after progress.
  virtual bool send(Peer to, Lane lane, Class priority, Channel channel, std::span<const std::byte> head,
                    std::span<const Memory> payload, SendDone& done) = 0;
  /// Moves things along; true when something happened. Receivers and SendDone run inside.
  virtual bool progress(Lane lane) = 0;
  /// Prepares fd() to become readable at the next event; false: there is something to do already, call progress().
  virtual bool arm(Lane lane) = 0;
  /// Readable when an armed lane has work.
  virtual int fd(Lane lane) const = 0;
  /// Cuts `peer` off, on the lane's thread: pending sends to it end with `why`, landings are dropped, nothing of it is
  /// delivered any more.
  virtual void fence(Peer peer, Lane lane, const Status& why) noexcept = 0;
};

}  // namespace troupe
