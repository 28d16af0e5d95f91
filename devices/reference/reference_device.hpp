#pragma once

#include <chrono>
#include <memory>

#include "runtime/compute/device.hpp"

namespace troupe {

/// The device that the others are compared with: forward and backward in f64, one plain loop after another, on one
/// thread. Slow. bf16 graphs read the bf16 image and bf16 batches; everything computed is f64, and rounded to f32 when
/// it is stored. Updates apply the rules' definition, element by element, so updated parameters have the bits that
/// every device must give. `space` outlives the device; waits longer than `wait_deadline` fail the stream with
/// Code::timeout.
std::unique_ptr<Device> make_reference_device(AddressSpace& space,
                                              std::chrono::milliseconds wait_deadline = std::chrono::seconds{30});

}  // namespace troupe
