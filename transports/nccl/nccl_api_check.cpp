// Compiled where nccl.h is found: proves that nccl_api.hpp says the same. There is nothing in it to run.
#include "transports/nccl/nccl_api.hpp"

#include <nccl.h>

#include <type_traits>

namespace troupe::nccl {
namespace {

/// Whether a caller and a function that disagree about A and B understand each other.
template <class A, class B>
constexpr bool same_for_the_machine() {
  using X = std::remove_cv_t<A>;
  using Y = std::remove_cv_t<B>;
  if constexpr (std::is_same_v<X, Y>)
    return true;
  else if constexpr (std::is_pointer_v<X> && std::is_pointer_v<Y>)
    return same_for_the_machine<std::remove_pointer_t<X>, std::remove_pointer_t<Y>>();
  else if constexpr (std::is_void_v<X> || std::is_void_v<Y>)
    return false;
  else
    return std::is_class_v<X> == std::is_class_v<Y> && std::is_pointer_v<X> == std::is_pointer_v<Y> &&
           (std::is_same_v<X, Config> ? sizeof(X) <= sizeof(Y) : sizeof(X) == sizeof(Y)) && alignof(X) == alignof(Y);
}

template <class A, class B>
struct SameFunction : std::false_type {};
template <class R, class... P, class S, class... Q>
struct SameFunction<R (*)(P...), S (*)(Q...)> {
  static constexpr bool all() {
    if constexpr (sizeof...(P) != sizeof...(Q))
      return false;
    else
      return (same_for_the_machine<P, Q>() && ... && same_for_the_machine<R, S>());
  }
  static constexpr bool value = all();
};

#define TROUPE_NCCL_SAME(member, symbol, Returned, ...) \
  static_assert(SameFunction<decltype(Library::member), decltype(&::symbol)>::value, #symbol);
TROUPE_NCCL_ENTRY_POINTS(TROUPE_NCCL_SAME)
#undef TROUPE_NCCL_SAME

#define TROUPE_SAME_VALUE(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs));
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
}  // namespace troupe::nccl
