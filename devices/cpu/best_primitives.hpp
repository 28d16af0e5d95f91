#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "devices/cpu/step_program.hpp"

namespace troupe::cpu {

/// A oneDNN primitive with memory of its own.
struct OfferedPrimitive {
  BoundPrimitive primitive;
  std::string implementation;
};

/// For each piece of work of `part` of a program of `graph` for `rows` rows: every implementation that oneDNN has for
/// it, except its reference code, in every layout that may be the fastest. Empty: oneDNN has no primitive for this kind
/// of layer. Threads: those that are set when it is called.
std::vector<std::vector<OfferedPrimitive>> offered_primitives(const Graph& graph, std::uint32_t rows,
                                                              const StepProgram::LayerPass& part,
                                                              const dnnl::engine& engine, const dnnl::stream& stream);

}  // namespace troupe::cpu
