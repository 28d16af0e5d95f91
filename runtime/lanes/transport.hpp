#pragma once

// The room lanes: messages between processes: the interface of a transport (transport.hpp) and the loop that drives its
// lanes. transports/ implements it. It does not know what messages mean: actors and communicators do.

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
/// The priority of a send: which goes first if several wait.
enum class Class : std::uint8_t { control, gradient, bulk };
/// The receiver at the other end: each channel has one.
enum class Channel : std::uint8_t { actors = 1, exchange = 2 };

/// Receives the messages of one channel; called on the thread that drives the lane, must neither block nor throw.
class Receiver {
 public:
  /// Where to put the payload of an announced message: memory of at least `size_bytes`, not used otherwise until
  /// arrived() or dropped(). Empty memory refuses the message. Not called for messages without payload.
  virtual Memory landing(Peer from, Lane lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept = 0;
  /// A complete message; `payload` is the memory from landing(), cut to size. `head` is valid only during the call.
  virtual void arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept = 0;
  /// The payload for which landing() returned `payload` will not arrive.
  virtual void dropped(Peer from, Lane lane, Memory payload, const Status& why) noexcept = 0;
  /// The transport found that `peer` is dead; nothing more arrives from it. Called at most once per peer and lane.
  virtual void lost(Peer peer, const Status& why) noexcept = 0;

 protected:
  ~Receiver() = default;
};

/// Called with the result of a send. Not deleted through this interface; alive until called. The rules of Waker apply.
class SendDone {
 public:
  virtual void sent(Status status) noexcept = 0;

 protected:
  ~SendDone() = default;
};

/// Messages between processes: a head of up to kMaxHeadBytes and a payload of any size, delivered exactly once or not
/// at all. The order of two messages is not defined. A transport owns no thread: each lane is driven by its present
/// owner, one thread at a time, and functions below that take a lane are called by that thread. Memory is resolved in
/// the address space that the transport was made with.
class Transport {
 public:
  static constexpr std::size_t kMaxHeadBytes = 4096;

  virtual ~Transport() = default;
  /// For people: the name, and what the lanes use (tcp, posix, ...).
  virtual std::string description() const = 0;
  /// Whether payloads may be sent from, and received into, memory of that kind. Any thread.
  virtual bool carries(MemoryKind kind) const noexcept = 0;
  /// Whether payloads may be sent from memory of that kind: one part of it in a message. Any thread.
  virtual bool sends_from(MemoryKind kind) const noexcept { return carries(kind); }
  /// The data that a peer needs to reach both lanes of this process. Any thread.
  virtual std::vector<std::byte> address() const = 0;
  /// Makes `peer` reachable; nothing is sent yet. Before the lanes are driven, or by the control lane's owner. Throws
  /// Error{environment}.
  virtual void connect(Peer peer, std::span<const std::byte> address) = 0;
  /// Sets the receiver of a channel. The previous receiver still gets the calls for payloads that it gave memory for. A
  /// receiver outlives the transport. Any thread.
  virtual void receive(Channel channel, Receiver& receiver) = 0;
  /// Sends. `head` is copied before the call returns; the payload (concatenated in order) must not change until `done`
  /// is called, exactly once: ok when the memory may be reused, peer_lost when the peer is gone (then it is not read
  /// any more either). False: no room now; nothing was taken, `done` will not be called; try again after progress.
  virtual bool send(Peer to, Lane lane, Class priority, Channel channel, std::span<const std::byte> head,
                    std::span<const Memory> payload, SendDone& done) = 0;
  /// Does pending work of the lane; true if something happened. Calls receivers and SendDone.
  virtual bool progress(Lane lane) = 0;
  /// Prepares fd() to become readable at the next event; false: there is work already, call progress().
  virtual bool arm(Lane lane) = 0;
  /// Readable when an armed lane has work.
  virtual int fd(Lane lane) const = 0;
  /// Cuts off `peer`, on the lane's thread: pending sends to it end with `why`, its unfinished payloads are dropped,
  /// and nothing more from it is delivered.
  virtual void fence(Peer peer, Lane lane, const Status& why) noexcept = 0;
};

}  // namespace troupe
