#include "devices/cuda/pool_form.hpp"

#include "devices/cuda/dnn_operation.hpp"
#include "runtime/base/error.hpp"

namespace troupe::cuda {
namespace {

using dnn::Attribute;
using dnn::DescriptorType;
using dnn::ElementType;

/// Windows as cuDNN's front end describes them: in fractions, and with the padding's elements left out of an average.
dnn::Descriptor window(const PoolForm& form, Descriptors& made) {
  using Pair = std::array<dnn::Fraction, 2>;
  const bool is_max = form.kind == PoolKind::max;
  const dnn::Descriptor one = made.make(DescriptorType::resample);
  const auto set_pair = [&](Attribute attribute, std::uint32_t height, std::uint32_t width) {
    made.set(one, attribute, ElementType::fraction, Pair{{{height, 1}, {width, 1}}});
  };
  made.set_one(one, Attribute::resample_mode, ElementType::resample_mode,
               is_max ? dnn::ResampleMode::max : dnn::ResampleMode::average_without_padding);
  made.set_one(one, Attribute::resample_compute, ElementType::data_type, dnn::DataType::f32);
  made.set_one(one, Attribute::resample_nan, ElementType::nan_propagation, dnn::NanPropagation::yes);
  made.set_one(one, Attribute::resample_padding_mode, ElementType::padding_mode,
               is_max ? dnn::PaddingMode::minus_infinity : dnn::PaddingMode::zero);
  made.set_one(one, Attribute::resample_spatial_dims, ElementType::int64, std::int64_t{2});
  set_pair(Attribute::resample_window, form.kernel_height, form.kernel_width);
  set_pair(Attribute::resample_pre_paddings, form.padding_height, form.padding_width);
  set_pair(Attribute::resample_post_paddings, form.padding_height, form.padding_width);
  set_pair(Attribute::resample_strides, form.stride_height, form.stride_width);
  made.finalize(one);
  return one;
}

/// The attributes of a pool, or of its gradient.
struct PoolAttributes {
  DescriptorType type;
  Attribute images, output, index, window, alpha, beta;
};
constexpr PoolAttributes kPoolForward{DescriptorType::resample_forward,     Attribute::resample_forward_images,
                                      Attribute::resample_forward_output,   Attribute::resample_forward_index,
                                      Attribute::resample_forward_resample, Attribute::resample_forward_alpha,
                                      Attribute::resample_forward_beta};
constexpr PoolAttributes kPoolBackward{DescriptorType::resample_backward,     Attribute::resample_backward_images,
                                       Attribute::resample_backward_output,   Attribute::resample_backward_index,
                                       Attribute::resample_backward_resample, Attribute::resample_backward_alpha,
                                       Attribute::resample_backward_beta};

}  // namespace

/// Places from 0 to 127.
bool fits_index(const PoolShape& shape) noexcept {
  return std::uint64_t{shape.kernel_height} * shape.kernel_width <= 128;
}

std::string text_of(const PoolForm& f) {
  return text(f.kind == PoolKind::max ? "max_pool " : "average_pool ", f.is_backward ? "backward " : "",
              name_of(f.type), ' ', f.images, 'x', f.height, 'x', f.width, 'x', f.channels, " to ", f.out_height, 'x',
              f.out_width, " window ", f.kernel_height, 'x', f.kernel_width, " padding ", f.padding_height, 'x',
              f.padding_width, " stride ", f.stride_height, 'x', f.stride_width, f.has_index ? " index" : "",
              " aligned ", f.alignment);
}

std::vector<dnn::Descriptor> operations_of(const PoolForm& form, Descriptors& made) {
  const PoolAttributes& of = form.is_backward ? kPoolBackward : kPoolForward;
  const DnnExtents images{form.images, form.channels, form.height, form.width};
  const DnnExtents output{form.images, form.channels, form.out_height, form.out_width};
  const dnn::DataType type = data_type_of(form.type);
  const dnn::Descriptor one = made.make(of.type);
  const auto set_tensor = [&](Attribute attribute, std::int64_t id, const DnnExtents& extents, dnn::DataType numbers) {
    made.set_one(one, attribute, ElementType::descriptor, describe(made, {id, extents, numbers, form.alignment}));
  };
  set_tensor(of.images, kPoolImages, images, type);
  set_tensor(of.output, kPoolOutput, output, type);
  if (form.has_index) set_tensor(of.index, kPoolIndex, output, dnn::DataType::i8);
  made.set_one(one, of.window, ElementType::descriptor, window(form, made));
  made.set_one(one, of.alpha, ElementType::f64, 1.0);
  made.set_one(one, of.beta, ElementType::f64, 0.0);
  made.finalize(one);
  return {one};
}

}  // namespace troupe::cuda
