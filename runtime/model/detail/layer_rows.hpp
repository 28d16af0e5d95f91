#pragma once

#include <cmath>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/model/layer_kinds.hpp"

// The rows of the table of layer kinds, by family.
namespace troupe::detail {

LayerKind dense_row();
LayerKind conv2d_row();
LayerKind max_pool_row();
LayerKind average_pool_row();
LayerKind global_average_pool_row();
LayerKind flatten_row();
LayerKind relu_row();
LayerKind tanh_row();
LayerKind sigmoid_row();
LayerKind gelu_row();
LayerKind add_row();
LayerKind dropout_row();
LayerKind softmax_cross_entropy_row();
LayerKind smooth_l1_row();
LayerKind sigmoid_cross_entropy_row();
LayerKind l2_norm_row();
LayerKind batch_norm_row();
LayerKind multiply_row();
LayerKind concat_row();
LayerKind embedding_row();
LayerKind position_row();
LayerKind layer_norm_row();
LayerKind attention_row();
LayerKind transpose_row();

/// The largest value of an attribute that is a count.
inline constexpr double kMostCounted = 0xffffffff;
/// The largest height or width.
inline constexpr double kMostSide = 65536;

template <class Kind, class Value>
Kind owner_of(Value Kind::*);
/// The slot of a member of an operation: slot_of<&Dense::units>.
template <auto kMember>
AttributeSlot slot_of(Operation& operation) {
  return &(std::get<decltype(owner_of(kMember))>(operation).*kMember);
}

/// Height, width and channels of an image. Throws Error{invalid} if `input` has other extents.
struct Image {
  std::uint32_t height, width, channels;
};
Image image_of(const LayerShapes& layer);

/// How many windows of `kernel` elements fit side by side. Throws Error{invalid} if none does.
std::uint32_t count_windows(const LayerShapes& layer, std::string_view side, std::uint32_t image, std::uint32_t kernel,
                            std::uint32_t stride, std::uint32_t padding);

/// `a` * `b`, which must be at most kMaxTensorElements.
std::uint64_t limited_product(const LayerShapes& layer, std::string_view what, std::uint64_t a, std::uint64_t b);

/// The result of a layer that does not change the shape.
LayerResult same_shape(const LayerShapes& layer);

/// Weights whose initial variance is 1 / inputs, and biases if there are any: LeCun, Bottou, Orr, Müller 1998
/// (Efficient BackProp), section 4.6: the sum of a unit then has the variance of its inputs.
std::vector<Parameter> weight_and_bias(std::vector<std::uint64_t> extents, std::uint64_t inputs, bool has_bias);

}  // namespace troupe::detail
