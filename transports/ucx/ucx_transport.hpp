#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/lanes/transport.hpp"
#include "runtime/membership/process_location.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

/// The transports of UCX by which processes reach each other.
/// Shared memory has a weakness: all peers on a host write to one queue of each lane. If a peer is killed between
/// taking a place in it and filling that place (seen once in twenty kills during `told` bulk transfers, which copy at
/// that time), the lane stops: nothing arrives on it over shared memory any more, from any peer. Survivors must then
/// make a new transport. If they must continue at once, use tcp.
enum class UcxMeans : std::uint8_t {
  /// With `hosts`, and without UCX_TLS in the environment: shm if all processes are on one node, tcp if two of them are
  /// on one machine and cannot share memory. Otherwise the transports that UCX considers best; UCX_TLS limits the
  /// choice.
  automatic,
  shm,  // shared memory of one host, same pid namespace
  tcp,
};

/// What happens to an endpoint when its peer dies.
enum class UcxPeerErrors : std::uint8_t {
  completions,  // UCX reports it and returns all buffers; shared memory then copies twice, through its queue
  silent        // UCX does not watch; one direct copy between the processes (CMA) if there is shared memory
};

struct UcxOptions {
  Peer self;  // this process's number, for which the others call connect()
  UcxMeans means = UcxMeans::automatic;
  /// The hosts of all processes, by peer: hosts_of() of their hellos. Then UCX's TCP ports accept packets from those
  /// hosts only (the kernel drops others without an answer). Every job needs this on a network or a machine that others
  /// use, too: one invalid packet to such a port ends the process. Empty: packets from all hosts are accepted.
  std::vector<ProcessLocation> hosts = {};
  /// Separated by commas, like UCX_NET_DEVICES, which they replace: "eth0", "lo", "mlx5_0:1,ens1f0"; empty: those of
  /// that variable, or all. Each process, and each transport of a process, has its own.
  std::string network_devices;
  /// For the bulk lane; the control lane always uses `told`. With `silent`, payloads between processes of one host are
  /// copied by a system call of the receiver (cross-memory attach); with `told`, through shared pages, by both ends'
  /// cores at the same time. Must be the same in all processes.
  UcxPeerErrors bulk_errors = UcxPeerErrors::completions;
  /// The most sends to one peer, on one lane and of one class, that may be in progress; send() refuses more. One
  /// message larger than the limit is accepted if it is alone.
  std::uint32_t max_messages = 1024;
  std::uint64_t max_bytes = 64u << 20;
  /// Larger payloads are sent in chunks of this size, with at most `chunks_ahead` per peer at once, so that nothing
  /// waits behind more than those.
  std::uint64_t chunk_bytes = 2u << 20;
  std::uint32_t chunks_ahead = 4;
  /// How long the destructor waits for messages to leave this process.
  std::chrono::milliseconds flush{1000};
};

/// Whether this build has UCX.
bool ucx_available() noexcept;
/// The version of the library in use, "1.13.1"; empty without UCX.
std::string ucx_version();
/// The library in use.
struct UcxLibrary {
  std::string version;      // "1.13.1"
  std::string path;         // of libucp
  bool reads_cuda = false;  // with UcxMeans::automatic it sends from a GPU's memory; others need a copy in host memory
};
/// Opens UCX as a transport with UcxMeans::automatic does, and closes it: some milliseconds. Throws as
/// make_ucx_transport().
UcxLibrary ucx_library();

/// The network devices that a transport of make_ucx_transport() has opened, by UCX's names, as UCX reports them; empty
/// if it uses only shared memory, or for another kind of transport.
std::vector<std::string> ucx_network_devices(const Transport& transport);

/// Removes from /dev/shm the files of processes of this user that were killed while UCX made its shared memory, within
/// a millisecond of their start: files of UCX that no process has open. Returns how many. Processes of other pid
/// namespaces are not seen; only those that share this one's /dev/shm and start at that very moment could be affected.
std::size_t remove_ucx_orphans() noexcept;

/// A transport on UCX active messages: one context, a worker for each lane, endpoints made at the first send. `space`
/// outlives it. Only the destructor blocks, at most for `flush`.
///
/// Call connect() for every peer before that peer can send here: before that, UCX may fail in ways that cannot be
/// prevented if the peer dies. A lane that has exchanged nothing with a peer yet is not told of its death, nor is a
/// `silent` one (unless a transfer fails): a user that learns of the death must call fence(). After fence() or lost(),
/// UCX may still read the memory of a send (but never write it), and on a `silent` lane a landing to which UCX may
/// still write is reported as dropped only when UCX does not use it any more, at the latest in the destructor.
///
/// Do not fork after calling this (an exec at once is allowed). Throws Error{environment} if UCX cannot start with
/// these options, Error{unsupported} without UCX.
std::unique_ptr<Transport> make_ucx_transport(AddressSpace& space, const UcxOptions& options);

}  // namespace troupe
