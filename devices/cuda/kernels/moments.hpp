#pragma once

#include "devices/cuda/kernels/kernel.hpp"

// What norms find out about the numbers that they normalize.
namespace troupe::cuda {

/// Count, mean and the squares of distances from it, of numbers that come in parts. Source: Chan, Golub, LeVeque 1979
/// (Updating formulae and a pairwise algorithm for computing sample variances).
struct Moments {
  float count, mean, squares;

  TROUPE_KERNEL_MEMBER void add(const Moments& other) {
    if (other.count == 0) return;
    const float both = count + other.count, distance = other.mean - mean, part = other.count / both;
    squares += other.squares + distance * distance * count * part;
    mean += distance * part;
    count = both;
  }
};

/// The same of numbers that one thread takes one by one, by their distances from the first of them, which is as far
/// from the mean as they are: without a division for each.
struct NearSums {
  float count, first, distances, squares;

  TROUPE_KERNEL_MEMBER void take(float x) {
    if (count == 0) first = x;
    const float distance = x - first;
    count += 1;
    distances += distance;
    squares += distance * distance;
  }
  TROUPE_KERNEL_MEMBER explicit operator Moments() const {
    if (count == 0) return {0, 0, 0};
    const float mean = distances / count, left = squares - distances * mean;
    return {count, first + mean, left < 0 ? 0.0F : left};  // below 0 by rounding
  }
};

}  // namespace troupe::cuda
