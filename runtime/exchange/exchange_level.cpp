#include "runtime/exchange/exchange_level.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/exchange/exchange.hpp"

namespace troupe {

std::vector<std::vector<Rank>> counterpart_sets(std::span<const std::vector<Rank>> nodes) {
  std::size_t most = 0;
  for (const std::vector<Rank>& node : nodes) most = std::max(most, node.size());
  std::vector<std::vector<Rank>> sets(most);
  for (std::size_t s = 0; s < most; ++s)
    for (const std::vector<Rank>& node : nodes) sets[s].push_back(node[s % node.size()]);
  return sets;
}

namespace {

std::vector<Rank> all_ranks(std::span<const std::vector<Rank>> nodes) {
  std::vector<Rank> all;
  for (const std::vector<Rank>& node : nodes) {
    TROUPE_CHECK(!node.empty(), Code::invalid, "a node without ranks");
    all.insert(all.end(), node.begin(), node.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

std::vector<ExchangeLevel> exchange_levels(std::span<const std::vector<Rank>> nodes, bool flat) {
  const std::vector<Rank> all = all_ranks(nodes);
  std::size_t most = 0;
  for (const std::vector<Rank>& node : nodes) most = std::max(most, node.size());
  if (nodes.size() == 1) return {{LevelMeans::arena, {all}}};
  if (flat || most == 1) return {{LevelMeans::transport, {all}}};
  return {{LevelMeans::arena, {nodes.begin(), nodes.end()}}, {LevelMeans::transport, counterpart_sets(nodes)}};
}

std::vector<ExchangeLevel> nccl_levels(std::span<const std::vector<Rank>> nodes) {
  return {{LevelMeans::nccl, {all_ranks(nodes)}}};
}

std::vector<ExchangeLevel> nccl_in_nodes_levels(std::span<const std::vector<Rank>> nodes) {
  return {{LevelMeans::nccl, {nodes.begin(), nodes.end()}}, {LevelMeans::transport, counterpart_sets(nodes)}};
}

std::string_view name_of(std::span<const ExchangeLevel> levels) noexcept {
  if (levels.size() > 1) return levels.front().means == LevelMeans::nccl ? "nccl_in_nodes" : "hierarchical";
  switch (levels.empty() ? LevelMeans::arena : levels.front().means) {
    case LevelMeans::arena: return "arena";
    case LevelMeans::transport: return "direct";
    case LevelMeans::nccl: return "nccl";
  }
  return {};
}

/// A rank takes the place of missing ones only in sets after its own.
std::size_t home_set(const ExchangeLevel& between, Rank rank) {
  for (std::size_t s = 0; s < between.sets.size(); ++s) {
    const std::vector<Rank>& set = between.sets[s];
    if (std::find(set.begin(), set.end(), rank) != set.end()) return s;
  }
  fail(Code::invalid, text("rank ", rank.value, " has no counterparts on other nodes"));
}

CounterpartGroup counterpart_group(const ExchangeLevel& between, std::size_t set, std::span<const Stripe> stripes,
                                   std::span<const Bucket> buckets) {
  CounterpartGroup group;
  group.ranks = between.sets.at(set);
  std::vector<std::uint32_t> owners;  // indices into group.ranks
  for (std::uint32_t place = 0; place < group.ranks.size(); ++place)
    if (home_set(between, group.ranks[place]) == set) owners.push_back(place);
  group.ranges_a_bucket = static_cast<std::uint32_t>(owners.size());
  for (const Bucket& bucket : buckets) {
    for (const std::uint32_t place : owners) {
      Bucket range = bucket;
      range.index = static_cast<std::uint32_t>(group.ranges.size());
      range.count = 0;
      for (const Stripe& stripe : stripes) {
        if (stripe.owner != group.ranks[place]) continue;
        const Stripe common = common_part(stripe, bucket);
        if (common.count == 0) continue;
        range.first = common.first;
        range.count = common.count;
      }
      group.ranges.push_back(range);
      group.stripes.push_back({bucket.group, Rank{place}, range.first, range.count});
    }
  }
  return group;
}

}  // namespace troupe
