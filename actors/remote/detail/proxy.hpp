#pragma once

#include <atomic>
#include <caf/actor_proxy.hpp>
#include <cstdint>
#include <memory>

#include "actors/remote/detail/gate.hpp"

namespace troupe::remote {

class Engine;
struct PeerState;

/// An actor of another process, as CAF sees it. It collects what is sent to it, without a lock or an allocation, and
/// hands itself to the control lane, where the engine takes the messages out and writes them to the wire.
class Proxy final : public caf::actor_proxy, public LaneTask {
 public:
  Proxy(caf::actor_config& config, Engine& engine, PeerState& peer, std::shared_ptr<Gate> gate);
  ~Proxy() override;

  /// Any thread.
  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* context) override;
  /// Ends it: monitors and links fire with `reason`, later requests are answered with an error.
  void kill_proxy(caf::execution_unit* context, caf::error reason) override;
  /// Asks the control lane to look at it; false when the lane is closed.
  bool wake() noexcept;

  /// On the control lane.
  void run() noexcept override;
  bool alive() const noexcept { return alive_.load(std::memory_order_acquire); }
  PeerState& peer() const noexcept { return peer_; }

  std::uint32_t next_sequence = 0;  // control lane's: number of the next message to this actor
  bool watched = false;             // control lane's: its process was asked to tell of its end

 private:
  caf::mailbox_element* take_all() noexcept;
  void answer_all_with_the_end() noexcept;

  Engine& engine_;  // only touched on the control lane, which ends first
  PeerState& peer_;
  const std::shared_ptr<Gate> gate_;
  std::atomic<caf::mailbox_element*> newest_{nullptr};
  std::atomic<bool> posted_{false};
  std::atomic<bool> alive_{true};
};

}  // namespace troupe::remote
