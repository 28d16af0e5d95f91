#pragma once

#include "tests/support/cuda_host/cudnn/computation.hpp"

namespace troupe::cuda::dnn::host {

/// A convolution with what follows it.
struct Convolution final : Computation {
  DescriptorType kind = DescriptorType::convolution_forward;
  TensorForm images, weights, output;  // output: what lies in memory behind all of it
  std::optional<TensorForm> bias;
  bool has_relu = false, adds = false;
  std::array<std::int64_t, 2> padding{}, stride{}, dilation{};

  std::int64_t groups() const noexcept { return images.extents[1] / weights.extents[1]; }
  const TensorForm& result() const noexcept;
  std::vector<Operand> tensors() const override;
  const char* fault_name() const noexcept override;
  std::string compute(const EngineConfig& config, const Found& found) const override;
};

}  // namespace troupe::cuda::dnn::host
