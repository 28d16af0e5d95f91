#pragma once

#include "devices/cuda/kernels/bytes.hpp"
#include "devices/cuda/kernels/convert.hpp"
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
  std::byte* const to = block.at(args.to);
  const std::byte* const first = block.at(block.values(args.given).from) + args.offset;
  if (args.makes_f16 != 0) {
    convert_all(block, to, Stored::f16, first, Stored::f32, args.size_bytes / sizeof(float));
    return;
  }
  copy_all(block, to, first, args.size_bytes);
}

/// A gradient, which a layer writes, or to which it adds where another layer has written before.
struct GradientTo {
  void* at;
  Stored type;
  std::uint32_t adds;
};
template <unsigned kCount>
TROUPE_KERNEL_BODY void put_gradient(Width<kCount> width, const GradientTo& to, void* at, std::uint64_t index,
                                     Numbers<kCount> values) {
  if (to.adds != 0) {
    const Numbers<kCount> before = load(width, at, to.type, index);
    for (unsigned k = 0; k < kCount; ++k) values.of[k] = before.of[k] + values.of[k];
  }
  store(width, at, to.type, index, values);
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
/// Calls act(curve) with the curve as a constant.
template <class Act>
TROUPE_KERNEL_BODY void with_curve(Curve curve, Act&& act) {
  switch (curve) {
    case Curve::relu: return act(std::integral_constant<Curve, Curve::relu>{});
    case Curve::tanh: return act(std::integral_constant<Curve, Curve::tanh>{});
    case Curve::sigmoid: return act(std::integral_constant<Curve, Curve::sigmoid>{});
    case Curve::gelu: return act(std::integral_constant<Curve, Curve::gelu>{});
  }
}
TROUPE_KERNEL_BODY void activate(const Block& block, const ActivateArgs& args) {
  void* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  const bool in_packs = is_in_packs(to, args.to_type) && is_in_packs(from, args.from_type);
  for_each_pack(block, args.count, in_packs, [&](auto width, std::uint64_t i) {
    auto x = load(width, from, args.from_type, i);
    with_curve(args.curve, [&](auto curve) {
      for (float& one : x.of) one = value_of(curve(), one);
    });
    store(width, to, args.to_type, i, x);
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
  const bool in_packs =
      is_in_packs(to, args.to.type) && is_in_packs(gradient, args.gradient_type) && is_in_packs(kept, args.kept_type);
  for_each_pack(block, args.count, in_packs, [&](auto width, std::uint64_t i) {
    const auto of_kept = bring(width, kept, args.kept_type, i);
    const auto of_gradient = bring(width, gradient, args.gradient_type, i);
    auto slopes = widened(of_kept, args.kept_type);
    with_curve(args.curve, [&](auto curve) {
      for (float& one : slopes.of) one = slope_of(curve(), one);
    });
    auto values = widened(of_gradient, args.gradient_type);
    for (unsigned k = 0; k < width(); ++k) values.of[k] = slopes.of[k] == 0 ? 0.0F : values.of[k] * slopes.of[k];
    put_gradient(width, args.to, to, i, values);
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
/// Whether all inputs begin where packs do.
template <class Args>
TROUPE_KERNEL_BODY bool inputs_are_in_packs(const Block& block, const Args& args) {
  bool all = true;
  for (std::uint32_t n = 0; n < args.count_inputs; ++n)
    all = all && is_in_packs(block.at(args.from[n]), args.from_types[n]);
  return all;
}
TROUPE_KERNEL_BODY void combine(const Block& block, const CombineArgs& args) {
  void* const to = block.at(args.to);
  const bool in_packs = is_in_packs(to, args.to_type) && inputs_are_in_packs(block, args);
  for_each_pack(block, args.count, in_packs, [&](auto width, std::uint64_t i) {
    auto value = load(width, block.at(args.from[0]), args.from_types[0], i);
    for (std::uint32_t n = 1; n < args.count_inputs; ++n) {
      const auto other = load(width, block.at(args.from[n]), args.from_types[n], i);
      for (unsigned k = 0; k < width(); ++k)
        value.of[k] = args.combination == Combination::sum ? value.of[k] + other.of[k] : value.of[k] * other.of[k];
    }
    store(width, to, args.to_type, i, value);
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
  const bool in_packs =
      is_in_packs(to, args.to.type) && is_in_packs(gradient, args.gradient_type) && inputs_are_in_packs(block, args);
  for_each_pack(block, args.count, in_packs, [&](auto width, std::uint64_t i) {
    auto value = load(width, gradient, args.gradient_type, i);
    for (std::uint32_t n = 0; n < args.count_inputs; ++n) {
      if (n == args.factor) continue;
      const auto other = load(width, block.at(args.from[n]), args.from_types[n], i);
      for (unsigned k = 0; k < width(); ++k) value.of[k] *= other.of[k];
    }
    put_gradient(width, args.to, to, i, value);
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
  const bool is_flat = args.count_rows == 1 || (args.to_stride == args.width && args.from_stride == args.width);
  const std::uint64_t steps = is_flat ? 0 : args.width | args.to_stride | args.from_stride;
  const bool in_packs = (steps | args.to_first | args.from_first) % kPack == 0 && is_in_packs(to, args.to.type) &&
                        is_in_packs(from, args.from_type);
  for_each_pack(block, args.count_rows * args.width, in_packs, [&](auto width, std::uint64_t i) {
    std::uint64_t of_to = i, of_from = i;
    if (!is_flat) {
      const RowPlace at = place_in_rows(i, args.width);
      of_to = at.row * args.to_stride + at.column, of_from = at.row * args.from_stride + at.column;
    }
    auto values = load(width, from, args.from_type, args.from_first + of_from);
    for (float& one : values.of) one *= factor;
    put_gradient(width, args.to, to, args.to_first + of_to, values);
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
/// Where element `i` comes from.
template <class Index>
TROUPE_KERNEL_BODY std::uint64_t permuted_from(const PermuteArgs& args, Index i) {
  Index left = i % static_cast<Index>(args.width), at = i - left;
  for (std::uint32_t k = args.count_extents; k-- > 0; left /= args.extents[k])
    at += left % args.extents[k] * static_cast<Index>(args.strides[k]);
  return at;
}
TROUPE_KERNEL_BODY void permute(const Block& block, const PermuteArgs& args) {
  void* const to = block.at(args.to.at);
  const void* const from = block.at(args.from);
  const float factor = value_of(block, args.factor);
  const bool is_small = args.count >> 32 == 0;
  block.for_each(args.count, [&](std::uint64_t i) {
    const std::uint64_t at = is_small ? permuted_from(args, static_cast<std::uint32_t>(i)) : permuted_from(args, i);
    auto value = load(Width<1>{}, from, args.from_type, at);
    value.of[0] *= factor;
    put_gradient(Width<1>{}, args.to, to, i, value);
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
  const bool in_packs = has_packs(from, args.from_type, args.width) && is_in_packs(to, args.to.type);
  for_each_pack(block, args.count, in_packs, [&](auto width, std::uint64_t i) {
    const RowPlace at = place_in_rows(i, args.width);
    const DroppedElements dropped{joined_key(keys + 2 * at.row), args.layer, args.rate};
    auto values = load(width, from, args.from_type, i);
    for (unsigned k = 0; k < width(); ++k) values.of[k] = dropped.drops(at.column + k) ? 0.0F : values.of[k] * factor;
    put_gradient(width, args.to, to, i, values);
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
