#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/membership/process_host.hpp"
#include "transports/ucx/ucx_transport.hpp"

struct sock_filter;
struct sockaddr_storage;

namespace troupe {

/// Source addresses whose packets UCX's TCP sockets take, as ranges: UCX believes everybody who connects, and ends the
/// process when it is sent rubbish. The kernel compares them, by a classic BPF filter on the listening sockets, which
/// those that are accepted there inherit.
class Admission {
 public:
  struct Range {
    std::uint32_t first, last;  // IPv4, both included
    friend bool operator==(const Range&, const Range&) = default;
  };
  struct Prefix {
    std::array<std::uint32_t, 4> words{};  // IPv6; what lies beyond `bits` is 0
    unsigned bits = 128;
    friend auto operator<=>(const Prefix&, const Prefix&) = default;
  };
  /// The kernel bounds a filter's length: beyond so many, neighbours are joined, with the addresses between them.
  static constexpr std::size_t kMostRanges = 256;
  static constexpr std::size_t kMostPrefixes = 64;

  /// Those of the processes but `self`; loopback addresses only of those on the same node. Throws Error{environment}
  /// for an address that is none.
  Admission(const std::vector<ProcessHost>& hosts, Peer self);

  const std::vector<Range>& ranges() const noexcept { return ranges_; }
  const std::vector<Prefix>& prefixes() const noexcept { return prefixes_; }
  bool admits(const sockaddr_storage& from) const;
  /// Takes a packet that comes over `domain` (AF_INET, AF_INET6) from one of them, whole.
  std::vector<sock_filter> program(int domain) const;

 private:
  bool add(std::string address, bool same_node);
  void join_neighbours();

  std::vector<Range> ranges_;     // ascending, apart from each other
  std::vector<Prefix> prefixes_;  // ascending
};

/// Puts the filter on the TCP sockets that UCX opens after this object is made, before any peer is told of them.
class ListenerGuard {
 public:
  /// Notes which sockets listen already. Without hosts it does nothing.
  ListenerGuard(const std::vector<ProcessHost>& hosts, Peer self);
  /// Filters, for good, the listening sockets that are new and whose ports `worker_address` names, and ends connections
  /// that somebody made to them before. Returns how many sockets there are. Throws Error{environment} when the kernel
  /// refuses. Call it before the worker's first progress, which would read what such a connection brought.
  std::size_t close_to_strangers(std::span<const std::byte> worker_address);
  /// Ends connections of strangers that were made before the sockets had the filter. Call it once more before the first
  /// progress: when close_to_strangers() looked, UCX's own thread may have been about to accept one.
  void end_early_connections() const;

 private:
  std::vector<std::uint64_t> before_;  // sockets that listened already
  std::optional<Admission> admission_;
  std::vector<std::uint16_t> ports_;  // that have the filter
};

}  // namespace troupe
