#pragma once

#include "devices/cuda/kernels/elements.hpp"

namespace troupe::cuda {

inline constexpr std::uint32_t kMostFields = 16;

/// The fields of a batch, in one kernel: some have a few bytes only. As TakeBatchArgs.
struct TakeFieldsArgs {
  const StreamState* stream;
  struct Field {
    std::byte* to;
    std::uint64_t offset;
    std::uint64_t size_bytes;
    std::uint32_t makes_f16;
    std::uint32_t reserved;
  };
  std::uint64_t count;
  Field fields[kMostFields];
  Given<BatchPlace> given;
};
TROUPE_KERNEL_BODY TakeBatchArgs field_of(const TakeFieldsArgs& args, std::uint64_t n) {
  const TakeFieldsArgs::Field& field = args.fields[n];
  return {args.stream, field.to, field.offset, field.size_bytes, field.makes_f16, 0, args.given};
}
TROUPE_KERNEL_BODY void take_fields(const Block& block, const TakeFieldsArgs& args) {
  for (std::uint64_t n = 0; n < args.count; ++n) take_batch(block, field_of(args, n));
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const TakeFieldsArgs& args) {
  for (std::uint64_t n = 0; n < args.count; ++n) declare(touched, field_of(args, n));
}
#endif

}  // namespace troupe::cuda
