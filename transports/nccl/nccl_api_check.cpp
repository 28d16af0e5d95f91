// Compiled where nccl.h is found: proves that nccl_api.hpp says the same. There is nothing in it to run.
#include "transports/nccl/nccl_api.hpp"

#include <nccl.h>

#include "runtime/base/detail/same_binary.hpp"

namespace troupe {

template <>
inline constexpr bool detail::kKnownBySize<nccl::Config> = true;

namespace nccl {
namespace {

TROUPE_NCCL_ENTRY_POINTS(TROUPE_SAME_ENTRY)
#define TROUPE_VALUES "transports/nccl/nccl_values.def"
#include "runtime/base/detail/compare_values.inc"
TROUPE_SAME_VALUE(INT_MIN, NCCL_CONFIG_UNDEF_INT)

TROUPE_SAME_PLACE(Config, size, ncclConfig_t, size)
TROUPE_SAME_PLACE(Config, magic, ncclConfig_t, magic)
TROUPE_SAME_PLACE(Config, version, ncclConfig_t, version)
TROUPE_SAME_PLACE(Config, blocking, ncclConfig_t, blocking)
TROUPE_SAME_PLACE(Config, cga_cluster_size, ncclConfig_t, cgaClusterSize)
TROUPE_SAME_PLACE(Config, min_ctas, ncclConfig_t, minCTAs)
TROUPE_SAME_PLACE(Config, max_ctas, ncclConfig_t, maxCTAs)
TROUPE_SAME_PLACE(Config, net_name, ncclConfig_t, netName)
TROUPE_SAME_PLACE(Config, split_share, ncclConfig_t, splitShare)

}  // namespace
}  // namespace nccl
}  // namespace troupe
