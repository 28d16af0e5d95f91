#include <algorithm>
#include <array>
#include <cmath>

#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;

/// The vectors that are normalized: all channels at one place of an image.
struct Vectors {
  std::uint64_t count = 0;
  std::uint64_t channels = 0;
  float epsilon = 0;
};

/// term(0) + term(1) + ... in sixteen partial sums, which fit vector registers of any width.
template <class Term>
float sum_of(std::uint64_t count, Term&& term) noexcept {
  constexpr std::uint64_t kLanes = 16;
  std::array<float, kLanes> lanes{};
  std::uint64_t at = 0;
  for (; at + kLanes <= count; at += kLanes)
    for (std::uint64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(at + lane);
  for (; at < count; ++at) lanes[0] += term(at);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

float inverse_norm(const Vectors& of, const float* x) noexcept {
  return 1.0F / std::sqrt(sum_of(of.channels, [&](std::uint64_t c) { return x[c] * x[c]; }) + of.epsilon);
}

void normalize(const Vectors& of, const float* x, const float* scale, float* y) noexcept {
  for (std::uint64_t v = 0; v < of.count; ++v, x += of.channels, y += of.channels) {
    const float inverse = inverse_norm(of, x);
    for (std::uint64_t c = 0; c < of.channels; ++c) y[c] = scale[c] * x[c] * inverse;
  }
}

/// With u = x / norm: dx = (scale dy - u (u . (scale dy))) / norm; the scale's gradient is the sum of dy u. `dx` may be
/// `dy`, and is null if it is not needed.
void normalize_backward(const Vectors& of, const float* x, const float* scale, const float* dy, float* dx,
                        float* to_scale) noexcept {
  std::fill_n(to_scale, of.channels, 0.0F);
  for (std::uint64_t v = 0; v < of.count; ++v, x += of.channels, dy += of.channels) {
    const float inverse = inverse_norm(of, x);
    for (std::uint64_t c = 0; c < of.channels; ++c) to_scale[c] += dy[c] * x[c] * inverse;
    if (dx == nullptr) continue;
    const float along = inverse * sum_of(of.channels, [&](std::uint64_t c) { return scale[c] * dy[c] * x[c]; });
    for (std::uint64_t c = 0; c < of.channels; ++c) dx[c] = (scale[c] * dy[c] - x[c] * inverse * along) * inverse;
    dx += of.channels;
  }
}

float* elements(const memory& of) { return of ? static_cast<float*>(of.get_data_handle()) : nullptr; }

/// Loops over f32: bf16 tensors are converted to f32 before the loops, and the results are rounded.
class L2NormCalls final : public LayerCalls {
 public:
  L2NormCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const L2Norm& norm)
      : builder_(builder), fused_layer_(fused_layer) {
    of_.channels = fused_layer.output_shape.extents.back();
    of_.count = builder.rows() * (fused_layer.output_shape.count_elements() / of_.channels);
    of_.epsilon = static_cast<float>(norm.epsilon);
    const memory::desc channels = builder.matrix(1, of_.channels, ProgramBuilder::Type::f32);
    scale_ = builder.bias(fused_layer.first_parameter, channels);
    to_scale_ = builder.gradient(fused_layer.first_parameter, channels);
  }

  void forward(Calls& calls) override {
    const memory& kept = builder_.tensor(fused_layer_.output).value;
    const memory x = wide_input(calls), y = wide(kept);
    calls.emplace_back(OwnWork{{x, scale_, y}, [of = of_, x, scale = scale_, y](const Kernels&) {
                                 normalize(of, elements(x), elements(scale), elements(y));
                               }});
    builder_.convert(calls, y, kept);
  }

  void backward(Calls& calls, Gradients& gradients) override {
    add_backward(builder_, fused_layer_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      const memory x = wide_input(calls), dy = wide(gradient);
      builder_.convert(calls, gradient, dy);
      // If it is rounded, the gradient to the input takes the place of the f32 copy of the output's gradient.
      const bool rounds = input_gradient && !is_f32(input_gradient);
      const memory dx = rounds ? dy : input_gradient;
      calls.emplace_back(OwnWork{
          {x, scale_, dy, dx, to_scale_}, [of = of_, x, scale = scale_, dy, dx, to = to_scale_](const Kernels&) {
            normalize_backward(of, elements(x), elements(scale), elements(dy), elements(dx), elements(to));
          }});
      if (rounds) builder_.convert(calls, dx, input_gradient);
    });
  }

 private:
  /// The memory itself, or a place for an f32 copy.
  memory wide(const memory& of) const {
    if (is_f32(of)) return of;
    return builder_.places().take(
        builder_.matrix(builder_.rows(), fused_layer_.output_shape.count_elements(), ProgramBuilder::Type::f32));
  }
  memory wide_input(Calls& calls) const {
    const memory kept =
        builder_.value_as(fused_layer_.inputs.front(), builder_.tensor(fused_layer_.output).value.get_desc());
    memory x = wide(kept);
    builder_.convert(calls, kept, x);
    return x;
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  Vectors of_;
  memory scale_, to_scale_;
};

}  // namespace

std::unique_ptr<LayerCalls> make_l2_norm(ProgramBuilder& builder, const FusedLayer& fused_layer, const L2Norm& norm) {
  return std::make_unique<L2NormCalls>(builder, fused_layer, norm);
}

}  // namespace troupe::cpu
