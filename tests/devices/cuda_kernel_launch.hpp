#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "devices/cuda/kernels/list.hpp"

namespace troupe::cuda::testing {

/// Memory of the host, where kernels find it at its own addresses.
class HostMemory final : public KernelMemory {
 public:
  void* at(const void* address) const noexcept override { return const_cast<void*>(address); }
};

/// Runs the host's form of a kernel, block after block.
template <class Args>
void launch(const std::string& name, const Args& args, std::uint32_t blocks = 7) {
  const auto kernels = host_kernels();
  const auto found =
      std::find_if(kernels.begin(), kernels.end(), [&](const HostKernel& one) { return "troupe_" + name == one.name; });
  ASSERT_NE(found, kernels.end()) << name;
  ASSERT_EQ(found->args_bytes, sizeof(Args));
  const HostMemory memory;
  for (std::uint32_t index = 0; index < blocks; ++index) found->run(Block{memory, index, blocks}, &args);
}

}  // namespace troupe::cuda::testing
