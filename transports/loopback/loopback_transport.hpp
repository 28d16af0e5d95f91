#pragma once

#include <cstdint>
#include <memory>

#include "runtime/lanes/transport.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

class LoopbackHub;  // not public

/// What a loopback network does to find mistakes of its users; it depends on a seed, so that a run can be repeated.
struct LoopbackAdversity {
  std::uint64_t seed = 0;
  /// A message waits 0 to `delay_rounds` progress calls at the sender (its payload is read only then) and, if it has a
  /// payload, as many again between landing() and arrived(): messages overtake each other.
  std::uint32_t delay_rounds = 0;
  /// The percentage of send() calls that are refused.
  std::uint32_t refuse_percent = 0;
};

/// Peers of one process that exchange messages through memory: for tests, and for programs that run their ranks in one
/// process. Threads: any. Endpoints may outlive the network object.
class LoopbackNetwork {
 public:
  explicit LoopbackNetwork(LoopbackAdversity adversity = {});
  ~LoopbackNetwork();
  LoopbackNetwork(const LoopbackNetwork&) = delete;
  LoopbackNetwork& operator=(const LoopbackNetwork&) = delete;

  /// Makes the transport of peer `self`; `space` outlives it. When it is destroyed the others see a loss, as when a
  /// process ends. Throws Error{invalid} if that peer has, or had, an endpoint already.
  std::unique_ptr<Transport> endpoint(Peer self, AddressSpace& space);
  /// Stops `peer` as SIGKILL would: it makes no progress, nothing more is sent by it, and the others get lost(). Its
  /// outstanding callbacks (SendDone, dropped) are called when its endpoint is destroyed.
  void kill(Peer peer);

 private:
  std::shared_ptr<LoopbackHub> hub_;
};

}  // namespace troupe
