#include "runtime/topology/rings_and_trees.hpp"

#include <algorithm>
#include <limits>

#include "runtime/topology/paths.hpp"

// A ring's rate is that of its slowest edge, so only the order of edges by rate matters: for each existing rate, from
// the highest, the search looks for a Hamiltonian cycle among the edges of at least that rate. Candidates are tried in
// this order: fastest edge, fewest further edges (which finds a cycle early), lowest number (which makes the result
// repeatable). Where there are more rates than can be tried one by one, the rest is halved again and again: at the
// lowest rate all edges belong, and a cycle is found at once.
namespace troupe::topology {
namespace {

constexpr std::size_t kExactMembers = 8;
constexpr std::size_t kMostSteps = 100'000;
constexpr std::size_t kMostRates = 32;

class CycleSearch {
 public:
  CycleSearch(const RateMatrix& rates, double least)
      : rates_(rates), least_(least), used_(rates.count), ways_on_(rates.count) {
    for (std::size_t i = 0; i < rates.count; ++i)
      for (std::size_t j = 0; j < rates.count; ++j) ways_on_[i] += i != j && belongs(i, j);
  }

  /// Empty: there is none, or cut_off().
  std::vector<std::size_t> find() {
    visit(0);
    return extend() ? order_ : std::vector<std::size_t>{};
  }
  bool cut_off() const { return rates_.count > kExactMembers && steps_ > kMostSteps; }

 private:
  bool belongs(std::size_t from, std::size_t to) const { return rates_.at(from, to) >= least_; }

  void visit(std::size_t member) {
    used_[member] = true;
    order_.push_back(member);
    for (std::size_t i = 0; i < rates_.count; ++i) ways_on_[i] -= i != member && belongs(i, member);
  }
  void leave(std::size_t member) {
    used_[member] = false;
    order_.pop_back();
    for (std::size_t i = 0; i < rates_.count; ++i) ways_on_[i] += i != member && belongs(i, member);
  }

  bool extend() {
    if (order_.size() == rates_.count) return rates_.count < 3 || belongs(order_.back(), order_.front());
    if (++steps_; cut_off()) return false;
    const std::size_t last = order_.back();
    std::vector<std::size_t> next;
    for (std::size_t i = 0; i < rates_.count; ++i)
      if (!used_[i] && belongs(last, i)) next.push_back(i);
    std::stable_sort(next.begin(), next.end(), [&](std::size_t a, std::size_t b) {
      if (rates_.at(last, a) != rates_.at(last, b)) return rates_.at(last, a) > rates_.at(last, b);
      return ways_on_[a] < ways_on_[b];
    });
    for (const std::size_t member : next) {
      visit(member);
      if (extend()) return true;
      leave(member);
    }
    return false;
  }

  const RateMatrix& rates_;
  const double least_;
  std::vector<bool> used_;
  std::vector<std::size_t> ways_on_;  // by member: edges to members that are not used yet
  std::vector<std::size_t> order_;
  std::size_t steps_ = 0;
};

/// Whether each member has edges of at least this rate to as many others as are its neighbours in a ring.
bool has_edges_for_ring(const RateMatrix& rates, double least) {
  for (std::size_t i = 0; i < rates.count; ++i) {
    std::size_t edges = 0;
    for (std::size_t j = 0; j < rates.count; ++j) edges += i != j && rates.at(i, j) >= least;
    if (edges < std::min<std::size_t>(2, rates.count - 1)) return false;
  }
  return true;
}

}  // namespace

RateMatrix rates_between(const Index& index, std::span<const PartIndex> parts) {
  RateMatrix matrix{.count = parts.size(), .rates = std::vector<double>(parts.size() * parts.size())};
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (std::size_t j = 0; j < parts.size(); ++j)
      if (i != j) matrix.rates[i * matrix.count + j] = best_path(index, parts[i], parts[j]).bytes_per_second;
  return matrix;
}

Ring find_ring(const RateMatrix& rates) {
  Ring ring;
  if (rates.count == 0) return ring;
  if (rates.count == 1) return {.order = {0}, .slowest = std::numeric_limits<double>::infinity()};
  std::vector<double> tried;
  for (std::size_t i = 0; i < rates.count; ++i)
    for (std::size_t j = 0; j < rates.count; ++j)
      if (j != i) tried.push_back(rates.at(i, j));
  std::sort(tried.rbegin(), tried.rend());
  tried.erase(std::unique(tried.begin(), tried.end()), tried.end());
  const auto finds = [&](double rate) {
    CycleSearch search{rates, rate};
    std::vector<std::size_t> order = search.find();
    ring.exact = ring.exact && !search.cut_off();
    if (order.empty()) return false;
    ring.order = std::move(order);
    ring.slowest = rate;
    return true;
  };
  const auto possible =
      std::partition_point(tried.begin(), tried.end(), [&](double rate) { return !has_edges_for_ring(rates, rate); });
  tried.erase(tried.begin(), possible);
  const std::size_t singly = rates.count > kExactMembers ? std::min(kMostRates, tried.size()) : tried.size();
  for (std::size_t i = 0; i < singly; ++i)
    if (finds(tried[i])) return ring;
  for (std::size_t low = singly, high = tried.size(); low < high;) {
    const std::size_t middle = low + (high - low - 1) / 2;
    finds(tried[middle]) ? high = middle : low = middle + 1;
  }
  return ring;
}

Tree find_tree(const RateMatrix& rates) {
  Tree tree{.parent = std::vector<std::size_t>(rates.count), .slowest = std::numeric_limits<double>::infinity()};
  if (rates.count == 0) return tree;
  std::vector<bool> in(rates.count);
  std::vector<double> best(rates.count, -1);  // by member outside of the tree: its fastest edge, from its parent
  const auto take = [&](std::size_t member) {
    in[member] = true;
    for (std::size_t j = 0; j < rates.count; ++j) {
      const double rate = rates.at(member, j);
      if (in[j] || rate < best[j] || (rate == best[j] && member > tree.parent[j])) continue;
      best[j] = rate;
      tree.parent[j] = member;
    }
  };
  take(0);
  for (std::size_t step = 1; step < rates.count; ++step) {
    std::size_t next = rates.count;
    for (std::size_t j = 0; j < rates.count; ++j) {
      if (in[j]) continue;
      const bool is_better =
          next == rates.count || best[j] > best[next] || (best[j] == best[next] && tree.parent[j] < tree.parent[next]);
      if (is_better) next = j;
    }
    tree.slowest = std::min(tree.slowest, best[next]);
    take(next);
  }
  return tree;
}

}  // namespace troupe::topology
