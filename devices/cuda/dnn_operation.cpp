#include "devices/cuda/dnn_operation.hpp"

#include <algorithm>

namespace troupe::cuda {
namespace {

/// The largest power of two that divides the address, at most 256.
std::uint32_t alignment_of(const void* at) noexcept {
  constexpr std::uintptr_t kMost = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  return at == nullptr ? 0 : static_cast<std::uint32_t>(std::min(address & (~address + 1), kMost));
}

/// The least of all that there are.
std::uint32_t alignment_of(const DnnPlaces& places) noexcept {
  std::uint32_t least = 256;
  for (const void* const at : places)
    if (at != nullptr) least = std::min(least, alignment_of(at));
  return least;
}

/// Places: those of images, weights, output and bias.
std::optional<DnnOperation> convolution(ConvolutionKind kind, const ConvolutionShape& s, Stored type,
                                        const DnnPlaces& places) {
  if (s.count_in() == 0 || s.count_out() == 0 || s.count_weights() == 0) return std::nullopt;
  ConvolutionForm form{.kind = kind, .type = type, .has_bias = places[kConvolutionBias] != nullptr};
  form.images = s.images, form.height = s.height, form.width = s.width, form.channels = s.channels;
  form.out_height = s.out_height, form.out_width = s.out_width, form.filters = s.filters, form.groups = s.groups;
  form.kernel_height = s.kernel_height, form.kernel_width = s.kernel_width;
  form.padding_height = s.padding_height, form.padding_width = s.padding_width;
  form.dilation_height = s.dilation_height, form.dilation_width = s.dilation_width;
  form.stride_height = s.stride_height, form.stride_width = s.stride_width;
  form.images_alignment = alignment_of(places[kConvolutionImages]);
  form.weights_alignment = alignment_of(places[kConvolutionWeights]);
  form.output_alignment = alignment_of(places[kConvolutionOutput]);
  form.bias_alignment = alignment_of(places[kConvolutionBias]);
  return DnnOperation{form, places};
}

/// The number of rows in a form of any kind.
template <class Form>
auto& rows_in(Form& form) noexcept {
  if constexpr (requires { form.images; })
    return form.images;
  else
    return form.rows;
}

/// The parts of a tensor of queries, keys and values.
std::array<const void*, 3> parts_of(const AttentionArgs& args, const void* at) {
  const auto* const first = static_cast<const std::byte*>(at);
  const std::uint64_t bytes = std::uint64_t{args.heads} * args.part * bytes_of(args.input_type);
  return {first, first + bytes, first + 2 * bytes};
}

std::optional<DnnOperation> attention(const AttentionArgs& args, bool is_backward, const DnnPlaces& places) {
  if (args.rows == 0 || args.heads == 0 || args.input_type != args.output_type ||
      !fits_library(args.input_type, args.length, args.part))
    return std::nullopt;
  return DnnOperation{AttentionForm{.is_backward = is_backward,
                                    .causal = args.causal,
                                    .type = args.input_type,
                                    .rows = args.rows,
                                    .length = args.length,
                                    .heads = args.heads,
                                    .part = args.part,
                                    .alignment = alignment_of(places)},
                      places};
}

}  // namespace

std::string text_of(const DnnForm& form) {
  return std::visit([](const auto& one) { return text_of(one); }, form);
}

DnnForm of_rows(const DnnForm& form, std::uint32_t rows) {
  DnnForm other = form;
  std::visit([&](auto& one) { rows_in(one) = rows; }, other);
  return other;
}

std::uint32_t rows_of(const DnnForm& form) noexcept {
  return std::visit([](const auto& one) { return rows_in(one); }, form);
}

std::vector<DnnConstant> constants_of(const DnnForm& form) {
  if (const auto* const attention = std::get_if<AttentionForm>(&form)) return constants_of(*attention);
  return {};
}

Stored type_of(const DnnForm& form) noexcept {
  return std::visit([](const auto& one) { return one.type; }, form);
}

const char* name_of(Stored type) noexcept {
  switch (type) {
    case Stored::f32: return "f32";
    case Stored::bf16: return "bf16";
    case Stored::f16: return "f16";
  }
  return "unknown";
}

ConvolutionShape shape_of(const ConvolutionForm& f) {
  ConvolutionShape s{};
  s.images = f.images, s.height = f.height, s.width = f.width, s.channels = f.channels;
  s.out_height = f.out_height, s.out_width = f.out_width, s.filters = f.filters, s.groups = f.groups;
  s.kernel_height = f.kernel_height, s.kernel_width = f.kernel_width;
  s.padding_height = f.padding_height, s.padding_width = f.padding_width;
  s.dilation_height = f.dilation_height, s.dilation_width = f.dilation_width;
  s.stride_height = f.stride_height, s.stride_width = f.stride_width;
  find_divisors(s);
  return s;
}

std::optional<DnnOperation> dnn_operation(const ConvolveArgs& args, const void* bias, bool has_relu) {
  if (args.images_type != args.to.type || args.weights_type != args.to.type) return std::nullopt;
  auto made = convolution(ConvolutionKind::forward, args.shape, args.to.type,
                          {nullptr, args.images, args.weights, args.to.at, bias});
  if (!made) return made;
  auto& form = std::get<ConvolutionForm>(made->form);
  form.has_relu = has_relu, form.adds = args.to.adds != 0;
  return made;
}

std::optional<DnnOperation> dnn_operation(const ConvolveToImagesArgs& args) {
  if (args.gradient_type != args.to.type || args.weights_type != args.to.type) return std::nullopt;
  auto made = convolution(ConvolutionKind::to_images, args.shape, args.to.type,
                          {nullptr, args.to.at, args.weights, args.gradient});
  if (made) std::get<ConvolutionForm>(made->form).adds = args.to.adds != 0;
  return made;
}

std::optional<DnnOperation> dnn_operation(const ConvolveToWeightsArgs& args, void* to) {
  if (args.gradient_type != args.images_type) return std::nullopt;
  return convolution(ConvolutionKind::to_weights, args.shape, args.images_type,
                     {nullptr, args.images, to, args.gradient});
}

/// Source: NVIDIA's front end for cuDNN. Its engines for attention are for 16 bits, and heads begin at multiples of 16
/// bytes. A text of one place has no gradient there.
bool fits_library(Stored type, std::uint64_t length, std::uint64_t part) noexcept {
  return type != Stored::f32 && length > 1 && part % 8 == 0;
}

std::optional<DnnOperation> dnn_operation(const AttentionArgs& args) {
  const auto [queries, keys, values] = parts_of(args, args.input);
  DnnPlaces places{};
  places[kQueries] = queries, places[kKeys] = keys, places[kValues] = values;
  places[kAttended] = args.output, places[kLogSums] = args.log_sums;
  return attention(args, /*is_backward=*/false, places);
}

std::optional<DnnOperation> dnn_operation(const AttentionArgs& args, const AttentionBackArgs& back) {
  if (back.to.adds != 0 || back.to.type != args.input_type || back.gradient_type != args.input_type)
    return std::nullopt;
  const auto [queries, keys, values] = parts_of(args, args.input);
  const auto [to_queries, to_keys, to_values] = parts_of(args, back.to.at);
  DnnPlaces places{};
  places[kQueries] = queries, places[kKeys] = keys, places[kValues] = values;
  places[kAttended] = args.output, places[kLogSums] = args.log_sums, places[kToAttended] = back.gradient;
  places[kToQueries] = to_queries, places[kToKeys] = to_keys, places[kToValues] = to_values;
  places[kProductSums] = back.product_sums;
  return attention(args, /*is_backward=*/true, places);
}

}  // namespace troupe::cuda
