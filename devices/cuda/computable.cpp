#include <string>
#include <variant>

#include "devices/cuda/cuda_device.hpp"
#include "devices/cuda/kernels/elements.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe {
namespace {

/// Why the device refuses a layer, whatever the batch; empty: it takes it.
std::string trouble_of(const Graph& graph, std::uint32_t layer, std::size_t ranks) {
  const Operation& operation = graph.layers()[layer].operation;
  const std::uint64_t inputs = graph.inputs_of(layer).size();
  const std::uint64_t extents = graph.output_of(layer).extents.size();
  if (const auto* const norm = std::get_if<BatchNorm>(&operation); norm != nullptr && norm->synchronized && ranks > 1)
    return "it needs numbers of other ranks in the middle of a step";
  if ((std::holds_alternative<Add>(operation) || std::holds_alternative<Multiply>(operation)) &&
      inputs > cuda::kMostInputs)
    return text("it has ", inputs, " inputs, a cuda device takes ", cuda::kMostInputs);
  if (std::holds_alternative<Transpose>(operation) && extents > cuda::kMostExtents)
    return text("it has ", extents, " extents, a cuda device takes ", cuda::kMostExtents);
  return {};
}

}  // namespace

// What CudaReplica accepts, without a device. A test compares the two on graphs of all kinds of layers.
std::string cuda_refusal(const Graph& graph, std::size_t ranks) {
  for (std::uint32_t l = 0; l < graph.layers().size(); ++l) {
    if (const std::string why = trouble_of(graph, l, ranks); !why.empty())
      return text("a cuda device cannot compute layer ", graph.layers()[l].name, " (",
                  text_of(graph.layers()[l].operation), ") of graph ", graph.name(), ": ", why);
  }
  return {};
}

}  // namespace troupe
