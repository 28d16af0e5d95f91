#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/lanes/transport.hpp"
#include "runtime/memory/arena.hpp"

// Parts for the tests of transports: a process's side of a transport, with memory and receivers that check.
namespace troupe::testing {

inline constexpr std::array kLanes{Lane::control, Lane::bulk};
inline constexpr std::array kChannels{Channel::actors, Channel::exchange};

/// Counts the notifications of a send, and keeps their status.
class NotedSend final : public SendDone {
 public:
  void sent(Status status) noexcept override {
    {
      const std::scoped_lock hold(mutex_);
      status_ = std::move(status);
    }
    times_.fetch_add(1);
  }
  int times() const noexcept { return times_.load(); }
  Status status() const {
    const std::scoped_lock hold(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;  // guards status_
  Status status_;
  std::atomic<int> times_{0};
};

/// Bytes that tell a misplaced, missing or foreign part: different for every seed and place.
inline void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = (seed * 1315423911u + i) * 0x9E3779B97F4A7C15u;
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, bytes.size() - i));
  }
}
inline bool holds(std::span<const std::byte> bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = (seed * 1315423911u + i) * 0x9E3779B97F4A7C15u;
    if (std::memcmp(bytes.data() + i, &word, std::min<std::size_t>(8, bytes.size() - i)) != 0) return false;
  }
  return true;
}

/// The head of a test message: what it is, then filling.
struct TestHead {
  std::uint64_t seed;
  std::uint64_t size_bytes;
};
inline std::vector<std::byte> make_head(std::uint64_t seed, std::uint64_t size_bytes, std::size_t head_bytes = 16) {
  std::vector<std::byte> head(std::max(head_bytes, sizeof(TestHead)));
  fill(head, seed + 1);
  const TestHead what{seed, size_bytes};
  std::memcpy(head.data(), &what, sizeof what);
  return head;
}

/// One message as it arrived.
struct Got {
  Peer from;
  Lane lane;
  std::vector<std::byte> head;
  Memory payload;
  std::uint64_t seed;
  bool intact;  // head and payload are what make_head and fill made
};

/// Takes messages into a region of the arena and checks them. Threads: both lanes may call at once.
class CheckingReceiver final : public Receiver {
 public:
  CheckingReceiver(AddressSpace& space, Memory region) : space_(space), region_(region) {}

  Memory landing(Peer, Lane, std::span<const std::byte>, std::uint64_t size_bytes) noexcept override {
    const std::scoped_lock hold(mutex_);
    if (landings_++ == 0) used_ = 0;  // nothing lies there: start over
    const std::uint64_t size = landing_bytes_ ? landing_bytes_ : size_bytes;
    const Memory memory = slice(region_, used_, size);
    used_ += (size + 63) / 64 * 64;
    EXPECT_LE(used_, region_.size_bytes) << "the test's landing memory is too small";
    last_landing_ = memory;
    return memory;
  }
  void arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept override {
    Got got{from, lane, {head.begin(), head.end()}, payload, 0, false};
    got.intact = intact(got);
    const std::scoped_lock hold(mutex_);
    if (payload.size_bytes > 0) --landings_;
    got_.push_back(std::move(got));
    count_.fetch_add(1);
  }
  void dropped(Peer, Lane, Memory payload, const Status& why) noexcept override {
    const std::scoped_lock hold(mutex_);
    --landings_;
    EXPECT_FALSE(why.ok());
    dropped_.push_back({payload, why});
  }
  void lost(Peer peer, const Status& why) noexcept override {
    const std::scoped_lock hold(mutex_);
    EXPECT_FALSE(why.ok());
    losses_.push_back(peer);
  }

  /// From now on every landing has this size, whatever size is announced.
  void give_landings_of(std::uint64_t size_bytes) { landing_bytes_ = size_bytes; }
  std::size_t count() const noexcept { return count_.load(); }
  std::vector<Got> got() const {
    const std::scoped_lock hold(mutex_);
    return got_;
  }
  std::vector<std::pair<Memory, Status>> dropped_landings() const {
    const std::scoped_lock hold(mutex_);
    return dropped_;
  }
  int landings_open() const {
    const std::scoped_lock hold(mutex_);
    return landings_;
  }
  Memory last_landing() const {
    const std::scoped_lock hold(mutex_);
    return last_landing_;
  }
  std::size_t times_lost(Peer peer) const {
    const std::scoped_lock hold(mutex_);
    return static_cast<std::size_t>(std::count(losses_.begin(), losses_.end(), peer));
  }

 private:
  bool intact(Got& got) const {
    TestHead what{};
    if (got.head.size() < sizeof what) return false;
    std::memcpy(&what, got.head.data(), sizeof what);
    got.seed = what.seed;
    if (got.head != make_head(what.seed, what.size_bytes, got.head.size())) return false;
    if (what.size_bytes != got.payload.size_bytes) return false;
    return what.size_bytes == 0 || holds({space_.address(got.payload), what.size_bytes}, what.seed);
  }

  AddressSpace& space_;
  const Memory region_;
  std::uint64_t landing_bytes_ = 0;
  std::atomic<std::size_t> count_{0};
  mutable std::mutex mutex_;  // guards the rest
  std::uint64_t used_ = 0;
  int landings_ = 0;
  Memory last_landing_;
  std::vector<Got> got_;
  std::vector<std::pair<Memory, Status>> dropped_;
  std::vector<Peer> losses_;
};

/// One process's side: address space, arena, transport and a receiver a channel.
class TransportNode {
 public:
  static constexpr std::uint64_t kSendBytes = 20u << 20;
  static constexpr std::uint64_t kLandBytes = 40u << 20;

  using Make = std::function<std::unique_ptr<Transport>(Peer, AddressSpace&)>;
  TransportNode(Peer number, const Make& make)
      : self(number), arena_(Arena::create(arena_id(number, 1), kSendBytes + 2 * kLandBytes + Arena::kPageBytes)) {
    space.map(arena_);
    outgoing = arena_->allocate(kSendBytes);
    for (auto& receiver : receivers_) {
      receiver = std::make_unique<CheckingReceiver>(space, arena_->allocate(kLandBytes));
    }
    transport = make(self, space);
    for (const Channel channel : kChannels) transport->receive(channel, at(channel));
  }

  CheckingReceiver& at(Channel channel) { return *receivers_[static_cast<std::size_t>(channel) - 1]; }
  std::size_t count() { return at(Channel::actors).count() + at(Channel::exchange).count(); }
  void connect(TransportNode& other) {
    transport->connect(other.self, other.transport->address());
    other.transport->connect(self, transport->address());
  }
  /// Fills `size_bytes` of the outgoing memory, `offset` in, with what belongs to `seed`.
  Memory prepare(std::uint64_t seed, std::uint64_t size_bytes, std::uint64_t offset = 0) {
    const Memory memory = slice(outgoing, offset, size_bytes);
    if (size_bytes > 0) fill({space.address(memory), size_bytes}, seed);
    return memory;
  }
  /// Sends what prepare() made, in one piece.
  bool send(Peer to, Lane lane, std::uint64_t seed, Memory payload, SendDone& done, Channel channel = Channel::actors,
            std::size_t head_bytes = 16) {
    const auto head = make_head(seed, payload.size_bytes, head_bytes);
    const std::span<const Memory> pieces{&payload, payload.size_bytes > 0 ? 1u : 0u};
    return transport->send(to, lane, lane == Lane::bulk ? Class::bulk : Class::control, channel, head, pieces, done);
  }
  bool progress() {
    const bool control = transport->progress(Lane::control);
    return transport->progress(Lane::bulk) || control;
  }

  const Peer self;
  AddressSpace space;
  Memory outgoing;

 private:
  std::shared_ptr<Arena> arena_;
  std::array<std::unique_ptr<CheckingReceiver>, 2> receivers_;

 public:
  std::unique_ptr<Transport> transport;  // ends first
};

}  // namespace troupe::testing
