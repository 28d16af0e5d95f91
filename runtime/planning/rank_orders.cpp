#include "runtime/planning/rank_orders.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "runtime/base/error.hpp"
#include "runtime/topology/paths.hpp"
#include "runtime/topology/rings_and_trees.hpp"

namespace troupe {
namespace {

constexpr std::size_t kMostSearched = 16;
constexpr std::size_t kMostShown = 24;  // ranks of an order
constexpr double kWithinMemory = std::numeric_limits<double>::infinity();

struct Edge {
  double rate = 0;
  std::string limit;
};

/// Rates between the NUMA nodes of one machine; each pair is looked up once.
class NumaRates {
 public:
  explicit NumaRates(const topology::Machine& machine) : index_(machine) {
    for (topology::PartIndex i = 0; i < machine.parts.size(); ++i)
      if (machine.parts[i].kind == topology::PartKind::numa)
        parts_.emplace(static_cast<std::uint32_t>(std::max(machine.parts[i].os_index, 0)), i);
  }
  Edge between(std::uint32_t a, std::uint32_t b) {
    if (a == b) return {kWithinMemory, "the memory of one NUMA node"};
    const auto from = parts_.find(std::min(a, b)), to = parts_.find(std::max(a, b));
    if (from == parts_.end() || to == parts_.end()) return {};
    const auto [at, is_new] = known_.try_emplace({from->first, to->first});
    if (is_new) {
      const topology::Path path = topology::best_path(index_, from->second, to->second);
      at->second = {path.bytes_per_second, path.slowest};
    }
    return at->second;
  }

 private:
  const topology::Index index_;
  std::map<std::uint32_t, topology::PartIndex> parts_;  // by the system's number
  std::map<std::pair<std::uint32_t, std::uint32_t>, Edge> known_;
};

class Edges {
 public:
  Edges(const Plan& plan, std::span<const topology::Machine* const> machines,
        std::span<const Topology* const> topologies)
      : plan_(plan), machines_(machines), topologies_(topologies) {
    for (const topology::Machine* const machine : machines)
      if (machine != nullptr) rates_.try_emplace(machine, *machine);
  }

  Edge between(Rank a, Rank b) {
    const RankPlan& from = plan_.ranks.at(a.value);
    const RankPlan& to = plan_.ranks.at(b.value);
    if (from.node != to.node) {
      const Edge one = of_device(from), other = of_device(to);
      return one.rate <= other.rate ? one : other;
    }
    const auto at = rates_.find(machines_[from.node]);
    if (from.numa_nodes.empty() || to.numa_nodes.empty()) return {};
    if (at == rates_.end()) return from.numa_nodes == to.numa_nodes ? Edge{kWithinMemory, {}} : Edge{};
    return at->second.between(from.numa_nodes.front(), to.numa_nodes.front());
  }

 private:
  Edge of_device(const RankPlan& rank) const {
    for (const Nic& nic : topologies_[rank.node]->nics)
      if (is_called(nic, rank.network_device))
        return {static_cast<double>(nic.bits_per_second) / 8, text(rank.network_device, " of node ", rank.node)};
    return {};
  }

  const Plan& plan_;
  const std::span<const topology::Machine* const> machines_;
  const std::span<const Topology* const> topologies_;
  std::map<const topology::Machine*, NumaRates> rates_;
};

void add_edge(RankOrder& order, Edges& edges, Rank from, Rank to, bool first) {
  Edge edge = edges.between(from, to);
  if (!first && edge.rate >= order.slowest) return;
  order.from = from;
  order.to = to;
  order.slowest = edge.rate;
  order.limit = std::move(edge.limit);
}

void find_slowest_of_ring(RankOrder& ring, Edges& edges) {
  for (std::size_t i = 0; i < ring.order.size(); ++i)
    add_edge(ring, edges, ring.order[i], ring.order[(i + 1) % ring.order.size()], i == 0);
}
void find_slowest_of_tree(RankOrder& tree, Edges& edges) {
  bool first = true;
  for (std::uint32_t r = 0; r < tree.order.size(); ++r) {
    if (tree.order[r].value == r) continue;
    add_edge(tree, edges, Rank{r}, tree.order[r], first);
    first = false;
  }
}

std::string rate_words(const RankOrder& order) {
  if (order.slowest == kWithinMemory) return "the memory of one NUMA node";
  if (order.slowest <= 0) return "a rate that is not known";
  const double giga = order.slowest / 1e9;
  return text(std::round(giga * 100) / 100, " GB/s", order.limit.empty() ? "" : text(", ", order.limit));
}

std::string line_of(const char* name, const RankOrder& order, const std::string& shown) {
  return text(name, shown, ", slowest edge ", order.from.value, " - ", order.to.value, ": ", rate_words(order), '\n');
}

}  // namespace

RankOrders rank_orders(const Plan& plan, std::span<const topology::Machine* const> machines,
                       std::span<const Topology* const> topologies) {
  RankOrders orders;
  Edges edges{plan, machines, topologies};
  const std::uint32_t ranks = plan.world_size();
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const bool leads = plan.leads_node({r});
    orders.ring.order.push_back({r});
    orders.tree.order.push_back({leads ? 0 : plan.nodes[plan.ranks[r].node].leader});
  }
  if (ranks < 2) return orders;
  if (ranks <= kMostSearched) {
    topology::RateMatrix matrix{.count = ranks, .rates = std::vector<double>(std::size_t{ranks} * ranks)};
    for (std::uint32_t i = 0; i < ranks; ++i)
      for (std::uint32_t j = 0; j < ranks; ++j)
        if (i != j) matrix.rates[std::size_t{i} * ranks + j] = edges.between({i}, {j}).rate;
    const topology::Ring ring = topology::find_ring(matrix);
    const topology::Tree tree = topology::find_tree(matrix);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      orders.ring.order[r] = {static_cast<std::uint32_t>(ring.order[r])};
      orders.tree.order[r] = {static_cast<std::uint32_t>(tree.parent[r])};
    }
  }
  find_slowest_of_ring(orders.ring, edges);
  find_slowest_of_tree(orders.tree, edges);
  return orders;
}

std::string describe(const RankOrders& orders) {
  const std::vector<Rank>& ring = orders.ring.order;
  if (ring.size() < 2) return {};
  std::string around;
  std::string up;
  for (std::size_t i = 0; i < std::min(ring.size(), kMostShown); ++i) around += text(ring[i].value, " - ");
  around += ring.size() > kMostShown ? text("... ", ring.size() - kMostShown, " more") : text(ring.front().value);
  std::map<std::uint32_t, std::vector<std::uint32_t>> children;
  for (std::uint32_t r = 0; r < ring.size(); ++r)
    if (orders.tree.order[r].value != r) children[orders.tree.order[r].value].push_back(r);
  std::size_t shown = 0;
  for (const auto& [parent, all] : children) {
    if (shown >= kMostShown) break;
    up += text(up.empty() ? "" : "; ", parent, " <-");
    for (const std::uint32_t child : all) {
      if (shown++ >= kMostShown) break;
      up += text(' ', child);
    }
  }
  if (ring.size() - 1 > kMostShown) up += text(" ... ", ring.size() - 1 - kMostShown, " more");
  return line_of("ring     ", orders.ring, around) + line_of("tree     ", orders.tree, up);
}

}  // namespace troupe
