#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "devices/cuda/driver_api.hpp"
#include "devices/cuda/kernels/kernel.hpp"
#include "tests/support/cuda_host/faults.hpp"
#include "tests/support/cuda_host/handles.hpp"
#include "tests/support/cuda_host/memory.hpp"
#include "tests/support/cuda_host/words.hpp"

namespace troupe::cuda::host {

struct StreamThread;
struct EventState;
struct Capture;
struct GraphState;
struct ExecState;

struct DeviceState {
  int number = 0;
  std::uint64_t used_bytes = 0;
  int retained = 0;                // of the primary context
  std::set<int> peers;             // devices whose memory this one's work may use
  Result fault = Result::success;  // what ended the context: every later call returns it
};

struct PoolState {
  std::uint64_t number = 0;
  int device = 0;
  std::uint64_t most_bytes = 0;  // 0: as much as the device has
  std::uint64_t used_bytes = 0;
};

struct ModuleState {
  std::span<const HostKernel> kernels;
  std::vector<Function> functions;  // that were asked for; they end with it
};

/// Everything that the driver knows in this process. It lives until the process ends: streams' threads use it.
struct Process {
  std::mutex mutex;                 // guards all below and what the handles lead to; operations run without it
  std::condition_variable changed;  // something that a waiter may wait for has happened
  const Settings settings = Settings::of_environment();
  bool initialized = false;
  Calls calls;
  std::vector<DeviceState> devices;
  Memory memory;
  std::map<int, PlacePtr>
      prepared;  // by stream: the launch from which on, while the stream is there, no memory may be taken
  Races races;
  Words words;
  Clock cpu;              // what the CPU knows to have happened
  Lane lanes = kCpu + 1;  // the next one
  int streams_made = 0;
  float told_microseconds = 0;  // that all work so far took, where Settings::times tells

  void takes_time_of(const std::string& name) {
    if (settings.times) told_microseconds += settings.microseconds_of(name);
  }
  std::uint64_t pools_made = 0;
  Handles<PoolState, MemoryPool> pools{"a memory pool"};
  Handles<ModuleState, Module> modules{"a module"};
  Handles<const HostKernel, Function> functions{"a function"};
  Handles<StreamThread, StreamHandle> streams{"a stream"};
  Handles<EventState, EventHandle> events{"an event"};
  Handles<GraphState, GraphHandle> graphs{"a graph"};
  Handles<ExecState, GraphExec> execs{"an executable graph"};
  std::vector<std::shared_ptr<StreamThread>> retired;  // destroyed, perhaps with work left
  std::set<std::shared_ptr<Capture>> captures;         // under way

  Lane new_lane() { return lanes++; }
};

TROUPE_HOST_SHARED Process& process();

}  // namespace troupe::cuda::host
