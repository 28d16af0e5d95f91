#pragma once

#include "tests/support/cuda_host/cudnn/computation.hpp"

namespace troupe::cuda::dnn::host {

/// A batch norm in training, or its gradient.
struct BatchNorm final : Computation {
  bool is_backward = false;
  /// Of the forward pass: x, scale, shift, running mean and variance; y, mean, inverse, the next running mean and
  /// variance. Of the gradient: x, that to y, scale, mean, inverse; those to x, scale and shift.
  std::vector<TensorForm> inputs, outputs;
  std::vector<std::int64_t> numbers;  // by value: epsilon, momentum

  /// What is wrong with the tensors for everybody; empty: nothing.
  std::string mistake() const;
  std::vector<Operand> tensors() const override;
  std::vector<std::int64_t> constants() const override { return numbers; }
  const char* fault_name() const noexcept override { return is_backward ? "batch_norm_backward" : "batch_norm"; }
  std::string compute(const EngineConfig& config, const Found& found) const override;

 private:
  void forward(const Found& found) const;
  void backward(const Found& found) const;
  std::size_t count_rows() const noexcept;
  std::size_t channels() const noexcept { return static_cast<std::size_t>(inputs[0].extents[1]); }
};

}  // namespace troupe::cuda::dnn::host
