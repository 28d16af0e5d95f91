#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "devices/cuda/convolution_form.hpp"
#include "devices/cuda/kernels/convolutions.hpp"
#include "devices/cuda/pool_form.hpp"

// What cuDNN computes, and the arguments of kernels of ours as that.
namespace troupe::cuda {

using DnnForm = std::variant<ConvolutionForm, PoolForm>;

std::string text_of(const DnnForm& form);
/// The same for another number of images.
DnnForm of_images(const DnnForm& form, std::uint32_t images);
std::uint32_t images_of(const DnnForm& form) noexcept;
/// Of the numbers.
Stored type_of(const DnnForm& form) noexcept;
const char* name_of(Stored type) noexcept;

/// Where the tensors of a form lie, by id; null: it has no such tensor.
using DnnPlaces = std::array<const void*, 5>;

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
/// `index`: of a byte for each element of the output, which a max pool writes; null: none is written.
std::optional<DnnOperation> dnn_operation(const PoolArgs& args, std::byte* index);
/// `index`: of a max pool, which needs it.
std::optional<DnnOperation> dnn_operation(const PoolBackArgs& args, const std::byte* index);

}  // namespace troupe::cuda
