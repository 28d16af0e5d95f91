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
  block.for_each(args.count * args.width, [&](std::uint64_t i) {
    const std::int32_t token = tokens[i / args.width];
    const bool is_known = token >= 0 && static_cast<std::uint32_t>(token) < args.vocabulary;
    if (token >= 0 && !is_known && i % args.width == 0)
      end_stream(block, args.stream, args.report, StreamFault::bad_token, static_cast<std::uint64_t>(token),
                 i / args.width);
    store(to, args.to_type, i,
          is_known ? load(table, args.table_type, static_cast<std::uint64_t>(token) * args.width + i % args.width) : 0);
  });
}

/// Places with one token form a chain, in their order.
struct TokenLink {
  std::int32_t next;       // place; -1: none
  std::uint32_t is_first;  // of its chain
};
struct LinkTokensArgs {
  const StreamState* stream;
  TokenLink* links;            // [count]
  const std::int32_t* tokens;  // [count]
  std::uint64_t count;
};
TROUPE_KERNEL_BODY void link_tokens(const Block& block, const LinkTokensArgs& args) {
  TokenLink* const links = block.at(args.links);
  const std::int32_t* const tokens = block.at(args.tokens);
  block.for_each(args.count, [&](std::uint64_t place) {
    const std::int32_t token = tokens[place];
    std::uint64_t next = place + 1, before = place;
    while (next < args.count && tokens[next] != token) ++next;
    while (before > 0 && tokens[before - 1] != token) --before;
    links[place] = {next < args.count ? static_cast<std::int32_t>(next) : -1, token >= 0 && before == 0 ? 1U : 0U};
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
TROUPE_KERNEL_BODY void embed_back(const Block& block, const EmbedBackArgs& args) {
  float* const to = block.at(args.to);
  const void* const gradient = block.at(args.gradient);
  const std::int32_t* const tokens = block.at(args.tokens);
  const TokenLink* const links = block.at(args.links);
  const float factor = value_of(block, args.factor);
  block.for_each(args.count * args.width, [&](std::uint64_t i) {
    const std::uint64_t place = i / args.width, column = i % args.width;
    if (links[place].is_first == 0) return;
    float sum = 0;
    for (auto at = static_cast<std::int64_t>(place); at >= 0; at = links[at].next)
      sum += load(gradient, args.gradient_type, static_cast<std::uint64_t>(at) * args.width + column);
    to[static_cast<std::uint64_t>(tokens[place]) * args.width + column] = sum * factor;
  });
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
  block.for_each(args.count, [&](std::uint64_t i) {
    store(to, args.to_type, i, load(from, args.from_type, i) + load(repeated, args.repeated_type, i % args.width));
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
  const auto reads = [&](std::uint64_t row, std::uint64_t column) {
    return args.causal == 0 || column <= row % args.length;
  };
  with_row_sums<SoftmaxSums>(
      block, args.count_rows, args.length,
      [&](SoftmaxSums& sums, std::uint64_t row, std::uint64_t column) {
        if (reads(row, column)) sums.take(scores[row * args.length + column]);
      },
      [&](const SoftmaxSums& sums, std::uint64_t row, std::uint64_t column) {
        const std::uint64_t i = row * args.length + column;
        store(weights, args.type, i, reads(row, column) ? ::expf(scores[i] - sums.largest) / sums.exponentials : 0.0F);
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
  with_row_sums<FloatSum>(
      block, args.count_rows, args.length,
      [&](FloatSum& sum, std::uint64_t row, std::uint64_t column) {
        const std::uint64_t i = row * args.length + column;
        sum.value += load(weights, args.type, i) * gradient[i];
      },
      [&](const FloatSum& sum, std::uint64_t row, std::uint64_t column) {
        const std::uint64_t i = row * args.length + column;
        store(to, args.type, i, args.scale * load(weights, args.type, i) * (gradient[i] - sum.value));
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
