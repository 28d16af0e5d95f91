#pragma once

#include <cstdint>
#include <vector>

#include "devices/cuda/descriptors.hpp"

namespace troupe::cuda {

/// The operations of a graph, in the order in which they are added. Sums and curves are computed in f32.
class GraphOperations {
 public:
  explicit GraphOperations(Descriptors& made) : made_(made) {}

  /// A tensor that lies between two operations. `strides`: as of DnnTensor.
  dnn::Descriptor between(const DnnExtents& extents, dnn::DataType type = dnn::DataType::f32,
                          const DnnExtents& strides = {});
  /// y = x, and b where the mode has two operands, and t where it has three. Extents of 1 are repeated.
  void pointwise(dnn::PointwiseMode mode, dnn::Descriptor y, dnn::Descriptor x, dnn::Descriptor b = nullptr,
                 dnn::Descriptor t = nullptr);
  /// y = where each element of x is along `axis`.
  void index(dnn::Descriptor y, dnn::Descriptor x, std::int64_t axis);
  /// y = an x of other extents that are 1 in y.
  void reduce(dnn::ReductionOperator by, dnn::Descriptor y, dnn::Descriptor x);
  /// c = a b: matrices of the last two extents.
  void multiply(dnn::Descriptor c, dnn::Descriptor a, dnn::Descriptor b);
  /// The elements of x, whose strides y has in another order.
  void reshape(dnn::Descriptor y, dnn::Descriptor x);
  void add(dnn::Descriptor operation) { all_.push_back(operation); }

  const std::vector<dnn::Descriptor>& all() const noexcept { return all_; }

 private:
  dnn::Descriptor what(dnn::PointwiseMode mode, const std::int64_t* axis);
  void operation(dnn::Descriptor what, dnn::Descriptor y, dnn::Descriptor x, dnn::Descriptor b, dnn::Descriptor t);

  Descriptors& made_;
  std::vector<dnn::Descriptor> all_;
  std::int64_t next_id_ = 100;  // of tensors between operations
};

}  // namespace troupe::cuda
