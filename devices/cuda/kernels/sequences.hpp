#pragma once

#include "devices/cuda/kernels/column_sums.hpp"
#include "devices/cuda/kernels/elements.hpp"
#include "devices/cuda/kernels/points.hpp"

// Tokens, positions, and the weights of attention.
namespace troupe::cuda {

struct EmbedArgs {
  StreamState* stream;
  StreamReport* report;
  void* to;                    // [count, width]
  const void* table;           // [vocabulary, width]
  const std::int32_t* tokens;  // [count]; below 0: zeros
  std::uint64_t count;
  std::uint64_t width;
  std::uint32_t vocabulary;
  Stored to_type;
  Stored table_type;
  std::uint32_t reserved;
};
TROUPE_KERNEL_BODY void embed(const Block& block, const EmbedArgs& args) {
  void* const to = block.at(args.to);
  const void* const table = block.at(args.table);
  const std::int32_t* const tokens = block.at(args.tokens);
  const bool in_packs = has_packs(table, args.table_type, args.width) && is_in_packs(to, args.to_type);
  for_each_pack(block, args.count * args.width, in_packs, [&](auto width, std::uint64_t i) {
    const RowPlace at = place_in_rows(i, args.width);
    const std::int32_t token = tokens[at.row];
    const bool is_known = token >= 0 && static_cast<std::uint32_t>(token) < args.vocabulary;
    if (token >= 0 && !is_known && at.column == 0)
      end_stream(block, args.stream, args.report, StreamFault::bad_token, static_cast<std::uint64_t>(token), at.row);
    Numbers<width.value> values{};
    if (is_known)
      values = load(width, table, args.table_type, static_cast<std::uint64_t>(token) * args.width + at.column);
    store(width, to, args.to_type, i, values);
  });
}

/// Places, sorted by their tokens and then by themselves.
struct TokenLink {
  std::int32_t place;
  std::uint32_t repeats;  // places with its token, where this is the first of them; 0: it is not, or its token is none
};
struct LinkTokensArgs {
  const StreamState* stream;
  TokenLink* links;            // [count]
  const std::int32_t* tokens;  // [count]
  std::uint64_t count;
};
/// Of the tokens beside one.
struct TokenCounts {
  std::uint32_t before;  // that come before it in the order
  std::uint32_t same;
  std::uint32_t same_before;
  TROUPE_KERNEL_MEMBER void add(const TokenCounts& other) {
    before += other.before;
    same += other.same;
    same_before += other.same_before;
  }
};
/// A warp for each place, which compares it with all others.
TROUPE_KERNEL_BODY void link_tokens(const Block& block, const LinkTokensArgs& args) {
  TokenLink* const links = block.at(args.links);
  const std::int32_t* const tokens = block.at(args.tokens);
  with_row_sums<TokenCounts, TokenCounts>(
      block, args.count, args.count, has_packs(tokens, Stored::f32, args.count),
      [&](auto width, std::uint64_t, std::uint64_t other) { return bring(width, tokens, Stored::f32, other); },
      [&](TokenCounts& own, const auto& brought, std::uint64_t place, std::uint64_t other) {
        const std::int32_t token = tokens[place];
        for (unsigned k = 0; k < sizeof brought / sizeof brought.words[0]; ++k) {
          const auto there = static_cast<std::int32_t>(brought.words[k]);
          const std::uint32_t same = there == token ? 1 : 0, same_before = other + k < place ? same : 0;
          own.add({(there < token ? 1U : 0U) + same_before, same, same_before});
        }
      },
      AsItIs{},
      [&](auto, const TokenCounts& found, const auto&, std::uint64_t place, std::uint64_t other) {
        if (other != 0) return;
        const bool is_first = tokens[place] >= 0 && found.same_before == 0;
        links[found.before] = {static_cast<std::int32_t>(place), is_first ? found.same : 0};
      });
}

/// The gradient to the rows of a table that tokens name; the others are not written.
struct EmbedBackArgs {
  const StreamState* stream;
  float* to;                   // [vocabulary, width]
  const void* gradient;        // [count, width]
  const std::int32_t* tokens;  // [count]
  const TokenLink* links;      // [count]
  std::uint64_t count;
  std::uint64_t width;
  std::uint32_t vocabulary;
  Stored gradient_type;
  Factor factor{};  // of the sums
};
/// Places that a warp has on their way at once.
inline constexpr unsigned kPlacesInFlight = 16;
/// A block sums a warp's width of columns of one token at a time.
constexpr std::uint64_t count_tiles(const EmbedBackArgs& args) noexcept {
  return (args.width + kWarpThreads - 1) / kWarpThreads * args.count;
}
/// The warps of a block share the places with one token; each takes every kWarps-th of them. A block has tiles that
/// follow each other, most of which are not the first place of a token: their links are in its cache.
TROUPE_KERNEL_BODY void embed_back(const Block& block, const EmbedBackArgs& args) {
  float* const to = block.at(args.to);
  const void* const gradient = block.at(args.gradient);
  const std::int32_t* const tokens = block.at(args.tokens);
  const TokenLink* const links = block.at(args.links);
  const float factor = value_of(block, args.factor);
  float* const sums = block.shared<float, kBlockThreads>();
  const std::uint64_t tiles = count_tiles(args), own_tiles = (tiles + block.count() - 1) / block.count();
  const std::uint64_t begin = block.index() * own_tiles, end = begin + own_tiles < tiles ? begin + own_tiles : tiles;
  for (std::uint64_t tile = begin; tile < end; ++tile) {
    const RowPlace at = place_in_rows(tile, args.count);
    const TokenLink* const some = links + at.column;
    const std::uint32_t repeats = some->repeats;
    if (repeats == 0) continue;
    block.for_each_thread([&](unsigned t) {
      const std::uint64_t column = at.row * kWarpThreads + t % kWarpThreads;
      const std::uint32_t until = column < args.width ? repeats : 0;
      float own = 0;
      for (std::uint32_t n = t / kWarpThreads; n < until; n += kPlacesInFlight * kWarps) {
        std::int32_t places[kPlacesInFlight]{};
        for (unsigned j = 0; j < kPlacesInFlight; ++j)
          if (n + j * kWarps < until) places[j] = some[n + j * kWarps].place;
        StoredNumbers<1> brought[kPlacesInFlight]{};  // zeros where no place is left
        for (unsigned j = 0; j < kPlacesInFlight; ++j)
          if (n + j * kWarps < until)
            brought[j] = bring(Width<1>{}, gradient, args.gradient_type,
                               static_cast<std::uint64_t>(places[j]) * args.width + column);
        for (const StoredNumbers<1>& one : brought) own += widened(one, args.gradient_type).of[0];
      }
      sums[t] = own;
    });
    block.barrier();
    block.for_each_here(kWarpThreads, [&](std::uint64_t c) {
      const std::uint64_t column = at.row * kWarpThreads + c;
      if (column >= args.width) return;
      float sum = sums[c];
      for (unsigned warp = 1; warp < kWarps; ++warp) sum += sums[warp * kWarpThreads + c];
      to[static_cast<std::uint64_t>(tokens[some->place]) * args.width + column] = sum * factor;
    });
    block.barrier();
  }
}

/// to[i] = from[i] + repeated[i % width].
struct AddRepeatedArgs {
  const StreamState* stream;
  void* to;
  const void* from;
  const void* repeated;  // [width]
  std::uint64_t count;
  std::uint64_t width;
  Stored to_type;
  Stored from_type;
  Stored repeated_type;
  std::uint32_t reserved;
};
TROUPE_KERNEL_BODY void add_repeated(const Block& block, const AddRepeatedArgs& args) {
  void* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  const void* const repeated = block.at(args.repeated);
  const bool in_packs = has_packs(from, args.from_type, args.width) && is_in_packs(to, args.to_type) &&
                        is_in_packs(repeated, args.repeated_type);
  for_each_pack(block, args.count, in_packs, [&](auto width, std::uint64_t i) {
    const auto brought = bring(width, from, args.from_type, i);
    const auto more = load(width, repeated, args.repeated_type, place_in_rows(i, args.width).column);
    auto values = widened(brought, args.from_type);
    for (unsigned k = 0; k < width(); ++k) values.of[k] += more.of[k];
    store(width, to, args.to_type, i, values);
  });
}

/// Rows of products of queries and keys become weights.
struct SoftmaxRowsArgs {
  const StreamState* stream;
  void* weights;        // [count_rows, length]; f32: may be `scores`
  const float* scores;  // likewise
  std::uint64_t count_rows;
  std::uint64_t length;
  std::uint32_t causal;  // not 0: row r reads the first r % length + 1 alone
  Stored type;           // of the weights
};
TROUPE_KERNEL_BODY void softmax_rows(const Block& block, const SoftmaxRowsArgs& args) {
  void* const weights = block.at(args.weights);
  const float* const scores = block.at(args.scores);
  const bool in_packs = has_packs(scores, Stored::f32, args.length) && is_in_packs(weights, args.type);
  // How many of the elements from `column` on the row reads.
  const auto reads = [&](std::uint64_t row, std::uint64_t column, unsigned count) -> unsigned {
    const std::uint64_t end = args.causal == 0 ? args.length : place_in_rows(row, args.length).column + 1;
    return column >= end ? 0 : end - column < count ? static_cast<unsigned>(end - column) : count;
  };
  with_row_sums<SoftmaxSums, SoftmaxSums>(
      block, args.count_rows, args.length, in_packs,
      [&](auto width, std::uint64_t row, std::uint64_t column) {
        return bring(width, scores, Stored::f32, row * args.length + column);
      },
      [&](SoftmaxSums& own, const auto& brought, std::uint64_t row, std::uint64_t column) {
        const auto x = widened(brought, Stored::f32);
        if (const unsigned few = reads(row, column, sizeof x / sizeof(float)); few != 0) own.take(x, few);
      },
      [](SoftmaxSums sums) {
        sums.exponentials = 1 / sums.exponentials;
        return sums;
      },
      [&](auto width, const SoftmaxSums& inverse, const auto& brought, std::uint64_t row, std::uint64_t column) {
        auto x = widened(brought, Stored::f32);
        const unsigned few = reads(row, column, width());
        for (unsigned k = 0; k < width(); ++k)
          x.of[k] = k < few ? ::expf(x.of[k] - inverse.largest) * inverse.exponentials : 0.0F;
        store(width, weights, args.type, row * args.length + column, x);
      });
}

/// Rows of gradients to weights become gradients to products of queries and keys, times `scale`.
struct SoftmaxRowsBackArgs {
  const StreamState* stream;
  void* to;               // [count_rows, length]; f32: may be `gradient`
  const float* gradient;  // likewise
  const void* weights;    // likewise
  std::uint64_t count_rows;
  std::uint64_t length;
  float scale;
  Stored type;  // of `to` and the weights
};
TROUPE_KERNEL_BODY void softmax_rows_back(const Block& block, const SoftmaxRowsBackArgs& args) {
  void* const to = block.at(args.to);
  const float* const gradient = block.at(args.gradient);
  const void* const weights = block.at(args.weights);
  const bool in_packs =
      has_packs(gradient, Stored::f32, args.length) && is_in_packs(weights, args.type) && is_in_packs(to, args.type);
  with_row_sums<FloatSum, FloatSum>(
      block, args.count_rows, args.length, in_packs,
      [&](auto width, std::uint64_t row, std::uint64_t column) {
        const std::uint64_t i = row * args.length + column;
        return BroughtPair<width.value>{
            bring(width, weights, args.type, i), bring(width, gradient, Stored::f32, i), {}};
      },
      [&](FloatSum& own, const auto& brought, std::uint64_t, std::uint64_t) {
        const auto weight = widened(brought.first, args.type), slope = widened(brought.second, Stored::f32);
        for (unsigned k = 0; k < sizeof slope / sizeof(float); ++k) own.value += weight.of[k] * slope.of[k];
      },
      AsItIs{},
      [&](auto width, const FloatSum& sum, const auto& brought, std::uint64_t row, std::uint64_t column) {
        const auto weight = widened(brought.first, args.type);
        auto slope = widened(brought.second, Stored::f32);
        for (unsigned k = 0; k < width(); ++k) slope.of[k] = args.scale * weight.of[k] * (slope.of[k] - sum.value);
        store(width, to, args.type, row * args.length + column, slope);
      });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const EmbedArgs& args) {
  touched.reads(args.table, args.vocabulary * args.width * bytes_of(args.table_type));
  touched.reads(args.tokens, args.count * sizeof *args.tokens);
  declare_end(touched, args.stream, args.report);
  touched.writes(args.to, args.count * args.width * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const LinkTokensArgs& args) {
  touched.reads(args.tokens, args.count * sizeof *args.tokens);
  touched.writes(args.links, args.count * sizeof *args.links);
}
inline void declare(Accesses& touched, const EmbedBackArgs& args) {
  touched.reads(args.gradient, args.count * args.width * bytes_of(args.gradient_type));
  touched.reads(args.tokens, args.count * sizeof *args.tokens);
  touched.reads(args.links, args.count * sizeof *args.links);
  touched.reads(args.factor.at, sizeof(float));
  touched.writes(args.to, args.vocabulary * args.width * sizeof(float));
}
inline void declare(Accesses& touched, const AddRepeatedArgs& args) {
  touched.reads(args.from, args.count * bytes_of(args.from_type));
  touched.reads(args.repeated, args.width * bytes_of(args.repeated_type));
  touched.writes(args.to, args.count * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const SoftmaxRowsArgs& args) {
  touched.reads(args.scores, args.count_rows * args.length * sizeof(float));
  touched.writes(args.weights, args.count_rows * args.length * bytes_of(args.type));
}
inline void declare(Accesses& touched, const SoftmaxRowsBackArgs& args) {
  touched.reads(args.weights, args.count_rows * args.length * bytes_of(args.type));
  touched.reads(args.gradient, args.count_rows * args.length * sizeof(float));
  touched.writes(args.to, args.count_rows * args.length * bytes_of(args.type));
}
#endif

}  // namespace troupe::cuda
