#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// How the ranks of a level exchange.
enum class LevelMeans : std::uint8_t {
  arena,      // shared memory of a node
  transport,  // messages
  nccl,       // NCCL, between GPUs
};

/// One level of a plan's exchange: sets of ranks; each set exchanges among itself. If there are several levels, a set
/// of the first reduces its ranks' data, the sets of the next level exchange the results, and the ranks of the first
/// set read the outcome in place, or are given it by NCCL.
struct ExchangeLevel {
  LevelMeans means = LevelMeans::arena;
  std::vector<std::vector<Rank>> sets;
  friend bool operator==(const ExchangeLevel&, const ExchangeLevel&) = default;
};

/// The sets of a level between nodes; nodes[n] are node n's ranks, in rank order. Set s has the s-th rank of each node;
/// on a node with at most s ranks another rank takes the place of the missing one.
std::vector<std::vector<Rank>> counterpart_sets(std::span<const std::vector<Rank>> nodes);

/// The levels for ranks on nodes, given in the same way. One node: one level, the arena. Nodes of one rank each, or
/// `flat`: one level, the transport. Otherwise two: the arenas of the nodes, and sets of counterparts between them.
std::vector<ExchangeLevel> exchange_levels(std::span<const std::vector<Rank>> nodes, bool flat);

/// One level of all ranks on these nodes, with NCCL.
std::vector<ExchangeLevel> nccl_levels(std::span<const std::vector<Rank>> nodes);

/// Two levels: NCCL on each node, and sets of counterparts between them.
std::vector<ExchangeLevel> nccl_in_nodes_levels(std::span<const std::vector<Rank>> nodes);

/// "arena", "direct", "hierarchical", "nccl" or "nccl_in_nodes".
std::string_view name_of(std::span<const ExchangeLevel> levels) noexcept;

/// The part of a group that a set of counterparts exchanges: the stripes of its ranks that are in their own set.
struct CounterpartGroup {
  std::vector<Rank> ranks;      // one per node
  std::vector<Bucket> ranges;   // ranges_a_bucket of each bucket, one after the other; some may be empty
  std::vector<Stripe> stripes;  // one per range; the owner is an index into `ranks`
  std::uint32_t ranges_a_bucket = 1;

  std::span<const Bucket> ranges_of(std::uint32_t bucket) const noexcept {
    return std::span{ranges}.subspan(std::size_t{bucket} * ranges_a_bucket, ranges_a_bucket);
  }
};

/// For set `set` of the level between nodes. Each rank has at most one range of each bucket.
CounterpartGroup counterpart_group(const ExchangeLevel& between, std::size_t set, std::span<const Stripe> stripes,
                                   std::span<const Bucket> buckets);

/// The rank's own set: the only one in which it does not take the place of a missing rank.
std::size_t home_set(const ExchangeLevel& between, Rank rank);

}  // namespace troupe
