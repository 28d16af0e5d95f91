#pragma once

#include <cstdint>

#include "runtime/model/graph.hpp"

namespace troupe {

/// Whether a convolution is to be computed as Winograd's F(4 x 4, 3 x 3): Lavin and Gray 2016, Fast algorithms for
/// convolutional neural networks. It multiplies 36 numbers for 16 places instead of 144, and pays for that with
/// transforms of images and weights. `rows`: images of a batch. Devices that have this algorithm ask, and predictions.
bool gains_by_winograd(const Conv2d& conv, const Shape& input, const Shape& output, std::uint32_t rows);

/// The time of a convolution that gains by it, as a part of the direct one's time, above 0 and at most 1: an estimate
/// by the products and transforms that it takes, fitted to the measurements behind gains_by_winograd().
double winograd_time_part(const Conv2d& conv, const Shape& input, const Shape& output, std::uint32_t rows);

}  // namespace troupe
