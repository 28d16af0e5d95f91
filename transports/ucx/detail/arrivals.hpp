#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "runtime/memory/arena.hpp"
#include "transports/ucx/detail/frame.hpp"
#include "transports/ucx/detail/peer_link.hpp"

namespace troupe {

using Receivers = std::array<std::atomic<Receiver*>, 2>;

constexpr std::size_t place(Channel channel) noexcept { return static_cast<std::size_t>(channel) - 1; }

/// The receiving half of a lane: stores payloads in the memory that the receivers name, whichever protocol UCX has
/// chosen, and joins chunks.
class UcxArrivals {
 public:
  /// Finds or makes the link of a peer that has sent something; null: it is not a peer of this process.
  using FindLink = std::function<PeerLink*(Peer)>;

  UcxArrivals(Lane lane, AddressSpace& space, const Receivers& receivers, DeferredWork& deferred,
              FindLink link_of_sender)
      : lane_(lane), space_(space), receivers_(receivers), deferred_(deferred), find_link_(std::move(link_of_sender)) {}

  /// Receives the active messages of `worker`, which is destroyed before this object.
  void listen(ucp_worker_h worker);
  /// Drops everything that arrives from now on.
  void close() noexcept { closed_ = true; }
  /// When the link was cut, or UCX has ended: drops the landings that UCX does not use.
  void drop(PeerLink& link);

 private:
  struct Listener {
    UcxArrivals* arrivals;
    Channel channel;
  };
  /// A message, or a chunk of one, as UCX announces it.
  struct Incoming {
    ChunkPlace place;  // number 0: it is not a chunk
    std::span<const std::byte> head;
    void* data;
    std::size_t size;
    bool announced;  // the data is still at the sender
  };

  static ucs_status_t on_message(void* listener, const void* header, std::size_t header_bytes, void* data,
                                 std::size_t size, const ucp_am_recv_param_t* param);
  static void on_received(void* request, ucs_status_t status, std::size_t size, void* part);
  ucs_status_t take(Channel channel, std::span<const std::byte> header, void* data, std::size_t size, bool announced);
  ucs_status_t deliver_whole(PeerLink& link, Receiver& receiver, const Incoming& in);
  Arrival& arrival_of(PeerLink& link, Receiver& receiver, const Incoming& in);
  std::byte* landing_address(PeerLink& link, const Memory& memory, std::uint64_t size, Status& failed) const;
  ucs_status_t land(Arrival& arrival, const Incoming& in);
  void received(Arrival::Part& part, ucs_status_t status);
  void finish_if_over(Arrival& arrival);

  const Lane lane_;
  AddressSpace& space_;
  const Receivers& receivers_;
  DeferredWork& deferred_;
  const FindLink find_link_;
  std::array<Listener, 2> listeners_{};
  ucp_worker_h worker_ = nullptr;
  bool closed_ = false;
};

}  // namespace troupe
