#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/memory/memory_binding.hpp"

namespace troupe {

/// Binds memory to NUMA nodes of this host, by the system's numbers, with hwloc. Where the process was started with a
/// memory policy of its own (numactl, srun --mem-bind), where a node is not here, or where the system does not let it,
/// nothing is bound, and refusal() says so. Takes some milliseconds. Null for no nodes.
/// `synthetic`: instead of this host, a machine of hwloc's description ("numa:2 core:4 pu:1"), on which hwloc accepts
/// what it would do and does nothing: for tests of machines that are not here; empty: this host.
std::unique_ptr<MemoryBinding> make_memory_binding(std::vector<std::uint32_t> nodes, const std::string& synthetic = {});

}  // namespace troupe
