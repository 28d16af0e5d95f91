#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/memory/memory_binding.hpp"

namespace troupe {

/// Binds memory to NUMA nodes of this host, by the system's numbers, with hwloc. If the process was started with a
/// memory policy of its own (numactl, srun --mem-bind), if a node does not exist here, or if the system refuses,
/// nothing is bound, and refusal() says so. Takes some milliseconds. Null if `nodes` is empty.
/// `synthetic`: instead of this host, a machine in hwloc's description ("numa:2 core:4 pu:1"), for which hwloc accepts
/// all calls and does nothing: for tests of other machines; empty: this host.
std::unique_ptr<MemoryBinding> make_memory_binding(std::vector<std::uint32_t> nodes, const std::string& synthetic = {});

}  // namespace troupe
