#pragma once

#include <cstdint>

#include "runtime/model/graph.hpp"

namespace troupe::detail {

/// The bytes that a device needs for a step's activations and their gradients over `rows` rows, if tensors that are
/// never needed at the same time share memory. An estimate from the graph alone, so that all ranks get the same; the
/// working memory of a device's primitives is not counted.
std::uint64_t activation_bytes(const Graph& graph, std::uint32_t rows);

}  // namespace troupe::detail
