#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/membership/process_location.hpp"
#include "transports/ucx/ucx_transport.hpp"

struct sock_filter;
struct sockaddr_storage;

namespace troupe {

/// The source addresses from which UCX's TCP sockets accept packets, as ranges: UCX trusts every process that connects,
/// and ends this process when it receives invalid data. The kernel compares them, by a classic BPF filter on the
/// listening sockets, which accepted sockets inherit.
class Admission {
 public:
  struct Range {
    std::uint32_t first, last;  // IPv4, both included
    friend bool operator==(const Range&, const Range&) = default;
  };
  struct Prefix {
    std::array<std::uint32_t, 4> words{};  // IPv6; the bits after the first `bits` are 0
    unsigned bits = 128;
    friend auto operator<=>(const Prefix&, const Prefix&) = default;
  };
  /// The kernel limits a filter's length: if there are more ranges, adjacent ones are joined, including the addresses
  /// between them.
  static constexpr std::size_t kMostRanges = 256;
  static constexpr std::size_t kMostPrefixes = 64;

  /// The addresses of all processes except `self`; loopback addresses only of those on the same node. Throws
  /// Error{environment} for a text that is not an address.
  Admission(const std::vector<ProcessLocation>& hosts, Peer self);

  const std::vector<Range>& ranges() const noexcept { return ranges_; }
  bool admits(const sockaddr_storage& from) const;
  /// Accepts a packet that comes over `domain` (AF_INET, AF_INET6) from one of the addresses, whole.
  std::vector<sock_filter> program(int domain) const;

 private:
  bool add(std::string address, bool same_node);
  void join_neighbours();

  std::vector<Range> ranges_;     // ascending and disjoint
  std::vector<Prefix> prefixes_;  // ascending
};

/// Installs the filter on the TCP sockets that UCX opens after this object is constructed, before any peer knows them.
class ListenerGuard {
 public:
  /// Notes which sockets are listening already. Without hosts it does nothing.
  ListenerGuard(const std::vector<ProcessLocation>& hosts, Peer self);
  /// Installs the filter permanently on new listening sockets whose ports are in `worker_address`, and ends connections
  /// that were made to them before. Returns the number of these sockets. Throws Error{environment} if the kernel
  /// refuses. Call it before the worker's first progress, which would read what such a connection sent.
  std::size_t close_to_strangers(std::span<const std::byte> worker_address);
  /// Ends connections of strangers that were made before the sockets had the filter. Call it once more before the first
  /// progress: UCX's own thread may have been accepting one during close_to_strangers().
  void end_early_connections() const;

 private:
  std::vector<std::uint64_t> before_;  // sockets that were listening already
  std::optional<Admission> admission_;
  std::vector<std::uint16_t> ports_;  // those with the filter
};

}  // namespace troupe
