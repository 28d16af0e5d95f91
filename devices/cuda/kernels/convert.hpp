#pragma once

#include "devices/cuda/kernels/numbers.hpp"

// Numbers of one type as those of another.
namespace troupe::cuda {

struct ConvertArgs {
  const StreamState* stream;
  void* to;
  const void* from;
  std::uint64_t count;
  Stored to_type;
  Stored from_type;
};

TROUPE_KERNEL_BODY void convert(const Block& block, const ConvertArgs& args) {
  void* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  block.for_each(args.count, [&](std::uint64_t i) { store(to, args.to_type, i, load(from, args.from_type, i)); });
}

struct ConvertWithResidualArgs {
  const StreamState* stream;
  void* to;
  const float* from;
  float* residual;
  std::uint64_t count;
  Stored to_type;
  std::uint32_t reserved;
};

TROUPE_KERNEL_BODY void convert_with_residual(const Block& block, const ConvertWithResidualArgs& args) {
  void* const to = block.at(args.to);
  const float* const from = block.at(args.from);
  float* const residual = block.at(args.residual);
  block.for_each(args.count, [&](std::uint64_t i) {
    const float whole = from[i] + residual[i];
    store(to, args.to_type, i, whole);
    const float left = whole - load(to, args.to_type, i);
    residual[i] = is_finite(left) ? left : 0.0F;
  });
}

struct AddConvertedArgs {
  const StreamState* stream;
  float* to;
  const void* from;
  std::uint64_t count;
  Stored from_type;
  std::uint32_t reserved;
};

TROUPE_KERNEL_BODY void add_converted(const Block& block, const AddConvertedArgs& args) {
  float* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  block.for_each(args.count, [&](std::uint64_t i) { to[i] += load(from, args.from_type, i); });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const ConvertArgs& args) {
  touched.reads(args.from, args.count * bytes_of(args.from_type));
  touched.writes(args.to, args.count * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const ConvertWithResidualArgs& args) {
  touched.reads(args.from, args.count * sizeof(float));
  touched.writes(args.residual, args.count * sizeof(float));
  touched.writes(args.to, args.count * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const AddConvertedArgs& args) {
  touched.reads(args.from, args.count * bytes_of(args.from_type));
  touched.writes(args.to, args.count * sizeof(float));
}
#endif

}  // namespace troupe::cuda
