#pragma once

#include <chrono>
#include <memory>

#include "runtime/compute/device.hpp"
#include "runtime/memory/arena.hpp"

namespace opencl {

/// A device on the first OpenCL platform of this machine that shares memory with the host: dense layers in f32, every
/// rule, restartable updates with the bits of the other devices. `space` outlives it; waits longer than `wait_deadline`
/// fail the stream with Code::timeout. Throws troupe::Error{unsupported} when no platform will do.
std::unique_ptr<troupe::Device> make_opencl_device(troupe::AddressSpace& space,
                                                   std::chrono::milliseconds wait_deadline);

}  // namespace opencl
