#include "devices/cuda/convolution_form.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace troupe::cuda {
namespace {

/// The largest power of two that divides the address, at most 256.
std::uint32_t alignment_of(const void* at) noexcept {
  constexpr std::uintptr_t kMost = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  return at == nullptr ? 0 : static_cast<std::uint32_t>(std::min(address & (~address + 1), kMost));
}

const char* name_of(ConvolutionKind kind) noexcept {
  switch (kind) {
    case ConvolutionKind::forward: return "forward";
    case ConvolutionKind::to_images: return "to_images";
    case ConvolutionKind::to_weights: return "to_weights";
  }
  return "unknown";
}

const char* name_of(Stored type) noexcept {
  switch (type) {
    case Stored::f32: return "f32";
    case Stored::bf16: return "bf16";
    case Stored::f16: return "f16";
  }
  return "unknown";
}

std::optional<LibraryConvolution> make(ConvolutionKind kind, const ConvolutionShape& s, Stored type,
                                       const ConvolutionPlaces& places) {
  if (s.count_in() == 0 || s.count_out() == 0 || s.count_weights() == 0) return std::nullopt;
  LibraryConvolution made{.form = {.kind = kind, .type = type, .has_bias = places.bias != nullptr}, .places = places};
  ConvolutionForm& form = made.form;
  form.images = s.images, form.height = s.height, form.width = s.width, form.channels = s.channels;
  form.out_height = s.out_height, form.out_width = s.out_width, form.filters = s.filters, form.groups = s.groups;
  form.kernel_height = s.kernel_height, form.kernel_width = s.kernel_width;
  form.padding_height = s.padding_height, form.padding_width = s.padding_width;
  form.dilation_height = s.dilation_height, form.dilation_width = s.dilation_width;
  form.stride_height = s.stride_height, form.stride_width = s.stride_width;
  form.images_alignment = alignment_of(places.images), form.weights_alignment = alignment_of(places.weights);
  form.output_alignment = alignment_of(places.output), form.bias_alignment = alignment_of(places.bias);
  return made;
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

std::optional<LibraryConvolution> library_convolution(const ConvolveArgs& args, const void* bias, bool has_relu) {
  if (args.images_type != args.to.type || args.weights_type != args.to.type) return std::nullopt;
  auto made = make(ConvolutionKind::forward, args.shape, args.to.type,
                   {.images = args.images, .weights = args.weights, .output = args.to.at, .bias = bias});
  if (made) made->form.has_relu = has_relu, made->form.adds = args.to.adds != 0;
  return made;
}

std::optional<LibraryConvolution> library_convolution(const ConvolveToImagesArgs& args) {
  if (args.gradient_type != args.to.type || args.weights_type != args.to.type) return std::nullopt;
  auto made = make(ConvolutionKind::to_images, args.shape, args.to.type,
                   {.images = args.to.at, .weights = args.weights, .output = args.gradient});
  if (made) made->form.adds = args.to.adds != 0;
  return made;
}

std::optional<LibraryConvolution> library_convolution(const ConvolveToWeightsArgs& args, void* to) {
  if (args.gradient_type != args.images_type) return std::nullopt;
  return make(ConvolutionKind::to_weights, args.shape, args.images_type,
              {.images = args.images, .weights = to, .output = args.gradient});
}

}  // namespace troupe::cuda
