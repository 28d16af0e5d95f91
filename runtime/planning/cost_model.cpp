#include "runtime/planning/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/compute/winograd.hpp"
#include "runtime/exchange/chunks.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/planning/detail/exchange_timeline.hpp"

// A step is predicted from three things: how long a rank computes (figures for its rows, threads and busy neighbours),
// how many bytes each pass over memory moves (figures of copies), and which work waits for which (exchange_timeline).
// The policies' own state machines are asked what a step consists of, so that no policy is described twice.
namespace troupe {
namespace {

using topology::ComputeFigure;
using topology::CopyFigure;
using topology::Measurements;
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

/// Interpolates, on a logarithmic scale of sizes, between the two `points` (by size, ascending, positive) around `at`;
/// beyond the ends it takes the nearest one.
double between(const std::map<double, double>& points, double at) {
  const auto above = points.lower_bound(at);
  if (above == points.end()) return points.rbegin()->second;
  if (above == points.begin() || above->first == at) return above->second;
  const auto below = std::prev(above);
  const double share = std::log(at / below->first) / std::log(above->first / below->first);
  return below->second + share * (above->second - below->second);
}

/// Interpolates linearly for `count` between the values for 1 and for `most`.
double straight(double for_one, double for_most, double count, double most) {
  if (most <= 1) return for_one;
  return for_one + (for_most - for_one) * std::clamp((count - 1) / (most - 1), 0.0, 1.0);
}

/// Looks up figures, and records which ones were used.
class Figures {
 public:
  explicit Figures(const CostFigures& figures) : figures_(figures) {}

  /// Operations per second of a device with `threads`, while `others` threads of other ranks on its host also compute,
  /// for products with `rows` in a model with so many `weights`.
  double flops(const std::string& dtype, std::uint32_t rows, double weights, std::uint32_t threads,
               std::uint32_t others) {
    const auto [of, type] = compute_source(dtype);
    const auto rates = [&, of = of, type = type](auto fits) {
      std::map<double, std::map<double, double>> by_weights;  // by their number, then by rows
      for (const ComputeFigure& each : of->compute)
        if (each.dtype == type && fits(each)) by_weights[each.weights()][each.rows] = each.flops_per_second.median;
      std::map<double, double> rate;
      for (const auto& [count, by_rows] : by_weights) rate[count] = between(by_rows, rows);
      return rate.empty() ? 0 : between(rate, std::max(1.0, weights));
    };
    std::uint32_t devices = 1, most_threads = 1;
    for (const ComputeFigure& each : of->compute) {
      if (each.dtype != type) continue;
      if (each.threads == 1) devices = std::max(devices, each.devices);
      if (each.devices == 1) most_threads = std::max(most_threads, each.threads);
    }
    const double alone = rates([](const ComputeFigure& f) { return f.devices == 1 && f.threads == 1; });
    const double crowded = rates([&](const ComputeFigure& f) { return f.devices == devices && f.threads == 1; });
    const double together = rates([&](const ComputeFigure& f) { return f.devices == 1 && f.threads == most_threads; });
    TROUPE_CHECK(alone > 0 && crowded > 0 && together > 0, Code::invalid, "the figures of ", of->host,
                 " have no rate of one thread on ", type, "; run `rttopo bench` again");
    const double by_thread = straight(1, together / (most_threads * alone), threads, most_threads);
    const double by_neighbours = straight(1, crowded / alone, 1.0 + others, devices);
    return threads * alone * by_thread * by_neighbours;
  }

  /// Bytes per second that one of `cores` busy cores of a host moves in passes over `bytes` of its own.
  double copy(std::uint32_t cores, double bytes) {
    const Measurements& of = figures_.measured.copies.empty() ? assume("memory") : figures_.measured;
    std::uint32_t most = 1;
    for (const CopyFigure& each : of.copies) most = std::max(most, each.cores);
    const auto rates = [&](std::uint32_t count) {
      std::map<double, double> by_bytes;
      for (const CopyFigure& each : of.copies)
        if (each.cores == count && each.cores_numa == each.memory_numa)
          by_bytes[static_cast<double>(each.bytes)] = each.bytes_per_second.median / count;
      return by_bytes.empty() ? 0 : between(by_bytes, bytes);
    };
    const double alone = rates(1), crowded = rates(most);
    TROUPE_CHECK(alone > 0 || crowded > 0, Code::invalid, "the figures of ", of.host,
                 " have no copies within a memory node; run `rttopo bench` again");
    return straight(alone > 0 ? alone : crowded, crowded > 0 ? crowded : alone, cores, most);
  }

  /// The figures of messages within a node.
  MessageFigure near(const std::string& means) {
    for (const Measurements* of : {&figures_.measured, &figures_.assumed})
      for (const MessageFigure& each : of->messages) {
        if (!each.same_node || each.means != means || each.bytes_per_second.median <= 0) continue;
        if (of == &figures_.assumed) (void)assume("messages within a node over " + means);
        return each;
      }
    fail(Code::invalid, text("there are no figures of messages within a node over ", means));
  }

  /// The figures of messages between nodes: the slowest path.
  MessageFigure far(bool one_host) {
    std::optional<MessageFigure> slowest;
    for (const MessageFigure& each : figures_.measured.messages) {
      if (each.same_node || each.bytes_per_second.median <= 0) continue;
      if (!slowest || each.bytes_per_second.median < slowest->bytes_per_second.median) slowest = each;
    }
    if (slowest) return *slowest;
    if (one_host) {
      notes_.insert(
          "Between the nodes, which are network namespaces of one host, nothing was measured: taken as TCP within the "
          "host.");
      return near("tcp");
    }
    for (const MessageFigure& each : figures_.assumed.messages)
      if (!each.same_node) {
        notes_.insert(text("Between nodes nothing was measured (rttopo bench --hosts): taken as ",
                           std::round(each.bytes_per_second.median * 8 / 1e6), " Mbit/s."));
        return each;
      }
    fail(Code::invalid, "there are no figures of messages between nodes");
  }

  /// Whether convolutions that gain by Winograd's algorithm are computed with it. Asked only for such a convolution.
  bool has_winograd() {
    const Measurements& of = figures_.measured.compute.empty() ? figures_.assumed : figures_.measured;
    if (!of.winograd)
      note("Convolutions are taken as direct: nothing says that this processor computes them by Winograd's algorithm.");
    return of.winograd;
  }

  void note(const std::string& sentence) { notes_.insert(sentence); }
  std::vector<std::string> basis() const {
    std::vector<std::string> all;
    const Measurements& of = figures_.measured;
    all.push_back(
        of.date.empty()
            ? "Nothing was measured here: all figures are assumed, and may be wrong several times; run `rttopo bench`."
            : text("Figures of ", of.host, " by rttopo bench, ", of.date, "."));
    all.insert(all.end(), notes_.begin(), notes_.end());
    return all;
  }

 private:
  struct ComputeSource {
    const Measurements* of;
    std::string dtype;
  };
  ComputeSource compute_source(const std::string& dtype) {
    const auto has = [](const Measurements& of, const std::string& type) {
      return std::any_of(of.compute.begin(), of.compute.end(),
                         [&](const ComputeFigure& each) { return each.dtype == type; });
    };
    if (has(figures_.measured, dtype)) return {&figures_.measured, dtype};
    if (has(figures_.measured, "f32")) {
      note(text("Products in ", dtype, " were not measured: taken as fast as in f32."));
      return {&figures_.measured, "f32"};
    }
    const Measurements& of = assume("computing");
    return {&of, has(of, dtype) ? dtype : "f32"};
  }
  const Measurements& assume(const std::string& what) {
    if (!figures_.measured.date.empty()) note(text("Assumed, since it was not measured: ", what, "."));
    return figures_.assumed;
  }

  const CostFigures& figures_;
  std::set<std::string> notes_;
};

/// A layer's work in a step of one rank, as matrix products with this many rows.
struct LayerWork {
  double forward_flops = 0;
  double backward_flops = 0;
  std::uint32_t rows = 1;
};

/// The rows of a layer's products: samples of a batch, times the positions that use the same weights.
std::uint32_t product_rows(const Graph& graph, std::uint32_t layer, std::uint32_t batch) {
  const troupe::Operation& operation = graph.layers()[layer].operation;
  const std::uint64_t elements = graph.output_of(layer).count_elements();
  std::uint64_t places = 1;
  if (const auto* const conv = std::get_if<Conv2d>(&operation)) places = elements / conv->filters;
  if (const auto* const dense = std::get_if<Dense>(&operation)) places = elements / dense->units;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(batch * places, UINT32_MAX));
}

/// The cost of the device's algorithm for a layer, as a fraction of the direct algorithm's operations.
double computed_part(const Graph& graph, std::uint32_t layer, std::uint32_t batch, Figures& figures) {
  const auto* const conv = std::get_if<Conv2d>(&graph.layers()[layer].operation);
  if (conv == nullptr || graph.dtype() != DType::f32) return 1;
  const Shape& input = graph.shape_of(graph.inputs_of(layer).front());
  const Shape& output = graph.output_of(layer);
  if (!gains_by_winograd(*conv, input, output, batch) || !figures.has_winograd()) return 1;
  return winograd_time_part(*conv, input, output, batch);
}

/// For each layer. A model whose arithmetic is not known counts as one layer.
std::vector<LayerWork> layer_works(const Plan& plan, const Graph& graph, Figures& figures) {
  if (graph.layers().empty() || graph.training_flops() == 0) {
    const double flops = static_cast<double>(plan.training_flops) * plan.batch;
    return {{flops / 3, flops * 2 / 3, plan.batch}};
  }
  std::vector<LayerWork> works;
  for (std::uint32_t l = 0; l < graph.layers().size(); ++l) {
    const double flops = static_cast<double>(graph.forward_flops(l)) * plan.batch;
    const double forward = flops > 0 ? flops * computed_part(graph, l, plan.batch, figures) : 0;
    works.push_back({forward, forward * (graph.is_trained(graph.inputs_of(l).front()) ? 2 : 1),
                     product_rows(graph, l, plan.batch)});
  }
  return works;
}

/// The rank with the most computation, and its placement.
struct Slowest {
  double compute_s = 0;  // of a step
  std::vector<detail::LayerTime> layers{};
  double slower = 1;              // factor for ranks that share its cores
  std::uint32_t passing = 1;      // ranks of its host that pass over memory at the same time, each on one core
  std::uint32_t local_ranks = 1;  // ranks on its node
  bool lanes_apart = false;       // its lanes have cores of their own
};

Slowest slowest_rank(const Plan& plan, const Graph& graph, const Layout& layout, Figures& figures) {
  struct Host {
    std::uint32_t threads = 0;
    std::uint32_t ranks = 0;
    std::map<std::uint32_t, std::uint32_t> ranks_of_cpu;
  };
  std::map<std::string, Host> hosts;
  std::vector<std::uint32_t> ranks_of_node(plan.nodes.size());
  for (const RankPlan& rank : plan.ranks) {
    ++ranks_of_node.at(rank.node);
    Host& host = hosts[plan.nodes[rank.node].identity.boot_id];
    host.threads += rank.device_threads;
    ++host.ranks;
    for (const std::uint32_t cpu : rank.cpus) ++host.ranks_of_cpu[cpu];
  }
  // Thousands of ranks have only a few different placements.
  using Way = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, bool>;
  std::set<Way> ways;
  for (const RankPlan& rank : plan.ranks) {
    const Host& host = hosts[plan.nodes[rank.node].identity.boot_id];
    std::uint32_t sharing = 1;
    for (const std::uint32_t cpu : rank.cpus) sharing = std::max(sharing, host.ranks_of_cpu.at(cpu));
    ways.insert(
        {rank.device_threads, sharing, host.threads, host.ranks, ranks_of_node[rank.node], !rank.control_cpus.empty()});
  }
  const std::vector<LayerWork> works = layer_works(plan, graph, figures);
  Slowest slowest{.layers = std::vector<detail::LayerTime>(works.size())};
  const std::string dtype{name_of(plan.dtype)};
  const auto weights = static_cast<double>(layout.count_elements());
  for (const auto& [threads, sharing, busy, ranks, local, apart] : ways) {
    const std::uint32_t own = std::max(1u, threads), cores = std::max(1u, busy / sharing);
    std::vector<detail::LayerTime> layers;
    double seconds = 0;
    for (const LayerWork& work : works) {
      const double rate = figures.flops(dtype, work.rows, weights, own, cores - std::min(cores, own)) / sharing;
      layers.push_back({work.forward_flops / rate, work.backward_flops / rate});
      seconds += layers.back().forward_s + layers.back().backward_s;
    }
    if (seconds <= slowest.compute_s) continue;
    slowest = {seconds, std::move(layers), static_cast<double>(sharing), std::max(1u, ranks / sharing), local, apart};
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
  StepCosts(const Plan& plan, const Graph& graph, const Layout& layout, Figures& figures)
      : plan_(plan),
        graph_(graph),
        layout_(layout),
        figures_(figures),
        slowest_(slowest_rank(plan, graph, layout, figures)),
        exchanges_(plan.world_size() > 1) {
    if (!exchanges_) return;
    std::set<std::string> hosts;
    for (const NodePlan& node : plan.nodes) hosts.insert(node.identity.boot_id);
    wire_ = plan.uses_transport() ? figures.far(hosts.size() == 1) : figures.near("shm");
    if (plan.uses_transport()) mover_ = figures.near("tcp").bytes_per_second.median;
  }

  const PredictedStep& of(const std::vector<GroupStep>& groups) {
    const auto [at, is_new] = known_.try_emplace(groups);
    if (is_new) at->second = compute(groups);
    return at->second;
  }

 private:
  /// Seconds of a pass over `elements` with this many reads and writes of f32 for each.
  double pass_s(double elements, double reads, double writes) const {
    const double bytes = elements * (reads + writes) * kF32;
    if (bytes <= 0) return 0;
    return bytes / figures_.copy(slowest_.passing, bytes) * slowest_.slower;
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
    return plan_.shares_memory() ? static_cast<std::uint32_t>(plan_.nodes.size()) : plan_.world_size();
  }

  PredictedStep compute(const std::vector<GroupStep>& groups) const {
    PredictedStep step;
    step[StepPart::compute] = slowest_.compute_s;
    for (std::size_t g = 0; g < groups.size(); ++g) add_passes(step, plan_.groups[g], groups[g]);
    if (exchanges_ && plan_.uses_transport()) {
      add_wire(step, groups);
    }
    add_load(step);
    return step;
  }

  /// Work on the device's own stream.
  void add_passes(PredictedStep& step, const GroupPlan& group, const GroupStep& does) const {
    const double count = static_cast<double>(group.count);
    const std::size_t slots = state_slots(group);
    if (does.updates_locally) step[StepPart::update] += update_s(count, slots, 1);
    if (does.keeps) step[StepPart::copy] += pass_s(count, 1, 1);
    if (does.hosted) return add_hosted(step, group);
    if (does.sent == Sent::nothing) return;
    const bool own_weights = does.sent == Sent::delta || does.behind;
    if (does.sent == Sent::delta) step[StepPart::exchange] += pass_s(count, 2, 1);
    if (does.behind) step[StepPart::copy] += pass_s(count, 1, 1);
    if (own_weights) step[StepPart::copy] += pass_s(count, 1, 1 + bf16_writes());
    if (plan_.uses_transport()) return;
    const std::size_t kept = does.sent == Sent::delta ? kMaxOuterSlots : slots;
    step[StepPart::update] += update_s(largest_stripe(group), kept, plan_.world_size());
    // The ranks wait for each other twice per bucket: until gradients are written, and until parameters are published.
    if (exchanges_) step[StepPart::exchange] += 2 * static_cast<double>(group.buckets.size()) * wire_.seconds.median;
  }

  /// A push of gradients and then a read of parameters; the shards' queues are ignored.
  void add_hosted(PredictedStep& step, const GroupPlan& group) const {
    figures_.note("Hosted policies are predicted roughly: a rank pushes and reads, and waits for no other one.");
    const double count = static_cast<double>(group.count);
    const double others = exchanges_ ? static_cast<double>(plan_.world_size() - 1) / plan_.world_size() : 0;
    if (exchanges_) {
      const double ranks = plan_.uses_transport() ? slowest_.local_ranks : 1;
      step[StepPart::exchange] +=
          2 * (wire_.seconds.median + count * kF32 * others * ranks / wire_.bytes_per_second.median);
    }
    // In a step's time each rank's shard takes a push of every rank.
    step[StepPart::update] += plan_.world_size() * update_s(largest_stripe(group), state_slots(group), 1);
  }

  detail::ExchangeLink link_of(const GroupPlan& group, Sent sent) const {
    const double local = plan_.shares_memory() ? slowest_.local_ranks : 1;
    const std::size_t slots = sent == Sent::delta ? kMaxOuterSlots : state_slots(group);
    detail::ExchangeLink link;
    link.nodes = members();
    link.latency_s = wire_.seconds.median;
    link.bytes_per_second =
        wire_.bytes_per_second.median / (plan_.shares_memory() ? 1 : static_cast<double>(slowest_.local_ranks));
    link.sent_bytes_per_element = group.filter.kind == FilterKind::bf16 ? 2 : kF32;
    link.reduce_s_per_element =
        local > 1 ? pass_s(static_cast<double>(group.count), local, 1) / static_cast<double>(group.count) / local : 0;
    link.update_s_per_element =
        update_s(static_cast<double>(group.count), slots, members()) / static_cast<double>(group.count) / local;
    link.chunk_elements = chunk_elements(group.count);
    return link;
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
        behind_s += timeline.link_busy_s + 2 * link.latency_s;
      else
        exposed_s += timeline.exposed_s;
      // The rank's core moves the data that it sends and receives, and updates its own stripe.
      const double share = static_cast<double>(group.count) / (plan_.shares_memory() ? slowest_.local_ranks : 1);
      const double others = static_cast<double>(link.nodes - 1) / link.nodes;
      moving_s += (2 * share * others * (link.sent_bytes_per_element + kF32) / mover_ +
                   link.update_s_per_element * static_cast<double>(group.count) / link.nodes) *
                  slowest_.slower;
    }
    exposed_s += std::max(0.0, behind_s - step.total());
    step[StepPart::exchange] += std::max(exposed_s, slowest_.lanes_apart ? 0 : moving_s);
  }

  /// A batch is read and written while the previous step is computed.
  void add_load(PredictedStep& step) const {
    double elements = 0;
    for (const Field& field : graph_.fields()) elements += static_cast<double>(field.shape.count_elements());
    const double batches = plan_.node_loader ? slowest_.local_ranks : 1;
    const double filling_s = pass_s(elements * plan_.batch * batches, 1, 1);
    step[StepPart::load] = std::max(0.0, filling_s - step.total());
  }

  const Plan& plan_;
  const Graph& graph_;
  const Layout& layout_;
  Figures& figures_;
  const Slowest slowest_;
  const bool exchanges_;
  MessageFigure wire_;
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
  for (std::size_t i = 0; i < kStepParts; ++i) to.seconds[i] += step.seconds[i] * times;
}

}  // namespace

topology::Measurements assumed_figures(const Topology& topology) {
  Measurements assumed;
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

Prediction predict(const Plan& plan, const Graph& graph, const Layout& layout, const CostFigures& figures,
                   std::uint64_t steps) {
  Figures looked_up{figures};
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
  prediction.basis = looked_up.basis();
  return prediction;
}

}  // namespace troupe
