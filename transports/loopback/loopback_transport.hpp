#pragma once

#include <cstdint>
#include <memory>

#include "runtime/lanes/transport.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

class LoopbackHub;  // not public

/// What a loopback network does to its users to find their mistakes; by seed, so that a run can be repeated.
struct LoopbackAdversity {
  std::uint64_t seed = 0;
  /// A message waits 0 to `delay_rounds` progress calls at the sender (its payload is read only then) and, with
  /// payload, as many again between landing() and arrived(): messages overtake each other.
  std::uint32_t delay_rounds = 0;
  /// How many of 100 calls of send() are refused.
  std::uint32_t refuse_percent = 0;
};

/// Peers of one process that talk through memory: for tests, and for programs that run their ranks in one process.
/// Threads: any. Endpoints may outlive the network object.
class LoopbackNetwork {
 public:
  explicit LoopbackNetwork(LoopbackAdversity adversity = {});
  ~LoopbackNetwork();
  LoopbackNetwork(const LoopbackNetwork&) = delete;
  LoopbackNetwork& operator=(const LoopbackNetwork&) = delete;

  /// Makes the transport of peer `self`; `space` outlives it. Its end is heard by the others as a loss, as that of a
  /// process would be. Throws Error{invalid} when that peer has, or had, an endpoint already.
  std::unique_ptr<Transport> endpoint(Peer self, AddressSpace& space);
  /// Stops `peer` as SIGKILL would: it never moves again, nothing more leaves it, the others hear lost(). What it still
  /// owes (SendDone, dropped) is told when its endpoint is destroyed.
  void kill(Peer peer);

 private:
  std::shared_ptr<LoopbackHub> hub_;
};

}  // namespace troupe
