#include "runtime/planning/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/compute/winograd.hpp"
#include "runtime/exchange/chunks.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/planning/detail/cost_figures.hpp"
#include "runtime/planning/detail/exchange_timeline.hpp"
#include "runtime/planning/detail/gpu_costs.hpp"

// A step is predicted from three things: how long a rank computes (figures for its rows, threads and busy neighbours),
// how many bytes each pass over memory moves (figures of copies), and which work waits for which (exchange_timeline).
// The policies' own state machines are asked what a step consists of, so that no policy is described twice.
namespace troupe {
namespace {

using detail::CostLookup;
using topology::MessageFigure;
using topology::Repeats;

constexpr std::uint64_t kMostSteps = 20'000;  // of the simulation; from there on the last phase continues unchanged
constexpr double kF32 = sizeof(float);
// Assumed speeds of a core and a node that were not measured: deliberately low for a present server.
constexpr double kAssumedFlops = 60e9;
constexpr double kAssumedCopy = 12e9, kAssumedCopyOfMemory = 60e9;
constexpr double kAssumedShmSeconds = 1e-6, kAssumedShm = 8e9;
constexpr double kAssumedTcpSeconds = 15e-6, kAssumedTcp = 3e9;
constexpr double kAssumedWireSeconds = 30e-6, kAssumedWire = 10e9 / 8;

Repeats once(double value) { return {value, value, value}; }

/// A layer's work in a step of one rank, as matrix products with this many rows.
struct LayerWork {
  double forward_flops = 0;
  double backward_flops = 0;
  std::uint32_t rows = 1;
};

/// The cost of the device's algorithm for a layer, as a fraction of the direct algorithm's operations.
double computed_part(const Graph& graph, std::uint32_t layer, std::uint32_t batch, CostLookup& figures) {
  const auto* const conv = std::get_if<Conv2d>(&graph.layers()[layer].operation);
  if (conv == nullptr || graph.dtype() != DType::f32) return 1;
  const Shape& input = graph.shape_of(graph.inputs_of(layer).front());
  const Shape& output = graph.output_of(layer);
  if (!gains_by_winograd(*conv, input, output, batch) || !figures.has_winograd()) return 1;
  return winograd_time_part(*conv, input, output, batch);
}

/// For each layer. A model whose arithmetic is not known counts as one layer.
std::vector<LayerWork> layer_works(const Plan& plan, const Graph& graph, CostLookup& figures) {
  if (graph.layers().empty() || graph.training_flops() == 0) {
    const double flops = static_cast<double>(plan.training_flops) * plan.batch;
    return {{flops / 3, flops * 2 / 3, plan.batch}};
  }
  std::vector<LayerWork> works;
  for (std::uint32_t l = 0; l < graph.layers().size(); ++l) {
    const double flops = static_cast<double>(graph.forward_flops(l)) * plan.batch;
    const double forward = flops > 0 ? flops * computed_part(graph, l, plan.batch, figures) : 0;
    works.push_back({forward, forward * (graph.is_trained(graph.inputs_of(l).front()) ? 2 : 1),
                     detail::product_rows(graph, l, plan.batch)});
  }
  return works;
}

/// The rank with the most computation, and its placement.
struct Slowest {
  double compute_s = 0;  // of a step
  std::vector<detail::LayerTime> layers{};
  double slower = 1;                       // factor for ranks that share its cores or its GPU
  std::uint32_t passing = 1;               // ranks of its host that pass over memory at the same time, each on one core
  std::uint32_t local_ranks = 1;           // ranks on its node
  bool lanes_apart = false;                // its lanes have cores of their own
  std::optional<detail::GpuSpeeds> gpu{};  // nothing: it computes on cores
  bool modelled = false;                   // compute_s
};

/// What there is of a host's threads, ranks and GPUs.
struct HostLoad {
  std::uint32_t threads = 0;
  std::uint32_t ranks = 0;
  std::map<std::uint32_t, std::uint32_t> ranks_of_cpu;
  std::map<std::string, std::uint32_t> ranks_of_gpu;
};

/// A kind of placement: thousands of ranks have only a few different ones.
struct Way {
  std::uint32_t threads = 1;  // of its device; of a rank on a GPU 0
  std::uint32_t sharing = 1;  // ranks on its cores, or on its GPU
  std::uint32_t busy = 1;     // threads of its host
  std::uint32_t ranks = 1;    // of its host
  std::uint32_t local = 1;    // ranks of its node
  bool apart = false;
  std::string gpu{};  // its model; if ranks read the first one's weights, also which one it is
  bool leads = true;  // its node; for ranks on GPUs
  auto operator<=>(const Way&) const = default;
};

/// The kinds of placement, each with one rank that has it.
std::map<Way, const RankPlan*> ways_of(const Plan& plan) {
  std::map<std::string, HostLoad> hosts;
  std::vector<std::uint32_t> ranks_of_node(plan.nodes.size());
  for (const RankPlan& rank : plan.ranks) {
    ++ranks_of_node.at(rank.node);
    HostLoad& host = hosts[plan.nodes[rank.node].identity.boot_id];
    host.threads += rank.device_threads;
    ++host.ranks;
    for (const std::uint32_t cpu : rank.cpus) ++host.ranks_of_cpu[cpu];
    if (!rank.gpu.empty()) ++host.ranks_of_gpu[rank.gpu];
  }
  std::map<Way, const RankPlan*> ways;
  for (const RankPlan& rank : plan.ranks) {
    const HostLoad& host = hosts[plan.nodes[rank.node].identity.boot_id];
    Way way{.threads = rank.device_threads,
            .busy = host.threads,
            .ranks = host.ranks,
            .local = ranks_of_node[rank.node],
            .apart = !rank.control_cpus.empty()};
    for (const std::uint32_t cpu : rank.cpus) way.sharing = std::max(way.sharing, host.ranks_of_cpu.at(cpu));
    if (!rank.gpu.empty()) {
      const auto& gpus = plan.nodes[rank.node].gpus;
      way.threads = 0;
      way.sharing = host.ranks_of_gpu.at(rank.gpu);
      way.leads = plan.leads_node(rank.rank);
      if (const auto use = std::ranges::find(gpus, rank.gpu, &GpuUse::bus); use != gpus.end()) way.gpu = use->model;
      if (plan.in_gpu_memory && plan.shares_memory()) way.gpu += ' ' + rank.gpu;
    }
    ways.emplace(way, &rank);
  }
  return ways;
}

/// How fast it is on cores.
Slowest on_cores(const Way& way, const std::vector<LayerWork>& works, const std::string& dtype, double weights,
                 CostLookup& figures) {
  const std::uint32_t own = std::max(1u, way.threads), cores = std::max(1u, way.busy / way.sharing);
  Slowest found{.slower = static_cast<double>(way.sharing), .passing = std::max(1u, way.ranks / way.sharing)};
  for (const LayerWork& work : works) {
    const double rate = figures.flops(dtype, work.rows, weights, own, cores - std::min(cores, own)) / way.sharing;
    found.layers.push_back({work.forward_flops / rate, work.backward_flops / rate});
  }
  return found;
}

Slowest slowest_rank(const Plan& plan, const Graph& graph, const Layout& layout, CostLookup& figures) {
  const auto weights = static_cast<double>(layout.count_elements());
  std::optional<std::vector<LayerWork>> works;  // asked for only if a rank computes on cores
  Slowest slowest;
  for (const auto& [way, rank] : ways_of(plan)) {
    (void)figures.take_guess();
    Slowest found{.slower = static_cast<double>(way.sharing), .passing = std::max(1u, way.ranks)};
    if (!rank->gpu.empty() && !graph.layers().empty()) {
      found.gpu = detail::gpu_speeds(plan, *rank, way.sharing, figures);
      found.layers = detail::gpu_layer_times(plan, graph, weights, *found.gpu, figures);
    } else {
      if (!works) works = layer_works(plan, graph, figures);
      found = on_cores(way, *works, std::string{name_of(plan.dtype)}, weights, figures);
    }
    found.local_ranks = way.local;
    found.lanes_apart = way.apart;
    found.modelled = figures.take_guess();
    for (const detail::LayerTime& layer : found.layers) found.compute_s += layer.forward_s + layer.backward_s;
    if (slowest.layers.empty() || found.compute_s > slowest.compute_s) slowest = std::move(found);
  }
  return slowest;
}

/// The part of a group's actions in a step that costs time.
struct GroupStep {
  bool updates_locally = false;
  bool keeps = false;
  bool behind = false;  // the round runs beside the next step
  bool hosted = false;
  Sent sent = Sent::nothing;
  auto operator<=>(const GroupStep&) const = default;
};

GroupStep group_step(const StepActions& orders) {
  return {.updates_locally = orders.local_update,
          .keeps = orders.keep,
          .behind = orders.sent == Sent::gradient && !orders.finish,
          .hosted = orders.hosted,
          .sent = orders.sent};
}

/// The costs of the steps of one job; each kind of step is computed once.
class StepCosts {
 public:
  StepCosts(const Plan& plan, const Graph& graph, const Layout& layout, CostLookup& figures)
      : plan_(plan),
        graph_(graph),
        layout_(layout),
        figures_(figures),
        slowest_(slowest_rank(plan, graph, layout, figures)),
        exchanges_(plan.world_size() > 1) {
    (void)figures.take_guess();
    if (exchanges_) look_up_ways();
    wire_modelled_ = figures.take_guess();
  }

  const PredictedStep& of(const std::vector<GroupStep>& groups) {
    const auto [at, is_new] = known_.try_emplace(groups);
    if (is_new) at->second = compute(groups);
    return at->second;
  }

 private:
  void look_up_ways() {
    if (plan_.uses_nccl()) {
      nccl_ = detail::nccl_way(plan_, figures_);
      if (!plan_.has_two_levels()) return;
    }
    if (slowest_.gpu && !plan_.uses_transport()) {
      wire_.seconds = once(slowest_.gpu->signal_s);
      if (slowest_.gpu->host.is_modelled) figures_.mark_guess();
      return;
    }
    std::set<std::string> hosts;
    for (const NodePlan& node : plan_.nodes) hosts.insert(node.identity.boot_id);
    wire_ = plan_.uses_transport() ? figures_.far(hosts.size() == 1) : figures_.near("shm");
    if (plan_.uses_transport()) mover_ = figures_.near("tcp").bytes_per_second.median;
    if (!slowest_.gpu) return;
    figures_.note("Ranks on GPUs that exchange over the transport are predicted roughly.");
    const detail::KnownRate& host = slowest_.gpu->host;
    if (host.is_modelled) figures_.mark_guess();
    wire_.both_ways = once(std::min(wire_.exchange_rate(), host.bytes_per_second));
  }

  /// Adds seconds to a part, which were computed just now from figures, or, if `over_ways`, from those between ranks.
  void add_to(PredictedStep& step, StepPart part, double seconds, bool over_ways = false) const {
    const bool guessed = figures_.take_guess() || (over_ways && wire_modelled_);
    step[part] += seconds;
    step.modelled.at(static_cast<std::size_t>(part)) |= guessed && seconds > 0;
  }

  /// Seconds of a pass of the host's cores over `elements` with this many reads and writes of f32 for each.
  double host_pass_s(double elements, double reads, double writes) const {
    const double bytes = elements * (reads + writes) * kF32;
    if (bytes <= 0) return 0;
    return bytes / figures_.copy(slowest_.passing, bytes) * (slowest_.gpu ? 1 : slowest_.slower);
  }
  /// The same of the device.
  double pass_s(double elements, double reads, double writes) const {
    if (!slowest_.gpu) return host_pass_s(elements, reads, writes);
    return over_s(slowest_.gpu->gradients, elements * (reads + writes));
  }
  /// Of `elements` that a GPU reads or writes.
  double over_s(const detail::KnownRate& way, double elements) const {
    if (way.is_modelled && elements > 0) figures_.mark_guess();
    return elements * kF32 / way.bytes_per_second * slowest_.slower;
  }
  double bf16_writes() const { return has_16_bits(plan_.dtype) ? 0.5 : 0; }
  /// For a rule with `slots` states, which adds up this many gradients.
  double update_s(double elements, std::size_t slots, double gradients) const {
    const double state = 1.0 + static_cast<double>(slots);
    return pass_s(elements, state + gradients, state + bf16_writes());
  }
  static double largest_stripe(const GroupPlan& group) {
    std::map<std::uint32_t, std::uint64_t> of_owner;
    for (const Stripe& stripe : group.stripes) of_owner[stripe.owner.value] += stripe.count;
    std::uint64_t most = 0;
    for (const auto& [owner, count] : of_owner) most = std::max(most, count);
    return static_cast<double>(most);
  }
  /// The number of nodes, or of ranks if each sends for itself.
  std::uint32_t members() const {
    return plan_.has_two_levels() ? static_cast<std::uint32_t>(plan_.nodes.size()) : plan_.world_size();
  }

  PredictedStep compute(const std::vector<GroupStep>& groups) const {
    PredictedStep step;
    (void)figures_.take_guess();
    if (slowest_.modelled) figures_.mark_guess();
    add_to(step, StepPart::compute, slowest_.compute_s);
    for (std::size_t g = 0; g < groups.size(); ++g) add_passes(step, plan_.groups[g], groups[g]);
    if (exchanges_ && plan_.uses_transport()) add_wire(step, groups);
    if (exchanges_ && plan_.uses_nccl() && !plan_.has_two_levels()) add_nccl(step, groups);
    add_load(step);
    return step;
  }

  /// Work on the device's own stream.
  void add_passes(PredictedStep& step, const GroupPlan& group, const GroupStep& does) const {
    const double count = static_cast<double>(group.count);
    const std::size_t slots = state_slots(group);
    if (does.updates_locally) add_to(step, StepPart::update, update_s(count, slots, 1));
    if (does.keeps) add_to(step, StepPart::copy, pass_s(count, 1, 1));
    if (does.hosted) return add_hosted(step, group);
    if (does.sent == Sent::nothing) return;
    const bool own_weights = does.sent == Sent::delta || does.behind;
    if (does.sent == Sent::delta) add_to(step, StepPart::exchange, pass_s(count, 2, 1));
    if (does.behind) add_to(step, StepPart::copy, pass_s(count, 1, 1));
    if (own_weights) add_to(step, StepPart::copy, pass_s(count, 1, 1 + bf16_writes()));
    if (plan_.uses_transport()) return;
    const std::size_t kept = does.sent == Sent::delta ? kMaxOuterSlots : slots;
    add_to(step, StepPart::update, stripe_update_s(group, kept));
    if (plan_.uses_nccl()) return;
    // The ranks wait for each other twice per bucket: until gradients are written, and until parameters are published.
    if (exchanges_)
      add_to(step, StepPart::exchange, 2 * static_cast<double>(group.buckets.size()) * wire_.seconds.median,
             /*over_ways=*/true);
  }

  /// The update of the rank's part, from the gradients of all ranks where the device adds them up. Those of other ranks
  /// that share memory on GPUs are read from there, as the parameters are written to the first rank's.
  double stripe_update_s(const GroupPlan& group, std::size_t slots) const {
    const double own = largest_stripe(group), ranks = plan_.world_size();
    if (plan_.uses_nccl()) return update_s(own, slots, plan_.nccl_adds ? 1 : ranks);
    if (!slowest_.gpu || !plan_.in_gpu_memory) return update_s(own, slots, ranks);
    return update_s(own, slots, 1) + over_s(slowest_.gpu->weights, own * (ranks - 1));
  }

  /// NCCL's calls, which run beside the backward pass in the order in which it has the gradients; of rounds beside the
  /// next step the part that this step does not cover.
  void add_nccl(PredictedStep& step, const std::vector<GroupStep>& groups) const {
    double behind_s = 0;
    std::vector<detail::TimedBucket> calls;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const GroupPlan& group = plan_.groups[g];
      if (groups[g].sent == Sent::nothing) continue;
      const double byte_s = nccl_.gradient_s_per_byte + nccl_.parameter_s_per_byte;
      for (const Bucket& bucket : group.buckets) {
        const double seconds = static_cast<double>(bucket.count) * kF32 * byte_s + nccl_.call_s;
        if (groups[g].behind)
          behind_s += seconds;
        else
          calls.push_back({seconds, first_layer(graph_, layout_, bucket), groups[g].sent == Sent::delta});
      }
    }
    const double exposed_s = detail::exposed_calls_s(slowest_.layers, calls);
    add_to(step, StepPart::exchange, exposed_s + std::max(0.0, behind_s - step.total() - exposed_s),
           /*over_ways=*/true);
  }

  /// A push of gradients and then a read of parameters; the shards' queues are ignored.
  void add_hosted(PredictedStep& step, const GroupPlan& group) const {
    figures_.note("Hosted policies are predicted roughly: a rank pushes and reads, and waits for no other one.");
    const double count = static_cast<double>(group.count);
    const double others = exchanges_ ? static_cast<double>(plan_.world_size() - 1) / plan_.world_size() : 0;
    if (exchanges_) {
      const double ranks = plan_.uses_transport() ? slowest_.local_ranks : 1;
      add_to(step, StepPart::exchange,
             2 * (wire_.seconds.median + count * kF32 * others * ranks / wire_.exchange_rate()),
             /*over_ways=*/true);
    }
    // In a step's time each rank's shard takes a push of every rank.
    add_to(step, StepPart::update, plan_.world_size() * update_s(largest_stripe(group), state_slots(group), 1));
  }

  detail::ExchangeLink link_of(const GroupPlan& group, Sent sent) const {
    const double local = plan_.has_two_levels() ? slowest_.local_ranks : 1;
    const std::size_t slots = sent == Sent::delta ? kMaxOuterSlots : state_slots(group);
    detail::ExchangeLink link;
    link.nodes = members();
    link.latency_s = wire_.seconds.median;
    link.bytes_per_second =
        wire_.exchange_rate() / (plan_.has_two_levels() ? 1 : static_cast<double>(slowest_.local_ranks));
    link.sent_bytes_per_element = group.compression.kind == Compression::bf16 ? 2 : kF32;
    link.reduce_s_per_element =
        local > 1 ? pass_s(static_cast<double>(group.count), local, 1) / static_cast<double>(group.count) / local : 0;
    if (plan_.uses_nccl())
      link.reduce_s_per_element += kF32 * nccl_.gradient_s_per_byte + nccl_.call_s / 2 / mean_bucket(group);
    link.update_s_per_element =
        update_s(static_cast<double>(group.count), slots, members()) / static_cast<double>(group.count) / local;
    link.chunk_elements = chunk_elements(group.count);
    return link;
  }

  static double mean_bucket(const GroupPlan& group) {
    return static_cast<double>(group.count) / static_cast<double>(group.buckets.size());
  }

  /// NCCL gives out a bucket's parameters within a node while others are on their way, but the last one's.
  double give_out_s(const GroupPlan& group) const {
    if (!plan_.uses_nccl()) return 0;
    return kF32 * mean_bucket(group) * nccl_.parameter_s_per_byte + nccl_.call_s / 2;
  }

  /// The transport's time between nodes, and the part of it that the step waits for.
  void add_wire(PredictedStep& step, const std::vector<GroupStep>& groups) const {
    const double tail_s = step.total() - step[StepPart::compute];
    double exposed_s = 0, moving_s = 0, behind_s = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const GroupPlan& group = plan_.groups[g];
      const GroupStep& does = groups[g];
      if (does.hosted || does.sent == Sent::nothing || group.count == 0) continue;
      const detail::ExchangeLink link = link_of(group, does.sent);
      std::vector<detail::ExchangedBucket> buckets;
      for (const Bucket& bucket : group.buckets)
        buckets.push_back({.elements = bucket.count,
                           .first_layer = first_layer(graph_, layout_, bucket),
                           .at_end = does.sent == Sent::delta || does.behind});
      const detail::ExchangeTimeline timeline = detail::exchange_timeline(slowest_.layers, buckets, link, tail_s);
      if (does.behind)
        behind_s += timeline.link_busy_s + 2 * link.latency_s + give_out_s(group);
      else
        exposed_s += timeline.exposed_s + give_out_s(group);
      // The rank's core moves the data that it sends and receives, and updates its own stripe.
      const double share = static_cast<double>(group.count) / (plan_.has_two_levels() ? slowest_.local_ranks : 1);
      const double others = static_cast<double>(link.nodes - 1) / link.nodes;
      moving_s += (2 * share * others * (link.sent_bytes_per_element + kF32) / mover_ +
                   link.update_s_per_element * static_cast<double>(group.count) / link.nodes) *
                  slowest_.slower;
    }
    exposed_s += std::max(0.0, behind_s - step.total());
    add_to(step, StepPart::exchange, std::max(exposed_s, slowest_.lanes_apart ? 0 : moving_s), /*over_ways=*/true);
  }

  /// A batch is read and written while the previous step is computed.
  void add_load(PredictedStep& step) const {
    double elements = 0;
    for (const Field& field : graph_.fields()) elements += static_cast<double>(field.shape.count_elements());
    const double batches = plan_.node_loader ? slowest_.local_ranks : 1;
    const double filling_s = host_pass_s(elements * plan_.batch * batches, 1, 1);
    add_to(step, StepPart::load, std::max(0.0, filling_s - step.total()));
  }

  const Plan& plan_;
  const Graph& graph_;
  const Layout& layout_;
  CostLookup& figures_;
  const Slowest slowest_;
  const bool exchanges_;
  MessageFigure wire_;
  detail::NcclWay nccl_;
  bool wire_modelled_ = false;
  double mover_ = 1;  // bytes per second that a core sends or receives
  std::map<std::vector<GroupStep>, PredictedStep> known_;
};

std::string policies_of(const std::vector<PolicySequence>& policies) {
  std::vector<std::string> names;
  for (const PolicySequence& each : policies) {
    const std::string name{name_of(each.policy().kind)};
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return joined(names);
}

void add(PredictedStep& to, const PredictedStep& step, double times) {
  for (std::size_t i = 0; i < kStepParts; ++i) {
    to.seconds[i] += step.seconds[i] * times;
    to.modelled[i] |= step.modelled[i];
  }
}

}  // namespace

topology::Measurements assumed_figures(const Topology& topology) {
  topology::Measurements assumed;
  assumed.host = topology.host;
  assumed.cpu_model = topology.cpu_model;
  assumed.cores = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(topology.cores.size()));
  const double memories = static_cast<double>(std::max<std::size_t>(1, topology.numa.size()));
  assumed.copies = {
      {.cores = 1, .bytes = 1, .bytes_per_second = once(kAssumedCopy)},
      {.cores = assumed.cores,
       .bytes = 1,
       .bytes_per_second = once(std::min(kAssumedCopy * assumed.cores, kAssumedCopyOfMemory * memories))}};
  for (const char* const dtype : {"f32", "bf16", "f16"})
    assumed.compute.push_back({.dtype = dtype, .rows = 1, .flops_per_second = once(kAssumedFlops)});
  double wire = 0;
  for (const Nic& nic : topology.nics)
    if (nic.up && !nic.loopback) wire = std::max(wire, static_cast<double>(nic.bits_per_second) / 8);
  assumed.messages = {{.means = "shm", .seconds = once(kAssumedShmSeconds), .bytes_per_second = once(kAssumedShm)},
                      {.means = "tcp", .seconds = once(kAssumedTcpSeconds), .bytes_per_second = once(kAssumedTcp)},
                      {.means = "auto",
                       .same_node = false,
                       .seconds = once(kAssumedWireSeconds),
                       .bytes_per_second = once(wire > 0 ? wire : kAssumedWire)}};
  return assumed;
}

double PredictedStep::total() const noexcept { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

bool PredictedStep::is_modelled() const noexcept { return std::ranges::find(modelled, true) != modelled.end(); }

Prediction predict(const Plan& plan, const Graph& graph, const Layout& layout, const CostFigures& figures,
                   std::uint64_t steps) {
  CostLookup looked_up{figures};
  StepCosts costs{plan, graph, layout, looked_up};
  std::vector<PolicySequence> policies;
  for (const GroupPlan& group : plan.groups) policies.emplace_back(group.policies, plan.world_size());
  Prediction prediction;
  prediction.steps = std::max<std::uint64_t>(1, steps);
  const std::uint64_t rows = std::uint64_t{plan.batch} * plan.world_size();
  const std::uint64_t played = std::min(prediction.steps, kMostSteps);
  for (std::uint64_t s = 0; s < played; ++s) {
    const StepFacts facts{.step = {s}, .samples_before = s * rows, .samples = rows, .last = s + 1 == steps};
    std::vector<GroupStep> does;
    bool switched = s == 0;
    for (PolicySequence& policy : policies) {
      const StepActions orders = policy.next(facts);
      switched |= orders.switched;
      does.push_back(group_step(orders));
    }
    if (switched) prediction.phases.push_back({.first = s, .policies = policies_of(policies)});
    ++prediction.phases.back().steps;
    add(prediction.phases.back().step, costs.of(does), 1);
  }
  for (PredictedPhase& phase : prediction.phases)
    for (double& seconds : phase.step.seconds) seconds /= static_cast<double>(phase.steps);
  prediction.phases.back().steps += prediction.steps - played;
  for (const PredictedPhase& phase : prediction.phases)
    add(prediction.mean, phase.step, static_cast<double>(phase.steps) / static_cast<double>(prediction.steps));
  prediction.samples_per_second = static_cast<double>(rows) / prediction.mean.total();
  if (!plan.batches.empty()) looked_up.note("Predicted for the first batch size; data.batch changes later.");
  if (plan.measured) looked_up.note("Predicted for equal parts; placement.split = \"measured\" changes them.");
  prediction.figures = looked_up.used();
  prediction.basis = looked_up.basis();
  return prediction;
}

}  // namespace troupe
