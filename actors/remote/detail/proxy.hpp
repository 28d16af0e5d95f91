#pragma once

#include <atomic>
#include <caf/actor_proxy.hpp>
#include <caf/mailbox_element.hpp>
#include <cstdint>
#include <deque>
#include <memory>

#include "actors/remote/detail/gate.hpp"
#include "actors/remote/detail/room.hpp"
#include "actors/remote/detail/window.hpp"

namespace troupe::remote {

class Engine;
struct PeerState;

/// An actor of another process, as CAF sees it. It collects what is sent to it, without a lock or an allocation, and
/// hands itself to the control lane, where the engine takes the messages out and writes them to the wire.
class Proxy final : public caf::actor_proxy, public LaneTask {
 public:
  Proxy(caf::actor_config& config, Engine& engine, PeerState& peer);
  ~Proxy() override;

  /// Any thread.
  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* context) override;
  /// Ends it: monitors and links fire with `reason`, later requests are answered with an error.
  void kill_proxy(caf::execution_unit* context, caf::error reason) override;
  /// Asks the control lane to look at it; false when the lane is closed.
  bool wake() noexcept;
  void when_full(WhenFull choice) noexcept { when_full_.store(choice, std::memory_order_relaxed); }

  /// On the control lane.
  void run() noexcept override;
  bool alive() const noexcept { return alive_.load(std::memory_order_acquire); }
  PeerState& peer() const noexcept { return peer_; }

  Proxy* next_fresh = nullptr;  // the engine's, until the proxy is attended to
  // The control lane's:
  std::uint32_t next_sequence = 0;  // of the next message to this actor
  bool watched = false;             // its process was asked to tell of its end
  Allowance allowance;              // of this edge
  struct Blocked {
    std::uint64_t ticket;  // orders what is blocked for one peer
    caf::mailbox_element_ptr message;
  };
  std::deque<Blocked> blocked;  // until a window opens

 private:
  bool admit(const caf::mailbox_element& message);
  caf::mailbox_element* take_all() noexcept;
  void answer_all_with_the_end() noexcept;

  Engine& engine_;  // only touched on the control lane, which ends first
  PeerState& peer_;
  const std::shared_ptr<Gate> gate_;
  const std::shared_ptr<Room> room_;
  std::atomic<WhenFull> when_full_;
  std::atomic<caf::mailbox_element*> newest_{nullptr};
  std::atomic<bool> posted_{false};
  std::atomic<bool> alive_{true};
};

}  // namespace troupe::remote
