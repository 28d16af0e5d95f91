#include "devices/cpu/image_layouts.hpp"

#include <numeric>

#include "runtime/compute/winograd.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe::cpu {
namespace {

/// What a layer requires of the layouts of its tensors.
enum class LayoutDemand : std::uint8_t {
  none,      // each may have any layout
  alike,     // all must have the same layout
  unblocked  // all must be in plain layout
};

LayoutDemand demand_of(const troupe::Operation& operation) {
  return std::visit(
      []<class Kind>(const Kind& kind) {
        if constexpr (std::is_same_v<Kind, Conv2d> || std::is_same_v<Kind, GlobalAveragePool>) {
          return LayoutDemand::none;
        } else if constexpr (std::is_same_v<Kind, Dense>) {
          return kind.flatten ? LayoutDemand::none : LayoutDemand::unblocked;
        } else if constexpr (std::is_same_v<Kind, MaxPool> || std::is_same_v<Kind, AveragePool> ||
                             std::is_same_v<Kind, BatchNorm> || std::is_same_v<Kind, Relu> ||
                             std::is_same_v<Kind, Tanh> || std::is_same_v<Kind, Sigmoid> ||
                             std::is_same_v<Kind, Gelu> || std::is_same_v<Kind, Add> ||
                             std::is_same_v<Kind, Multiply>) {
          return LayoutDemand::alike;
        } else {
          return LayoutDemand::unblocked;
        }
      },
      operation);
}

bool may_have_blocks(const Shape& shape) {
  return shape.extents.size() == 3 && shape.extents[2] % kBlockChannels == 0 && shape.extents[2] > kBlockChannels;
}

/// Sets of tensors, some of which are marked.
class Sets {
 public:
  explicit Sets(std::size_t tensors) : leader_(tensors), marked_(tensors) {
    std::iota(leader_.begin(), leader_.end(), 0);
  }
  void join(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t from = leader_of(a), to = leader_of(b);
    leader_[from] = to;
    marked_[to] = marked_[to] || marked_[from];
  }
  void mark(std::uint32_t tensor) { marked_[leader_of(tensor)] = true; }
  bool is_marked(std::uint32_t tensor) { return marked_[leader_of(tensor)]; }

 private:
  std::uint32_t leader_of(std::uint32_t tensor) {
    while (leader_[tensor] != tensor) tensor = leader_[tensor] = leader_[leader_[tensor]];
    return tensor;
  }
  std::vector<std::uint32_t> leader_;
  std::vector<bool> marked_;  // by leader
};

}  // namespace

std::vector<bool> tensors_in_blocks(const Graph& graph, const std::vector<std::uint32_t>& same, std::uint32_t rows) {
  const auto fields = static_cast<std::uint32_t>(graph.fields().size());
  Sets alike{same.size()};    // must have the same layout; marked: not in blocks
  Sets regions{same.size()};  // these, joined by convolutions between images of one size; marked: they gain by blocks
  for (std::uint32_t t = 0; t < same.size(); ++t)
    if (t < fields || (same[t] == t && !may_have_blocks(graph.shape_of(t)))) alike.mark(t);
  for (std::uint32_t l = 0; l < graph.layers().size(); ++l) {
    const troupe::Operation& operation = graph.layers()[l].operation;
    if (std::holds_alternative<Flatten>(operation)) continue;
    const auto& inputs = graph.inputs_of(l);
    const std::uint32_t output = graph.output_tensor(l);
    const bool is_loss = kind_of(operation).is_loss;
    const LayoutDemand demand = is_loss ? LayoutDemand::unblocked : demand_of(operation);
    for (const std::uint32_t input : inputs) {
      if (demand == LayoutDemand::unblocked) alike.mark(same[input]);
      if (demand != LayoutDemand::alike) continue;
      alike.join(same[input], output);
      regions.join(same[input], output);
    }
    if (demand == LayoutDemand::unblocked && !is_loss) alike.mark(output);
    const auto* conv = std::get_if<Conv2d>(&operation);
    if (conv == nullptr) continue;
    const Shape &from = graph.shape_of(inputs.front()), &to = graph.output_of(l);
    if (from.extents[0] == to.extents[0] && from.extents[1] == to.extents[1])
      regions.join(same[inputs.front()], output);
    if (!gains_by_winograd(*conv, from, to, rows)) continue;
    regions.mark(same[inputs.front()]);
    regions.mark(output);
  }
  std::vector<bool> blocked;
  for (const std::uint32_t tensor : same) blocked.push_back(regions.is_marked(tensor) && !alike.is_marked(tensor));
  return blocked;
}

}  // namespace troupe::cpu
