#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe::contracts {

/// Relative distances (L2) of gradients, and of the loss of a row. f32 differs by rounding alone, parameter by
/// parameter. bf16 keeps 8 bits of each activation, f16 11: single parameters whose gradients nearly cancel may be far
/// off, the gradient as a whole is not.
struct Tolerance {
  double gradient, loss;
};
/// f16 has 3 bits more than bf16, so an eighth as many ReLUs get an input on the other side of zero. Each changes the
/// gradient as much as in bf16, and the norm of such changes grows with the root of their number.
inline constexpr double kRootOf8 = 2.8;
inline Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return {1e-5, 1e-6};
    case DType::f16: return {0.15 / kRootOf8, 0.02 / 8};
    default: return {0.15, 0.02};
  }
}

/// |found - wanted| / |wanted| over `entry`, a part of the gradients; absolute where they are next to nothing, and
/// relative to a tenth of all gradients where terms cancel, as those of weights and a bias before a batch norm.
template <class Found, class Wanted>
double gradient_distance(std::span<const Found> found, std::span<const Wanted> wanted, const Layout::Entry& entry) {
  double difference = 0, size = 0, whole = 0;
  for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) {
    difference += std::pow(static_cast<double>(found[i]) - static_cast<double>(wanted[i]), 2);
    size += std::pow(static_cast<double>(wanted[i]), 2);
  }
  for (const Wanted gradient : wanted) whole += std::pow(static_cast<double>(gradient), 2);
  return std::sqrt(difference / std::max({size, 1e-2 * whole, 1e-12}));
}

}  // namespace troupe::contracts
