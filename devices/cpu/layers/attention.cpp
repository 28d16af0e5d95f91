#include <omp.h>

#include <algorithm>
#include <cmath>

#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;
using Type = ProgramBuilder::Type;
using Half = std::uint16_t;

/// This number of places is multiplied at once with all places that they read: the products stay in the caches, and a
/// causal block omits the places after it.
constexpr std::size_t kQueries = 64;

struct AttentionShape {
  std::size_t rows, length, width, heads;
  bool causal;

  std::size_t part() const noexcept { return width / heads; }
  std::size_t step() const noexcept { return 3 * width; }
  float scale() const noexcept { return 1 / std::sqrt(static_cast<float>(part())); }
  /// The number of places, from the first on, that place `at` reads.
  std::size_t count_read(std::size_t at) const noexcept { return causal ? at + 1 : length; }
};

/// Vectors of one head in f32; consecutive vectors are `stride` elements apart.
struct HeadVectors {
  float* first;
  std::size_t stride;

  HeadVectors from(std::size_t index) const noexcept { return {first + index * stride, stride}; }
  MatrixOperand operand(bool transposed = false) const noexcept { return {first, stride, transposed}; }
};

/// One thread's scratch memory: the products of one block and, for bf16 tensors, a head's vectors in f32.
struct HeadScratch {
  float *products, *to_products;  // [kQueries, length] each
  float* vectors;                 // [kVectors, length, part], or none

  enum Use : std::size_t { query, key, value, output, to_query, to_key, to_value, kVectors };

  static std::size_t count_elements(const AttentionShape& shape, bool f32) noexcept {
    return 2 * kQueries * shape.length + (f32 ? 0 : kVectors * shape.length * shape.part());
  }
  HeadScratch(const AttentionShape& shape, float* first) noexcept
      : products(first), to_products(first + kQueries * shape.length), vectors(first + 2 * kQueries * shape.length) {}
};

/// The vectors of one head within a tensor.
struct HeadPart {
  const memory& tensor;
  std::size_t first, step, part, count;

  HeadVectors in_place() const { return {static_cast<float*>(tensor.get_data_handle()) + first, step}; }
  Half* half(std::size_t index) const { return static_cast<Half*>(tensor.get_data_handle()) + first + index * step; }

  /// The vectors for reading: in place, or converted to f32 in `room`.
  HeadVectors read(const Kernels& kernels, float* room) const {
    if (is_f32(tensor)) return in_place();
    for (std::size_t i = 0; i < count; ++i) kernels.widen(room + i * part, half(i), part);
    return {room, part};
  }
  /// The vectors for writing: in place, or in `room`, from where keep() rounds them into the tensor.
  HeadVectors write(float* room) const { return is_f32(tensor) ? in_place() : HeadVectors{room, part}; }
  void keep(const Kernels& kernels, const HeadVectors& written) const {
    if (is_f32(tensor)) return;
    for (std::size_t i = 0; i < count; ++i) kernels.round(half(i), written.from(i).first, part);
  }
};

/// Attention of a batch. The forward pass keeps the logarithm of each softmax's sum. From it the backward pass computes
/// the weights again, block by block, so that nothing of size length x length is kept. Source: Dao et al. 2022
/// (FlashAttention), section 3.1.
struct AttentionPass {
  AttentionShape shape;
  std::uint32_t threads;
  memory input, output;         // [rows, length, 3 width], [rows, length, width]
  memory logarithms;            // [rows, heads, length]
  memory room;                  // [threads, HeadScratch]
  memory gradient, to_input{};  // shaped like output and input; only in the backward pass

  std::vector<memory> memories() const { return {input, output, logarithms, room, gradient, to_input}; }

  /// Calls `work(head's number in the batch, room)` for every head, each on one thread.
  template <class Work>
  void for_heads(Work&& work) const {
    const std::size_t count = shape.rows * shape.heads;
    auto* const first = static_cast<float*>(room.get_data_handle());
    const std::size_t room_elements = HeadScratch::count_elements(shape, is_f32(input));
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (std::size_t head = 0; head < count; ++head)
      work(head, HeadScratch{shape, first + static_cast<std::size_t>(omp_get_thread_num()) * room_elements});
  }

  /// The part of the queries, keys or values (`which`: 0, 1, 2) of a head, in a tensor of the input's shape.
  HeadPart of_input(const memory& tensor, std::size_t head, std::size_t which) const noexcept {
    const std::size_t first = head / shape.heads * shape.length * shape.step() + head % shape.heads * shape.part();
    return {tensor, first + which * shape.width, shape.step(), shape.part(), shape.length};
  }
  HeadPart of_output(const memory& tensor, std::size_t head) const noexcept {
    const std::size_t first = head / shape.heads * shape.length * shape.width + head % shape.heads * shape.part();
    return {tensor, first, shape.width, shape.part(), shape.length};
  }
  float* logarithms_of(std::size_t head) const {
    return static_cast<float*>(logarithms.get_data_handle()) + head * shape.length;
  }
  float* room_of(const HeadScratch& in, HeadScratch::Use use) const {
    return in.vectors + use * shape.length * shape.part();
  }

  struct Operands {
    HeadVectors query, key, value;
  };
  Operands operands_of(const Kernels& kernels, std::size_t head, const HeadScratch& in) const {
    const auto read = [&](HeadScratch::Use use) { return of_input(input, head, use).read(kernels, room_of(in, use)); };
    return {read(HeadScratch::query), read(HeadScratch::key), read(HeadScratch::value)};
  }

  /// Multiplies the `count` queries from `first` on with the first `keys` keys, which are all that any of them reads.
  void multiply_keys(const HeadScratch& in, const Operands& from, std::size_t first, std::size_t count,
                     std::size_t keys) const {
    multiply(count, keys, shape.part(), shape.scale(), from.query.from(first).operand(), from.key.operand(true), 0,
             in.products, shape.length);
  }

  void forward(const Kernels& kernels) const {
    for_heads([&](std::size_t head, const HeadScratch& in) {
      const std::size_t part = shape.part();
      const Operands from = operands_of(kernels, head, in);
      const HeadPart output_part = of_output(output, head);
      const HeadVectors to = output_part.write(room_of(in, HeadScratch::output));
      for (std::size_t first = 0; first < shape.length; first += kQueries) {
        const std::size_t count = std::min(kQueries, shape.length - first), keys = shape.count_read(first + count - 1);
        multiply_keys(in, from, first, count, keys);
        for (std::size_t i = 0; i < count; ++i) {
          float* const row = in.products + i * shape.length;
          const std::size_t read = shape.count_read(first + i);
          const float largest = *std::max_element(row, row + read);
          const float sum = kernels.exp_sum(row, largest, read);
          std::fill(row + read, row + keys, 0.0F);
          logarithms_of(head)[first + i] = largest + std::log(sum);
          for (std::size_t k = 0; k < read; ++k) row[k] /= sum;
        }
        multiply(count, part, keys, 1, {in.products, shape.length}, from.value.operand(), 0, to.from(first).first,
                 to.stride);
      }
      output_part.keep(kernels, to);
    });
  }

  void backward(const Kernels& kernels) const {
    for_heads([&](std::size_t head, const HeadScratch& in) {
      const std::size_t part = shape.part();
      const Operands from = operands_of(kernels, head, in);
      const HeadVectors gradients = of_output(gradient, head).read(kernels, room_of(in, HeadScratch::output));
      const auto written = [&](HeadScratch::Use which, HeadScratch::Use use) {
        return of_input(to_input, head, which).write(room_of(in, use));
      };
      const Operands to{written(HeadScratch::query, HeadScratch::to_query),
                        written(HeadScratch::key, HeadScratch::to_key),
                        written(HeadScratch::value, HeadScratch::to_value)};
      // The last block reads all keys. Therefore it comes first: it initializes the sums over blocks.
      const std::size_t last = (shape.length - 1) / kQueries * kQueries;
      for (std::size_t first = last + kQueries; first > 0;) {
        first -= kQueries;
        const std::size_t count = std::min(kQueries, shape.length - first), keys = shape.count_read(first + count - 1);
        const float keep = first == last ? 0 : 1;
        const MatrixOperand block = gradients.from(first).operand();
        multiply_keys(in, from, first, count, keys);
        for (std::size_t i = 0; i < count; ++i) {
          float* const row = in.products + i * shape.length;
          const std::size_t read = shape.count_read(first + i);
          kernels.exp_sum(row, logarithms_of(head)[first + i], read);
          std::fill(row + read, row + keys, 0.0F);
        }
        const MatrixOperand weights_turned{in.products, shape.length, true};
        multiply(keys, part, count, 1, weights_turned, block, keep, to.value.first, to.value.stride);
        multiply(count, keys, part, 1, block, from.value.operand(true), 0, in.to_products, shape.length);
        softmax_backward(in, count, keys);
        const HeadVectors to_query = to.query.from(first);
        multiply(count, part, keys, shape.scale(), {in.to_products, shape.length}, from.key.operand(), 0,
                 to_query.first, to_query.stride);
        multiply(keys, part, count, shape.scale(), {in.to_products, shape.length, true},
                 from.query.from(first).operand(), keep, to.key.first, to.key.stride);
      }
      of_input(to_input, head, HeadScratch::query).keep(kernels, to.query);
      of_input(to_input, head, HeadScratch::key).keep(kernels, to.key);
      of_input(to_input, head, HeadScratch::value).keep(kernels, to.value);
    });
  }

  /// Turns the gradients to weights into those to products: weight * (gradient - the row's mean gradient by weight).
  void softmax_backward(const HeadScratch& in, std::size_t count, std::size_t keys) const {
    for (std::size_t i = 0; i < count; ++i) {
      const float* const weights = in.products + i * shape.length;
      float* const to = in.to_products + i * shape.length;
      float mean = 0;
      for (std::size_t k = 0; k < keys; ++k) mean += weights[k] * to[k];
      for (std::size_t k = 0; k < keys; ++k) to[k] = weights[k] * (to[k] - mean);
    }
  }
};

/// Products are in f32 for bf16 tensors too, since oneDNN's function for products of parts of tensors takes only f32.
class AttentionCalls final : public LayerCalls {
 public:
  AttentionCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const Attention& attention)
      : builder_(builder), fused_layer_(fused_layer) {
    pass_.shape = {builder.rows(), fused_layer.output_shape.extents[0], fused_layer.output_shape.extents[1],
                   attention.heads, attention.causal};
    pass_.threads = static_cast<std::uint32_t>(omp_get_max_threads());
    pass_.input = builder.tensor(fused_layer.inputs.front()).value;
    pass_.output = builder.tensor(fused_layer.output).value;
    pass_.logarithms = builder.places().take(
        builder.matrix(builder.rows(), std::uint64_t{attention.heads} * pass_.shape.length, Type::f32));
  }

  void forward(Calls& calls) override {
    AttentionPass pass = pass_;
    pass.room = take_room();
    calls.emplace_back(OwnWork{pass.memories(), [pass](const Kernels& kernels) { pass.forward(kernels); }});
  }

  void backward(Calls& calls, Gradients& gradients) override {
    add_backward(builder_, fused_layer_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      if (!input_gradient) return;
      AttentionPass pass = pass_;
      pass.room = take_room();
      pass.gradient = gradient;
      pass.to_input = input_gradient;
      calls.emplace_back(OwnWork{pass.memories(), [pass](const Kernels& kernels) { pass.backward(kernels); }});
    });
  }

 private:
  memory take_room() const {
    const std::size_t elements = HeadScratch::count_elements(pass_.shape, is_f32(pass_.input));
    return builder_.places().take(builder_.matrix(pass_.threads, elements, Type::f32));
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  AttentionPass pass_{};
};

}  // namespace

std::unique_ptr<LayerCalls> make_attention(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                           const Attention& attention) {
  return std::make_unique<AttentionCalls>(builder, fused_layer, attention);
}

}  // namespace troupe::cpu
