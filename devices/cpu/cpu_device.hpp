#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/compute/device.hpp"
#include "runtime/lanes/active_wait.hpp"

namespace troupe {

struct CpuDeviceOptions {
  std::vector<std::uint32_t> cpus;  // the streams' threads stay on these; empty: where the system puts them
  std::uint32_t threads = 1;        // that one kernel may use
  bool may_spin = false;            // a stream without work polls a little before it sleeps
  bool share_activations = true;    // false: no two tensors of a program lie in the same memory, to compare or to find
                                    // faults
  std::chrono::milliseconds wait_deadline{30000};  // a wait that takes longer fails the stream with Code::timeout
  ActiveWait* waits = nullptr;  // how streams wait for lines of this process, outlives them; null: they sleep
};

/// Cores as a device: matrix products by oneDNN, everything else by own kernels for the instruction set found at run
/// time. Each stream has a thread that flushes denormals to zero; destroying a stream waits until its work is done. A
/// stream takes at most 1,024 pieces of work at a time: one more is Error{invalid}, since step credits bound what is
/// ahead. Replicas run on this device's streams only, and live until their work is done. `space` outlives the device.
/// Throws Error{unsupported} when the build has no oneDNN, Error{invalid} for 0 threads or a deadline that is not
/// positive.
std::unique_ptr<Device> make_cpu_device(AddressSpace& space, CpuDeviceOptions options);
/// Whether this build has the CPU device.
bool cpu_device_available();
/// Whether it computes f32 convolutions by Winograd's algorithm here, where that gains (runtime/compute/winograd.hpp).
bool cpu_device_has_winograd();
/// For people: the implementation each primitive of a CPU device's replica uses, one a line. Throws Error{invalid} for
/// another device's replica.
std::string describe_cpu_replica(const Replica& replica);
/// What a CPU device's replica has taken to compute in, in bytes: activations, their gradients, and what primitives
/// work in. The smaller programs for fewer rows have room in the same memory.
struct CpuReplicaMemory {
  std::uint64_t taken = 0;
  std::uint64_t apart = 0;  // what it would be if no two tensors shared memory
  std::uint64_t least = 0;  // what is needed at one time at the most: sharing can take no less
};
/// Throws Error{invalid} for another device's replica.
CpuReplicaMemory memory_of_cpu_replica(const Replica& replica);
/// Enqueues a training step's matrix products alone, the same primitives on the same buffers: what no step can be
/// faster than. For measurements; gradients are rubbish afterwards. `batch` and `sums` as for Replica::step, whose
/// arithmetic must have run on this replica before. Throws Error{invalid} for another device's replica.
void enqueue_products(Replica& replica, Stream& stream, Memory batch, Memory sums);

}  // namespace troupe
