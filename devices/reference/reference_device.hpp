#pragma once

#include <chrono>
#include <memory>

#include "runtime/compute/device.hpp"

namespace troupe {

/// The device that others are compared with: forward and backward in f64, as plain loops on one thread. Slow. bf16
/// graphs read the copy and batches in bf16; all computation is in f64 and rounded to f32 when it is stored.
/// Updates apply the definition of the rules, element by element, so updated parameters have the bits that every
/// device must produce. `space` outlives the device; waits longer than `wait_deadline` end the stream with
/// Code::timeout.
std::unique_ptr<Device> make_reference_device(AddressSpace& space,
                                              std::chrono::milliseconds wait_deadline = std::chrono::seconds{30});

}  // namespace troupe
