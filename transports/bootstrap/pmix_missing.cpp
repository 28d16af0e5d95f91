#include "runtime/base/error.hpp"
#include "transports/bootstrap/detail/pmix.hpp"

namespace troupe::bootstrap {

bool pmix_available() noexcept { return false; }

LaunchPlace place_from_pmix(const std::string&, Deadline) {
  fail(Code::unsupported,
       "this process was started through PMIx (PMIX_RANK, PMIX_SERVER_URI*), which this build does not speak: build "
       "with libpmix-dev installed (-DTROUPE_WITH_PMIX=ON), or tell every rank where rank 0 is to listen: mpirun -x "
       "MASTER_ADDR=host -x MASTER_PORT=port, or RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT");
}

}  // namespace troupe::bootstrap
