#pragma once

#include <cstdint>
#include <optional>

#include "devices/cuda/kernels/products.hpp"
#include "devices/cuda/product_library.hpp"

namespace troupe::cuda {

/// A product of kernels of ours as calls of a library. Rows that lie one after the other are columns to it, so it
/// computes the transposed product, with the operands exchanged. Matrices of a batch have one stride there: where a
/// batch has two (rows, and heads in each), it is several calls, whose addresses are `step_...` bytes apart.
struct LibraryProduct {
  ProductForm form;
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  std::uint32_t calls = 1;
  std::uint64_t step_a = 0, step_b = 0, step_d = 0;
};

/// Without a value: an extent is 0 or above 31 bits, operands have different types, or elements that are next to each
/// other in no direction.
std::optional<LibraryProduct> library_product(const MultiplyArgs& args);

}  // namespace troupe::cuda
