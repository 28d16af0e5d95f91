#include <variant>

#include "devices/cuda/cuda_device.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe {
namespace {

bool has_kernels(const Operation& operation) {
  return std::holds_alternative<Dense>(operation) || std::holds_alternative<Flatten>(operation) ||
         std::holds_alternative<Relu>(operation) || std::holds_alternative<Tanh>(operation) ||
         std::holds_alternative<Sigmoid>(operation) || std::holds_alternative<Gelu>(operation);
}

/// Why the device refuses a layer; null: it takes it.
const char* trouble_of(const Graph& graph, std::uint32_t layer, std::size_t ranks) {
  const auto* const norm = std::get_if<BatchNorm>(&graph.layers()[layer].operation);
  if (norm != nullptr && norm->synchronized && ranks > 1)
    return "it needs numbers of other ranks in the middle of a step";
  const std::uint32_t input = graph.inputs_of(layer).front();
  if (graph.count_readers(input) != 1) return "several layers read what it reads";
  if (input < graph.fields().size() && graph.fields()[input].dtype != graph.dtype())
    return "it reads a field that is not of the graph's type";
  const Operation& operation = graph.layers()[layer].operation;
  if (std::holds_alternative<SoftmaxCrossEntropy>(operation) && layer + 1 == graph.layers().size()) return nullptr;
  return has_kernels(operation) ? nullptr : "it has no kernels for that";
}

}  // namespace

// What CudaReplica accepts, without a device. A test compares the two on graphs of all kinds of layers.
std::string cuda_refusal(const Graph& graph, std::size_t ranks) {
  for (std::uint32_t l = 0; l < graph.layers().size(); ++l) {
    if (const char* const why = trouble_of(graph, l, ranks))
      return text("a cuda device cannot compute layer ", graph.layers()[l].name, " (",
                  text_of(graph.layers()[l].operation), ") of graph ", graph.name(), ": ", why);
  }
  return {};
}

}  // namespace troupe
