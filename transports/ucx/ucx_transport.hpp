#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/lanes/transport.hpp"
#include "runtime/membership/process_host.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

/// By which of UCX's transports processes reach each other.
/// Shared memory has a weakness: all peers of a host write into one queue of each lane. A peer that is killed in the
/// instant between taking a place there and filling it (seen once in twenty kills during `told` bulk transfers, which
/// copy in that instant) stops the lane: nothing more arrives on it over shared memory, from whomever. Survivors must
/// then make a new transport. Where they have to go on at once, use tcp.
enum class UcxMeans : std::uint8_t {
  /// With `hosts`, and without UCX_TLS in the environment: shm where all processes are on one node, tcp where two of
  /// them are on one machine and cannot share memory. Else what UCX finds best; UCX_TLS says what it may choose from.
  automatic,
  shm,  // shared memory of one host, same pid namespace
  tcp,
};

/// What happens to an endpoint when its peer dies.
enum class UcxPeerErrors : std::uint8_t {
  told,   // UCX tells, and gives every buffer back; shared memory then copies twice, through its queue
  silent  // UCX does not look; one direct copy between the processes (CMA) where there is shared memory
};

struct UcxOptions {
  Peer self;  // this process's number, which the others connect() it by
  UcxMeans means = UcxMeans::automatic;
  /// Where all processes are, by peer: hosts_of() of what they said when they joined. With it UCX's TCP ports take
  /// packets from those hosts alone (the kernel drops others' unanswered), which every job needs on a network or a
  /// machine that others use too: one packet of rubbish to such a port ends the process. Empty: from everybody.
  std::vector<ProcessHost> hosts = {};
  /// By commas, as UCX_NET_DEVICES, in whose place they are: "eth0", "lo", "mlx5_0:1,ens1f0"; empty: what that says, or
  /// all. Each process, and each transport of a process, names its own.
  std::string network_devices;
  /// For the bulk lane; the control lane is always told. Silent, payloads go between processes of one host by a system
  /// call of the receiver (cross-memory attach); told, through shared pages, which both ends' cores copy at once. Must
  /// be the same in all processes.
  UcxPeerErrors bulk_errors = UcxPeerErrors::told;
  /// Sends to one peer, on one lane and of one class, that may be under way; send() refuses more. One message larger
  /// than the bytes passes when it is alone.
  std::uint32_t max_messages = 1024;
  std::uint64_t max_bytes = 64u << 20;
  /// Larger payloads travel in parts of this size, at most `chunks_ahead` of a peer at once, so that nothing waits
  /// behind more than those.
  std::uint64_t chunk_bytes = 2u << 20;
  std::uint32_t chunks_ahead = 4;
  /// How long the destructor waits for what was sent to leave this process.
  std::chrono::milliseconds flush{1000};
};

/// Whether this build has UCX.
bool ucx_available() noexcept;
/// The version of the library in use, "1.13.1"; empty without UCX.
std::string ucx_version();

/// The network devices that a transport of make_ucx_transport() has opened, by UCX's names, as UCX itself tells; empty
/// where it uses shared memory alone, or for another transport.
std::vector<std::string> ucx_network_devices(const Transport& transport);

/// Removes from /dev/shm what processes of this user left there that were killed while UCX made its shared memory,
/// within a millisecond of their start: files of UCX's that no process has open. Returns how many. Processes of other
/// pid namespaces are not seen; only those that share this one's /dev/shm and start in that very moment could be hurt.
std::size_t remove_ucx_orphans() noexcept;

/// A transport on UCX active messages: one context, a worker for each lane, endpoints made at the first send. `space`
/// outlives it. Only the destructor blocks, and only as long as `flush`.
///
/// connect() every peer before it can send here: until then UCX cannot be kept from mishaps when that peer dies. A lane
/// that exchanged nothing with a peer yet hears nothing of its death, nor does a `silent` one (unless a transfer
/// fails): whoever knows better calls fence(). After fence() or lost(), a send's memory may still be read by UCX for
/// the sake of the dead (never written), and on a `silent` lane a landing that UCX may still write to is told dropped
/// only when UCX is through with it, at the latest in the destructor.
///
/// Do not fork once this was called (exec at once is fine). Throws Error{environment} when UCX cannot start with these
/// options, Error{unsupported} without UCX.
std::unique_ptr<Transport> make_ucx_transport(AddressSpace& space, const UcxOptions& options);

}  // namespace troupe
