// What a convolution is, and how it is computed.
#include "tests/support/cuda_host/cudnn/convolution.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "devices/cuda/kernels/numbers.hpp"

namespace troupe::cuda::dnn::host {
namespace {

using cuda::host::process;

Stored stored(DataType type) {
  return type == DataType::f32 ? Stored::f32 : type == DataType::f16 ? Stored::f16 : Stored::bf16;
}
const void* pointer_to(Address at) { return reinterpret_cast<const void*>(at); }

/// 10 bits of the mantissa.
float rounded_to_tf32(float value) { return float_of((bits_of(value) + 0x1000U) & ~0x1fffU); }

using Values = std::vector<float>;

/// One image, or one filter, and its pixels.
struct Grid {
  std::int64_t height, width, channels;
  explicit Grid(const TensorForm& of) : height(of.extents[2]), width(of.extents[3]), channels(of.extents[1]) {}
  std::size_t at(std::int64_t image, std::int64_t y, std::int64_t x) const {
    return static_cast<std::size_t>(((image * height + y) * width + x) * channels);
  }
};

/// Calls act(output pixel, input pixel, tap) with where their channels begin, for the taps [begin, end) of each window.
template <class Act>
void for_each_term(const Form& form, std::int64_t begin, std::int64_t end, Act&& act) {
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
  const Form& form;
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

Values values_at(const void* at, const TensorForm& of, const Form& form, const EngineConfig& by) {
  if (of.id == form.result().id) return {};
  const bool rounds = by.engine == Engine::tensor_cores && of.type == DataType::f32;
  Values found(of.count());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const float value = load(at, stored(of.type), i);
    found[i] = rounds ? rounded_to_tf32(value) : value;
  }
  return found;
}

std::uint64_t words_of_part(const Form& form) { return std::min<std::uint64_t>(form.result().count(), 64); }

/// Where the tensors are for the thread that computes.
struct Found {
  const void *images, *weights, *output, *bias;
  void* result;
  float* workspace;
};

void compute(const Convolution& what, const Found& found) {
  const Form& form = what.form;
  const Values images = values_at(found.images, form.images, form, what.config);
  const Values weights = values_at(found.weights, form.weights, form, what.config);
  const Values output = values_at(found.output, form.output, form, what.config);
  const Sums sums{form, images, weights, output};
  const std::int64_t taps = form.weights.extents[2] * form.weights.extents[3], parts = what.config.parts.value_or(1);
  Values total(form.result().count());
  for (std::int64_t part = 0; part < parts; ++part) {
    const Values one = sums.of_taps(part * taps / parts, (part + 1) * taps / parts);
    if (found.workspace != nullptr)
      std::memcpy(found.workspace + static_cast<std::uint64_t>(part) * words_of_part(form), one.data(),
                  words_of_part(form) * sizeof(float));
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += one[i];
  }
  const Stored type = stored(form.result().type);
  for (std::size_t i = 0; i < total.size(); ++i) {
    float value = total[i];
    if (form.adds) value += load(found.result, type, i);
    if (form.bias) value += load(found.bias, stored(form.bias->type), i % form.bias->count());
    if (form.has_relu) value = value > 0 ? value : 0.0F;
    store(found.result, type, i, value);
  }
}

bool overlaps(Address a, std::uint64_t a_bytes, Address b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

std::uint64_t TensorForm::count() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) product *= extent;
  return static_cast<std::uint64_t>(product);
}

std::string TensorForm::text() const {
  std::string said = type == DataType::f32 ? "f32" : type == DataType::f16 ? "f16" : "bf16";
  const char* before = " [";
  for (const std::int64_t extent : extents) said += std::exchange(before, ", ") + std::to_string(extent);
  return said + "]";
}

const TensorForm& Form::result() const noexcept {
  if (kind == DescriptorType::convolution_forward) return output;
  return kind == DescriptorType::convolution_to_images ? images : weights;
}

std::vector<TensorForm> Form::tensors() const {
  std::vector<TensorForm> all{images, weights, output};
  if (bias) all.push_back(*bias);
  return all;
}

const char* Form::fault_name() const noexcept {
  if (adds) return "convolution_adds";
  if (kind == DescriptorType::convolution_to_images) return "convolution_to_images";
  if (kind == DescriptorType::convolution_to_weights) return "convolution_to_weights";
  if (has_relu) return "convolution_relu";
  return bias ? "convolution_bias" : "convolution_plain";
}

/// Fast engines need addresses at multiples of 16 bytes.
std::vector<EngineConfig> proposals(const Form& form, HeuristicsMode mode) {
  constexpr std::int64_t kFast = 16;
  if (mode == HeuristicsMode::fallback) return {{Engine::direct, {}}};
  std::vector<EngineConfig> found{{Engine::with_other_bits, {}},
                                  {Engine::with_much_memory, {}},
                                  {Engine::cannot_be_recorded, {}},
                                  {Engine::cannot_be_built, {}}};
  if (form.images.alignment < kFast || form.weights.alignment < kFast || form.output.alignment < kFast) return found;
  found.push_back({Engine::tensor_cores, {}});
  found.push_back({Engine::in_parts, 2});
  return found;
}

std::vector<NumericalNote> notes_of(Engine engine) {
  if (engine == Engine::tensor_cores) return {NumericalNote::tensor_core};
  if (engine == Engine::with_other_bits) return {NumericalNote::nondeterministic};
  return {};
}

std::uint64_t workspace_bytes(const Form& form, const EngineConfig& config) {
  if (config.engine == Engine::with_much_memory) return std::uint64_t{1} << 40U;
  if (config.engine != Engine::in_parts) return 0;
  return static_cast<std::uint64_t>(config.parts.value_or(1)) * words_of_part(form) * sizeof(float) + 3;
}

Address Convolution::place_of(const TensorForm& tensor) const {
  const std::vector<TensorForm> all = form.tensors();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].id == tensor.id) return places[i];
  return 0;
}

cuda::host::Uses Convolution::uses() const {
  cuda::host::Uses found;
  const std::vector<TensorForm> all = form.tensors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool is_result = all[i].id == form.result().id;
    if (!is_result || form.adds) found.push_back({pointer_to(places[i]), all[i].size_bytes(), Access::reads});
    if (is_result) found.push_back({pointer_to(places[i]), all[i].size_bytes(), Access::writes});
  }
  if (const std::uint64_t size_bytes = workspace_bytes(form, config); size_bytes != 0)
    found.push_back({pointer_to(workspace), size_bytes, Access::writes});
  return found;
}

std::string Convolution::mistake() const {
  const std::vector<TensorForm> all = form.tensors();
  const Address result = place_of(form.result());
  const std::uint64_t needed = workspace_bytes(form, config);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string name = "tensor " + std::to_string(all[i].id);
    if (places[i] == 0) return "no address of " + name;
    if (places[i] % static_cast<Address>(all[i].alignment) != 0)
      return name + " at no multiple of the " + std::to_string(all[i].alignment) + " bytes that it was described with";
    if (all[i].id != form.result().id && overlaps(places[i], all[i].size_bytes(), result, form.result().size_bytes()))
      return "a result that overlaps " + name;
    if (needed != 0 && overlaps(places[i], all[i].size_bytes(), workspace, needed))
      return "a workspace that overlaps " + name;
  }
  if (needed != 0 && workspace == 0) return "no workspace, where the plan needs " + std::to_string(needed) + " bytes";
  return {};
}

void run_convolution(Run& run, const Convolution& convolution, const PlacePtr& place) {
  if (!cuda::host::may_use(run, place, convolution.uses())) return;
  const cuda::host::Memory& memory = process().memory;
  const auto found_at = [&](const TensorForm& tensor) { return memory.at(convolution.place_of(tensor)); };
  const Form& form = convolution.form;
  const bool has_workspace = workspace_bytes(form, convolution.config) != 0;
  const Found found{
      found_at(form.images),   found_at(form.weights),
      found_at(form.output),   form.bias ? found_at(*form.bias) : nullptr,
      found_at(form.result()), has_workspace ? static_cast<float*>(memory.at(convolution.workspace)) : nullptr};
  run.lock.unlock();
  compute(convolution, found);
  run.lock.lock();
}

}  // namespace troupe::cuda::dnn::host
