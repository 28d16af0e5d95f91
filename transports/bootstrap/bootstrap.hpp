#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/membership/process_host.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe {

/// A process's place in a job as a launcher told it.
struct LaunchPlace {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint32_t local_rank = 0;
  std::string master_address;  // of rank 0
  std::uint16_t master_port = 0;
  // Rank 0: a socket that listens already (TROUPE_LISTEN_FD, or PMIx), closed by join(); -1: bind master_port.
  int listen_fd = -1;
  std::string secret;  // job secret; empty: only loopback addresses are served
  /// stdin is the launcher's, which is on another machine: after the secret come its orders (tools/rtrun), and its end.
  bool launcher_on_stdin = false;
  std::string found_in;  // for people: "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT"
};

/// What a launcher says of this process, the first of these that is there: RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR
/// MASTER_PORT (and TROUPE_LISTEN_FD) in the environment; OMPI_COMM_WORLD_RANK, _SIZE and _LOCAL_RANK with MASTER_ADDR
/// and MASTER_PORT; the PMIx server of mpirun or `srun --mpi=pmix`, where the ranks meet and find rank 0's port and a
/// secret made for this job: every rank must ask, once, and may block for `patience`, so call it on main.
/// TROUPE_SECRET_FILE holds the secret in every case, but with TROUPE_SECRET_STDIN in the environment of the first two
/// it is the first line of stdin, read within `patience`. Nothing when there is no launcher. Throws Error{environment}
/// when only some are set or one is malformed, with its name and value; Error{unsupported}: PMIx, which this build
/// lacks; Error{timeout}: not every rank asked.
std::optional<LaunchPlace> launch_place_from_environment(Clock::duration patience = std::chrono::seconds{60});

/// Who a process is: the first thing peers tell each other after both proved that they know the secret.
struct Hello {
  std::uint32_t rank = 0;
  std::string troupe_version;
  std::uint32_t protocol = 1;
  std::string caf_version;
  std::string ucx_version;            // empty: no UCX here
  std::uint64_t settings_hash = 0;    // Configuration::hash()
  std::uint64_t type_table_hash = 0;  // message types registered with CAF
  std::int32_t pid = 0;
  std::uint64_t pid_namespace = 0;  // inode
  Topology topology;                // of its node, with identity and host name
  /// Numeric IP addresses from which its connections may come. Bootstrap::join() fills them in where they are empty:
  /// those of all interfaces of its node that are up, and the one from which rank 0 sees it come.
  std::vector<std::string> addresses;
  /// Configuration::lines(), for the message when settings_hash differs from rank 0's; empty: the message has the
  /// hashes alone. Rank 0 reads them and passes none on: hellos() has none.
  std::vector<std::string> settings{};
};

/// Where the processes are that said these hellos, in their order.
std::vector<ProcessHost> hosts_of(std::span<const Hello> hellos);

/// What peers of a job do before they have lanes: find each other, prove the secret (HMAC-SHA256 challenge with both
/// nonces, role and rank), compare versions and settings, pass blobs around; afterwards the same sockets tell of a
/// death within a millisecond. A star: rank 0 listens, the others connect. Rank and Peer numbers are the same here.
class Bootstrap {
 public:
  /// Waits for all ranks of the job. Throws Error{environment}: port in use, address unreachable (what, where, what to
  /// do); Error{timeout}: the deadline passed, with the ranks that are missing; Error{invalid}: a peer with another
  /// version, settings or world size, with both values; a wrong secret is refused and waiting goes on. `waiting` (may
  /// be empty) is told every 5 s which ranks are missing.
  static std::unique_ptr<Bootstrap> join(Blocking& blocking, const LaunchPlace& place, const Hello& mine,
                                         Deadline deadline, const std::function<void(const std::string&)>& waiting);
  virtual ~Bootstrap() = default;

  /// By rank, this process's own included.
  virtual const std::vector<Hello>& hellos() const = 0;
  /// Everyone's blob, by rank; each at most 16 MiB. Collective: every rank calls it with the same `what`, else
  /// Error{invalid} with both. Throws Error{peer_lost} or Error{timeout} naming the rank. Only before watch().
  virtual std::vector<std::vector<std::byte>> all_gather(Blocking& blocking, std::string_view what,
                                                         std::span<const std::byte> mine, Deadline deadline) = 0;

  /// Told of each peer's death once, on the bootstrap's own thread: by the end of its socket, by its pidfd (same host
  /// and pid namespace), or by rank 0's word. Must not block.
  using Lost = std::function<void(Peer peer, const Status& why)>;
  /// Starts watching; all_gather is over.
  virtual void watch(Lost lost) = 0;
  /// Tells the others that this end is meant; after it nobody counts this process as lost, and it hears of nobody.
  virtual void leave() noexcept = 0;
};

}  // namespace troupe
