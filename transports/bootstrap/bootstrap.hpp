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
#include "runtime/membership/process_location.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe {

/// A process's place in a job, as given by a launcher.
struct LaunchPlace {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint32_t local_rank = 0;
  std::string master_address;  // of rank 0
  std::uint16_t master_port = 0;
  // On rank 0: a socket that is listening already (TROUPE_LISTEN_FD, or PMIx), closed by join(); -1: bind master_port.
  int listen_fd = -1;
  std::string secret;  // job secret; empty: only loopback addresses are allowed
  /// stdin comes from the launcher on another machine: after the secret it carries orders (tools/rtrun), and it closes
  /// when the launcher ends.
  bool launcher_on_stdin = false;
  std::string found_in;  // for people: "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT"
};

/// The place that a launcher gives this process, from the first of these sources that exists: RANK WORLD_SIZE
/// LOCAL_RANK MASTER_ADDR MASTER_PORT (and TROUPE_LISTEN_FD) in the environment; OMPI_COMM_WORLD_RANK, _SIZE and
/// _LOCAL_RANK with MASTER_ADDR and MASTER_PORT; the PMIx server of mpirun or `srun --mpi=pmix`, through which the
/// ranks get rank 0's port and a secret made for this job: every rank must call this, once, and it may block for
/// `patience`, so call it on main. TROUPE_SECRET_FILE names a file with the secret in all cases; but with
/// TROUPE_SECRET_STDIN in the environment of the first two, the secret is the first line of stdin, read within
/// `patience`. Nothing if there is no launcher. Throws Error{environment} if only some variables are set or one is
/// malformed, with its name and value; Error{unsupported}: PMIx, which this build lacks; Error{timeout}: not every rank
/// called it.
std::optional<LaunchPlace> launch_place_from_environment(Clock::duration patience = std::chrono::seconds{60});

/// Whether the environment says that a launcher gives this process a place. Reads no secret, and asks no server.
bool has_launcher() noexcept;

/// The description of a process: the first message between peers after both have proved that they know the secret.
struct Hello {
  std::uint32_t rank = 0;
  std::string troupe_version;
  std::uint32_t protocol = 1;  // version of what its actors send; own_hello() of a group sets it
  std::string caf_version;
  std::string ucx_version;            // empty: no UCX in this process
  std::uint64_t settings_hash = 0;    // Configuration::hash()
  std::uint64_t type_table_hash = 0;  // message types registered with CAF
  std::int32_t pid = 0;
  std::uint64_t pid_namespace = 0;  // inode number
  Topology topology;                // of its node, with identity and host name
  /// Numeric IP addresses from which its connections may come. If they are empty, Bootstrap::join() fills them in:
  /// those of all interfaces of its node that are up, and the one from which rank 0 sees its connection come.
  std::vector<std::string> addresses;
  /// Configuration::lines(), for the message if settings_hash differs from rank 0's; empty: the message has only the
  /// hashes. Rank 0 reads them and does not pass them on: hellos() has none.
  std::vector<std::string> settings{};
  std::uint32_t nccl = 0;      // NCCL's number of the version that it can use; 0: none, or it has not looked for one
  std::int32_t end_mark = -1;  // file descriptor of its EndMark, which join() fills in; -1: none
};

/// The hosts of the processes with these hellos, in the same order.
std::vector<ProcessLocation> hosts_of(std::span<const Hello> hellos);

/// What peers of a job do before they have lanes: connect, prove the secret (HMAC-SHA256 challenge with both nonces,
/// role and rank), compare versions and settings, exchange blobs. Afterwards the same sockets report a death within a
/// millisecond. The connections form a star: rank 0 listens, the others connect. Rank and Peer numbers are the same
/// here.
class Bootstrap {
 public:
  /// Waits for all ranks of the job. Throws Error{environment}: port in use, address unreachable (what, where, what to
  /// do); Error{timeout}: the deadline passed, with the missing ranks; Error{invalid}: a peer with another version,
  /// settings or world size, with both values. A process with a wrong secret is refused, and waiting continues.
  /// `waiting` (may be empty) is called every 5 s with the missing ranks.
  static std::unique_ptr<Bootstrap> join(Blocking& blocking, const LaunchPlace& place, const Hello& mine,
                                         Deadline deadline, const std::function<void(const std::string&)>& waiting);
  virtual ~Bootstrap() = default;

  /// By rank, including this process's own.
  virtual const std::vector<Hello>& hellos() const = 0;
  /// The blobs of all ranks, by rank; each at most 16 MiB. Collective: every rank must call it with the same `what`,
  /// otherwise Error{invalid} with both. Throws Error{peer_lost} or Error{timeout} naming the rank. Only before
  /// watch().
  virtual std::vector<std::vector<std::byte>> all_gather(Blocking& blocking, std::string_view what,
                                                         std::span<const std::byte> mine, Deadline deadline) = 0;

  /// Called once for each peer's death, on the bootstrap's own thread: it is noticed by the end of its socket, by its
  /// pidfd (same host and pid namespace), or reported by rank 0. Must not block.
  using Lost = std::function<void(Peer peer, const Status& why)>;
  /// Starts watching; no all_gather may follow.
  virtual void watch(Lost lost) = 0;
  /// Tells the others that this process leaves: they do not count it as lost, and it hears of no losses any more.
  virtual void leave() noexcept = 0;
};

}  // namespace troupe
