#include <algorithm>
#include <array>
#include <cmath>

#include "devices/cpu/layers/layers.hpp"
#include "runtime/model/layout.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;

float load(float value) noexcept { return value; }
float load(std::uint16_t value) noexcept { return from_bf16(value); }
void save(float value, float* to) noexcept { *to = value; }
void save(float value, std::uint16_t* to) noexcept { *to = to_bf16(value); }

/// The vectors whose norms are taken: all channels of a place of a row's image.
struct Vectors {
  std::uint64_t count = 0;
  std::uint64_t channels = 0;
  float epsilon = 0;
};

/// term(0) + term(1) + ... in sixteen sums, which vectors of any width can hold.
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

template <class T>
float inverse_norm(const Vectors& of, const T* x) noexcept {
  return 1.0F / std::sqrt(sum_of(of.channels, [&](std::uint64_t c) { return load(x[c]) * load(x[c]); }) + of.epsilon);
}

template <class T>
void normalize(const Vectors& of, const T* x, const float* scale, T* y) noexcept {
  for (std::uint64_t v = 0; v < of.count; ++v, x += of.channels, y += of.channels) {
    const float inverse = inverse_norm(of, x);
    for (std::uint64_t c = 0; c < of.channels; ++c) save(scale[c] * load(x[c]) * inverse, y + c);
  }
}

/// With u = x / norm: dx = (scale dy - u (u . (scale dy))) / norm; the scale's gradient is the sum of dy u. `dx` is
/// null where nobody asks for it.
template <class T>
void normalize_backward(const Vectors& of, const T* x, const float* scale, const T* dy, T* dx,
                        float* to_scale) noexcept {
  std::fill_n(to_scale, of.channels, 0.0F);
  for (std::uint64_t v = 0; v < of.count; ++v, x += of.channels, dy += of.channels) {
    const float inverse = inverse_norm(of, x);
    for (std::uint64_t c = 0; c < of.channels; ++c) to_scale[c] += load(dy[c]) * load(x[c]) * inverse;
    if (dx == nullptr) continue;
    const float along =
        inverse * sum_of(of.channels, [&](std::uint64_t c) { return scale[c] * load(dy[c]) * load(x[c]); });
    for (std::uint64_t c = 0; c < of.channels; ++c)
      save((scale[c] * load(dy[c]) - load(x[c]) * inverse * along) * inverse, dx + c);
    dx += of.channels;
  }
}

template <class T>
T* elements(const memory& of) {
  return of ? static_cast<T*>(of.get_data_handle()) : nullptr;
}

class L2NormCalls final : public LayerCalls {
 public:
  L2NormCalls(ProgramBuilder& builder, const Stage& stage, const L2Norm& norm) : builder_(builder), stage_(stage) {
    of_.channels = stage.output_shape.extents.back();
    of_.count = builder.rows() * (stage.output_shape.count_elements() / of_.channels);
    of_.epsilon = static_cast<float>(norm.epsilon);
    const memory::desc channels = builder.matrix(1, of_.channels, ProgramBuilder::Type::f32);
    scale_ = builder.bias(stage.first_parameter, channels);
    to_scale_ = builder.gradient(stage.first_parameter, channels);
  }

  void forward(Calls& calls) override {
    in_stored_type([&]<class T>(T) {
      calls.emplace_back(LayerLoop{[of = of_, x = input(), scale = scale_, y = builder_.tensor(stage_.output).value] {
        normalize(of, elements<T>(x), elements<float>(scale), elements<T>(y));
      }});
    });
  }

  void backward(Calls& calls, Gradients& gradients) override {
    go_back(builder_, stage_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      in_stored_type([&]<class T>(T) {
        calls.emplace_back(
            LayerLoop{[of = of_, x = input(), scale = scale_, dy = gradient, dx = input_gradient, to = to_scale_] {
              normalize_backward(of, elements<T>(x), elements<float>(scale), elements<T>(dy), elements<T>(dx),
                                 elements<float>(to));
            }});
      });
    });
  }

 private:
  memory input() const {
    return builder_.value_as(stage_.inputs.front(), builder_.tensor(stage_.output).value.get_desc());
  }
  template <class Act>
  void in_stored_type(Act&& act) const {
    builder_.stored() == ProgramBuilder::Type::f32 ? act(float{}) : act(std::uint16_t{});
  }

  ProgramBuilder& builder_;
  const Stage& stage_;
  Vectors of_;
  memory scale_, to_scale_;
};

}  // namespace

std::unique_ptr<LayerCalls> make_l2_norm(ProgramBuilder& builder, const Stage& stage, const L2Norm& norm) {
  return std::make_unique<L2NormCalls>(builder, stage, norm);
}

}  // namespace troupe::cpu
