#pragma once

#include "devices/cuda/kernels/numbers.hpp"
#include "runtime/model/dropout.hpp"

// What is done with each element by itself: curves, sums and products of tensors, places that change.
namespace troupe::cuda {

/// Brings rows of a batch, whose place changes from step to step, to where a step works on them.
struct BatchPlace {
  const std::byte* from = nullptr;
};
struct TakeBatchArgs {
  const StreamState* stream;
  std::byte* to;
  std::uint64_t offset;      // from the batch's start
  std::uint64_t size_bytes;  // of what is taken
  std::uint32_t makes_f16;   // of f32; 0: nothing is converted
  std::uint32_t reserved;
  Given<BatchPlace> given;
};
TROUPE_KERNEL_BODY void take_batch(const Block& block, const TakeBatchArgs& args) {
  auto* const to = reinterpret_cast<std::uint16_t*>(block.at(args.to));
  const std::byte* const first = block.at(block.values(args.given).from) + args.offset;
  if (args.makes_f16 != 0) {
    const auto* const numbers = reinterpret_cast<const float*>(first);
    block.for_each(args.size_bytes / sizeof *numbers, [&](std::uint64_t i) { to[i] = to_f16(numbers[i]); });
    return;
  }
  const auto* const from = reinterpret_cast<const std::uint16_t*>(first);
  block.for_each(args.size_bytes / sizeof *to, [&](std::uint64_t i) { to[i] = from[i]; });
}

/// A gradient, which a layer writes, or to which it adds where another layer has written before.
struct GradientTo {
  void* at;
  Stored type;
  std::uint32_t adds;
};
TROUPE_KERNEL_BODY void put_gradient(const GradientTo& to, void* at, std::uint64_t index, float value) {
  store(at, to.type, index, to.adds != 0 ? load(at, to.type, index) + value : value);
}

enum class Curve : std::uint32_t { relu, tanh, sigmoid, gelu };

struct ActivateArgs {
  const StreamState* stream;
  void* to;
  const void* from;
  std::uint64_t count;
  Curve curve;
  Stored to_type;
  Stored from_type;
  std::uint32_t reserved;
};

TROUPE_KERNEL_BODY float value_of(Curve curve, float x) {
  switch (curve) {
    case Curve::relu: return x > 0 ? x : 0.0F;
    case Curve::tanh: return ::tanhf(x);
    case Curve::sigmoid: return 1 / (1 + ::expf(-x));
    case Curve::gelu: return x * 0.5F * ::erfcf(-x * 0.70710678F);
  }
  return x;
}
TROUPE_KERNEL_BODY void activate(const Block& block, const ActivateArgs& args) {
  void* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  block.for_each(args.count, [&](std::uint64_t i) {
    store(to, args.to_type, i, value_of(args.curve, load(from, args.from_type, i)));
  });
}

struct ActivateBackArgs {
  const StreamState* stream;
  GradientTo to;
  const void* gradient;  // to what the curve put out
  const void* kept;      // what the curve put out; for gelu, what it read
  std::uint64_t count;
  Curve curve;
  Stored gradient_type;
  Stored kept_type;
  std::uint32_t reserved;
};

TROUPE_KERNEL_BODY float slope_of(Curve curve, float kept) {
  switch (curve) {
    case Curve::relu: return kept > 0 ? 1.0F : 0.0F;
    case Curve::tanh: return 1 - kept * kept;
    case Curve::sigmoid: return kept * (1 - kept);
    case Curve::gelu: return 0.5F * ::erfcf(-kept * 0.70710678F) + kept * 0.39894228F * ::expf(-0.5F * kept * kept);
  }
  return 1;
}
TROUPE_KERNEL_BODY void activate_back(const Block& block, const ActivateBackArgs& args) {
  void* const to = block.at(args.to.at);
  const void* const gradient = block.at(args.gradient);
  const void* const kept = block.at(args.kept);
  block.for_each(args.count, [&](std::uint64_t i) {
    const float slope = slope_of(args.curve, load(kept, args.kept_type, i));
    const float before = load(gradient, args.gradient_type, i);
    put_gradient(args.to, to, i, slope == 0 ? 0.0F : before * slope);
  });
}

inline constexpr std::uint32_t kMostInputs = 16;
enum class Combination : std::uint32_t { sum, product };

/// Tensors of one shape, element by element.
struct CombineArgs {
  const StreamState* stream;
  void* to;
  const void* from[kMostInputs];
  Stored from_types[kMostInputs];
  std::uint64_t count;
  std::uint32_t count_inputs;
  Combination combination;
  Stored to_type;
  std::uint32_t reserved;
};
TROUPE_KERNEL_BODY void combine(const Block& block, const CombineArgs& args) {
  void* const to = block.at(args.to);
  const void* from[kMostInputs];
  for (std::uint32_t n = 0; n < args.count_inputs; ++n) from[n] = block.at(args.from[n]);
  block.for_each(args.count, [&](std::uint64_t i) {
    float value = load(from[0], args.from_types[0], i);
    for (std::uint32_t n = 1; n < args.count_inputs; ++n) {
      const float other = load(from[n], args.from_types[n], i);
      value = args.combination == Combination::sum ? value + other : value * other;
    }
    store(to, args.to_type, i, value);
  });
}

/// The gradient to one factor of a product.
struct FactorBackArgs {
  const StreamState* stream;
  GradientTo to;
  const void* gradient;
  const void* from[kMostInputs];
  Stored from_types[kMostInputs];
  std::uint64_t count;
  std::uint32_t count_inputs;
  std::uint32_t factor;
  Stored gradient_type;
  std::uint32_t reserved;
};
TROUPE_KERNEL_BODY void factor_back(const Block& block, const FactorBackArgs& args) {
  void* const to = block.at(args.to.at);
  const void* const gradient = block.at(args.gradient);
  const void* from[kMostInputs];
  for (std::uint32_t n = 0; n < args.count_inputs; ++n) from[n] = block.at(args.from[n]);
  block.for_each(args.count, [&](std::uint64_t i) {
    float value = load(gradient, args.gradient_type, i);
    for (std::uint32_t n = 0; n < args.count_inputs; ++n)
      if (n != args.factor) value *= load(from[n], args.from_types[n], i);
    put_gradient(args.to, to, i, value);
  });
}

/// Rows of `width` elements from one matrix to another, each with its own distance of rows.
struct MoveColumnsArgs {
  const StreamState* stream;
  GradientTo to;
  const void* from;
  std::uint64_t count_rows;
  std::uint64_t width;
  std::uint64_t to_first, to_stride;  // elements
  std::uint64_t from_first, from_stride;
  Stored from_type;
  std::uint32_t reserved;
  Factor factor{};  // of what is moved
};
TROUPE_KERNEL_BODY void move_columns(const Block& block, const MoveColumnsArgs& args) {
  void* const to = block.at(args.to.at);
  const void* const from = block.at(args.from);
  const float factor = value_of(block, args.factor);
  block.for_each(args.count_rows * args.width, [&](std::uint64_t i) {
    const std::uint64_t row = i / args.width, column = i % args.width;
    put_gradient(args.to, to, args.to_first + row * args.to_stride + column,
                 load(from, args.from_type, args.from_first + row * args.from_stride + column) * factor);
  });
}

inline constexpr std::uint32_t kMostExtents = 8;

/// Extents in another order, in each row of a batch: `to` has `extents`, and its extent k is `strides[k]` elements of
/// `from` long.
struct PermuteArgs {
  const StreamState* stream;
  GradientTo to;
  const void* from;
  std::uint64_t count;  // of all rows
  std::uint64_t width;  // of one row
  std::uint64_t strides[kMostExtents];
  std::uint32_t extents[kMostExtents];
  std::uint32_t count_extents;
  Stored from_type;
  Factor factor{};  // of what is moved
};
TROUPE_KERNEL_BODY void permute(const Block& block, const PermuteArgs& args) {
  void* const to = block.at(args.to.at);
  const void* const from = block.at(args.from);
  const float factor = value_of(block, args.factor);
  block.for_each(args.count, [&](std::uint64_t i) {
    std::uint64_t left = i % args.width, at = i - left;
    for (std::uint32_t k = args.count_extents; k-- > 0; left /= args.extents[k])
      at += left % args.extents[k] * args.strides[k];
    put_gradient(args.to, to, i, load(from, args.from_type, at) * factor);
  });
}

/// Elements of training rows that dropout keeps, times 1 / (1 - rate), and zeros for the others.
struct DropArgs {
  const StreamState* stream;
  GradientTo to;
  const void* from;
  const std::int32_t* keys;  // [rows, 2] of the samples
  std::uint64_t count;
  std::uint64_t width;  // of a row
  double rate;
  std::uint32_t layer;
  Stored from_type;
};
TROUPE_KERNEL_BODY void drop(const Block& block, const DropArgs& args) {
  void* const to = block.at(args.to.at);
  const void* const from = block.at(args.from);
  const std::int32_t* const keys = block.at(args.keys);
  const auto factor = static_cast<float>(1 / (1 - args.rate));
  block.for_each(args.count, [&](std::uint64_t i) {
    const std::uint64_t row = i / args.width;
    const DroppedElements dropped{joined_key(keys + 2 * row), args.layer, args.rate};
    const float value = load(from, args.from_type, i) * factor;
    put_gradient(args.to, to, i, dropped.drops(i % args.width) ? 0.0F : value);
  });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const TakeBatchArgs& args) {
  touched.reads(touched.values(args.given).from + args.offset, args.size_bytes);
  touched.writes(args.to, args.makes_f16 != 0 ? args.size_bytes / 2 : args.size_bytes);
}
inline void declare(Accesses& touched, const ActivateArgs& args) {
  touched.reads(args.from, args.count * bytes_of(args.from_type));
  touched.writes(args.to, args.count * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const ActivateBackArgs& args) {
  touched.reads(args.kept, args.count * bytes_of(args.kept_type));
  touched.reads(args.gradient, args.count * bytes_of(args.gradient_type));
  touched.writes(args.to.at, args.count * bytes_of(args.to.type));
}
inline void declare(Accesses& touched, const CombineArgs& args) {
  for (std::uint32_t n = 0; n < args.count_inputs; ++n)
    touched.reads(args.from[n], args.count * bytes_of(args.from_types[n]));
  touched.writes(args.to, args.count * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const FactorBackArgs& args) {
  for (std::uint32_t n = 0; n < args.count_inputs; ++n)
    touched.reads(args.from[n], args.count * bytes_of(args.from_types[n]));
  touched.reads(args.gradient, args.count * bytes_of(args.gradient_type));
  touched.writes(args.to.at, args.count * bytes_of(args.to.type));
}
/// Also what lies between the rows.
inline void declare(Accesses& touched, const MoveColumnsArgs& args) {
  if (args.count_rows == 0) return;
  const std::uint64_t before = args.count_rows - 1;
  touched.reads(args.factor.at, sizeof(float));
  touched.reads(args.from, (args.from_first + before * args.from_stride + args.width) * bytes_of(args.from_type));
  touched.writes(args.to.at, (args.to_first + before * args.to_stride + args.width) * bytes_of(args.to.type));
}
inline void declare(Accesses& touched, const PermuteArgs& args) {
  touched.reads(args.factor.at, sizeof(float));
  touched.reads(args.from, args.count * bytes_of(args.from_type));
  touched.writes(args.to.at, args.count * bytes_of(args.to.type));
}
inline void declare(Accesses& touched, const DropArgs& args) {
  touched.reads(args.from, args.count * bytes_of(args.from_type));
  touched.reads(args.keys, args.count / args.width * 2 * sizeof(std::int32_t));
  touched.writes(args.to.at, args.count * bytes_of(args.to.type));
}
#endif

}  // namespace troupe::cuda
