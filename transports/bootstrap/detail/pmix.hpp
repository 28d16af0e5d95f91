#pragma once

#include <string>

#include "runtime/base/clock.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::bootstrap {

/// Whether this build can connect to a PMIx server.
bool pmix_available() noexcept;

/// The place of a process that was started by mpirun, or `srun --mpi=pmix`. Rank 0 listens on a free port (on loopback
/// if every rank is on its host) and publishes address, port and a new secret at the launcher's PMIx server, from which
/// the other ranks get them. `secret`: the job's, if the launcher gave one by other means; then it is not published.
/// Every rank of the job must call it, once. Throws Error{unsupported}: this build has no PMIx; Error{timeout}: the
/// deadline passed, with what it waited for; Error{environment}: the server refused a request.
LaunchPlace place_from_pmix(const std::string& secret, Deadline deadline);

}  // namespace troupe::bootstrap
