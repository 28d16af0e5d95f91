#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "devices/cuda/driver_api.hpp"
#include "tests/support/cuda_host/reports.hpp"

namespace troupe::cuda::host {

/// An error on command: calls of `name` (an exported function or a kernel) end with `result`.
struct Fault {
  std::string name;
  std::uint64_t call = 0;  // which one, from 1; 0: each
  Result result = Result::unknown;
};

/// What TROUPE_CUDA_HOST_... says.
struct Settings {
  std::uint64_t seed = 0;                                // _SEED: of the delays; 0: none
  int devices = 1;                                       // _DEVICES: 0 to 8
  std::uint64_t memory_bytes = std::uint64_t{2} << 30U;  // _MEMORY: of a device
  std::chrono::milliseconds deadline{20000};             // _DEADLINE_MS: of a wait that nothing ends
  int driver_version = 13000;                            // _DRIVER: as cuDriverGetVersion says it
  std::string mode;                                      // _MODE: exclusive, prohibited, mig
  bool closed = false;   // _CLOSED=1: memory may be freed only when no other process has it open
  std::string prepared;  // _PREPARED: a kernel; while a stream is there that has launched it, no memory may be taken
  /// _TIMES: microseconds of kernels and of cuDNN's engines, "troupe_convolve=5,convolution_relu:1=900"; all others
  /// take 10. Without it there is no clock: how long a host takes says nothing of a GPU.
  std::optional<std::map<std::string, float>> times;
  std::vector<Fault> faults;  // _FAULT: "cuMemAlloc_v2:3=out_of_memory,troupe_copy=illegal_address"

  /// Ends the process with a line on stderr where it cannot be read.
  static Settings of_environment();
  TROUPE_HOST_SHARED float microseconds_of(const std::string& name) const;
};

/// Results of NCCL on command are these and more: kNcclFault + ncclResult_t.
inline constexpr unsigned kNcclFault = 10000;
/// Those of cuBLASLt likewise: kCublasLtFault + cublasStatus_t.
inline constexpr unsigned kCublasLtFault = 20000;
/// Those of cuDNN likewise: kCudnnFault + cudnnStatus_t.
inline constexpr unsigned kCudnnFault = 30000;

const char* name_of(Result result) noexcept;

/// Counts the calls of each name and knows which are to fail. Guarded by Process::mutex.
class TROUPE_HOST_SHARED Calls {
 public:
  Result next(const Settings& settings, const std::string& name);

 private:
  std::map<std::string, std::uint64_t> count_;
};

}  // namespace troupe::cuda::host
