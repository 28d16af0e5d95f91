#include "runtime/planning/planner.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/compute/rank_gather.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/exchange/chunks.hpp"
#include "runtime/exchange/exchange.hpp"
#include "runtime/exchange/stripes.hpp"
#include "runtime/memory/arena.hpp"
#include "runtime/memory/timeline.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/model/recomputation.hpp"
#include "runtime/planning/detail/activation_bytes.hpp"
#include "runtime/planning/detail/assign_gpus.hpp"
#include "runtime/planning/detail/choose_collectives.hpp"
#include "runtime/planning/detail/choose_network.hpp"
#include "runtime/planning/detail/fit_memory.hpp"
#include "runtime/planning/detail/gpu_memory.hpp"
#include "runtime/planning/detail/place_ranks.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t kBucketBytes =
    1 << 20;  // large enough for the network's full speed, small enough to overlap with backward
constexpr std::uint64_t kSpareBytes = 64 << 10;
constexpr std::uint64_t kTimelines = 64;  // per rank; more than is needed today

/// The topologies of the nodes that have ranks.
std::map<NodeIdentity, const Topology*> by_identity(const PlanInputs& inputs) {
  std::map<NodeIdentity, const Topology*> found;
  for (const Topology& topology : inputs.topologies) {
    const auto [at, is_new] = found.emplace(topology.identity, &topology);
    TROUPE_CHECK(is_new || *at->second == topology, Code::invalid, "two different topologies are both named node ",
                 topology.host, " (", topology.identity.boot_id, ", network namespace ",
                 topology.identity.network_namespace, ")");
  }
  for (std::size_t rank = 0; rank < inputs.ranks.size(); ++rank) {
    const RankFacts& facts = inputs.ranks[rank];
    TROUPE_CHECK(found.contains(facts.node), Code::invalid, "rank ", rank, " is on node ", facts.host, " (",
                 facts.node.boot_id, ", network namespace ", facts.node.network_namespace,
                 "), whose topology is missing");
  }
  return found;
}

/// Whether the job has the nodes and ranks that placement.mesh asks for.
void check_mesh(const Plan& plan, const Settings::Placement::Mesh& mesh,
                const std::vector<std::vector<std::uint32_t>>& members) {
  if (mesh.nodes == 0) return;
  const std::string asked =
      text("placement.mesh = \"", mesh.nodes, 'x', mesh.ranks, "\" asks for ", mesh.nodes,
           mesh.nodes == 1 ? " node of " : " nodes of ", mesh.ranks, mesh.ranks == 1 ? " rank" : " ranks");
  TROUPE_CHECK(plan.ranks.size() == std::size_t{mesh.nodes} * mesh.ranks && plan.nodes.size() == mesh.nodes,
               Code::invalid, asked, ", and the job has ", plan.ranks.size(),
               plan.ranks.size() == 1 ? " rank on " : " ranks on ", plan.nodes.size(),
               plan.nodes.size() == 1 ? " node" : " nodes", "; change it or cluster.nodes");
  for (std::size_t n = 0; n < members.size(); ++n)
    TROUPE_CHECK(members[n].size() == mesh.ranks, Code::invalid, asked, ", and node ", plan.nodes[n].host, " has ",
                 members[n].size(), "; change it or cluster.nodes");
}

/// The reasons about nodes; a reason that applies to several nodes is given once.
class NodeReasons {
 public:
  void add(const std::string& host, const std::vector<std::string>& reasons) {
    const std::string beginning = text("Node ", host, ": ");
    for (const std::string& reason : reasons) {
      const auto [at, is_new] = places_.emplace(reason.substr(std::min(beginning.size(), reason.size())), said_.size());
      if (is_new) said_.push_back({host, reason});
      ++said_[at->second].nodes;
    }
  }
  void append_to(std::vector<std::string>& reasons) const {
    for (const Said& one : said_)
      reasons.push_back(one.nodes == 1 ? one.reason
                                       : text(one.nodes, " nodes, ", one.host, " among them",
                                              one.reason.substr(text("Node ", one.host).size())));
  }

 private:
  struct Said {
    std::string host;
    std::string reason;
    std::size_t nodes = 0;
  };
  std::map<std::string, std::size_t> places_;  // by the reason
  std::vector<Said> said_;
};

/// Numbers nodes in the order of their first ranks, and the ranks on each node. Returns the topology of each node.
std::vector<const Topology*> place_on_nodes(Plan& plan, const Settings& settings, const PlanInputs& inputs) {
  const auto topologies = by_identity(inputs);
  std::map<NodeIdentity, std::uint32_t> numbers;
  std::vector<std::vector<std::uint32_t>> members;
  for (std::uint32_t r = 0; r < inputs.ranks.size(); ++r) {
    const RankFacts& facts = inputs.ranks[r];
    const auto [at, is_new] = numbers.emplace(facts.node, static_cast<std::uint32_t>(plan.nodes.size()));
    if (is_new) {
      plan.nodes.push_back({facts.node, facts.host, r});
      members.emplace_back();
    }
    auto& local = members[at->second];
    plan.ranks.push_back(
        {.rank = {r}, .node = at->second, .local_rank = static_cast<std::uint32_t>(local.size()), .device = "cpu"});
    local.push_back(r);
  }
  check_mesh(plan, settings.placement.mesh, members);
  // Network namespaces of one host are separate nodes, but its cores exist only once.
  std::map<std::string, std::vector<std::size_t>> hosts;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) hosts[plan.nodes[n].identity.boot_id].push_back(n);
  NodeReasons reasons;
  for (const auto& [boot_id, nodes] : hosts) {
    std::vector<RankPlan*> ranks;
    for (const std::size_t n : nodes)
      for (const std::uint32_t r : members[n]) ranks.push_back(&plan.ranks[r]);
    const NodePlan& first = plan.nodes[nodes.front()];
    std::vector<std::string> of_host;
    const Topology& topology = *topologies.at(first.identity);
    detail::assign_gpus(settings.placement, inputs, topology, first.host, ranks, of_host);
    detail::place_on_cores(settings.placement, topology, first.host, ranks,
                           /*with_lanes=*/plan.ranks.size() > 1, of_host);
    reasons.add(first.host, of_host);
  }
  reasons.append_to(plan.reasons);
  std::vector<const Topology*> of_nodes;
  for (const NodePlan& node : plan.nodes) of_nodes.push_back(topologies.at(node.identity));
  return of_nodes;
}

/// Each rank's share of the parameters, with sum 1; empty: equal shares.
std::vector<double> stripe_shares(const Settings& settings, std::uint32_t ranks) {
  const std::vector<double>& stripes = settings.placement.stripes;
  const std::vector<double>& bandwidth = settings.placement.bandwidth;
  TROUPE_CHECK(stripes.empty() || bandwidth.empty(), Code::invalid,
               "placement.stripes and placement.bandwidth both set the part of the parameters that each rank owns; "
               "leave one out");
  const auto check = [&](std::string_view key, const std::vector<double>& numbers) {
    TROUPE_CHECK(numbers.empty() || numbers.size() == ranks, Code::invalid, key, " has ", numbers.size(),
                 " numbers, and there are ", ranks, " ranks; write one for each");
  };
  check("placement.stripes", stripes);
  check("placement.bandwidth", bandwidth);
  if (!bandwidth.empty()) return bandwidth_shares(bandwidth);
  const double sum = std::accumulate(stripes.begin(), stripes.end(), 0.0);
  TROUPE_CHECK(stripes.empty() || sum > 0, Code::invalid,
               "placement.stripes: all are 0, so no rank owns parameters; give at least one rank more than 0");
  std::vector<double> shares = stripes;
  for (double& share : shares) share /= sum;
  return shares;
}

/// Every rank owns a part of each bucket, so that all send the same amount for each; a shard hosts one range.
std::vector<Stripe> stripes_of(const GroupPlan& group, std::uint32_t ranks, const std::vector<double>& shares) {
  const auto cut = [&](std::uint64_t count) {
    return shares.empty() ? equal_stripes(group.id, count, ranks) : shared_stripes(group.id, count, shares);
  };
  if (needs_of(group.policies).hosted) return cut(group.count);
  std::vector<Stripe> all;
  for (const Bucket& bucket : group.buckets) {
    for (Stripe& stripe : cut(bucket.count)) {
      stripe.first += bucket.first;
      all.push_back(stripe);
    }
  }
  return all;
}

std::string why(const Plan& plan, std::size_t buckets) {
  const std::string in_buckets =
      text(", in ", buckets, buckets == 1 ? " bucket" : " buckets", ", each as soon as it is ready.");
  if (plan.world_size() == 1)
    return "One rank: no gradients are exchanged, and the update is one pass over its memory.";
  if (plan.uses_nccl() && plan.has_two_levels())
    return text("The ", plan.world_size(), " ranks are on ", plan.nodes.size(),
                " nodes, each with a GPU of its own: NCCL adds up the gradients of a node's ranks, in rank order, and "
                "each rank exchanges its share of the sums with its counterparts on the other nodes over the transport",
                in_buckets);
  if (plan.uses_nccl())
    return text("Each of the ", plan.world_size(), " ranks has a GPU of its own: NCCL exchanges their gradients",
                plan.nccl_adds ? " and adds them up, in an order of its own (train.deterministic: in rank order)"
                               : ", which are added up in rank order",
                in_buckets);
  if (!plan.uses_transport())
    return text("The ", plan.world_size(), " ranks are all on node ", plan.nodes[0].host,
                ": gradients are reduced where they lie, in shared memory.");
  if (!plan.shares_memory())
    return text("The ranks are on ", plan.nodes.size(), " nodes: gradients travel over the transport", in_buckets);
  return text(
      "The ", plan.world_size(), " ranks are on ", plan.nodes.size(),
      " nodes: those of a node reduce their gradients in its shared memory, and each exchanges its share of the "
      "sums with its counterparts on the other nodes",
      in_buckets);
}

std::uint64_t bucket_bytes(const Plan& plan) { return plan.uses_transport() || plan.uses_nccl() ? kBucketBytes : 0; }

void cut_groups(Plan& plan, const Settings& settings, const Graph& graph, const Layout& layout) {
  TROUPE_CHECK(plan.nodes.size() == 1 || settings.cluster.transport != "shm", Code::invalid,
               "cluster.transport = \"shm\" reaches one node only, but rank ", plan.nodes.back().leader, " is on node ",
               plan.nodes.back().host, " and rank 0 on node ", plan.nodes.front().host, "; write \"auto\" or \"tcp\"");
  std::size_t buckets = 0;
  const std::vector<double> shares = stripe_shares(settings, plan.world_size());
  for (GroupPlan& group : plan.groups) {
    group.buckets = make_buckets(group.id, graph, layout, bucket_bytes(plan));
    group.stripes = stripes_of(group, plan.world_size(), shares);
    buckets += group.buckets.size();
  }
  plan.reasons.push_back(why(plan, buckets));
}

/// More than any run takes if the number cannot be represented.
std::uint64_t samples_before_epoch(std::uint64_t epoch, std::uint64_t train_samples) noexcept {
  std::uint64_t samples = 0;
  constexpr std::uint64_t kNever = ~std::uint64_t{0} / 2;
  return __builtin_mul_overflow(epoch - 1, train_samples, &samples) ? kNever : std::min(samples, kNever);
}

/// The policies in order, with the value of every setting. Throws Error{invalid} for one that cannot work.
std::vector<PolicyPhase> plan_policies(const Settings::Group& group, std::uint32_t ranks, std::uint32_t batch,
                                       std::uint64_t train_samples) {
  std::vector<PolicyPhase> phases{{.policy = resolved(group.update, ranks)}};
  for (const PolicySwitch& change : group.switches) {
    PolicyPhase& phase = phases.emplace_back(PolicyPhase{.policy = resolved(change.policy, ranks)});
    switch (change.trigger) {
      case PolicySwitch::Trigger::step: phase.from_step = change.at; break;
      case PolicySwitch::Trigger::epoch: phase.from_samples = samples_before_epoch(change.at, train_samples); break;
      case PolicySwitch::Trigger::samples: phase.from_samples = change.at; break;
      case PolicySwitch::Trigger::straggler: phase.straggler_ratio = change.ratio; break;
    }
  }
  for (const PolicyPhase& phase : phases) {
    const std::string wrong = check_policy(phase.policy, ranks, batch);
    TROUPE_CHECK(wrong.empty(), Code::invalid, group.match.empty() ? "" : text("group \"", group.name, "\": "), wrong);
  }
  return phases;
}

/// The different values, in the order of their first layers.
std::vector<double> momentums_of_statistics(const Graph& graph) {
  std::vector<double> found;
  for (const Parameter& parameter : graph.parameters())
    if (parameter.is_statistic() && std::ranges::find(found, parameter.momentum) == found.end())
      found.push_back(parameter.momentum);
  return found;
}

/// A model may have more logits than there are classes in the data at hand, but it may also be a mistake.
void note_spare_logits(Plan& plan, const Graph& graph) {
  for (std::size_t i = 0; i < graph.layers().size(); ++i) {
    const std::uint32_t labels = graph.inputs_of(i).back();
    if (!std::holds_alternative<SoftmaxCrossEntropy>(graph.layers()[i].operation)) continue;
    const Field& field = graph.fields()[labels];
    const std::uint64_t logits = graph.output_of(i).count_elements() / field.shape.count_elements();
    if (field.classes == 0 || field.classes == logits) continue;
    plan.reasons.push_back(text("Layer ", graph.layers()[i].name, " reads ", logits, " logits, and field ", field.name,
                                " has ", field.classes, " classes: the other logits are no sample's label."));
  }
}

void add_groups(Plan& plan, const Settings& settings, const Graph& graph, const Layout& layout) {
  for (const std::string& pattern : settings.no_decay) (void)parameters_matching(graph, pattern);  // throws for none
  for (const Settings::Group& group : all_groups(settings, graph)) {
    GroupPlan& made = plan.groups.emplace_back();
    made.id = {static_cast<std::uint32_t>(plan.groups.size() - 1)};
    made.name = group.name;
    made.kind = group.rule.kind;
    made.average = group.rule.ema_decay > 0;
    made.running = group.running;
    made.rule = group.running ? text("running average, momentum ", group.rule.rate) : to_string(group.rule);
    if (settings.rate != RateSettings{} && !group.running) made.rule += text(", rate ", to_string(settings.rate));
    if (needs_tensor_norms(made.kind) && !group.running) made.rule += ", vectors neither scaled nor decayed";
    if (!settings.no_decay.empty() && !group.running) {
      made.rule += ", no decay of";
      for (const std::string& pattern : settings.no_decay) made.rule += " " + pattern;
    }
    made.compression = group.compression;
    made.policies = plan_policies(group, plan.world_size(), settings.data.batch, plan.train_samples);
    TROUPE_CHECK(made.compression.kind == Compression::none || !needs_of(made.policies).hosted, Code::invalid,
                 "update.compress = \"", name_of(made.compression.kind),
                 "\" works only with policies that exchange in rounds; leave it out of group \"", made.name,
                 "\", whose shards take f32");
    made.first = layout.groups().at(made.id.value).first;
    made.count = layout.groups().at(made.id.value).count;
    for (std::size_t p = 0; p < graph.parameters().size(); ++p)
      if (layout.group_of(p) == made.id) made.parameters.push_back(graph.parameters()[p].name);
  }
}

/// Of a run from the beginning, whose number of steps does not matter.
Schedule schedule_of(const Settings& settings, const PlanInputs& inputs, const std::vector<BatchChange>& changes) {
  const Schedule schedule{.train_samples = inputs.train_samples,
                          .rows = settings.data.batch,
                          .ranks = static_cast<std::uint32_t>(inputs.ranks.size()),
                          .later = {},
                          .scatter = settings.data.scatter};
  return with_batches(schedule, changes);
}

/// The number of steps such that an epoch ends with the first step whose samples reach its end.
std::uint64_t count_steps(const Settings& settings, const PlanInputs& inputs, const std::vector<BatchChange>& changes) {
  if (settings.train.steps != 0) return settings.train.steps;
  __extension__ using Wide = unsigned __int128;
  const Wide samples = static_cast<Wide>(settings.train.epochs) * inputs.train_samples;
  TROUPE_CHECK(samples <= ~std::uint64_t{0} / 2, Code::invalid, "train.epochs = ", settings.train.epochs, " of ",
               inputs.train_samples, " samples makes more steps than can be counted");
  return schedule_of(settings, inputs, changes).steps_until(static_cast<std::uint64_t>(samples));
}

/// The batch-size schedule in samples; empty if the batch size does not change.
std::vector<BatchChange> batch_changes(const Settings& settings, std::uint64_t train_samples) {
  std::vector<BatchChange> changes;
  double epochs = 0;
  for (const Settings::Data::Batch& batch : settings.data.batches) {
    changes.push_back(
        {static_cast<std::uint64_t>(std::llround(epochs * static_cast<double>(train_samples))), batch.rows});
    epochs += batch.epochs;
  }
  return changes;
}

void share_batches(Plan& plan, const Settings& settings) {
  plan.measured = settings.placement.split == "measured" && plan.ranks.size() > 1;
  TROUPE_CHECK(!plan.measured || plan.scatter != Scatter::equal, Code::invalid,
               "data.scatter = \"equal\" gives all ranks the same number of samples in every step, but placement.split "
               "= \"measured\" divides them by speed: write data.scatter = \"exact\", or placement.split = \"equal\"");
  if (plan.measured) plan.range = {settings.placement.min_share, settings.placement.max_share};
  plan.max_rows = max_rows_of(plan.batch, plan.range);
  for (const BatchChange& change : plan.batches)
    plan.max_rows = std::max(plan.max_rows, max_rows_of(change.rows, plan.range));
  if (plan.measured)
    plan.reasons.push_back(text("Ranks take samples in proportion to their measured speed, each at most ",
                                plan.max_rows, " a step; all ", plan.ranks.size(),
                                " together as many as with equal parts."));
  if (const std::string repeated = repeated_samples(plan); !repeated.empty())
    plan.reasons.push_back(text("Samples are repeated: ", repeated, "."));
}

void choose_loaders(Plan& plan, const Settings& settings) {
  // Files may be waited for, which an actor must not.
  constexpr std::array<std::string_view, 4> kFiles{"folder", "map", "shards", "voc"};
  const bool files = std::ranges::find(kFiles, settings.data.source) != kFiles.end();
  plan.decoding_threads = std::max(settings.data.threads, files ? 1U : 0U);
  plan.node_loader = settings.data.loader == "node" && plan.ranks.size() > 1;
  if (!plan.node_loader) return;
  std::string leaders;
  for (const NodePlan& node : plan.nodes) leaders += text(leaders.empty() ? "" : ", ", node.leader);
  plan.reasons.push_back(plan.nodes.size() == 1
                             ? text("Rank ", leaders, " reads the data set and makes the batches of all ranks.")
                             : text("Ranks ", leaders, " read the data set, each for all ranks of its node."));
}

/// Bytes of a hosting shard's buffer besides its elements.
constexpr std::uint64_t kPerBuffer = 16 * sizeof(StepSums);

/// What all ranks need because of a group's stripes and buckets. Computed once: there may be 65,536 of both.
struct GroupSums {
  std::vector<std::uint64_t> own;   // elements of each rank's stripes
  std::vector<std::uint64_t> sets;  // likewise for each set of counterparts; stripes of ranks in their own set
  std::uint64_t largest = 0;        // stripe
  std::uint64_t chunks = 0;         // of the buckets
  std::uint64_t relief = 0;         // bytes of journals for pieces of other ranks' stripes
};

GroupSums sums_of(const Plan& plan, const GroupPlan& group) {
  GroupSums sums;
  sums.own.resize(plan.world_size());
  for (const Stripe& stripe : group.stripes) {
    sums.own.at(stripe.owner.value) += stripe.count;
    sums.largest = std::max(sums.largest, stripe.count);
  }
  if (plan.has_two_levels()) sums.sets.resize(plan.levels.back().sets.size());
  for (const RankPlan& rank : plan.ranks)
    if (!sums.sets.empty()) sums.sets.at(rank.local_rank) += sums.own[rank.rank.value];
  if (plan.uses_transport()) sums.chunks = cut_into_chunks(group.buckets, chunk_elements(group.count)).size();
  if (plan.is_in_one_arena() && plan.measured)
    sums.relief = relief_journal_bytes(group.stripes, group.buckets, state_slots(group));
  return sums;
}

/// The values that are the same for all ranks.
struct PlanSums {
  std::vector<GroupSums> groups;
  std::vector<std::uint32_t> ranks_of_node;
  std::uint64_t elements = 0;
  std::uint64_t activations = 0;  // bytes, on a CPU device
  detail::GpuReplicaBytes on_gpu;
};

PlanSums sums_of(const Plan& plan, const Graph& graph) {
  PlanSums sums;
  for (const GroupPlan& group : plan.groups) {
    sums.groups.push_back(sums_of(plan, group));
    sums.elements += group.count;
  }
  sums.activations = detail::activation_bytes(graph, plan.max_rows);
  sums.on_gpu = detail::gpu_replica_bytes(graph, plan.max_rows);
  sums.ranks_of_node.resize(plan.nodes.size());
  for (const RankPlan& rank : plan.ranks) ++sums.ranks_of_node.at(rank.node);
  return sums;
}

/// Bytes for data that arrives for a rank from `others`, and that it sends compressed; everything at a multiple
/// of 64 bytes. `ranges` are exchanged in `chunks`; the rank adds up `own` of `all` elements.
struct Staged {
  std::uint64_t others, ranges, chunks, own, all;
};
std::uint64_t staging_bytes(const GroupPlan& group, const GroupSums& sums, const Staged& what) {
  constexpr std::uint64_t kAlign = 64;
  const std::uint64_t reduced = std::min(sums.largest, chunk_elements(group.count));
  std::uint64_t bytes = 2 * (what.chunks + 2) * (what.others + 2) * sizeof(StepSums);
  bytes += what.others * (reduced * sizeof(float) + kAlign);
  if (group.compression.kind == Compression::bf16) {
    bytes += what.others * (what.own * size_bytes(DType::bf16) + kAlign * what.ranges) +
             what.all * size_bytes(DType::bf16) + kAlign * what.ranges;
    bytes += 2 * (sums.largest * sizeof(float) + kAlign);
  } else {
    bytes += what.others * (what.own * sizeof(float) + kAlign * what.ranges);
  }
  return bytes;
}

/// For all levels on which `rank` sends.
std::uint64_t staging_bytes(const Plan& plan, const GroupPlan& group, const GroupSums& sums, Rank rank,
                            std::uint64_t ranks_of_node) {
  const std::uint64_t own = sums.own.at(rank.value), buckets = group.buckets.size();
  if (!plan.has_two_levels())
    return staging_bytes(group, sums, {plan.world_size() - 1, buckets, sums.chunks, own, group.count});
  const std::uint64_t nodes = plan.nodes.size();
  std::uint64_t bytes = 0;
  // Each range is one rank's part of a bucket. The rank is in its own set, and where it replaces a missing rank.
  for (std::size_t set = plan.ranks.at(rank.value).local_rank; set < sums.sets.size(); set += ranks_of_node)
    bytes +=
        staging_bytes(group, sums, {nodes - 1, buckets * nodes, sums.chunks + buckets * nodes, own, sums.sets[set]});
  return bytes;
}

/// The ranks of one communicator of NCCL.
std::uint64_t ranks_of_nccl(const Plan& plan, std::uint64_t ranks_of_node) {
  return plan.has_two_levels() ? ranks_of_node : plan.world_size();
}

/// What ranks show each other with a call of NCCL, the parts of its plain operations, and the gradients that the owner
/// of a bucket's largest part gets from the others. Within nodes there are plain operations alone.
std::uint64_t nccl_bytes(const Plan& plan, const GroupSums& sums, std::uint64_t ranks_of_node) {
  constexpr std::uint64_t kAlign = 64;
  const std::uint64_t ranks = ranks_of_nccl(plan, ranks_of_node);
  const std::uint64_t from_each = plan.has_two_levels() ? 0 : sums.largest * sizeof(float) + kAlign;
  return ranks * (kAlign + sizeof(StepSums) + 2 * nccl_room_bytes(plan)) + (ranks - 1) * from_each;
}

/// The elements that a rank packs, for all sets of ranks with which it exchanges.
std::uint64_t packed_elements(const Plan& plan, const GroupPlan& group, const GroupSums& sums, Rank rank,
                              std::uint64_t ranks_of_node) {
  if (!plan.has_two_levels()) return group.count;
  std::uint64_t elements = 0;
  for (std::size_t set = plan.ranks.at(rank.value).local_rank; set < sums.sets.size(); set += ranks_of_node)
    elements += sums.sets[set];
  return elements;
}

/// Adds the needs of one group to the rank's needs.
void add_group(MemoryNeeds& needs, const Plan& plan, const GroupPlan& group, const GroupSums& sums, Rank rank,
               std::uint64_t ranks_of_node) {
  const std::uint64_t own = sums.own.at(rank.value);
  const bool crosses = plan.uses_transport();
  const std::size_t slots = state_slots(group);
  const PolicyNeeds policy = needs_of(group.policies);
  const std::uint64_t outer = policy.outer_state ? own * sizeof(float) : 0;
  needs.state += (policy.whole_state ? slots * group.count : slots * own) * sizeof(float) + outer;
  needs.snapshot += plan.saves ? (1 + slots) * own * sizeof(float) + outer : 0;
  if (keeps_residual(plan, group)) {
    needs.state += group.count * sizeof(float);
    if (plan.saves) needs.snapshot += packed_elements(plan, group, sums, rank, ranks_of_node) * sizeof(float);
  }
  const std::uint64_t journals = journal_bytes(slots) + (policy.whole_state ? journal_bytes(kMaxOuterSlots) : 0);
  needs.journal += plan.is_in_one_arena() && plan.world_size() > 1 && own != 0 ? journals * group.buckets.size() : 0;
  needs.journal += sums.relief;
  needs.staging += crosses ? staging_bytes(plan, group, sums, rank, ranks_of_node) : 0;
  needs.device_staging += plan.uses_nccl() ? nccl_bytes(plan, sums, ranks_of_node) : 0;
  needs.words += 5 * sizeof(StepSums);
  if (needs_tensor_norms(group.kind)) needs.words += squares_bytes(group);
  needs.words += own_scratch_bytes(plan, group);
  if (crosses && plan.leads_node(rank)) needs.words += group.buckets.size() * sizeof(TimelineWord);
  if (has_landing(group, plan.dtype)) needs.weights += group.count * sizeof(float) + sizeof(StepSums);
  // A hosting shard keeps a push and a read version for each worker, and sums for those in progress.
  if (policy.hosted) needs.staging += (2 * plan.world_size() + 2) * (own * sizeof(float) + kPerBuffer);
  if (!plan.shares_memory()) return;
  // The other ranks' gradients for the part that it reduces: on a single node, its stripe.
  const std::uint64_t local = ranks_of_node;
  needs.peers += (local - 1) * (crosses ? (group.count + local - 1) / local : own) * sizeof(float);
}

/// The replica's own memory on a GPU, and NCCL's. Libraries are taken only where weights are in the GPU's.
void add_gpu(MemoryNeeds& needs, const Plan& plan, const PlanSums& sums, std::uint64_t ranks_of_node) {
  needs.activations = sums.on_gpu.activations;
  needs.products = sums.on_gpu.products + (plan.in_gpu_memory ? sums.on_gpu.library + sums.on_gpu.dnn : 0);
  if (plan.uses_nccl())
    needs.nccl =
        plan.groups.size() * detail::nccl_buffer_bytes(static_cast<std::uint32_t>(ranks_of_nccl(plan, ranks_of_node)));
}

MemoryNeeds memory_of(const Plan& plan, const Graph& graph, const PlanSums& sums, Rank rank) {
  const BatchLayout batch{plan.max_rows, graph.fields()};
  MemoryNeeds needs;
  const bool shares = plan.shares_memory();
  const std::uint64_t local = sums.ranks_of_node.at(plan.ranks.at(rank.value).node);
  const std::uint64_t parameters = sums.elements * sizeof(float);
  const std::uint64_t half = has_16_bits(plan.dtype) ? sums.elements * size_bytes(plan.dtype) : 0;
  const bool leads = !shares || plan.leads_node(rank);
  if (leads) {
    needs.parameters = parameters;
    needs.half = half;
  }
  const PolicyNeeds policy = needs_of(plan);
  needs.gradients = parameters;
  needs.weights = (policy.own_weights ? parameters + half : 0) + (policy.held ? parameters + half : 0);
  needs.pool = plan.prefetch * batch.size_bytes();
  needs.words = Arena::kPageBytes + kTimelines * sizeof(TimelineWord) + StepExchange::ring_bytes(plan.groups.size()) +
                StepExchange::total_bytes(plan.groups.size()) + 2 * StepExchange::kStepsKept * sizeof(StepSums);
  if (plan.dtype == DType::f16) needs.words += sizeof(LossScaleState);
  if (plan.digest_steps != 0) needs.words += digest_bytes(graph.parameters().size());
  needs.data = plan.reads_data(rank) ? plan.data_bytes : 0;
  needs.activations = sums.activations;
  if (plan.ranks[rank.value].on_gpu()) add_gpu(needs, plan, sums, local);
  if (shares && !leads) needs.peers = parameters + half;
  if (plan.node_loader && plan.leads_node(rank)) needs.peers += (local - 1) * needs.pool;
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    add_group(needs, plan, plan.groups[g], sums.groups[g], rank, local);
  if (plan.gathered_bytes == 0) return needs;
  const GroupPlan gathered = gathered_group(plan);
  add_group(needs, plan, gathered, sums_of(plan, gathered), rank, local);
  needs.words += gathered.count * sizeof(float) + gather_scratch_bytes(plan);
  return needs;
}

/// Sets the rank's part of the host's memory and of its GPU's. Returns the host's without what its peers have.
std::uint64_t add_memory(const Plan& plan, RankPlan& rank, const MemoryNeeds& needs) {
  const bool on_gpu = rank.on_gpu(), trains_there = plan.in_gpu_memory;
  // Sums and lines are in both, in the host's for its CPUs.
  const std::uint64_t moved = trains_there ? needs.device_bytes() - needs.words : 0;
  rank.gpu_bytes = on_gpu ? needs.gpu_bytes(trains_there) : 0;
  rank.arena_bytes = needs.arena_bytes() - moved;
  const std::uint64_t own = needs.memory_bytes() - needs.peers - moved - (on_gpu ? needs.activations : 0);
  rank.memory_bytes = own + (trains_there ? 0 : needs.peers);
  return own;
}

}  // namespace

GroupPlan gathered_group(const Plan& plan) {
  GroupPlan group;
  group.id = {static_cast<std::uint32_t>(plan.groups.size())};
  group.name = "gathered";
  group.policies = {PolicyPhase{}};
  const std::uint64_t part = plan.gathered_bytes / sizeof(float);
  group.count = plan.world_size() * part;
  for (Rank rank{0}; rank.value < plan.world_size(); ++rank.value)
    group.stripes.push_back({.group = group.id, .owner = rank, .first = rank.value * part, .count = part});
  group.buckets = {{.group = group.id, .index = 0, .first = 0, .count = group.count, .base = 0}};
  return group;
}

std::uint64_t gather_scratch_bytes(const Plan& plan) {
  return plan.shares_memory() ? 2 * plan.world_size() * plan.gathered_bytes : 0;
}

PolicyNeeds needs_of(const Plan& plan) {
  PolicyNeeds all;
  for (const GroupPlan& group : plan.groups) all |= needs_of(group.policies);
  return all;
}

std::uint64_t nccl_room_bytes(const Plan& plan) noexcept {
  constexpr std::uint64_t kMost = 256 << 10, kOfAll = 8 << 20, kLine = 64;
  std::size_t ranks = 1;  // of the largest communicator
  for (const std::vector<Rank>& set : plan.levels.front().sets) ranks = std::max(ranks, set.size());
  return std::min(kMost, kOfAll / ranks / kLine * kLine);
}

std::string repeated_samples(const Plan& plan) {
  std::uint64_t rows = plan.batch;
  for (const BatchChange& change : plan.batches) rows = std::max<std::uint64_t>(rows, change.rows);
  const std::uint64_t taken = rows * plan.world_size();
  if (plan.scatter != Scatter::endless || taken <= plan.train_samples) return {};
  const std::string of_ranks = plan.world_size() == 1 ? "" : text(" at each of ", plan.world_size(), " ranks");
  return text("a step takes ", taken, " samples (data.batch = ", rows, of_ranks, "), but the training set has ",
              plan.train_samples, ", so a sample is in a step several times, and a step is several epochs; set a ",
              "smaller data.batch, or data.scatter = \"exact\"");
}

bool keeps_residual(const Plan& plan, const GroupPlan& group) {
  return plan.uses_transport() && group.compression.kind != Compression::none && group.compression.error_feedback;
}

std::uint64_t squares_bytes(const GroupPlan& group) noexcept { return group.parameters.size() * sizeof(TensorSquares); }

std::uint64_t own_scratch_bytes(const Plan& plan, const GroupPlan& group) noexcept {
  constexpr std::uint64_t kLine = 64;
  const bool gathers = needs_of(group.policies).whole_state;
  // A round moves half of the scratch memory, of which each rank that may share it takes a cache line or more.
  const std::uint64_t least = kLine * plan.world_size(), size = group.count * sizeof(float);
  const bool too_small = gathers && size < 2 * least;
  if (!plan.shares_memory() || !(needs_tensor_norms(group.kind) || too_small)) return 0;
  const std::uint64_t wanted = gathers ? size : squares_bytes(group);
  return 2 * std::max(least, (wanted + kLine - 1) / kLine * kLine);
}

bool has_landing(const GroupPlan& group, DType dtype) {
  const PolicyNeeds needs = needs_of(group.policies);
  return needs.hosted && (needs.landing || has_16_bits(dtype));
}

std::uint64_t MemoryNeeds::arena_bytes() const noexcept { return device_bytes() + snapshot + pool + staging; }

std::uint64_t MemoryNeeds::device_bytes() const noexcept {
  return parameters + half + weights + gradients + state + journal + device_staging + words + kSpareBytes;
}

std::vector<std::pair<std::string, std::uint64_t>> gpu_memory_parts(const Plan& plan, const MemoryNeeds& needs) {
  std::vector<std::pair<std::string, std::uint64_t>> parts{
      {"activations", needs.activations}, {"products", needs.products}, {"NCCL's buffers", needs.nccl}};
  if (plan.in_gpu_memory)
    parts.insert(parts.end(), {{"weights", needs.parameters + needs.half + needs.weights},
                               {"gradients", needs.gradients},
                               {"optimizer state", needs.state},
                               {"staging", needs.device_staging},
                               {"words", needs.journal + needs.words + kSpareBytes}});
  std::erase_if(parts, [](const auto& part) { return part.second == 0; });
  std::ranges::stable_sort(parts, std::greater{}, &std::pair<std::string, std::uint64_t>::second);
  return parts;
}

MemoryNeeds memory_needs(const Plan& plan, const Graph& graph, Rank rank) {
  return memory_of(plan, graph, sums_of(plan, graph), rank);
}

std::vector<Settings::Group> all_groups(const Settings& settings, const Graph& graph) {
  std::vector<Settings::Group> all = all_groups(settings);
  std::size_t number = 0;
  for (const double momentum : momentums_of_statistics(graph)) {
    Settings::Group& group = all.emplace_back();
    group.name = ++number == 1 ? "running_statistics" : text("running_statistics_", number);
    group.running = true;
    // p -= momentum (p - s), s the mean of what the ranks' batches have: with a decay of 1, the gradient is -s.
    group.rule = {.kind = RuleKind::sgd, .rate = momentum, .weight_decay = 1, .ema_decay = settings.rule.ema_decay};
    group.rule.scales_loss = settings.rule.scales_loss;  // a batch whose activations overflow has no statistic
    group.update = without_outer_momentum(settings.update);
    group.switches = settings.switches;
    for (PolicySwitch& change : group.switches) change.policy = without_outer_momentum(change.policy);
  }
  return all;
}

Layout layout_of(const Settings& settings, const Graph& graph) {
  const auto& parameters = graph.parameters();
  std::vector<GroupId> group_of(parameters.size());
  for (GroupId group{1}; group.value <= settings.groups.size(); ++group.value) {
    const Settings::Group& wanted = settings.groups[group.value - 1];
    for (const std::string& pattern : wanted.match) {
      for (const std::size_t p : parameters_matching(graph, pattern)) {
        if (parameters[p].is_statistic()) continue;
        TROUPE_CHECK(group_of[p].value == 0 || group_of[p] == group, Code::invalid, "the parameter ",
                     parameters[p].name, " is matched by two groups, \"", settings.groups[group_of[p].value - 1].name,
                     "\" and \"", wanted.name, "\"; make the match of one of them narrower");
        group_of[p] = group;
      }
    }
    TROUPE_CHECK(std::ranges::find(group_of, group) != group_of.end(), Code::invalid, "the group \"", wanted.name,
                 "\" matches running statistics alone, which their layer's momentum moves; leave it out");
  }
  const bool rest = std::any_of(group_of.begin(), group_of.end(), [](GroupId group) { return group.value == 0; });
  TROUPE_CHECK(rest || parameters.empty(), Code::invalid,
               "the groups of update.group match all parameters, and none is left for [update]; leave one of them out, "
               "and write its settings into [update] and [optimizer]");
  const std::vector<double> momentums = momentums_of_statistics(graph);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!parameters[p].is_statistic()) continue;
    const auto at = std::ranges::find(momentums, parameters[p].momentum) - momentums.begin();
    group_of[p].value = static_cast<std::uint32_t>(settings.groups.size() + 1) + static_cast<std::uint32_t>(at);
  }
  return {graph, group_of};
}

namespace {

/// Devices that an app brings say themselves what they compute in.
void check_f16(const Plan& plan, const PlanInputs& inputs) {
  if (plan.dtype != DType::f16 || inputs.brings_devices) return;
  const auto on_cpu = std::ranges::find_if_not(plan.ranks, &RankPlan::on_gpu);
  if (on_cpu == plan.ranks.end()) return;
  fail(Code::invalid, text("model.dtype = \"f16\": rank ", on_cpu->rank.value, " on node ",
                           plan.nodes.at(on_cpu->node).host, " computes on a CPU, and only GPUs compute in f16",
                           inputs.cuda_refusal.empty() ? "" : text(" (", inputs.cuda_refusal, ")"),
                           "; write \"bf16\" or \"f32\", or give every rank a GPU (placement.device = \"cuda\")"));
}

/// A batch norm whose batches have a single value for each channel: its variance is 0, every output is the bias, and no
/// gradient passes. PyTorch refuses such a batch too.
void check_norms(const Plan& plan, const Graph& graph) {
  std::uint64_t least = plan.batch;
  for (const BatchChange& change : plan.batches) least = std::min<std::uint64_t>(least, change.rows);
  for (std::size_t l = 0; l < graph.layers().size(); ++l) {
    const auto* const norm = std::get_if<BatchNorm>(&graph.layers()[l].operation);
    if (norm == nullptr) continue;
    const Shape& shape = graph.output_of(l);
    const std::uint64_t values =
        least * (norm->synchronized ? plan.world_size() : 1) * shape.count_elements() / shape.extents.back();
    TROUPE_CHECK(values != 1, Code::invalid, graph.layers()[l].name, ": a batch_norm of ", shape.to_string(),
                 " has one value for each channel in a batch of one sample, and its output does not depend on that "
                 "value: set data.batch to 2 or more, or write layer_norm");
  }
}

/// With several ranks no layer that waits for all of them is computed again.
void check_recomputed(const Graph& graph, std::size_t ranks) {
  if (ranks < 2) return;
  for (const LayerRange& range : graph.recomputed()) {
    for (std::uint32_t l = range.first; l <= range.last; ++l) {
      const Layer& layer = graph.layers()[l];
      TROUPE_CHECK(!is_synchronized(layer), Code::invalid, recomputes_synchronized(layer));
    }
  }
}

}  // namespace

void check_order_of_switches(const Settings& settings, const PlanInputs& inputs) {
  struct Beginning {
    std::string given;  // as in the settings
    std::uint64_t step = 0;
  };
  const Schedule schedule = schedule_of(settings, inputs, batch_changes(settings, inputs.train_samples));
  const auto beginning_of = [&](const PolicySwitch& change) {
    Beginning found{text(name_of(change.trigger), " = ", change.at), change.at};
    if (change.trigger == PolicySwitch::Trigger::step) return found;
    found.step = schedule.steps_until(change.trigger == PolicySwitch::Trigger::samples
                                          ? change.at
                                          : samples_before_epoch(change.at, inputs.train_samples));
    return found;
  };
  for (const Settings::Group& group : all_groups(settings)) {
    Beginning before{"", 0};
    if (const std::uint64_t warm = group.update.distributed_after; warm != 0)
      before = {text("update.distributed_after = ", warm), schedule.steps_until(warm)};
    for (const PolicySwitch& change : group.switches) {
      if (change.trigger == PolicySwitch::Trigger::straggler) continue;
      Beginning next = beginning_of(change);
      TROUPE_CHECK(before.step < next.step, Code::invalid, "update.switch",
                   group.match.empty() ? "" : text(" of the group \"", group.name, "\""), " has an entry with ",
                   next.given, ", in this job step ", next.step, ", after ", before.given, ", step ", before.step,
                   "; write them in the order in which they begin, each at a later step than the one before");
      before = std::move(next);
    }
  }
}

Plan make_plan(const Settings& settings, const Graph& graph, const PlanInputs& inputs) {
  TROUPE_CHECK(!inputs.ranks.empty(), Code::invalid, "a plan needs at least one rank");
  TROUPE_CHECK(inputs.train_samples > 0, Code::invalid, "the training set is empty; check data.path");
  TROUPE_CHECK(settings.data.batch > 0, Code::invalid, "data.batch is 0; a step needs samples");
  Plan plan;
  plan.model = graph.to_string();
  plan.dtype = graph.dtype();
  plan.parameters = graph.count_parameters();
  plan.training_flops = graph.training_flops();
  plan.batch = settings.data.batch;
  plan.prefetch = settings.data.prefetch;
  plan.scatter = settings.data.scatter;
  plan.train_samples = inputs.train_samples;
  plan.test_samples = inputs.test_samples;
  plan.data_bytes = inputs.data_bytes;
  plan.batches = batch_changes(settings, inputs.train_samples);
  plan.steps = count_steps(settings, inputs, plan.batches);
  plan.seed = settings.train.seed;
  plan.deterministic = settings.train.deterministic;
  if (const auto& ranges = graph.recomputed(); !ranges.empty())
    plan.reasons.push_back(
        text("In the backward pass the layers of ", ranges.size(), ranges.size() == 1 ? " range" : " ranges", ", from ",
             graph.layers()[ranges.front().first].name, " to ", graph.layers()[ranges.back().last].name,
             ", are computed again where their outputs were not kept (train.recompute)."));
  note_spare_logits(plan, graph);
  plan.saves = settings.checkpoint.every_steps != 0;
  plan.digest_steps = settings.digest_steps;
  const std::vector<const Topology*> topologies = place_on_nodes(plan, settings, inputs);
  check_f16(plan, inputs);
  share_batches(plan, settings);
  choose_loaders(plan, settings);
  const Layout layout = layout_of(settings, graph);
  add_groups(plan, settings, graph, layout);
  check_norms(plan, graph);
  check_recomputed(graph, plan.world_size());
  if (plan.world_size() > 1) plan.gathered_bytes = gathered_bytes(graph);
  TROUPE_CHECK(plan.gathered_bytes == 0 || !needs_of(plan).hosted, Code::invalid,
               "the model has a synchronized batch_norm, whose mean is over the batches that all ranks take in a step, "
               "and under update.policy = async, ssp or easgd ranks do not take their steps together: choose another "
               "policy (also in update.switch and update.group), or leave synchronized out");
  plan.levels = detail::choose_levels(plan, settings, inputs);
  cut_groups(plan, settings, graph, layout);
  plan.in_gpu_memory = plan.uses_nccl() || (detail::reach_each_other(plan, inputs) && !needs_of(plan).hosted);
  detail::choose_network(plan, settings.cluster.transport, topologies);
  std::vector<std::uint64_t> used;  // by rank; memory that several use counts for its owner
  const PlanSums sums = sums_of(plan, graph);
  for (RankPlan& rank : plan.ranks) used.push_back(add_memory(plan, rank, memory_of(plan, graph, sums, rank.rank)));
  detail::fit_memory(plan, settings.placement, topologies, used);
  detail::fit_gpu_memory(plan, topologies, [&](Rank rank) { return memory_of(plan, graph, sums, rank); });
  return plan;
}

}  // namespace troupe
