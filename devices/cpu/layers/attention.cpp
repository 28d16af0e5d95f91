#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;
using Type = ProgramBuilder::Type;
using Half = std::uint16_t;

/// So many places are multiplied with all those that they read at once: their products stay in the caches, and a causal
/// block leaves out what lies behind it.
constexpr std::size_t kQueries = 64;

struct AttentionShape {
  std::size_t rows, length, width, heads;
  bool causal;

  std::size_t part() const noexcept { return width / heads; }
  std::size_t step() const noexcept { return 3 * width; }
  float scale() const noexcept { return 1 / std::sqrt(static_cast<float>(part())); }
  /// What the place `at` reads: the first so many places.
  std::size_t count_read(std::size_t at) const noexcept { return causal ? at + 1 : length; }
};

/// What one thread works in: a head's operands, packed and in f32, and the products of one block.
struct HeadRoom {
  float *query, *key, *value, *output, *to_key, *to_value;  // [length, part] each
  float *products, *to_products;                            // [kQueries, length] each
  float* block;                                             // [kQueries, part]

  static std::size_t count_elements(const AttentionShape& shape) noexcept {
    return 6 * shape.length * shape.part() + 2 * kQueries * shape.length + kQueries * shape.part();
  }
  HeadRoom(const AttentionShape& shape, float* first) noexcept {
    const auto take = [&](std::size_t count) { return std::exchange(first, first + count); };
    for (float** operand : {&query, &key, &value, &output, &to_key, &to_value})
      *operand = take(shape.length * shape.part());
    for (float** product : {&products, &to_products}) *product = take(kQueries * shape.length);
    block = take(kQueries * shape.part());
  }
};

/// `count` vectors of `part` elements that lie `step` elements apart, from `first` on, to packed ones.
void pack(const Kernels& kernels, const memory& from, std::size_t first, std::size_t step, std::size_t part,
          std::size_t count, float* to) {
  const bool f32 = from.get_desc().data_type() == Type::f32;
  const void* const data = from.get_data_handle();
  for (std::size_t i = 0; i < count; ++i, first += step, to += part) {
    if (f32)
      std::memcpy(to, static_cast<const float*>(data) + first, part * sizeof(float));
    else
      kernels.widen(to, static_cast<const Half*>(data) + first, part);
  }
}

/// The way back.
void unpack(const Kernels& kernels, const float* from, std::size_t part, std::size_t count, const memory& to,
            std::size_t first, std::size_t step) {
  const bool f32 = to.get_desc().data_type() == Type::f32;
  void* const data = to.get_data_handle();
  for (std::size_t i = 0; i < count; ++i, first += step, from += part) {
    if (f32)
      std::memcpy(static_cast<float*>(data) + first, from, part * sizeof(float));
    else
      kernels.round(static_cast<Half*>(data) + first, from, part);
  }
}

/// Attention of a batch. The forward pass keeps the logarithm of each softmax's sum, from which the backward pass makes
/// the weights again, block by block, so that nothing of length x length is kept. Source: Dao et al. 2022
/// (FlashAttention), section 3.1.
struct AttentionPass {
  AttentionShape shape;
  std::uint32_t threads;
  memory input, output;         // [rows, length, 3 width], [rows, length, width]
  memory logarithms;            // [rows, heads, length]
  memory room;                  // [threads, HeadRoom]
  memory gradient, to_input{};  // as output and input; only of the way back

  /// `work(head's number in the batch, room)`, each head by one thread.
  template <class Work>
  void for_heads(Work&& work) const {
    const std::size_t count = shape.rows * shape.heads;
    auto* const first = static_cast<float*>(room.get_data_handle());
    const std::size_t room_elements = HeadRoom::count_elements(shape);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (std::size_t head = 0; head < count; ++head)
      work(head, HeadRoom{shape, first + static_cast<std::size_t>(omp_get_thread_num()) * room_elements});
  }

  std::size_t first_input(std::size_t head) const noexcept {
    return head / shape.heads * shape.length * shape.step() + head % shape.heads * shape.part();
  }
  std::size_t first_output(std::size_t head) const noexcept {
    return head / shape.heads * shape.length * shape.width + head % shape.heads * shape.part();
  }
  float* logarithms_of(std::size_t head) const {
    return static_cast<float*>(logarithms.get_data_handle()) + head * shape.length;
  }

  void pack_operands(const Kernels& kernels, std::size_t head, const HeadRoom& in) const {
    float* const operands[]{in.query, in.key, in.value};
    for (std::size_t i = 0; i < 3; ++i)
      pack(kernels, input, first_input(head) + i * shape.width, shape.step(), shape.part(), shape.length, operands[i]);
  }

  /// Of the `count` queries from `first` on, with all keys that any of them reads: `keys`.
  void multiply_keys(const HeadRoom& in, std::size_t first, std::size_t count, std::size_t keys) const {
    const std::size_t part = shape.part();
    multiply(count, keys, part, shape.scale(), {in.query + first * part, part}, {in.key, part, true}, 0, in.products,
             shape.length);
  }

  void forward(const Kernels& kernels) const {
    for_heads([&](std::size_t head, const HeadRoom& in) {
      const std::size_t part = shape.part();
      pack_operands(kernels, head, in);
      for (std::size_t first = 0; first < shape.length; first += kQueries) {
        const std::size_t count = std::min(kQueries, shape.length - first), keys = shape.count_read(first + count - 1);
        multiply_keys(in, first, count, keys);
        for (std::size_t i = 0; i < count; ++i) {
          float* const row = in.products + i * shape.length;
          const std::size_t read = shape.count_read(first + i);
          const float largest = *std::max_element(row, row + read);
          const float sum = kernels.exp_sum(row, largest, read);
          std::fill(row + read, row + keys, 0.0F);
          logarithms_of(head)[first + i] = largest + std::log(sum);
          for (std::size_t k = 0; k < read; ++k) row[k] /= sum;
        }
        multiply(count, part, keys, 1, {in.products, shape.length}, {in.value, part}, 0, in.block, part);
        unpack(kernels, in.block, part, count, output, first_output(head) + first * shape.width, shape.width);
      }
    });
  }

  void backward(const Kernels& kernels) const {
    for_heads([&](std::size_t head, const HeadRoom& in) {
      const std::size_t part = shape.part();
      pack_operands(kernels, head, in);
      pack(kernels, gradient, first_output(head), shape.width, part, shape.length, in.output);
      std::fill_n(in.to_key, shape.length * part, 0.0F);
      std::fill_n(in.to_value, shape.length * part, 0.0F);
      for (std::size_t first = 0; first < shape.length; first += kQueries) {
        const std::size_t count = std::min(kQueries, shape.length - first), keys = shape.count_read(first + count - 1);
        const MatrixOperand gradients{in.output + first * part, part};
        multiply_keys(in, first, count, keys);
        for (std::size_t i = 0; i < count; ++i) {
          float* const row = in.products + i * shape.length;
          const std::size_t read = shape.count_read(first + i);
          kernels.exp_sum(row, logarithms_of(head)[first + i], read);
          std::fill(row + read, row + keys, 0.0F);
        }
        const MatrixOperand weights_turned{in.products, shape.length, true};
        multiply(keys, part, count, 1, weights_turned, gradients, 1, in.to_value, part);
        multiply(count, keys, part, 1, gradients, {in.value, part, true}, 0, in.to_products, shape.length);
        go_back_through_softmax(in, count, keys);
        multiply(count, part, keys, shape.scale(), {in.to_products, shape.length}, {in.key, part}, 0, in.block, part);
        multiply(keys, part, count, shape.scale(), {in.to_products, shape.length, true},
                 {in.query + first * part, part}, 1, in.to_key, part);
        unpack(kernels, in.block, part, count, to_input, first_input(head) + first * shape.step(), shape.step());
      }
      unpack(kernels, in.to_key, part, shape.length, to_input, first_input(head) + shape.width, shape.step());
      unpack(kernels, in.to_value, part, shape.length, to_input, first_input(head) + 2 * shape.width, shape.step());
    });
  }

  /// From the gradient to each weight to that of its product: weight * (gradient - the mean of a row's gradients).
  void go_back_through_softmax(const HeadRoom& in, std::size_t count, std::size_t keys) const {
    for (std::size_t i = 0; i < count; ++i) {
      const float* const weights = in.products + i * shape.length;
      float* const to = in.to_products + i * shape.length;
      float mean = 0;
      for (std::size_t k = 0; k < keys; ++k) mean += weights[k] * to[k];
      for (std::size_t k = 0; k < keys; ++k) to[k] = weights[k] * (to[k] - mean);
    }
  }
};

/// Products are in f32, of bf16 tensors too: oneDNN's function for products of parts of tensors takes nothing else.
class AttentionCalls final : public LayerCalls {
 public:
  AttentionCalls(ProgramBuilder& builder, const Stage& stage, const Attention& attention)
      : builder_(builder), stage_(stage) {
    pass_.shape = {builder.rows(), stage.output_shape.extents[0], stage.output_shape.extents[1], attention.heads,
                   attention.causal};
    pass_.threads = static_cast<std::uint32_t>(omp_get_max_threads());
    pass_.input = builder.tensor(stage.inputs.front()).value;
    pass_.output = builder.tensor(stage.output).value;
    pass_.logarithms = builder.places().take(
        builder.matrix(builder.rows(), std::uint64_t{attention.heads} * pass_.shape.length, Type::f32));
    pass_.room = builder.places().share(
        SharedUse::scratch, builder.matrix(pass_.threads, HeadRoom::count_elements(pass_.shape), Type::f32));
  }

  void forward(Calls& calls) override {
    calls.emplace_back(OwnWork{[pass = pass_](const Kernels& kernels) { pass.forward(kernels); }});
  }

  void backward(Calls& calls, Gradients& gradients) override {
    go_back(builder_, stage_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      if (!input_gradient) return;
      AttentionPass pass = pass_;
      pass.gradient = gradient;
      pass.to_input = input_gradient;
      calls.emplace_back(OwnWork{[pass](const Kernels& kernels) { pass.backward(kernels); }});
    });
  }

 private:
  ProgramBuilder& builder_;
  const Stage& stage_;
  AttentionPass pass_{};
};

}  // namespace

std::unique_ptr<LayerCalls> make_attention(ProgramBuilder& builder, const Stage& stage, const Attention& attention) {
  return std::make_unique<AttentionCalls>(builder, stage, attention);
}

}  // namespace troupe::cpu
