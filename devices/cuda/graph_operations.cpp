#include "devices/cuda/graph_operations.hpp"

namespace troupe::cuda {

using dnn::Attribute;
using dnn::DescriptorType;
using dnn::ElementType;

dnn::Descriptor GraphOperations::between(const DnnExtents& extents, dnn::DataType type, const DnnExtents& strides) {
  return describe(made_, DnnTensor{.id = next_id_++, .extents = extents, .type = type, .strides = strides});
}

dnn::Descriptor GraphOperations::what(dnn::PointwiseMode mode, const std::int64_t* axis) {
  const bool compares = mode == dnn::PointwiseMode::at_least;
  const dnn::Descriptor one = made_.make(DescriptorType::pointwise);
  made_.set_one(one, Attribute::pointwise_mode, ElementType::pointwise_mode, mode);
  made_.set_one(one, Attribute::pointwise_compute, ElementType::data_type,
                compares ? dnn::DataType::boolean : dnn::DataType::f32);
  if (axis != nullptr) made_.set_one(one, Attribute::pointwise_axis, ElementType::int64, *axis);
  made_.finalize(one);
  return one;
}

void GraphOperations::operation(dnn::Descriptor what, dnn::Descriptor y, dnn::Descriptor x, dnn::Descriptor b,
                                dnn::Descriptor t) {
  const dnn::Descriptor one = made_.make(DescriptorType::pointwise_operation);
  const auto set = [&](Attribute attribute, dnn::Descriptor to) {
    if (to != nullptr) made_.set_one(one, attribute, ElementType::descriptor, to);
  };
  set(Attribute::pointwise_operation_pointwise, what);
  set(Attribute::pointwise_operation_x, x);
  set(Attribute::pointwise_operation_b, b);
  set(Attribute::pointwise_operation_t, t);
  set(Attribute::pointwise_operation_y, y);
  made_.finalize(one);
  add(one);
}

void GraphOperations::pointwise(dnn::PointwiseMode mode, dnn::Descriptor y, dnn::Descriptor x, dnn::Descriptor b,
                                dnn::Descriptor t) {
  operation(what(mode, nullptr), y, x, b, t);
}

void GraphOperations::index(dnn::Descriptor y, dnn::Descriptor x, std::int64_t axis) {
  operation(what(dnn::PointwiseMode::index, &axis), y, x, nullptr, nullptr);
}

void GraphOperations::reduce(dnn::ReductionOperator by, dnn::Descriptor y, dnn::Descriptor x) {
  const dnn::Descriptor what = made_.make(DescriptorType::reduction),
                        one = made_.make(DescriptorType::reduction_operation);
  made_.set_one(what, Attribute::reduction_compute, ElementType::data_type, dnn::DataType::f32);
  made_.set_one(what, Attribute::reduction_operator, ElementType::reduction_operator, by);
  made_.finalize(what);
  made_.set_one(one, Attribute::reduction_reduction, ElementType::descriptor, what);
  made_.set_one(one, Attribute::reduction_x, ElementType::descriptor, x);
  made_.set_one(one, Attribute::reduction_y, ElementType::descriptor, y);
  made_.finalize(one);
  add(one);
}

void GraphOperations::multiply(dnn::Descriptor c, dnn::Descriptor a, dnn::Descriptor b) {
  const dnn::Descriptor what = made_.make(DescriptorType::product), one = made_.make(DescriptorType::product_operation);
  made_.set_one(what, Attribute::product_compute, ElementType::data_type, dnn::DataType::f32);
  made_.finalize(what);
  made_.set_one(one, Attribute::product_product, ElementType::descriptor, what);
  made_.set_one(one, Attribute::product_a, ElementType::descriptor, a);
  made_.set_one(one, Attribute::product_b, ElementType::descriptor, b);
  made_.set_one(one, Attribute::product_c, ElementType::descriptor, c);
  made_.finalize(one);
  add(one);
}

void GraphOperations::reshape(dnn::Descriptor y, dnn::Descriptor x) {
  const dnn::Descriptor one = made_.make(DescriptorType::reshape);
  made_.set_one(one, Attribute::reshape_x, ElementType::descriptor, x);
  made_.set_one(one, Attribute::reshape_y, ElementType::descriptor, y);
  made_.finalize(one);
  add(one);
}

}  // namespace troupe::cuda
