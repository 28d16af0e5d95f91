#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/support/cuda_host/process.hpp"

namespace troupe::cuda::host {

/// One time that an operation runs.
struct Run {
  std::unique_lock<std::mutex>& lock;  // of Process::mutex: held, but for the time that bytes are moved or computed
  Clock& clock;                        // what has happened before it
  Moment now;
  DeviceState& device;
};

/// Work of a stream, or a node of a graph. It is made once and may run many times.
struct Operation {
  PlacePtr place;
  std::function<void(Run&)> act;
  bool also_after_fault = false;  // it only tells how far the stream has come
};
using OperationPtr = std::shared_ptr<const Operation>;

using Uses = std::vector<Accesses::Range>;
/// Whether the operation may touch all that; tells what is wrong and remembers who used it.
TROUPE_HOST_SHARED bool may_use(Run& run, const PlacePtr& place, const Uses& uses);

/// Runs it as the next piece of work of `lane`, after an adverse delay.
void perform(const Operation& operation, std::unique_lock<std::mutex>& lock, Clock& clock, Lane lane,
             DeviceState& device);

OperationPtr copy_operation(PlacePtr place, Address to, Address from, std::uint64_t size_bytes);
/// `value` of `width` bytes, `count` times.
OperationPtr fill_operation(PlacePtr place, Address to, std::uint32_t value, unsigned width, std::uint64_t count);
/// The argument struct of a launch.
using Arguments = std::shared_ptr<const std::vector<std::byte>>;
OperationPtr kernel_operation(PlacePtr place, std::shared_ptr<const HostKernel> kernel, Arguments args,
                              unsigned blocks);
OperationPtr wait_value_operation(PlacePtr place, Address word, std::uint64_t value, unsigned flags);
OperationPtr write_value_operation(PlacePtr place, Address word, std::uint64_t value);
/// The allocation may be used by what comes behind.
OperationPtr allocate_operation(PlacePtr place, AllocationPtr allocation);
OperationPtr free_operation(PlacePtr place, AllocationPtr allocation);

/// Ends the device's context: `result` is what each later call returns.
TROUPE_HOST_SHARED void fail(DeviceState& device, Result result);

}  // namespace troupe::cuda::host
