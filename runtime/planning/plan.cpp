#include "runtime/planning/plan.hpp"

#include <xxhash.h>

#include <iomanip>

#include "runtime/base/error.hpp"
#include "runtime/base/text_stream.hpp"

namespace troupe {
namespace {

void write(std::ostream& out, const char* name, const std::vector<std::uint32_t>& cpus) {
  out << name;
  for (const std::uint32_t cpu : cpus) out << ' ' << cpu;
}

std::string quoted_policies(const std::vector<PolicyPhase>& phases) {
  TextStream out;
  out << phases.size();
  for (const PolicyPhase& phase : phases) {
    out << " from " << phase.from_step << ' ' << phase.from_samples << ' ' << phase.straggler_ratio << ' '
        << std::quoted(to_string(phase.policy));
  }
  return std::move(out).str();
}

void write(std::ostream& out, const GroupPlan& group) {
  out << "group " << group.id.value << ' ' << std::quoted(group.name) << " from " << group.first << ' ' << group.count
      << " parameters " << group.parameters.size();
  for (const std::string& parameter : group.parameters) out << ' ' << std::quoted(parameter);
  out << '\n'
      << "rule " << static_cast<int>(group.kind) << ' ' << std::quoted(group.rule) << '\n'
      << "policies " << quoted_policies(group.policies) << " compress " << name_of(group.compression.kind)
      << (group.compression.error_feedback ? " with error feedback" : "") << '\n'
      << "stripes " << group.stripes.size() << '\n';
  for (const Stripe& s : group.stripes)
    out << s.group.value << ' ' << s.owner.value << ' ' << s.first << ' ' << s.count << '\n';
  out << "buckets " << group.buckets.size() << '\n';
  for (const Bucket& b : group.buckets)
    out << b.group.value << ' ' << b.index << ' ' << b.first << ' ' << b.count << ' ' << b.base << '\n';
}

void write(std::ostream& out, const ExchangeLevel& level) {
  out << name_of({&level, 1}) << ' ' << level.sets.size() << '\n';
  for (const std::vector<Rank>& set : level.sets) {
    out << set.size();
    for (const Rank rank : set) out << ' ' << rank.value;
    out << '\n';
  }
}

}  // namespace

std::vector<Rank> Plan::node_members(Rank rank) const {
  std::vector<Rank> members;
  for (const RankPlan& other : ranks)
    if (other.node == ranks.at(rank.value).node) members.push_back(other.rank);
  return members;
}

std::uint64_t Plan::hash() const {
  const std::string all = to_string();
  return XXH3_64bits(all.data(), all.size());
}

std::string Plan::to_string() const {
  // One fact per line, texts quoted, lists counted: different plans have different texts.
  TextStream out;
  out << "model " << std::quoted(model) << '\n'
      << "dtype " << name_of(dtype) << '\n'
      << "parameters " << parameters << " flops " << training_flops << '\n'
      << "batch " << batch << " room " << max_rows << " prefetch " << prefetch << " measured " << measured << ' '
      << range.least << ' ' << range.most << " changes " << batches.size();
  for (const BatchChange& change : batches) out << ' ' << change.first_sample << ' ' << change.rows;
  out << '\n'
      << "scatter " << name_of(scatter) << " node loader " << node_loader << " decoding threads " << decoding_threads
      << '\n'
      << "samples " << train_samples << ' ' << test_samples << " bytes " << data_bytes << '\n'
      << "steps " << steps << " seed " << seed << " deterministic " << deterministic << " saves " << saves
      << " digests " << digest_steps << (in_gpu_memory ? " in gpu memory" : "") << (nccl_adds ? " nccl adds" : "")
      << '\n'
      << "nodes " << nodes.size() << '\n';
  for (const NodePlan& node : nodes) {
    out << std::quoted(node.identity.boot_id) << ' ' << node.identity.network_namespace << ' ' << std::quoted(node.host)
        << " leader " << node.leader << " memory " << node.memory_there << ' ' << node.memory_used << " numa "
        << node.numa.size();
    for (const NumaUse& numa : node.numa) out << ' ' << numa.os_index << ' ' << numa.there << ' ' << numa.used;
    for (const GpuUse& gpu : node.gpus)
      out << " gpu " << std::quoted(gpu.bus) << ' ' << std::quoted(gpu.model) << ' ' << gpu.there << ' ' << gpu.used;
    out << '\n';
  }
  out << "ranks " << ranks.size() << '\n';
  for (const RankPlan& rank : ranks) {
    out << rank.rank.value << " node " << rank.node << " local " << rank.local_rank << ' ' << std::quoted(rank.device)
        << " threads " << rank.device_threads << " spin " << rank.may_spin << " arena " << rank.arena_bytes
        << " memory " << rank.memory_bytes;
    write(out, " cpus", rank.cpus);
    write(out, " control", rank.control_cpus);
    write(out, " bulk", rank.bulk_cpus);
    write(out, " numa", rank.numa_nodes);
    out << " network " << std::quoted(rank.network_device) << " near " << std::quoted(rank.accelerator);
    if (!rank.gpu.empty() || rank.gpu_bytes != 0)
      out << " gpu " << std::quoted(rank.gpu) << " memory " << rank.gpu_bytes;
    out << '\n';
  }
  out << "levels " << levels.size() << '\n';
  for (const ExchangeLevel& level : levels) write(out, level);
  out << "groups " << groups.size() << '\n';
  for (const GroupPlan& group : groups) write(out, group);
  if (gathered_bytes != 0) out << "gathered " << gathered_bytes << '\n';
  out << "reasons " << reasons.size() << '\n';
  for (const std::string& reason : reasons) out << std::quoted(reason) << '\n';
  return std::move(out).str();
}

}  // namespace troupe
