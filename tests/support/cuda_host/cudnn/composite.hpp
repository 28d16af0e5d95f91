#pragma once

#include <optional>

#include "tests/support/cuda_host/cudnn/computation.hpp"

namespace troupe::cuda::dnn::host {

/// An operation of a graph. Which tensors it reads depends on its kind.
struct GraphOperation {
  DescriptorType kind = DescriptorType::pointwise_operation;  // or a product, a reduction, a reshape
  PointwiseMode mode = PointwiseMode::add;
  ReductionOperator reduction = ReductionOperator::add;
  std::int64_t axis = 0;
  TensorForm x, y;
  std::optional<TensorForm> b, t;
};

/// A graph of products, curves and sums, computed operation by operation: attention and its gradient.
struct Composite final : Computation {
  std::vector<GraphOperation> operations;

  /// What is wrong with the operations for everybody; empty: nothing.
  std::string mistake() const;
  /// The library has engines for attention (two products) and its gradient (five) alone.
  bool is_known() const;
  std::vector<Operand> tensors() const override;
  std::vector<std::int64_t> constants() const override;
  const char* fault_name() const noexcept override;
  std::string compute(const EngineConfig& config, const Found& found) const override;

 private:
  long count_products() const noexcept;
};

}  // namespace troupe::cuda::dnn::host
