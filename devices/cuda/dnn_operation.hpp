#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "devices/cuda/attention_form.hpp"
#include "devices/cuda/convolution_form.hpp"
#include "devices/cuda/kernels/convolutions.hpp"
#include "devices/cuda/kernels/elements.hpp"

// What cuDNN computes, and the arguments of kernels of ours as that.
namespace troupe::cuda {

using DnnForm = std::variant<ConvolutionForm, AttentionForm>;

std::string text_of(const DnnForm& form);
/// The same for another number of rows, which are images of a convolution.
DnnForm of_rows(const DnnForm& form, std::uint32_t rows);
std::uint32_t rows_of(const DnnForm& form) noexcept;
/// The numbers that a call gives along.
std::vector<DnnConstant> constants_of(const DnnForm& form);
/// Of the numbers.
Stored type_of(const DnnForm& form) noexcept;
const char* name_of(Stored type) noexcept;

/// What kernels of ours are told of a form.
ConvolutionShape shape_of(const ConvolutionForm& form);

/// Where the tensors of a form lie, by id; null: it has no such tensor.
using DnnPlaces = std::array<const void*, 11>;

struct DnnOperation {
  DnnForm form;
  DnnPlaces places;
};

// Without a value: the library has it not, since an extent is 0 or the tensors have different types.
/// `bias`: of the result's type; null: none is added.
std::optional<DnnOperation> dnn_operation(const ConvolveArgs& args, const void* bias, bool has_relu);
std::optional<DnnOperation> dnn_operation(const ConvolveToImagesArgs& args);
/// The result lands at `to`, in the images' type and in the order of ConvolutionForm.
std::optional<DnnOperation> dnn_operation(const ConvolveToWeightsArgs& args, void* to);

/// What attention works on: the tensors of AttentionForm.
struct AttentionArgs {
  std::uint32_t rows = 0, length = 0, heads = 0, part = 0;
  bool causal = false;
  const void* input = nullptr;  // queries, keys and values
  void* output = nullptr;
  float* log_sums = nullptr;
  Stored input_type = Stored::f32, output_type = Stored::f32;
};
/// What its gradient works on besides.
struct AttentionBackArgs {
  GradientTo to;
  const void* gradient = nullptr;  // to the output
  float* product_sums = nullptr;
  Stored gradient_type = Stored::f32;
};
std::optional<DnnOperation> dnn_operation(const AttentionArgs& args);
std::optional<DnnOperation> dnn_operation(const AttentionArgs& args, const AttentionBackArgs& back);
/// Whether a library has attention with heads of `part` elements in this type, over texts of `length`.
bool fits_library(Stored type, std::uint64_t length, std::uint64_t part) noexcept;

}  // namespace troupe::cuda
