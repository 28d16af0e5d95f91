#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// By what the ranks of a level exchange.
enum class LevelMeans : std::uint8_t {
  arena,      // shared memory of a node
  transport,  // messages
};

/// One level of a plan's exchange: sets of ranks, each of which exchanges within itself. Of several levels, a set of
/// the first reduces what its ranks have, the ranks of the next one's sets exchange that, and the first set's ranks
/// read the result where it lies.
struct ExchangeLevel {
  LevelMeans means = LevelMeans::arena;
  std::vector<std::vector<Rank>> sets;
  friend bool operator==(const ExchangeLevel&, const ExchangeLevel&) = default;
};

/// The sets of a level between `nodes`, of which nodes[n] are node n's ranks, in rank order. The s-th set has of each
/// node the s-th rank or, where a node has no more than s, one that stands in for it.
std::vector<std::vector<Rank>> counterpart_sets(std::span<const std::vector<Rank>> nodes);

/// For ranks on nodes, given likewise. One node: one level, the arena. Nodes of one rank each, or `flat`: one level,
/// the transport. Else two: the arenas of the nodes, and between them sets of counterparts.
std::vector<ExchangeLevel> exchange_levels(std::span<const std::vector<Rank>> nodes, bool flat);

/// arena, direct, hierarchical.
std::string_view name_of(std::span<const ExchangeLevel> levels) noexcept;

/// What a set of counterparts exchanges of a group: the stripes of those of them that stand in for nobody.
struct CounterpartGroup {
  std::vector<Rank> ranks;      // by node
  std::vector<Bucket> ranges;   // of each bucket so many, one after the other; some may be empty
  std::vector<Stripe> stripes;  // of each range; the tenant is a place in `ranks`
  std::uint32_t ranges_a_bucket = 1;

  std::span<const Bucket> ranges_of(std::uint32_t bucket) const noexcept {
    return std::span{ranges}.subspan(std::size_t{bucket} * ranges_a_bucket, ranges_a_bucket);
  }
};

/// Of set `set` of the level between nodes. Each rank has at most one range of each bucket.
CounterpartGroup counterpart_group(const ExchangeLevel& between, std::size_t set, std::span<const Stripe> stripes,
                                   std::span<const Bucket> buckets);

/// Whose set it is: the only one in which the rank stands in for nobody.
std::size_t home_set(const ExchangeLevel& between, Rank rank);

}  // namespace troupe
