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
  std::vector<std::uint32_t> cpus;  // the streams' threads run on these; empty: the operating system decides
  std::uint32_t threads = 1;        // that one kernel may use
  bool may_spin = false;            // a stream without work polls for some microseconds before it sleeps
  bool share_activations = true;    // false: no two tensors share memory, for comparison or to find faults
  std::chrono::milliseconds wait_deadline{30000};  // a wait that takes longer fails the stream with Code::timeout
  ActiveWait* waits = nullptr;  // how streams wait for lines of this process; outlives them; null: they sleep
};

/// CPU cores as a device: matrix products by oneDNN, everything else by own kernels for the instruction set found at
/// run time. Each stream has a thread that flushes denormals to zero; destroying a stream waits until its work is done.
/// A stream holds at most 1,024 pieces of work; one more throws Error{invalid}, since step credits limit how far the
/// host runs ahead. Replicas run only on this device's streams, and live until their work is done. `space` outlives the
/// device. Throws Error{unsupported} if the build has no oneDNN, Error{invalid} for 0 threads or a deadline that is not
/// positive.
std::unique_ptr<Device> make_cpu_device(AddressSpace& space, CpuDeviceOptions options);
/// Whether this build has the CPU device.
bool cpu_device_available();
/// Whether f32 convolutions use Winograd's algorithm here, where it is faster (runtime/compute/winograd.hpp).
bool cpu_device_has_winograd();
/// For people: the implementation that each primitive of a CPU device's replica uses, one per line. Throws
/// Error{invalid} for another device's replica.
std::string describe_cpu_replica(const Replica& replica);
/// The memory that a CPU device's replica computes in, in bytes: activations, their gradients, and scratch memory of
/// primitives. The smaller programs for fewer rows use the same memory.
struct CpuReplicaMemory {
  std::uint64_t taken = 0;
  std::uint64_t apart = 0;  // what it would be if no two tensors shared memory
  std::uint64_t least = 0;  // the most that is needed at any one time: sharing cannot take less
};
/// Throws Error{invalid} for another device's replica.
CpuReplicaMemory memory_of_cpu_replica(const Replica& replica);
/// Enqueues only the matrix products of a training step, the same primitives on the same buffers: no step can be faster
/// than this. For measurements; the gradients are meaningless afterwards. `batch` and `sums` are those of
/// Replica::step, which must have run on this replica before. Throws Error{invalid} for another device's replica.
void enqueue_products(Replica& replica, Stream& stream, Memory batch, Memory sums);

}  // namespace troupe
