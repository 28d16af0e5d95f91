#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "devices/cuda/kernels/list.hpp"

namespace troupe::cuda {
namespace {

/// Denormals are zeros, as they are on a GPU whose kernels are compiled with -ftz=true.
class FlushedDenormals {
 public:
#if defined(__x86_64__)
  FlushedDenormals() noexcept : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040U); }
  ~FlushedDenormals() { _mm_setcsr(before_); }
#else
  FlushedDenormals() noexcept = default;
#endif
  FlushedDenormals(const FlushedDenormals&) = delete;
  FlushedDenormals& operator=(const FlushedDenormals&) = delete;

 private:
#if defined(__x86_64__)
  const unsigned before_;
#endif
};

template <class Args>
bool has_failed(const Args& args, const StreamState* found) noexcept {
  return args.stream != nullptr && Block::glance(&found->failed) != 0;
}

template <class Args, void (*kBody)(const Block&, const Args&)>
void run_on_host(const Block& block, const void* given) {
  const FlushedDenormals flushed;
  const auto& args = *static_cast<const Args*>(given);
  if (!has_failed(args, block.at(args.stream))) kBody(block, args);
}

template <class Args>
void declare_on_host(Accesses& touched, const void* given) {
  const auto& args = *static_cast<const Args*>(given);
  touched.shares(args.stream, sizeof(StreamState));
  if (!has_failed(args, touched.at(args.stream))) declare(touched, args);
}

template <class Args>
const StreamState* stream_on_host(const void* given) {
  return static_cast<const Args*>(given)->stream;
}

#define TROUPE_HOST_KERNEL(name, Args) \
  HostKernel{"troupe_" #name, sizeof(Args), run_on_host<Args, name>, declare_on_host<Args>, stream_on_host<Args>},
constexpr HostKernel kKernels[] = {TROUPE_CUDA_KERNELS(TROUPE_HOST_KERNEL)};

}  // namespace

std::span<const HostKernel> host_kernels() noexcept { return kKernels; }

}  // namespace troupe::cuda
