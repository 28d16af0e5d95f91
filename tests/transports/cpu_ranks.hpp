#pragma once

#include <vector>

#include "devices/cpu/cpu_device.hpp"
#include "tests/transports/communicator_worlds.hpp"

namespace troupe::contracts {

/// Ranks whose streams drive their lanes while they wait.
inline MakeDevice cpu_devices() {
  return
      [](AddressSpace& space, std::uint32_t, ActiveWait& waits) { return make_cpu_device(space, {.waits = &waits}); };
}

/// `cases` where this build has the CPU device, else none.
inline std::vector<CommunicatorCase> if_cpu_device(std::vector<CommunicatorCase> cases) {
  return cpu_device_available() ? std::move(cases) : std::vector<CommunicatorCase>{};
}

}  // namespace troupe::contracts
