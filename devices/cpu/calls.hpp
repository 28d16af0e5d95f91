#pragma once

#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "devices/cpu/kernels/kernels.hpp"
#include "devices/cpu/onednn.hpp"

namespace troupe::cpu {

/// A matrix product or a convolution: what a step's time should consist of.
struct Product {
  BoundPrimitive primitive;
};

enum class ElementwiseKind : std::uint8_t { relu, add, mask, copy, widen, round };
/// A loop over all elements of tensors. Addresses are read when it is called: those of a batch are not known before.
struct Elementwise {
  ElementwiseKind kind;
  dnnl::memory to, from, other;  // add: to = from + other; mask: to = 0 where from is not above 0
  std::uint64_t count;
};

/// What one kind of layer does in a way of its own. It is made once; a call allocates nothing.
struct OwnWork {
  std::function<void(const Kernels& kernels)> run;
};

/// One entry of a program.
using Call = std::variant<Product, BoundPrimitive, Elementwise, OwnWork>;
using Calls = std::vector<Call>;

void execute(const Calls& calls, const dnnl::stream& stream, const Kernels& kernels);
/// The products alone.
void execute_products(const Calls& calls, const dnnl::stream& stream);

}  // namespace troupe::cpu
