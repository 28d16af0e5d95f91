#pragma once

#include <cstdint>

#include "runtime/model/graph.hpp"

namespace troupe::detail {

/// What a device needs for a step's activations and their gradients over `rows` rows, where tensors that are never
/// needed at the same time share memory, in bytes. An estimate that depends on the graph alone, so that all ranks have
/// the same: what a device's primitives work in is not counted.
std::uint64_t activation_bytes(const Graph& graph, std::uint32_t rows);

}  // namespace troupe::detail
