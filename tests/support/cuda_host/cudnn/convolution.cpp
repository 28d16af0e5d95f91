// What a convolution is, and how it is computed.
#include "tests/support/cuda_host/cudnn/convolution.hpp"

#include <cstring>

namespace troupe::cuda::dnn::host {
namespace {

/// 10 bits of the mantissa.
float rounded_to_tf32(float value) { return float_of((bits_of(value) + 0x1000U) & ~0x1fffU); }

using Values = std::vector<float>;

/// Calls act(output pixel, input pixel, tap) with where their channels begin, for the taps [begin, end) of each window.
template <class Act>
void for_each_term(const Convolution& form, std::int64_t begin, std::int64_t end, Act&& act) {
  const Grid in{form.images}, out{form.output}, kernel{form.weights};
  for (std::int64_t image = 0; image < form.images.extents[0]; ++image)
    for (std::int64_t y = 0; y < out.height; ++y)
      for (std::int64_t x = 0; x < out.width; ++x)
        for (std::int64_t tap = begin; tap < end; ++tap) {
          const std::int64_t row = y * form.stride[0] - form.padding[0] + tap / kernel.width * form.dilation[0];
          const std::int64_t column = x * form.stride[1] - form.padding[1] + tap % kernel.width * form.dilation[1];
          if (row < 0 || column < 0 || row >= in.height || column >= in.width) continue;
          act(out.at(image, y, x), in.at(image, row, column), tap);
        }
}

/// The sums of one part, whichever of the three tensors they belong to: in f64, since one f32 sum over all pixels of a
/// batch would be less precise than the many short ones of a GPU.
struct Sums {
  const Convolution& form;
  const Values &images, &weights, &output;

  Values of_taps(std::int64_t begin, std::int64_t end) const {
    std::vector<double> sums(form.result().count());
    const auto taps = form.weights.extents[2] * form.weights.extents[3], channels = form.weights.extents[1];
    const auto filters = form.weights.extents[0] / form.groups();
    for_each_term(form, begin, end, [&](std::size_t out, std::size_t in, std::int64_t tap) {
      for (std::int64_t filter = 0; filter < form.weights.extents[0]; ++filter) {
        const std::size_t to = out + static_cast<std::size_t>(filter);
        const std::size_t from = in + static_cast<std::size_t>(filter / filters * channels);
        add_channels(sums, to, from, static_cast<std::size_t>((filter * taps + tap) * channels));
      }
    });
    return {sums.begin(), sums.end()};
  }

 private:
  void add_channels(std::vector<double>& sums, std::size_t out, std::size_t in, std::size_t weight) const {
    const auto channels = static_cast<std::size_t>(form.weights.extents[1]);
    if (form.kind == DescriptorType::convolution_forward) {
      double sum = 0;
      for (std::size_t c = 0; c < channels; ++c) sum += double{images[in + c]} * weights[weight + c];
      sums[out] += sum;
    } else if (form.kind == DescriptorType::convolution_to_images) {
      for (std::size_t c = 0; c < channels; ++c) sums[in + c] += double{output[out]} * weights[weight + c];
    } else {
      for (std::size_t c = 0; c < channels; ++c) sums[weight + c] += double{output[out]} * images[in + c];
    }
  }
};

Values values_at(const void* at, const TensorForm& of, const Convolution& form, const EngineConfig& by) {
  if (of.id == form.result().id) return {};
  const bool rounds = by.engine == Engine::tensor_cores && of.type == DataType::f32;
  Values found(of.count());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const float value = load(at, stored(of.type), i);
    found[i] = rounds ? rounded_to_tf32(value) : value;
  }
  return found;
}

}  // namespace

const TensorForm& Convolution::result() const noexcept {
  if (kind == DescriptorType::convolution_forward) return output;
  return kind == DescriptorType::convolution_to_images ? images : weights;
}

std::vector<Computation::Operand> Convolution::tensors() const {
  std::vector<Operand> all{{images}, {weights}, {output}};
  if (bias) all.push_back({*bias});
  for (Operand& one : all)
    if (one.tensor.id == result().id) one.is_read = adds, one.is_written = true;
  return all;
}

const char* Convolution::fault_name() const noexcept {
  if (adds) return "convolution_adds";
  if (kind == DescriptorType::convolution_to_images) return "convolution_to_images";
  if (kind == DescriptorType::convolution_to_weights) return "convolution_to_weights";
  if (has_relu) return "convolution_relu";
  return bias ? "convolution_bias" : "convolution_plain";
}

std::string Convolution::compute(const EngineConfig& config, const Found& found) const {
  const Values in = values_at(found.tensors[0], images, *this, config);
  const Values kernel = values_at(found.tensors[1], weights, *this, config);
  const Values out = values_at(found.tensors[2], output, *this, config);
  const Sums sums{*this, in, kernel, out};
  const std::int64_t taps = weights.extents[2] * weights.extents[3], parts = config.parts.value_or(1);
  const std::uint64_t words = words_of_part(*this);
  Values total(result().count());
  for (std::int64_t part = 0; part < parts; ++part) {
    const Values one = sums.of_taps(part * taps / parts, (part + 1) * taps / parts);
    if (found.workspace != nullptr)
      std::memcpy(found.workspace + static_cast<std::uint64_t>(part) * words, one.data(), words * sizeof(float));
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += one[i];
  }
  const Stored type = stored(result().type);
  void* const to = found.tensors[kind == DescriptorType::convolution_forward     ? 2
                                 : kind == DescriptorType::convolution_to_images ? 0
                                                                                 : 1];
  for (std::size_t i = 0; i < total.size(); ++i) {
    float value = total[i];
    if (adds) value += load(to, type, i);
    if (bias) value += load(found.tensors[3], stored(bias->type), i % bias->count());
    if (has_relu) value = value > 0 ? value : 0.0F;
    store(to, type, i, value);
  }
  return {};
}

}  // namespace troupe::cuda::dnn::host
