#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "runtime/base/words.hpp"
#include "runtime/exchange/chunks.hpp"
#include "runtime/planning/detail/amounts.hpp"
#include "runtime/planning/planner.hpp"

namespace troupe {

std::string detail::scaled(double number, const char* unit) {
  for (const char* prefix : {"", "k", "M", "G", "T"}) {
    if (number < 1000)
      return fmt::format("{:.{}f} {}{}", number, number < 100 && *prefix != '\0' ? 1 : 0, prefix, unit);
    number /= 1000;
  }
  return fmt::format("{:.0f} P{}", number, unit);
}

namespace {

using detail::scaled;

constexpr std::size_t kMostRows = 64;  // of a table; of longer ones only the beginning and the end are shown

/// The lanes' CPUs: those of the control lane, then those of the bulk lane.
std::string lanes(const RankPlan& rank) {
  if (rank.control_cpus.empty()) return "anywhere";
  return ranges(rank.control_cpus) + (rank.bulk_cpus.empty() ? "" : " + " + ranges(rank.bulk_cpus));
}

using Row = std::vector<std::string>;

/// Columns are as wide as their widest cell.
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

/// "1.2 GB of 64.0 GB"
std::string use_text(std::uint64_t used, std::uint64_t there) {
  const std::string words = scaled(static_cast<double>(used), "B");
  return there == 0 ? words : fmt::format("{} of {}", words, scaled(static_cast<double>(there), "B"));
}

std::string numa_uses(const NodePlan& node) {
  constexpr std::size_t kMostNuma = 4;
  std::string out;
  for (std::size_t i = 0; i < std::min(node.numa.size(), kMostNuma); ++i)
    out += fmt::format("{}{}: {}", i == 0 ? "" : ", ", node.numa[i].os_index,
                       use_text(node.numa[i].used, node.numa[i].there));
  if (node.numa.size() > kMostNuma) out += fmt::format(", {} more", node.numa.size() - kMostNuma);
  return node.numa.empty() ? "not known" : out;
}

/// A real machine has a namespace; for others the text says where they come from.
std::string identity_text(const NodeIdentity& identity) {
  if (identity.network_namespace == 0) return identity.boot_id;
  return fmt::format("boot {}, network namespace {}", identity.boot_id, identity.network_namespace);
}

std::string nodes_table(const Plan& plan) {
  std::vector<std::vector<std::uint32_t>> members(plan.nodes.size());
  for (const RankPlan& rank : plan.ranks) members.at(rank.node).push_back(rank.rank.value);
  return table_of({"node", "host", "ranks", "memory", "of NUMA nodes", "identity"}, plan.nodes,
                  [&](std::size_t i, const NodePlan& node) {
                    return Row{std::to_string(i),  node.host,
                               ranges(members[i]), use_text(node.memory_used, node.memory_there),
                               numa_uses(node),    identity_text(node.identity)};
                  });
}

bool has_gpus(const Plan& plan) {
  return std::ranges::any_of(plan.nodes, [](const NodePlan& node) { return !node.gpus.empty(); });
}

/// The GPUs that ranks compute on.
std::string gpus_table(const Plan& plan) {
  struct Entry {
    std::size_t node;
    GpuUse use;
    std::vector<std::uint32_t> ranks{};
  };
  std::vector<std::vector<const RankPlan*>> members(plan.nodes.size());  // a plan may have 65,536 ranks
  for (const RankPlan& rank : plan.ranks) members.at(rank.node).push_back(&rank);
  std::vector<Entry> entries;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    for (const GpuUse& use : plan.nodes[n].gpus) {
      Entry& entry = entries.emplace_back(Entry{n, use});
      for (const RankPlan* const rank : members[n])
        if (rank->gpu == use.bus) entry.ranks.push_back(rank->rank.value);
    }
  }
  return table_of({"node", "gpu", "model", "ranks", "memory"}, entries, [](std::size_t, const Entry& entry) {
    return Row{std::to_string(entry.node), entry.use.bus, entry.use.model.empty() ? "-" : entry.use.model,
               ranges(entry.ranks), use_text(entry.use.used, entry.use.there)};
  });
}

std::string network_text(const Plan& plan, const RankPlan& rank) {
  if (plan.nodes.size() == 1) return "-";
  return rank.network_device.empty() ? "any" : rank.network_device;
}

std::string ranks_table(const Plan& plan) {
  const bool has_near =
      std::any_of(plan.ranks.begin(), plan.ranks.end(), [](const RankPlan& rank) { return !rank.accelerator.empty(); });
  Row header{"rank",  "node",  "device",  "cpus",   "numa",  "threads",
             "lanes", "waits", "network", "stripe", "arena", "memory"};
  if (has_near) header.insert(header.begin() + 3, "near");
  const bool on_gpus = has_gpus(plan);
  if (on_gpus) header.emplace_back("gpu memory");
  std::vector<std::uint64_t> owned(plan.ranks.size());
  for (const GroupPlan& group : plan.groups)
    for (const Stripe& stripe : group.stripes) owned.at(stripe.owner.value) += stripe.count;
  return table_of(header, plan.ranks, [&](std::size_t i, const RankPlan& rank) {
    const std::uint64_t own = owned[i];
    Row row{std::to_string(rank.rank.value),
            std::to_string(rank.node),
            rank.gpu.empty() ? rank.device : rank.device + " " + rank.gpu,
            ranges(rank.cpus),
            rank.numa_nodes.empty() ? "any" : ranges(rank.numa_nodes),
            std::to_string(rank.device_threads),
            lanes(rank),
            rank.may_spin ? "poll" : "sleep",
            network_text(plan, rank),
            grouped(own),
            scaled(static_cast<double>(rank.arena_bytes), "B"),
            scaled(static_cast<double>(rank.memory_bytes), "B")};
    if (has_near) row.insert(row.begin() + 3, rank.accelerator.empty() ? "-" : rank.accelerator);
    if (on_gpus) row.push_back(rank.gpu.empty() ? "-" : scaled(static_cast<double>(rank.gpu_bytes), "B"));
    return row;
  });
}

/// Explains the parts of the memory in the table.
std::string memory_note(const Plan& plan) {
  const bool shares = plan.shares_memory() && plan.world_size() > 1;
  return fmt::format(
      "memory = the data set ({}{}), the arena (parameters{}, gradients, optimizer state{}, batches),\n"
      "         activations (estimated){}; libraries come on top\n{}",
      scaled(static_cast<double>(plan.data_bytes), "B"), plan.node_loader ? ", once a node" : "",
      !shares                 ? ""
      : plan.uses_transport() ? " in one of each node's"
                              : " in one of them",
      plan.saves ? ", a copy of it and its parameters for checkpoints" : "",
      shares ? ", what is used of the others' arenas" : "",
      !has_gpus(plan) ? ""
      : plan.in_gpu_memory
          ? "gpu memory = parameters, gradients, optimizer state and activations of a rank on a GPU, which the "
            "host's then lacks,\n         what products need, and with NCCL its buffers (estimated); its context comes "
            "on "
            "top\n"
          : "gpu memory = activations of a rank on a GPU, and what products need (estimated); its context comes on "
            "top\n");
}

/// Who makes batches, and where: a loader is a part of its rank, whose cores are near its device.
std::string loaders_text(const Plan& plan) {
  const std::string who = plan.decoding_threads == 0 ? std::string{"itself"}
                                                     : fmt::format("by {} thread{}", plan.decoding_threads,
                                                                   plan.decoding_threads == 1 ? "" : "s");
  return fmt::format("each {}'s loader decodes {}, on the cpus of {}", plan.node_loader ? "node" : "rank", who,
                     plan.node_loader ? "the node's first rank" : "its rank");
}

std::string steps_an_epoch(const Plan& plan) {
  const double steps = static_cast<double>(plan.train_samples) / (static_cast<double>(plan.batch) * plan.world_size());
  if (plan.scatter == Scatter::endless) return fmt::format("{:.6g}", steps);
  return fmt::format("{:.0f} ({})", std::ceil(steps), name_of(plan.scatter));
}

/// When the phase's policy begins; empty: with the first step.
std::string beginning(const PolicyPhase& phase) {
  if (phase.straggler_ratio != 0) {
    return fmt::format("once a straggler takes {:g} times the median, ", phase.straggler_ratio);
  }
  if (phase.from_step != 0) return fmt::format("from step {} on, ", grouped(phase.from_step));
  if (phase.from_samples != 0) return fmt::format("from {} samples on, ", grouped(phase.from_samples));
  return {};
}

std::string compression_text(const Plan& plan, const CompressionSettings& compression) {
  const char* const feedback =
      compression.error_feedback ? "; what rounding takes away is added to what the rank sends next" : "";
  return fmt::format("{}: {}{}", name_of(compression.kind),
                     plan.uses_transport() ? "what a rank sends of gradients or deltas is rounded; sums are f32"
                                           : "no effect, since all ranks are on one node, where nothing is sent",
                     plan.uses_transport() ? feedback : "");
}

/// What the exchange does with a bucket.
std::string_view how(const Plan& plan, const GroupPlan& group) {
  if (needs_of(group.policies).hosted)
    return "each rank sends it to the owners of its stripes and reads parameters from them";
  if (plan.uses_nccl() && plan.has_two_levels())
    return "NCCL adds it up within each node; each rank sends its part to its counterparts on the other nodes, which "
           "are "
           "its owners, and they send parameters back, which NCCL gives to the node's ranks";
  if (plan.uses_nccl())
    return plan.nccl_adds ? "NCCL adds it up at the owners of its stripes, who update and send parameters back"
                          : "NCCL sends it to the owners of its stripes, who reduce, update and send parameters back";
  if (!plan.uses_transport())
    return plan.world_size() == 1 ? "one pass over the rank's own memory"
                                  : "one pass in shared memory: each rank reduces, updates and publishes its stripe";
  return plan.shares_memory()
             ? "a node's ranks reduce it in shared memory; each sends its part to its counterparts on the other "
               "nodes, which are its owners, and they send parameters back"
             : "each rank sends it to the owners of its stripes, who reduce, update and send parameters back";
}

/// "4 buckets of 1.0 MB to 4.0 MB, in chunks of 64 KiB"
std::string bucket_sizes(const Plan& plan, const GroupPlan& group) {
  const auto [least, most] = std::minmax_element(group.buckets.begin(), group.buckets.end(),
                                                 [](const Bucket& a, const Bucket& b) { return a.count < b.count; });
  if (least == group.buckets.end()) return "no buckets";
  const auto size = [](const Bucket& bucket) { return scaled(static_cast<double>(bucket.count * sizeof(float)), "B"); };
  std::string out =
      fmt::format("{} bucket{} of {}", group.buckets.size(), group.buckets.size() == 1 ? "" : "s", size(*least));
  if (least->count != most->count) out += " to " + size(*most);
  if (plan.uses_transport())
    out +=
        fmt::format(", in chunks of {}", scaled(static_cast<double>(chunk_elements(group.count) * sizeof(float)), "B"));
  return out;
}

template <class Out>
void add_policies(Out line, const GroupPlan& group, std::uint32_t ranks) {
  for (const PolicyPhase& phase : group.policies)
    fmt::format_to(line, "policy   {}{}\n", beginning(phase), describe(phase.policy, ranks));
}

/// The text of a graph (Graph::to_string), shortened to a readable number of layers: the first ones and the last.
std::string shortened_model(const std::string& model) {
  constexpr std::size_t kMost = 16, kShown = 6;
  std::vector<std::size_t> layers;  // positions at which their texts begin: "name"=operation
  for (std::size_t at = model.find("\"="); at != model.npos; at = model.find("\"=", at + 1))
    layers.push_back(model.rfind(" \"", at) + 1);
  if (layers.size() <= kMost) return model;
  return fmt::format("{}... {} more layers ... {}", model.substr(0, layers[kShown]), layers.size() - kShown - 1,
                     model.substr(layers.back()));
}

}  // namespace

std::string describe(const Plan& plan) {
  const double rows = static_cast<double>(plan.batch) * plan.world_size();
  const double flops = static_cast<double>(plan.training_flops);
  std::string out;
  const auto line = std::back_inserter(out);
  fmt::format_to(line, "model    {}\n", shortened_model(plan.model));
  fmt::format_to(line, "         {} parameters, {} a sample in training, {} a step\n", grouped(plan.parameters),
                 scaled(flops, "FLOP"), scaled(flops * rows, "FLOP"));
  if (plan.groups.size() == 1) {
    fmt::format_to(line, "rule     {}\n", plan.groups[0].rule);
    add_policies(line, plan.groups[0], plan.world_size());
  }
  fmt::format_to(line, "data     {} training and {} test samples, batch {} x {} ranks = {}\n",
                 grouped(plan.train_samples), grouped(plan.test_samples), plan.batch, plan.world_size(),
                 grouped(std::uint64_t{plan.batch} * plan.world_size()));
  fmt::format_to(line, "         {}\n", loaders_text(plan));
  fmt::format_to(line, "steps    {} an epoch, {} in all, seed {}{}\n", steps_an_epoch(plan), grouped(plan.steps),
                 plan.seed, plan.deterministic ? ", deterministic" : "");
  for (const GroupPlan& group : plan.groups) {
    if (plan.groups.size() > 1) {
      fmt::format_to(line, "\ngroup    {}: {} parameter{} in {} elements\n", group.name, group.parameters.size(),
                     group.parameters.size() == 1 ? "" : "s", grouped(group.count));
      fmt::format_to(line, "rule     {}\n", group.rule);
      add_policies(line, group, plan.world_size());
    }
    if (group.compression.kind != Compression::none)
      fmt::format_to(line, "compress {}\n", compression_text(plan, group.compression));
    fmt::format_to(line, "route    {}, {} stripes, {}\n", name_of(plan.levels), group.stripes.size(),
                   bucket_sizes(plan, group));
    fmt::format_to(line, "         of every size: {}\n", how(plan, group));
  }
  out += "\n";
  out += nodes_table(plan) + "\n" + (has_gpus(plan) ? gpus_table(plan) + "\n" : "") + ranks_table(plan);
  out += memory_note(plan) + "\n";
  for (const std::string& reason : plan.reasons) out += "- " + reason + "\n";
  return out;
}

}  // namespace troupe
