#include "devices/cuda/descriptors.hpp"

#include <algorithm>

namespace troupe::cuda {

using dnn::Attribute;
using dnn::DescriptorType;
using dnn::ElementType;

dnn::Descriptor Descriptors::make(DescriptorType type) {
  dnn::Descriptor made = nullptr;
  check([&] { return library_.descriptor_create(type, &made); });
  if (made != nullptr) owned_.emplace_back(made, library_.descriptor_destroy);
  return made;
}

std::vector<dnn::Descriptor> Descriptors::get_all(dnn::Descriptor of, Attribute attribute, DescriptorType type,
                                                  std::int64_t most) {
  std::vector<dnn::Descriptor> found(static_cast<std::size_t>(most));
  for (dnn::Descriptor& each : found) each = make(type);
  const std::int64_t count = most == 0 ? 0 : get(of, attribute, ElementType::descriptor, std::span{found});
  found.resize(static_cast<std::size_t>(std::min(count, most)));
  return found;
}

// What was made of others goes first.
Descriptors::~Descriptors() {
  while (!owned_.empty()) owned_.pop_back();
}

dnn::DataType data_type_of(Stored type) noexcept {
  if (type == Stored::f32) return dnn::DataType::f32;
  return type == Stored::f16 ? dnn::DataType::f16 : dnn::DataType::bf16;
}

namespace {

/// What all tensors have. It is not finalized.
dnn::Descriptor begin_tensor(Descriptors& made, const DnnTensor& tensor, std::int64_t alignment) {
  const DnnExtents& of = tensor.extents;
  const DnnExtents channels_last{of[1] * of[2] * of[3], 1, of[1] * of[3], of[1]};
  const dnn::Descriptor one = made.make(DescriptorType::tensor);
  made.set_one(one, Attribute::tensor_type, ElementType::data_type, tensor.type);
  made.set(one, Attribute::tensor_dimensions, ElementType::int64, of);
  made.set(one, Attribute::tensor_strides, ElementType::int64,
           tensor.strides == DnnExtents{} ? channels_last : tensor.strides);
  made.set_one(one, Attribute::tensor_id, ElementType::int64, tensor.id);
  made.set_one(one, Attribute::tensor_alignment, ElementType::int64, alignment);
  return one;
}

constexpr std::int64_t kAnyAlignment = 16;

}  // namespace

dnn::Descriptor describe(Descriptors& made, const DnnTensor& tensor) {
  const bool is_between = tensor.alignment == 0;
  const dnn::Descriptor one = begin_tensor(made, tensor, is_between ? kAnyAlignment : tensor.alignment);
  if (is_between) made.set_one(one, Attribute::tensor_is_virtual, ElementType::boolean, true);
  made.finalize(one);
  return one;
}

dnn::Descriptor describe(Descriptors& made, const DnnConstant& constant) {
  constexpr DnnExtents kOne{1, 1, 1, 1};
  const dnn::Descriptor one = begin_tensor(made, {.id = constant.id, .extents = kOne, .strides = kOne}, kAnyAlignment);
  made.set_one(one, Attribute::tensor_is_by_value, ElementType::boolean, true);
  made.finalize(one);
  return one;
}

}  // namespace troupe::cuda
