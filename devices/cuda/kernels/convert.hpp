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

TROUPE_KERNEL_BODY void convert_all(const Block& block, void* to, Stored to_type, const void* from, Stored from_type,
                                    std::uint64_t count) {
  for_each_pack(block, count, is_in_packs(to, to_type) && is_in_packs(from, from_type),
                [&](auto width, std::uint64_t i) { store(width, to, to_type, i, load(width, from, from_type, i)); });
}
TROUPE_KERNEL_BODY void convert(const Block& block, const ConvertArgs& args) {
  convert_all(block, block.at(args.to), args.to_type, block.at(args.from), args.from_type, args.count);
}

/// What a number is once it is stored.
TROUPE_KERNEL_BODY float as_stored(float value, Stored type) {
  if (type == Stored::f32) return value;
  const std::uint16_t stored = rounded(value, type);
  return type == Stored::f16 ? from_f16(stored) : widened(stored);
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
  const bool in_packs =
      is_in_packs(to, args.to_type) && is_in_packs(from, Stored::f32) && is_in_packs(residual, Stored::f32);
  for_each_pack(block, args.count, in_packs, [&](auto width, std::uint64_t i) {
    const auto brought = bring(width, from, Stored::f32, i), kept = bring(width, residual, Stored::f32, i);
    auto whole = widened(brought, Stored::f32), left = widened(kept, Stored::f32);
    for (unsigned k = 0; k < width(); ++k) whole.of[k] += left.of[k];
    store(width, to, args.to_type, i, whole);
    for (unsigned k = 0; k < width(); ++k) {
      const float lost = whole.of[k] - as_stored(whole.of[k], args.to_type);
      left.of[k] = is_finite(lost) ? lost : 0.0F;
    }
    store(width, residual, Stored::f32, i, left);
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
  const bool in_packs = is_in_packs(to, Stored::f32) && is_in_packs(from, args.from_type);
  for_each_pack(block, args.count, in_packs, [&](auto width, std::uint64_t i) {
    const auto brought = bring(width, from, args.from_type, i), before = bring(width, to, Stored::f32, i);
    const auto more = widened(brought, args.from_type);
    auto sum = widened(before, Stored::f32);
    for (unsigned k = 0; k < width(); ++k) sum.of[k] += more.of[k];
    store(width, to, Stored::f32, i, sum);
  });
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
