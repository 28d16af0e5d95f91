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

/// NCCL takes one GPU for each rank. Namespaces of a host share its GPUs.
std::string refusal_of_devices(const Plan& plan) {
  if (plan.world_size() < 2) return "one rank exchanges nothing";
  if (plan.world_size() > kMostNcclRanks)
    return text("it is used for at most ", kMostNcclRanks, " ranks, and there are ", plan.world_size());
  std::map<std::pair<std::string, std::string>, const RankPlan*> users;  // by host and GPU
  for (const RankPlan& rank : plan.ranks) {
    if (rank.device != "cuda") return text(title_of(plan, rank), " computes on a CPU");
    const auto [at, is_new] = users.emplace(std::pair{plan.nodes[rank.node].identity.boot_id, rank.gpu}, &rank);
    if (!is_new)
      return text("it takes one rank for each GPU, and ranks ", at->second->rank.value, " and ", rank.rank.value,
                  " on node ", plan.nodes[rank.node].host, " share the GPU at ", rank.gpu);
  }
  return {};
}

std::string refusal_of_exchange(const Plan& plan) {
  if (plan.gathered_bytes != 0) return "layers of the model gather numbers from all ranks";
  std::size_t beside = 0;
  for (const GroupPlan& group : plan.groups) {
    const PolicyNeeds needs = needs_of(group.policies);
    if (needs.hosted) return text("group \"", group.name, "\" has a policy (async, ssp, easgd) with hosting shards");
    if (group.filter.kind != FilterKind::none)
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

Refusal refusal_of_library(const Plan& plan, const PlanInputs& inputs) {
  std::uint32_t common = 0;
  for (const RankPlan& rank : plan.ranks) {
    const RankFacts& facts = inputs.ranks.at(rank.rank.value);
    if (!facts.gpus) continue;
    if (facts.nccl == 0)
      return {text(title_of(plan, rank), " finds no usable libnccl.so.2 (2.18 or newer)"), Code::environment};
    if (common == 0) common = facts.nccl;
    if (facts.nccl != common)
      return {text(title_of(plan, rank), " has NCCL ", version_text(facts.nccl), ", ranks before it have ",
                   version_text(common), "; install the same on every host"),
              Code::environment};
  }
  return {};
}

Refusal nccl_refusal(const Plan& plan, const PlanInputs& inputs) {
  if (std::string why = refusal_of_devices(plan); !why.empty()) return {std::move(why)};
  if (std::string why = refusal_of_exchange(plan); !why.empty()) return {std::move(why)};
  return refusal_of_library(plan, inputs);
}

bool are_all_on_gpus(const Plan& plan) {
  return std::ranges::all_of(plan.ranks, [](const RankPlan& rank) { return rank.device == "cuda"; });
}

}  // namespace

std::vector<ExchangeLevel> choose_levels(Plan& plan, const Settings& settings, const PlanInputs& inputs) {
  std::vector<std::vector<Rank>> nodes(plan.nodes.size());
  for (const RankPlan& rank : plan.ranks) nodes[rank.node].push_back(rank.rank);
  const std::string& wanted = settings.cluster.collectives;
  const Refusal refusal = wanted == "own" ? Refusal{"cluster.collectives = \"own\""} : nccl_refusal(plan, inputs);
  TROUPE_CHECK(wanted != "nccl" || refusal.why.empty(), refusal.code,
               "cluster.collectives = \"nccl\": NCCL cannot be used: ", refusal.why, "; or write \"auto\" or \"own\"");
  if (refusal.why.empty()) {
    const bool several = std::ranges::any_of(nodes, [](const auto& node) { return node.size() > 1; });
    plan.nccl_adds = nodes.size() > 1 && several && !plan.deterministic;
    return nccl_levels(nodes);
  }
  if (plan.world_size() > 1 && are_all_on_gpus(plan))
    plan.reasons.push_back(text("NCCL is not used: ", refusal.why, "."));
  // A shard serves all ranks in the same way, so if a policy may be hosted, nodes are not distinguished.
  return exchange_levels(nodes, needs_of(plan).hosted);
}

}  // namespace troupe::detail
