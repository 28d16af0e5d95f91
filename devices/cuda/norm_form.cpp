#include "devices/cuda/norm_form.hpp"

#include "devices/cuda/dnn_operation.hpp"
#include "runtime/base/error.hpp"

namespace troupe::cuda {
namespace {

using dnn::Attribute;
using dnn::ElementType;

constexpr std::int64_t kNormEpsilon = 50, kNormMomentum = 51;

/// Gives an operation its tensors.
class NormBuilder {
 public:
  NormBuilder(const BatchNormForm& form, Descriptors& made, dnn::DescriptorType type)
      : form_(form), made_(made), operation_(made.make(type)) {}

  void images(Attribute attribute, std::int64_t id) {
    const DnnExtents extents{form_.rows, form_.channels, form_.positions, 1};
    set(attribute, describe(made_, DnnTensor{id, extents, data_type_of(form_.type), form_.alignment}));
  }
  void channels(Attribute attribute, std::int64_t id) {
    set(attribute, describe(made_, DnnTensor{id, {1, form_.channels, 1, 1}, dnn::DataType::f32, form_.alignment}));
  }
  void constant(Attribute attribute, std::int64_t id) { set(attribute, describe(made_, DnnConstant{id, 0})); }
  template <class Mode>
  void mode(Attribute attribute, ElementType type, Mode mode) {
    made_.set_one(operation_, attribute, type, mode);
  }
  dnn::Descriptor end() {
    made_.finalize(operation_);
    return operation_;
  }

 private:
  void set(Attribute attribute, dnn::Descriptor tensor) {
    made_.set_one(operation_, attribute, ElementType::descriptor, tensor);
  }

  const BatchNormForm& form_;
  Descriptors& made_;
  const dnn::Descriptor operation_;
};

/// Running statistics with a momentum of 1 are those of the batch.
dnn::Descriptor norm_forward(const BatchNormForm& form, Descriptors& made) {
  NormBuilder norm{form, made, dnn::DescriptorType::norm_forward};
  norm.mode(Attribute::norm_forward_mode, ElementType::norm_mode, dnn::NormMode::batch);
  norm.mode(Attribute::norm_forward_phase, ElementType::norm_phase, dnn::NormPhase::training);
  norm.images(Attribute::norm_forward_x, kNormInput);
  norm.images(Attribute::norm_forward_y, kNormOutput);
  norm.channels(Attribute::norm_forward_scale, kNormScale);
  norm.channels(Attribute::norm_forward_shift, kNormShift);
  norm.channels(Attribute::norm_forward_mean, kNormMean);
  norm.channels(Attribute::norm_forward_inverse, kNormInverse);
  norm.channels(Attribute::norm_forward_running_mean, kNormRunningMean);
  norm.channels(Attribute::norm_forward_running_variance, kNormRunningVariance);
  norm.channels(Attribute::norm_forward_next_mean, kNormBatchMean);
  norm.channels(Attribute::norm_forward_next_variance, kNormBatchVariance);
  norm.constant(Attribute::norm_forward_epsilon, kNormEpsilon);
  norm.constant(Attribute::norm_forward_momentum, kNormMomentum);
  return norm.end();
}

dnn::Descriptor norm_backward(const BatchNormForm& form, Descriptors& made) {
  NormBuilder norm{form, made, dnn::DescriptorType::norm_backward};
  norm.mode(Attribute::norm_backward_mode, ElementType::norm_mode, dnn::NormMode::batch);
  norm.images(Attribute::norm_backward_x, kNormInput);
  norm.images(Attribute::norm_backward_to_y, kNormOutput);
  norm.images(Attribute::norm_backward_to_x, kNormToInput);
  norm.channels(Attribute::norm_backward_scale, kNormScale);
  norm.channels(Attribute::norm_backward_mean, kNormMean);
  norm.channels(Attribute::norm_backward_inverse, kNormInverse);
  norm.channels(Attribute::norm_backward_to_scale, kNormToScale);
  norm.channels(Attribute::norm_backward_to_shift, kNormToShift);
  return norm.end();
}

}  // namespace

std::string text_of(const BatchNormForm& f) {
  return text("batch_norm ", f.is_backward ? "backward " : "", name_of(f.type), ' ', f.rows, 'x', f.positions, 'x',
              f.channels, " epsilon ", f.epsilon, " aligned ", f.alignment);
}

std::vector<dnn::Descriptor> operations_of(const BatchNormForm& form, Descriptors& made) {
  return {form.is_backward ? norm_backward(form, made) : norm_forward(form, made)};
}

std::vector<DnnConstant> constants_of(const BatchNormForm& form) {
  if (form.is_backward) return {};
  return {{kNormEpsilon, form.epsilon}, {kNormMomentum, 1}};
}

}  // namespace troupe::cuda
