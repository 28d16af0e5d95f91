#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "apps/session/session.hpp"

namespace troupe {

/// What kinds of device take from elsewhere than a rank's plan.
struct DeviceChoices {
  std::function<std::uint32_t()> cpu_threads;  // on how many a device of cores computes; asked once, by that kind alone
  bool tf32 = false;                           // a GPU's products of f32 may round their operands to TF32
};

/// The device of a rank's plan. Each kind is a row of a table; docs/extending.md lists all that a new one needs. Throws
/// Error{invalid} for a kind without a row, and what the kind throws.
std::unique_ptr<Device> make_planned_device(const DeviceContext& context, const DeviceChoices& choices);

}  // namespace troupe
