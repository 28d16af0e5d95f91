#include "devices/cuda/convolution_form.hpp"

#include "devices/cuda/dnn_operation.hpp"
#include "devices/cuda/graph_operations.hpp"
#include "runtime/base/error.hpp"

namespace troupe::cuda {
namespace {

using dnn::Attribute;
using dnn::DescriptorType;
using dnn::ElementType;

const char* name_of(ConvolutionKind kind) noexcept {
  switch (kind) {
    case ConvolutionKind::forward: return "forward";
    case ConvolutionKind::to_images: return "to_images";
    case ConvolutionKind::to_weights: return "to_weights";
  }
  return "unknown";
}

/// Of an operation by its kind.
struct OperationAttributes {
  DescriptorType type;
  Attribute images, weights, output, convolution, alpha, beta;
};
constexpr OperationAttributes kForward{DescriptorType::convolution_forward,
                                       Attribute::forward_images,
                                       Attribute::forward_weights,
                                       Attribute::forward_output,
                                       Attribute::forward_convolution,
                                       Attribute::forward_alpha,
                                       Attribute::forward_beta};
constexpr OperationAttributes kToImages{DescriptorType::convolution_to_images,
                                        Attribute::to_images_images,
                                        Attribute::to_images_weights,
                                        Attribute::to_images_output,
                                        Attribute::to_images_convolution,
                                        Attribute::to_images_alpha,
                                        Attribute::to_images_beta};
constexpr OperationAttributes kToWeights{DescriptorType::convolution_to_weights,
                                         Attribute::to_weights_images,
                                         Attribute::to_weights_weights,
                                         Attribute::to_weights_output,
                                         Attribute::to_weights_convolution,
                                         Attribute::to_weights_alpha,
                                         Attribute::to_weights_beta};

const OperationAttributes& attributes_of(ConvolutionKind kind) noexcept {
  if (kind == ConvolutionKind::forward) return kForward;
  return kind == ConvolutionKind::to_images ? kToImages : kToWeights;
}

/// The operations of one form.
class Builder {
 public:
  Builder(const ConvolutionForm& form, Descriptors& made) : form_(form), made_(made) {}
  std::vector<dnn::Descriptor> operations();

 private:
  dnn::Descriptor tensor(std::int64_t id, const DnnExtents& extents, std::uint32_t alignment);
  dnn::Descriptor convolution();
  dnn::Descriptor operation(dnn::Descriptor output);

  const ConvolutionForm& form_;
  Descriptors& made_;
};

dnn::Descriptor Builder::tensor(std::int64_t id, const DnnExtents& extents, std::uint32_t alignment) {
  return describe(made_, DnnTensor{id, extents, data_type_of(form_.type), alignment});
}

dnn::Descriptor Builder::convolution() {
  using Pair = std::array<std::int64_t, 2>;
  const Pair paddings{form_.padding_height, form_.padding_width}, strides{form_.stride_height, form_.stride_width},
      dilations{form_.dilation_height, form_.dilation_width};
  const dnn::Descriptor made = made_.make(DescriptorType::convolution);
  const auto set_pair = [&](Attribute attribute, const Pair& pair) {
    made_.set(made, attribute, ElementType::int64, pair);
  };
  made_.set_one(made, Attribute::convolution_compute, ElementType::data_type, dnn::DataType::f32);
  made_.set_one(made, Attribute::convolution_mode, ElementType::convolution_mode,
                dnn::ConvolutionMode::cross_correlation);
  made_.set_one(made, Attribute::convolution_spatial_dims, ElementType::int64, std::int64_t{2});
  set_pair(Attribute::convolution_pre_paddings, paddings);
  set_pair(Attribute::convolution_post_paddings, paddings);
  set_pair(Attribute::convolution_dilations, dilations);
  set_pair(Attribute::convolution_strides, strides);
  made_.finalize(made);
  return made;
}

/// The groups follow from the channels of images and weights.
dnn::Descriptor Builder::operation(dnn::Descriptor output) {
  const OperationAttributes& of = attributes_of(form_.kind);
  const DnnExtents images{form_.images, form_.channels, form_.height, form_.width};
  const DnnExtents weights{form_.filters, form_.channels / form_.groups, form_.kernel_height, form_.kernel_width};
  const dnn::Descriptor made = made_.make(of.type);
  made_.set_one(made, of.images, ElementType::descriptor, tensor(kConvolutionImages, images, form_.images_alignment));
  made_.set_one(made, of.weights, ElementType::descriptor,
                tensor(kConvolutionWeights, weights, form_.weights_alignment));
  made_.set_one(made, of.output, ElementType::descriptor, output);
  made_.set_one(made, of.convolution, ElementType::descriptor, convolution());
  made_.set_one(made, of.alpha, ElementType::f32, 1.0F);
  made_.set_one(made, of.beta, ElementType::f32, form_.adds ? 1.0F : 0.0F);
  made_.finalize(made);
  return made;
}

/// The convolution, then the bias, then the ReLU. What lies between two of them is in no memory.
std::vector<dnn::Descriptor> Builder::operations() {
  const DnnExtents extents{form_.images, form_.filters, form_.out_height, form_.out_width},
      one_each{1, form_.filters, 1, 1};
  const dnn::Descriptor output = tensor(kConvolutionOutput, extents, form_.output_alignment);
  GraphOperations all{made_};
  const auto place_before = [&](bool is_last) { return is_last ? output : all.between(extents); };
  dnn::Descriptor last = place_before(!form_.has_bias && !form_.has_relu);
  all.add(operation(last));
  if (form_.has_bias) {
    const dnn::Descriptor sum = place_before(!form_.has_relu);
    all.pointwise(dnn::PointwiseMode::add, sum, last, tensor(kConvolutionBias, one_each, form_.bias_alignment));
    last = sum;
  }
  if (form_.has_relu) all.pointwise(dnn::PointwiseMode::relu, output, last);
  return all.all();
}

}  // namespace

std::string text_of(const ConvolutionForm& f) {
  return text(name_of(f.kind), ' ', name_of(f.type), ' ', f.images, 'x', f.height, 'x', f.width, 'x', f.channels,
              " to ", f.out_height, 'x', f.out_width, 'x', f.filters, " kernel ", f.kernel_height, 'x', f.kernel_width,
              " padding ", f.padding_height, 'x', f.padding_width, " stride ", f.stride_height, 'x', f.stride_width,
              " dilation ", f.dilation_height, 'x', f.dilation_width, " groups ", f.groups, f.has_bias ? " bias" : "",
              f.has_relu ? " relu" : "", f.adds ? " adds" : "", " aligned ", f.images_alignment, ' ',
              f.weights_alignment, ' ', f.output_alignment, ' ', f.bias_alignment);
}

std::vector<dnn::Descriptor> operations_of(const ConvolutionForm& form, Descriptors& made) {
  return Builder{form, made}.operations();
}

}  // namespace troupe::cuda
