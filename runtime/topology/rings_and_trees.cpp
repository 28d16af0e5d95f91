#include "runtime/topology/rings_and_trees.hpp"

#include <algorithm>
#include <limits>

#include "runtime/topology/paths.hpp"

// A ring's rate is that of its slowest edge, so only the order of edges by rate matters: for each existing rate, from
// the highest, the search looks for a Hamiltonian cycle among the edges of at least that rate. Candidates are tried in
// this order: fastest edge, fewest further edges (which finds a cycle early), lowest number (which makes the result
// repeatable).
namespace troupe::topology {
namespace {

constexpr std::size_t kExactMembers = 8;
constexpr std::size_t kMostSteps = 100'000;

class CycleSearch {
 public:
  CycleSearch(const RateMatrix& rates, double least) : rates_(rates), least_(least), used_(rates.count) {}

  /// Empty: there is none, or cut_off().
  std::vector<std::size_t> find() {
    visit(0);
    return extend() ? order_ : std::vector<std::size_t>{};
  }
  bool cut_off() const { return rates_.count > kExactMembers && steps_ > kMostSteps; }

 private:
  void visit(std::size_t member) { used_[member] = true, order_.push_back(member); }

  std::size_t ways_on(std::size_t member) const {
    std::size_t ways = 0;
    for (std::size_t i = 0; i < rates_.count; ++i) ways += i != member && !used_[i] && rates_.at(member, i) >= least_;
    return ways;
  }

  bool extend() {
    if (order_.size() == rates_.count) return rates_.count < 3 || rates_.at(order_.back(), order_.front()) >= least_;
    if (++steps_; cut_off()) return false;
    const std::size_t last = order_.back();
    std::vector<std::size_t> next;
    for (std::size_t i = 0; i < rates_.count; ++i)
      if (!used_[i] && rates_.at(last, i) >= least_) next.push_back(i);
    std::stable_sort(next.begin(), next.end(), [&](std::size_t a, std::size_t b) {
      if (rates_.at(last, a) != rates_.at(last, b)) return rates_.at(last, a) > rates_.at(last, b);
      return ways_on(a) < ways_on(b);
    });
    for (const std::size_t member : next) {
      visit(member);
      if (extend()) return true;
      order_.pop_back();
      used_[member] = false;
    }
    return false;
  }

  const RateMatrix& rates_;
  const double least_;
  std::vector<bool> used_;
  std::vector<std::size_t> order_;
  std::size_t steps_ = 0;
};

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
    for (std::size_t j = 0; j < i; ++j) tried.push_back(rates.at(i, j));
  std::sort(tried.rbegin(), tried.rend());
  tried.erase(std::unique(tried.begin(), tried.end()), tried.end());
  for (const double rate : tried) {
    CycleSearch search{rates, rate};
    ring.order = search.find();
    ring.slowest = rate;
    if (!ring.order.empty()) return ring;
    ring.exact = ring.exact && !search.cut_off();
  }
  return ring;
}

Tree find_tree(const RateMatrix& rates, std::size_t root) {
  Tree tree{.parent = std::vector<std::size_t>(rates.count, root), .slowest = std::numeric_limits<double>::infinity()};
  std::vector<bool> in(rates.count);
  if (rates.count > 0) in[root] = true;
  for (std::size_t step = 1; step < rates.count; ++step) {
    std::size_t from = 0;
    std::size_t to = 0;
    double best = -1;
    for (std::size_t i = 0; i < rates.count; ++i)
      for (std::size_t j = 0; j < rates.count; ++j)
        if (in[i] && !in[j] && rates.at(i, j) > best) best = rates.at(i, j), from = i, to = j;
    in[to] = true;
    tree.parent[to] = from;
    tree.slowest = std::min(tree.slowest, best);
  }
  return tree;
}

}  // namespace troupe::topology
