// Compiled where nccl.h is found: proves that nccl_api.hpp says the same. There is nothing in it to run.
#include "transports/nccl/nccl_api.hpp"

#include <nccl.h>

#include "runtime/base/detail/same_binary.hpp"

namespace troupe {

template <>
inline constexpr bool detail::kKnownBySize<nccl::Config> = true;

namespace nccl {
namespace {

#define TROUPE_NCCL_SAME(member, symbol, Returned, ...) \
  static_assert(detail::SameFunction<decltype(Library::member), decltype(&::symbol)>::value, #symbol);
TROUPE_NCCL_ENTRY_POINTS(TROUPE_NCCL_SAME)
#undef TROUPE_NCCL_SAME

TROUPE_SAME_VALUE(Result::success, ncclSuccess)
TROUPE_SAME_VALUE(Result::unhandled_cuda_error, ncclUnhandledCudaError)
TROUPE_SAME_VALUE(Result::system_error, ncclSystemError)
TROUPE_SAME_VALUE(Result::internal_error, ncclInternalError)
TROUPE_SAME_VALUE(Result::invalid_argument, ncclInvalidArgument)
TROUPE_SAME_VALUE(Result::invalid_usage, ncclInvalidUsage)
TROUPE_SAME_VALUE(Result::remote_error, ncclRemoteError)
TROUPE_SAME_VALUE(Result::in_progress, ncclInProgress)
TROUPE_SAME_VALUE(Type::bytes, ncclChar)
TROUPE_SAME_VALUE(Type::u64, ncclUint64)
TROUPE_SAME_VALUE(Type::f32, ncclFloat32)
TROUPE_SAME_VALUE(Operator::sum, ncclSum)
TROUPE_SAME_VALUE(INT_MIN, NCCL_CONFIG_UNDEF_INT)

#define TROUPE_SAME_PLACE(our, their)                                    \
  static_assert(offsetof(Config, our) == offsetof(ncclConfig_t, their)); \
  static_assert(sizeof(Config::our) == sizeof(ncclConfig_t::their));
TROUPE_SAME_PLACE(size, size)
TROUPE_SAME_PLACE(magic, magic)
TROUPE_SAME_PLACE(version, version)
TROUPE_SAME_PLACE(blocking, blocking)
TROUPE_SAME_PLACE(cga_cluster_size, cgaClusterSize)
TROUPE_SAME_PLACE(min_ctas, minCTAs)
TROUPE_SAME_PLACE(max_ctas, maxCTAs)
TROUPE_SAME_PLACE(net_name, netName)
TROUPE_SAME_PLACE(split_share, splitShare)

}  // namespace
}  // namespace nccl
}  // namespace troupe
