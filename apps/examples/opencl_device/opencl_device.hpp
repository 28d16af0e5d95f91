#pragma once

#include <chrono>
#include <memory>

#include "runtime/compute/device.hpp"
#include "runtime/memory/arena.hpp"

namespace opencl {

/// A device on the first OpenCL platform of this machine that shares memory with the host: dense layers in f32, every
/// rule, restartable updates with the same bits as the other devices. `space` outlives it. A wait longer than
/// `wait_deadline` fails the stream with Code::timeout. Throws troupe::Error{unsupported} if no platform is suitable.
std::unique_ptr<troupe::Device> make_opencl_device(troupe::AddressSpace& space,
                                                   std::chrono::milliseconds wait_deadline);

}  // namespace opencl
