#pragma once

#include <cstdint>

#include "runtime/model/graph.hpp"

namespace troupe {

/// Whether to compute a convolution as Winograd's F(4 x 4, 3 x 3): Lavin and Gray 2016, Fast algorithms for
/// convolutional neural networks. It takes 36 products for 16 positions instead of 144, but must transform images and
/// weights. `rows`: images in a batch. Used by devices that have this algorithm, and by predictions.
bool gains_by_winograd(const Conv2d& conv, const Shape& input, const Shape& output, std::uint32_t rows);

/// The time of a convolution that gains by it, as a fraction of the direct one's time, above 0 and at most 1: an
/// estimate from the number of products and transforms, fitted to the measurements behind gains_by_winograd().
double winograd_time_part(const Conv2d& conv, const Shape& input, const Shape& output, std::uint32_t rows);

}  // namespace troupe
