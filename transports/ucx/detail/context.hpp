#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "transports/ucx/ucx_transport.hpp"

namespace troupe {

/// Owns a UCX context. It is configured by the options; UCX's own variables in the environment have a lower priority.
class UcxContext {
 public:
  /// `chosen`: options.means is the choice of with_means().
  UcxContext(const UcxOptions& options, bool chosen);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;
  ucp_context_h get() const noexcept { return context_; }
  std::vector<std::string> network_devices() const;
  /// Whether it sends from a GPU's memory: the library was built with CUDA, and its CUDA transports are open.
  bool reads_cuda() const noexcept { return reads_cuda_; }

 private:
  ucp_context_h context_ = nullptr;
  bool reads_cuda_ = false;
};

/// Chooses the transports if `options` leaves the choice open and names the processes' hosts.
UcxOptions with_means(UcxOptions options);

/// How to reach a peer.
struct PeerAddress {
  std::array<std::vector<std::byte>, 2> worker;  // by lane
  bool bulk_silent = false;                      // UCX does not watch its bulk endpoint
};

/// Addresses by peer. Threads: any.
class Directory {
 public:
  explicit Directory(const UcxOptions& options);
  /// This process's address, for the other processes' add().
  std::vector<std::byte> describe(const std::array<std::vector<std::byte>, 2>& workers) const;
  /// Throws Error{environment} if `bytes` are not an address or not one for this transport, Error{invalid} if the peer
  /// is this process or has a different address already.
  void add(Peer peer, std::span<const std::byte> bytes);
  /// Null: not connected.
  std::shared_ptr<const PeerAddress> find(Peer peer) const;

 private:
  struct Head;
  const UcxOptions options_;
  const std::uint64_t host_;  // processes with the same number can share memory
  mutable std::mutex mutex_;  // guards peers_
  std::map<Peer, std::shared_ptr<const PeerAddress>> peers_;
};

}  // namespace troupe
