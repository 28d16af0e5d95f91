#pragma once

#include <string>

#include "runtime/base/clock.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::bootstrap {

/// Whether this build can talk to a PMIx server.
bool pmix_available() noexcept;

/// The place of a process that mpirun, or `srun --mpi=pmix`, started: rank 0 listens at a free port (on loopback when
/// every rank is on its host) and leaves address, port and a fresh secret with the launcher's PMIx server, where the
/// others find them. `secret`: the job's, when the launcher gave one by other means; it is not passed on then. Every
/// rank of the job calls it, once. Throws Error{unsupported}: this build has no PMIx; Error{timeout}: the deadline
/// passed, with what was waited for; Error{environment}: the server refused something.
LaunchPlace place_from_pmix(const std::string& secret, Deadline deadline);

}  // namespace troupe::bootstrap
