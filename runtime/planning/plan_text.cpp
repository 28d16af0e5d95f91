#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "runtime/planning/planner.hpp"

namespace troupe {
namespace {

constexpr std::size_t kMostRows = 64;  // of a table; worlds beyond are told by their ends

std::string thousands(std::uint64_t number) {
  std::string out = std::to_string(number);
  for (std::size_t i = out.size(); i > 3; i -= 3) out.insert(i - 3, ",");
  return out;
}

std::string scaled(double number, const char* unit) {
  for (const char* prefix : {"", "k", "M", "G", "T"}) {
    if (number < 1000)
      return fmt::format("{:.{}f} {}{}", number, number < 100 && *prefix != '\0' ? 1 : 0, prefix, unit);
    number /= 1000;
  }
  return fmt::format("{:.0f} P{}", number, unit);
}

/// 0-3,8,10-11.
std::string ranges(const std::vector<std::uint32_t>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ",", numbers[i]);
    if (last > i) out += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return out;
}

/// Where the lanes' threads are: the control lane's CPUs, then the bulk lane's.
std::string lanes(const RankPlan& rank) {
  if (rank.control_cpus.empty()) return "anywhere";
  return ranges(rank.control_cpus) + (rank.bulk_cpus.empty() ? "" : " + " + ranges(rank.bulk_cpus));
}

using Row = std::vector<std::string>;

/// Columns as wide as their widest cell.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  for (const Row& row : rows) {
    for (std::size_t c = 0; c + 1 < row.size(); ++c) out += fmt::format("{:<{}}  ", row[c], widths[c]);
    out += row.back() + "\n";
  }
  return out;
}

/// The first and last rows of a long table.
template <class Items, class MakeRow>
std::string table_of(Row header, const Items& items, MakeRow make_row) {
  std::vector<Row> rows{std::move(header)};
  const bool cut = items.size() > kMostRows;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (cut && i == kMostRows - 2) {
      rows.push_back({fmt::format("... {} more ...", items.size() - kMostRows + 1)});
      i = items.size() - 1;
    }
    rows.push_back(make_row(i, items[i]));
  }
  return table(rows);
}

std::string nodes_table(const Plan& plan) {
  std::vector<std::vector<std::uint32_t>> members(plan.nodes.size());
  for (const RankPlan& rank : plan.ranks) members.at(rank.node).push_back(rank.rank.value);
  return table_of({"node", "host", "ranks", "identity"}, plan.nodes, [&](std::size_t i, const NodePlan& node) {
    return Row{std::to_string(i), node.host, ranges(members[i]),
               fmt::format("boot {}, network namespace {}", node.identity.boot_id, node.identity.network_namespace)};
  });
}

std::string ranks_table(const Plan& plan) {
  const Row header{"rank", "node", "device", "cpus", "threads", "lanes", "waits", "stripe", "arena", "memory"};
  std::vector<std::uint64_t> owned(plan.ranks.size());
  for (const GroupPlan& group : plan.groups)
    for (const Stripe& stripe : group.stripes) owned.at(stripe.tenant.value) += stripe.count;
  return table_of(header, plan.ranks, [&](std::size_t i, const RankPlan& rank) {
    const std::uint64_t own = owned[i];
    return Row{std::to_string(rank.rank.value),
               std::to_string(rank.node),
               rank.device,
               ranges(rank.cpus),
               std::to_string(rank.device_threads),
               lanes(rank),
               rank.may_spin ? "poll" : "sleep",
               thousands(own),
               scaled(static_cast<double>(rank.arena_bytes), "B"),
               scaled(static_cast<double>(rank.memory_bytes), "B")};
  });
}

/// What the memory in the table consists of.
std::string memory_note(const Plan& plan) {
  const bool shares = plan.shares_memory() && plan.world_size() > 1;
  return fmt::format(
      "memory = the data set ({}{}), the arena (parameters{}, gradients, optimizer state{}, batches),\n"
      "         activations (estimated){}; libraries come on top\n",
      scaled(static_cast<double>(plan.data_bytes), "B"), plan.node_loader ? ", once a node" : "",
      !shares                ? ""
      : plan.crosses_nodes() ? " in one of each node's"
                             : " in one of them",
      plan.saves ? ", a copy of it and its parameters for checkpoints" : "",
      shares ? ", what is used of the others' arenas" : "");
}

std::string steps_an_epoch(const Plan& plan) {
  const double steps = static_cast<double>(plan.train_samples) / (static_cast<double>(plan.batch) * plan.world_size());
  if (plan.scatter == Scatter::endless) return fmt::format("{:.6g}", steps);
  return fmt::format("{:.0f} ({})", std::ceil(steps), name_of(plan.scatter));
}

/// From when on the phase's policy is in force; empty: from the first step.
std::string beginning(const PolicyPhase& phase) {
  if (phase.straggler_ratio != 0) {
    return fmt::format("once a straggler takes {:g} times the median, ", phase.straggler_ratio);
  }
  if (phase.from_step != 0) return fmt::format("from step {} on, ", thousands(phase.from_step));
  if (phase.from_samples != 0) return fmt::format("from {} samples on, ", thousands(phase.from_samples));
  return {};
}

std::string filter_text(const Plan& plan, const FilterSettings& filter) {
  const char* const feedback =
      filter.error_feedback ? "; what rounding takes away is added to what the rank sends next" : "";
  return fmt::format("{}: {}{}", name_of(filter.kind),
                     plan.crosses_nodes() ? "what a rank sends of gradients or deltas is rounded; sums are f32"
                                          : "no effect, since all ranks are on one node, where nothing is sent",
                     plan.crosses_nodes() ? feedback : "");
}

template <class Out>
void add_policies(Out line, const GroupPlan& group, std::uint32_t ranks) {
  for (const PolicyPhase& phase : group.policies)
    fmt::format_to(line, "policy   {}{}\n", beginning(phase), describe(phase.policy, ranks));
}

}  // namespace

std::string describe(const Plan& plan) {
  const double rows = static_cast<double>(plan.batch) * plan.world_size();
  const double flops = static_cast<double>(plan.training_flops);
  std::string out;
  const auto line = std::back_inserter(out);
  fmt::format_to(line, "model    {}\n", plan.model);
  fmt::format_to(line, "         {} parameters, {} a sample in training, {} a step\n", thousands(plan.parameters),
                 scaled(flops, "FLOP"), scaled(flops * rows, "FLOP"));
  if (plan.groups.size() == 1) {
    fmt::format_to(line, "rule     {}\n", plan.groups[0].rule);
    add_policies(line, plan.groups[0], plan.world_size());
  }
  fmt::format_to(line, "data     {} training and {} test samples, batch {} x {} ranks = {}\n",
                 thousands(plan.train_samples), thousands(plan.test_samples), plan.batch, plan.world_size(),
                 thousands(std::uint64_t{plan.batch} * plan.world_size()));
  fmt::format_to(line, "steps    {} an epoch, {} in all, seed {}{}\n", steps_an_epoch(plan), thousands(plan.steps),
                 plan.seed, plan.deterministic ? ", deterministic" : "");
  for (const GroupPlan& group : plan.groups) {
    if (plan.groups.size() > 1) {
      fmt::format_to(line, "\ngroup    {}: {} parameter{} in {} elements\n", group.name, group.parameters.size(),
                     group.parameters.size() == 1 ? "" : "s", thousands(group.count));
      fmt::format_to(line, "rule     {}\n", group.rule);
      add_policies(line, group, plan.world_size());
    }
    if (group.filter.kind != FilterKind::none) fmt::format_to(line, "filter   {}\n", filter_text(plan, group.filter));
    fmt::format_to(line, "route    {}, {} stripes, {} bucket{}\n", name_of(plan.levels), group.stripes.size(),
                   group.buckets.size(), group.buckets.size() == 1 ? "" : "s");
  }
  out += "\n";
  out += nodes_table(plan) + "\n" + ranks_table(plan);
  out += memory_note(plan) + "\n";
  for (const std::string& reason : plan.reasons) out += "- " + reason + "\n";
  return out;
}

}  // namespace troupe
