#include "runtime/planning/detail/choose_collectives.hpp"

#include <algorithm>
#include <map>

#include "runtime/base/error.hpp"

namespace troupe::detail {
namespace {

/// What a word of NCCL's communicator about a call has room for.
constexpr std::size_t kMostNcclRanks = 256;

/// Why NCCL cannot be used. `code` is environment if the machines lack something.
struct Refusal {
  std::string why;  // empty: it can
  Code code = Code::invalid;
};

/// "rank 3 on node b"
std::string title_of(const Plan& plan, const RankPlan& rank) {
  return text("rank ", rank.rank.value, " on node ", plan.nodes[rank.node].host);
}

/// "2.21.5"; NCCL's own numbers.
std::string version_text(std::uint32_t version) {
  return text(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

using Nodes = std::vector<std::vector<Rank>>;

/// The ranks between which NCCL exchanges.
enum class Reach { job, node };

std::size_t most_ranks(const Nodes& nodes) {
  return std::ranges::max_element(nodes, {}, &std::vector<Rank>::size)->size();
}

std::string refusal_of_ranks(const Plan& plan, const Nodes& nodes, Reach reach) {
  if (plan.world_size() < 2) return "one rank exchanges nothing";
  if (reach == Reach::node && nodes.size() < 2) return "all ranks are on one node";
  if (reach == Reach::node && most_ranks(nodes) < 2) return "no node has several ranks";
  const std::size_t ranks = reach == Reach::node ? most_ranks(nodes) : plan.world_size();
  if (ranks > kMostNcclRanks)
    return text("it is used for at most ", kMostNcclRanks, " ranks, and there are ", ranks,
                reach == Reach::node ? " on a node" : "");
  return {};
}

/// NCCL takes one GPU for each rank. Namespaces of a host share its GPUs.
std::string refusal_of_devices(const Plan& plan) {
  std::map<std::pair<std::string, std::string>, const RankPlan*> users;  // by host and GPU
  for (const RankPlan& rank : plan.ranks) {
    if (!rank.on_gpu()) return text(title_of(plan, rank), " computes on a CPU");
    const auto [at, is_new] = users.emplace(std::pair{plan.nodes[rank.node].identity.boot_id, rank.gpu}, &rank);
    if (!is_new)
      return text("it takes one rank for each GPU, and ranks ", at->second->rank.value, " and ", rank.rank.value,
                  " on node ", plan.nodes[rank.node].host, " share the GPU at ", rank.gpu);
  }
  return {};
}

std::string refusal_of_exchange(const Plan& plan, Reach reach) {
  if (plan.gathered_bytes != 0) return "layers of the model gather numbers from all ranks";
  std::size_t beside = 0;
  for (const GroupPlan& group : plan.groups) {
    const PolicyNeeds needs = needs_of(group.policies);
    if (needs.hosted) return text("group \"", group.name, "\" has a policy (async, ssp, easgd) with hosting shards");
    if (reach == Reach::job && group.compression.kind != Compression::none)
      return text("group \"", group.name, "\" is compressed (update.compress), which NCCL does not do");
    if (needs.side_stream) ++beside;
  }
  // Each group has a communicator. Kernels of two of them that wait for peers at once may keep each other from running.
  if (beside != 0 && plan.groups.size() > 1)
    return text("there are ", plan.groups.size(),
                " groups, and a policy whose rounds run beside the next step (double_buffered): exchanges of several "
                "groups at a time may wait for each other endlessly");
  return {};
}

Refusal refusal_of_library(const Plan& plan, const PlanInputs& inputs, Reach reach) {
  std::map<std::uint32_t, std::uint32_t> versions;  // by node, or of all in place of node 0's
  for (const RankPlan& rank : plan.ranks) {
    const RankFacts& facts = inputs.ranks.at(rank.rank.value);
    if (!facts.gpus) continue;
    if (facts.nccl == 0)
      return {text(title_of(plan, rank), " finds no usable libnccl.so.2 (2.18 or newer)"), Code::environment};
    const auto [at, is_first] = versions.emplace(reach == Reach::node ? rank.node : 0, facts.nccl);
    const std::uint32_t common = at->second;
    if (!is_first && facts.nccl != common)
      return {text(title_of(plan, rank), " has NCCL ", version_text(facts.nccl), ", ranks before it have ",
                   version_text(common), "; install the same on every host"),
              Code::environment};
  }
  return {};
}

Refusal nccl_refusal(const Plan& plan, const PlanInputs& inputs, const Nodes& nodes, Reach reach) {
  if (std::string why = refusal_of_ranks(plan, nodes, reach); !why.empty()) return {std::move(why)};
  if (std::string why = refusal_of_devices(plan); !why.empty()) return {std::move(why)};
  if (std::string why = refusal_of_exchange(plan, reach); !why.empty()) return {std::move(why)};
  return refusal_of_library(plan, inputs, reach);
}

bool are_all_on_gpus(const Plan& plan) { return std::ranges::all_of(plan.ranks, &RankPlan::on_gpu); }

}  // namespace

std::vector<ExchangeLevel> choose_levels(Plan& plan, const Settings& settings, const PlanInputs& inputs) {
  Nodes nodes(plan.nodes.size());
  for (const RankPlan& rank : plan.ranks) nodes[rank.node].push_back(rank.rank);
  const std::string& wanted = settings.cluster.collectives;
  const auto refusal = [&](Reach reach, const char* name) {
    if (wanted != "auto" && wanted != name) return Refusal{text("cluster.collectives = \"", wanted, '"')};
    Refusal found = nccl_refusal(plan, inputs, nodes, reach);
    TROUPE_CHECK(wanted == "auto" || found.why.empty(), found.code, "cluster.collectives = \"", wanted,
                 "\": NCCL cannot be used: ", found.why, "; or write \"auto\" or \"own\"");
    return found;
  };
  const Refusal of_job = refusal(Reach::job, "nccl");
  if (of_job.why.empty()) {
    plan.nccl_adds = nodes.size() > 1 && most_ranks(nodes) > 1 && !plan.deterministic;
    return nccl_levels(nodes);
  }
  if (refusal(Reach::node, "nccl_in_nodes").why.empty()) {
    plan.reasons.push_back(text("NCCL does not exchange between the nodes: ", of_job.why, "."));
    return nccl_in_nodes_levels(nodes);
  }
  if (plan.world_size() > 1 && are_all_on_gpus(plan))
    plan.reasons.push_back(text("NCCL is not used: ", of_job.why, "."));
  // A shard serves all ranks in the same way, so if a policy may be hosted, nodes are not distinguished.
  return exchange_levels(nodes, needs_of(plan).hosted);
}

}  // namespace troupe::detail
