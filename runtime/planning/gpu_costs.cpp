#include "runtime/planning/detail/gpu_costs.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/planning/detail/gpu_memory.hpp"
#include "runtime/topology/rings_and_trees.hpp"

namespace troupe::detail {
namespace {

using topology::GpuFigure;
using topology::GpuLinkFigure;

constexpr double kGiga = 1e9;
/// Of a step of a ring between nodes that was not measured. Source: NCCL's model of its own speed (tuning.cc: ring,
/// simple protocol).
constexpr double kNetworkSeconds = 14e-6;

const GpuUse& use_of(const Plan& plan, const RankPlan& rank) {
  const std::vector<GpuUse>& gpus = plan.nodes[rank.node].gpus;
  const auto found = std::ranges::find(gpus, rank.gpu, &GpuUse::bus);
  TROUPE_CHECK(found != gpus.end(), Code::invalid, "rank ", rank.rank.value, " computes on the GPU at ", rank.gpu,
               ", which its node does not have");
  return *found;
}

bool has_library(const Operation& operation) {
  if (std::holds_alternative<Dense>(operation) || std::holds_alternative<Attention>(operation)) return true;
  return std::holds_alternative<Conv2d>(operation);
}

/// A convolution of several pixels: its library is not the one that was measured.
bool has_other_library(const Operation& operation) {
  const auto* const conv = std::get_if<Conv2d>(&operation);
  return conv != nullptr && !is_one_product(*conv);
}

/// How many kernels a pass of a layer enqueues, about.
struct Kernels {
  double forward = 1, backward = 1;
};
Kernels kernels_of(const Operation& operation) {
  if (std::holds_alternative<Flatten>(operation)) return {0, 0};
  if (std::holds_alternative<Attention>(operation)) return {3, 6};
  if (std::holds_alternative<Dense>(operation) || std::holds_alternative<Conv2d>(operation)) return {1, 4};
  if (std::holds_alternative<BatchNorm>(operation) || std::holds_alternative<LayerNorm>(operation)) return {2, 3};
  return {1, 1};
}

/// The bytes of one layer in a step.
struct LayerBytes {
  double inputs = 0, output = 0;  // activations
  double weights = 0;             // as they are read
  double gradients = 0;           // f32
};

class Roofline {
 public:
  Roofline(const Plan& plan, const Graph& graph, double weights, const GpuSpeeds& speeds, CostLookup& figures)
      : plan_(plan),
        graph_(graph),
        weights_(weights),
        speeds_(speeds),
        figures_(figures),
        of_layer_(graph.layers().size()) {
    for (const Parameter& parameter : graph.parameters()) {
      const auto count = static_cast<double>(parameter.count_elements());
      of_layer_[parameter.layer].weights += count * static_cast<double>(size_bytes(graph.dtype()));
      of_layer_[parameter.layer].gradients += count * sizeof(float);
    }
  }

  std::vector<LayerTime> times() {
    std::vector<LayerTime> all;
    for (std::uint32_t l = 0; l < graph_.layers().size(); ++l) all.push_back(time_of(l));
    for (const auto& [what, most] : rates_)
      figures_.use({.what = "products in " + what,
                    .value = most.rate / 1e12,
                    .unit = "TFLOP/s",
                    .is_modelled = speeds_.is_modelled});
    return all;
  }

 private:
  double bytes_of(std::uint32_t tensor) const {
    return static_cast<double>(graph_.shape_of(tensor).count_elements()) * plan_.batch *
           static_cast<double>(size_bytes(graph_.dtype()));
  }
  double rate_of(std::uint32_t layer, double flops) {
    const Operation& operation = graph_.layers()[layer].operation;
    const bool by_library = has_library(operation) && plan_.in_gpu_memory;
    // f16 is not measured. Units for products have one speed for both types of 16 bits.
    const bool is_f16 = graph_.dtype() == DType::f16;
    const bool has_16_bits = is_f16 || graph_.dtype() == DType::bf16;
    const std::string dtype = has_16_bits ? "bf16" : by_library && figures_.uses_tf32() ? "tf32" : "f32";
    const double rate =
        figures_.gpu_flops(speeds_.figure, dtype, by_library, product_rows(graph_, layer, plan_.batch), weights_);
    if (is_f16 || (by_library && has_other_library(operation))) figures_.mark_guess();
    Most& most = rates_[dtype + (by_library && !speeds_.figure.compute.empty() ? " by a library" : " by own kernels")];
    if (flops > most.flops) most = {flops, rate};
    return rate;
  }
  LayerTime time_of(std::uint32_t layer) {
    const Operation& operation = graph_.layers()[layer].operation;
    if (std::holds_alternative<Flatten>(operation)) return {};
    LayerBytes bytes = of_layer_[layer];
    for (const std::uint32_t input : graph_.inputs_of(layer)) bytes.inputs += bytes_of(input);
    const bool is_loss = kind_of(operation).is_loss;
    bytes.output = is_loss ? bytes.inputs : bytes_of(graph_.output_tensor(layer));
    const double flops = static_cast<double>(graph_.forward_flops(layer)) * plan_.batch;
    const double products_s = flops > 0 ? flops / rate_of(layer, flops) : 0;
    const Kernels kernels = kernels_of(operation);
    const double kernel_s = speeds_.figure.kernel_seconds.median;
    const double weights_s = bytes.weights / speeds_.weights.bytes_per_second;
    LayerTime time;
    time.forward_s = std::max({products_s, (bytes.inputs + bytes.output) / speeds_.memory.bytes_per_second + weights_s,
                               kernels.forward * kernel_s});
    if (is_loss || !graph_.is_trained(graph_.output_tensor(layer))) return time;
    // It reads what the forward pass did and the gradient to the output, and writes those to weights and inputs.
    const bool passes_on = graph_.is_trained(graph_.inputs_of(layer).front());
    const double moved = bytes.inputs + bytes.output + (passes_on ? bytes.inputs : 0);
    time.backward_s = std::max(
        {products_s * (passes_on ? 2 : 1),
         moved / speeds_.memory.bytes_per_second + weights_s + bytes.gradients / speeds_.gradients.bytes_per_second,
         kernels.backward * kernel_s});
    return time;
  }

  struct Most {
    double flops = 0, rate = 0;
  };
  const Plan& plan_;
  const Graph& graph_;
  const double weights_;
  const GpuSpeeds& speeds_;
  CostLookup& figures_;
  std::vector<LayerBytes> of_layer_;
  std::map<std::string, Most> rates_;  // of the layer with the most operations
};

/// The ranks of each node that has several; of nodes with the same GPUs those of the first.
std::vector<std::vector<const RankPlan*>> ranks_of_nodes(const Plan& plan) {
  std::vector<std::vector<const RankPlan*>> of_node(plan.nodes.size());
  for (const RankPlan& rank : plan.ranks) of_node[rank.node].push_back(&rank);
  std::set<std::string> known;
  std::vector<std::vector<const RankPlan*>> all;
  for (std::vector<const RankPlan*>& ranks : of_node) {
    if (ranks.size() < 2) continue;
    std::string names;
    for (const RankPlan* const rank : ranks) names += use_of(plan, *rank).model + ' ' + rank->gpu + ' ';
    if (known.insert(names).second) all.push_back(std::move(ranks));
  }
  return all;
}

/// The slowest edge of a ring, and the longest step over one.
struct Edge {
  double bytes_per_second = std::numeric_limits<double>::infinity();
  double seconds = 0;
  void take(double rate, double step_s) {
    bytes_per_second = std::min(bytes_per_second, rate);
    seconds = std::max(seconds, step_s);
  }
};

/// Between two GPUs of a node: the slower of both directions.
Edge edge_between(const RankPlan& one, const RankPlan& other, bool measured, CostLookup& figures) {
  Edge edge;
  for (const auto& [from, to] : {std::pair{&one, &other}, {&other, &one}}) {
    const GpuLinkFigure link = figures.gpu_link(from->gpu, to->gpu, measured);
    edge.take(link.bytes_per_second.median, link.seconds.median);
  }
  return edge;
}

Edge ring_within_nodes(const Plan& plan, CostLookup& figures) {
  Edge slowest;
  for (const std::vector<const RankPlan*>& ranks : ranks_of_nodes(plan)) {
    const std::size_t count = ranks.size();
    const bool measured = figures.gpu(use_of(plan, *ranks.front())).modelled_from.empty();
    topology::RateMatrix rates{.count = count, .rates = std::vector<double>(count * count)};
    double step_s = 0;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = i + 1; j < count; ++j) {
        const Edge edge = edge_between(*ranks[i], *ranks[j], measured, figures);
        rates.rates[i * count + j] = rates.rates[j * count + i] = edge.bytes_per_second;
        step_s = std::max(step_s, edge.seconds);
      }
    }
    slowest.take(topology::find_ring(rates).slowest, step_s);
  }
  return slowest;
}

/// The number of ranks between which NCCL exchanges.
double largest_group(const Plan& plan) {
  const auto& sets = plan.levels.front().sets;
  return static_cast<double>(std::ranges::max_element(sets, {}, &std::vector<Rank>::size)->size());
}

/// What a node's network devices send together.
Edge between_nodes(const Plan& plan, CostLookup& figures) {
  if (plan.nodes.size() < 2) return {};
  std::set<std::string> hosts, devices;
  for (const NodePlan& node : plan.nodes) hosts.insert(node.identity.boot_id);
  for (const RankPlan& rank : plan.ranks)
    if (rank.node == 0) devices.insert(rank.network_device);
  const bool on_one_host = hosts.size() == 1;
  const topology::MessageFigure far = figures.far(on_one_host);
  const bool is_guess = figures.take_guess();
  if (is_guess || devices.size() > 1) figures.mark_guess();  // one device was measured, not all of them together
  Edge edge;
  edge.take(far.bytes_per_second.median * static_cast<double>(devices.size()),
            is_guess && !on_one_host ? kNetworkSeconds : far.seconds.median);
  return edge;
}

}  // namespace

std::uint32_t product_rows(const Graph& graph, std::uint32_t layer, std::uint32_t batch) {
  const Operation& operation = graph.layers()[layer].operation;
  const std::uint64_t elements = graph.output_of(layer).count_elements();
  std::uint64_t places = 1;
  if (const auto* const conv = std::get_if<Conv2d>(&operation)) places = elements / conv->filters;
  if (const auto* const dense = std::get_if<Dense>(&operation)) places = elements / dense->units;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(batch * places, UINT32_MAX));
}

GpuSpeeds gpu_speeds(const Plan& plan, const RankPlan& rank, std::uint32_t sharing, CostLookup& figures) {
  GpuSpeeds speeds{.figure = figures.gpu(use_of(plan, rank)), .sharing = sharing};
  speeds.is_modelled = !speeds.figure.modelled_from.empty();
  speeds.memory = {speeds.figure.bytes_per_second.median, speeds.is_modelled};
  const auto rate_from = [&](const std::string& place) {
    (void)figures.take_guess();
    const GpuLinkFigure link = figures.gpu_link(place, rank.gpu, !speeds.is_modelled);
    if (place == GpuLinkFigure::kHost) speeds.signal_s = link.seconds.median;
    return KnownRate{link.bytes_per_second.median, figures.take_guess()};
  };
  speeds.host = rate_from(GpuLinkFigure::kHost);
  speeds.gradients = speeds.weights = plan.in_gpu_memory ? speeds.memory : speeds.host;
  const RankPlan& leader = plan.ranks[plan.nodes[rank.node].leader];
  if (plan.in_gpu_memory && plan.shares_memory() && leader.gpu != rank.gpu) speeds.weights = rate_from(leader.gpu);
  const auto use = [&](const char* what, double value, const char* unit, bool is_modelled) {
    figures.use({.what = what, .value = value, .unit = unit, .is_modelled = is_modelled});
  };
  use("copies within a GPU's memory", speeds.memory.bytes_per_second / kGiga, "GB/s", speeds.is_modelled);
  use("from the host to a GPU", speeds.host.bytes_per_second / kGiga, "GB/s", speeds.host.is_modelled);
  use("launch of a recorded step", speeds.figure.launch_seconds.median * 1e6, "us", speeds.is_modelled);
  use("a further small kernel of it", speeds.figure.kernel_seconds.median * 1e6, "us", speeds.is_modelled);
  if (speeds.is_modelled || speeds.host.is_modelled || speeds.weights.is_modelled) figures.mark_guess();
  return speeds;
}

std::vector<LayerTime> gpu_layer_times(const Plan& plan, const Graph& graph, double weights, const GpuSpeeds& speeds,
                                       CostLookup& figures) {
  std::vector<LayerTime> times = Roofline{plan, graph, weights, speeds, figures}.times();
  double batch_bytes = 0, seconds = 0;
  for (const Field& field : graph.fields())
    batch_bytes += static_cast<double>(field.shape.count_elements() * size_bytes(field.dtype)) * plan.batch;
  times.front().forward_s += std::max(batch_bytes / speeds.host.bytes_per_second, speeds.figure.kernel_seconds.median);
  for (const LayerTime& time : times) seconds += time.forward_s + time.backward_s;
  times.front().forward_s += std::max(0.0, speeds.figure.launch_seconds.median - seconds);
  for (LayerTime& time : times) time.forward_s *= speeds.sharing, time.backward_s *= speeds.sharing;
  return times;
}

NcclWay nccl_way(const Plan& plan, CostLookup& figures) {
  (void)figures.take_guess();
  const Edge within = ring_within_nodes(plan, figures);
  const bool within_guessed = figures.take_guess();
  const Edge between = plan.has_two_levels() ? Edge{} : between_nodes(plan, figures);
  const bool between_guessed = figures.take_guess();
  const double ranks = largest_group(plan), others = (ranks - 1) / ranks;
  const double local = static_cast<double>(plan.world_size()) / static_cast<double>(plan.nodes.size());
  const double slowest = std::min(within.bytes_per_second, between.bytes_per_second);
  const double step_s = std::max(within.seconds, between.seconds);
  const auto use = [&](const char* what, double value, const char* unit, bool guessed) {
    figures.use({.what = what, .value = value, .unit = unit, .is_modelled = guessed});
  };
  if (plan.nodes.size() < plan.world_size())
    use("the slowest link of NCCL's ring within a node", within.bytes_per_second / kGiga, "GB/s", within_guessed);
  if (plan.nodes.size() > 1 && !plan.has_two_levels())
    use("from a node to others, all its network devices", between.bytes_per_second / kGiga, "GB/s", between_guessed);
  use("a step of NCCL's ring", step_s * 1e6, "us", within_guessed || between_guessed);
  NcclWay way{.gradient_s_per_byte = others / slowest,
              .parameter_s_per_byte = others / slowest,
              .call_s = 2 * (ranks - 1) * step_s};
  if (!plan.nccl_adds && !plan.has_two_levels() && plan.nodes.size() > 1 && local > 1)
    way.gradient_s_per_byte =
        std::max(others / within.bytes_per_second, local * (ranks - local) / ranks / between.bytes_per_second);
  if (within_guessed || between_guessed) figures.mark_guess();
  return way;
}

}  // namespace troupe::detail
