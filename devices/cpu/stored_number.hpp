#pragma once

#include <cstdint>

#include "runtime/model/layout.hpp"

namespace troupe::cpu {

/// An element of a tensor as f32, whether it is stored as f32 or as bf16, and back.
inline float number_of(float value) noexcept { return value; }
inline float number_of(std::uint16_t value) noexcept { return from_bf16(value); }
inline void store(float value, float* to) noexcept { *to = value; }
inline void store(float value, std::uint16_t* to) noexcept { *to = to_bf16(value); }

}  // namespace troupe::cpu
