#pragma once

#include <chrono>
#include <deque>
#include <map>

#include "tests/support/cuda_host/nccl/comm.hpp"

namespace troupe::nccl::host {

/// Messages of one operation that move at the same time, those between two ranks in their order.
class Transfers {
 public:
  Transfers(CommState& comm, const Call& call) : comm_(comm), call_(call) {}

  void send(int to, const void* from, std::uint64_t size_bytes);
  void receive(int from, void* to, std::uint64_t size_bytes);
  /// False: the communicator or the device has ended meanwhile, or the ranks disagree. Without the mutex while bytes
  /// move. Who has received comes behind everything that was before the sending.
  bool run(Run& run);

 private:
  struct Head {
    std::uint64_t size_bytes;
    char place[192];
  };
  struct Transfer {
    Head head{};
    std::byte* at = nullptr;
    std::uint64_t size_bytes = 0;
    std::uint64_t done = 0;  // of head and bytes
  };
  using Queues = std::map<int, std::deque<Transfer>>;  // by peer
  bool push(Wire& wire, Transfer& transfer);
  bool pull(Wire& wire, Transfer& transfer);
  bool move_some();
  bool pause(Run& run);
  void report_difference(int from, const Head& head, std::uint64_t expected);
  std::string missing() const;

  CommState& comm_;
  const Call& call_;
  Queues out_, in_;
  bool differs_ = false;
  std::chrono::microseconds pause_{20};  // ever longer, as long as nothing moves
};

}  // namespace troupe::nccl::host
