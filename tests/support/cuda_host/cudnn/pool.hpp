#pragma once

#include "tests/support/cuda_host/cudnn/computation.hpp"

namespace troupe::cuda::dnn::host {

/// A pool, or its gradient; then images and output are gradients.
struct Pool final : Computation {
  bool is_backward = false;
  ResampleMode mode = ResampleMode::max;
  TensorForm images, output;
  std::optional<TensorForm> index;
  std::array<std::int64_t, 2> window{}, padding{}, stride{};

  std::vector<Operand> tensors() const override;
  const char* fault_name() const noexcept override;
  std::string compute(const EngineConfig& config, const Found& found) const override;
};

}  // namespace troupe::cuda::dnn::host
