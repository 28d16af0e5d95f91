#include <algorithm>
#include <cstring>

#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;
using Type = ProgramBuilder::Type;

template <class T>
T* at(const memory& of) {
  return static_cast<T*>(of.get_data_handle());
}

/// to[i] += from[i]; `from` has the type in which the program stores tensors.
void add_stored(const Kernels& kernels, float* to, const memory& from, std::size_t first, std::size_t count) {
  if (is_f32(from)) return kernels.add(to, to, at<const float>(from) + first, count);
  kernels.add_widened(to, at<const std::uint16_t>(from) + first, count);
}

/// Copies rows of the table, and adds up gradients in the order of the tokens. A token that is not in the vocabulary is
/// skipped: the program has refused such tokens in rows that count, and the other rows may contain anything.
class EmbeddingCalls final : public LayerCalls {
 public:
  EmbeddingCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const Embedding& embedding)
      : builder_(builder),
        fused_layer_(fused_layer),
        embedding_(embedding),
        table_(builder.matrix(embedding.vocabulary, embedding.width, Type::f32)),
        places_(builder.rows() * builder.tensor(fused_layer.inputs.front()).width) {}

  void forward(Calls& calls) override {
    const memory table = builder_.weights(fused_layer_.first_parameter, table_),
                 output = builder_.tensor(fused_layer_.output).value;
    const std::size_t row_bytes = embedding_.width * (is_f32(output) ? sizeof(float) : sizeof(std::uint16_t));
    calls.emplace_back(OwnWork{{tokens(), table, output},
                               [this_tokens = tokens(), table, output, row_bytes, places = places_,
                                vocabulary = embedding_.vocabulary](const Kernels&) {
                                 const auto* token = at<const std::int32_t>(this_tokens);
                                 auto* to = at<std::byte>(output);
                                 for (std::size_t place = 0; place < places; ++place, to += row_bytes) {
                                   const auto row =
                                       static_cast<std::uint32_t>(token[place]);  // below 0: becomes very large
                                   if (token[place] >= 0 && row < vocabulary)
                                     std::memcpy(to, at<const std::byte>(table) + row * row_bytes, row_bytes);
                                   else
                                     std::memset(to, 0, row_bytes);
                                 }
                               }});
  }

  void backward(Calls& calls, Gradients& gradients) override {
    const Gradients::Place gradient = gradients.use(fused_layer_.output);
    const memory table = builder_.gradient(fused_layer_.first_parameter, table_);
    calls.emplace_back(OwnWork{
        {tokens(), table, gradient.value},
        [this_tokens = tokens(), table, from = gradient.value, places = places_, vocabulary = embedding_.vocabulary,
         width = std::size_t{embedding_.width}](const Kernels& kernels) {
          const auto* token = at<const std::int32_t>(this_tokens);
          auto* const sums = at<float>(table);
          std::fill_n(sums, vocabulary * width, 0.0F);
          for (std::size_t place = 0; place < places; ++place) {
            if (token[place] < 0 || static_cast<std::uint32_t>(token[place]) >= vocabulary) continue;
            add_stored(kernels, sums + static_cast<std::uint32_t>(token[place]) * width, from, place * width, width);
          }
        }});
  }

 private:
  const memory& tokens() const { return builder_.tensor(fused_layer_.inputs.front()).value; }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const Embedding embedding_;
  const memory::desc table_;
  const std::size_t places_;
};

class PositionCalls final : public LayerCalls {
 public:
  PositionCalls(ProgramBuilder& builder, const FusedLayer& fused_layer)
      : builder_(builder), fused_layer_(fused_layer), count_(builder.tensor(fused_layer.output).width) {}

  void forward(Calls& calls) override {
    const memory weights = builder_.weights(fused_layer_.first_parameter, vectors());
    const memory from = builder_.tensor(fused_layer_.inputs.front()).value,
                 to = builder_.tensor(fused_layer_.output).value;
    calls.emplace_back(OwnWork{
        {weights, from, to}, [weights, from, to, rows = builder_.rows(), count = count_](const Kernels& kernels) {
          for (std::size_t first = 0; first < rows * count; first += count) {
            if (is_f32(to)) {
              kernels.add(at<float>(to) + first, at<const float>(from) + first, at<const float>(weights), count);
            } else {
              using Half = std::uint16_t;
              kernels.add_bf16(at<Half>(to) + first, at<const Half>(from) + first, at<const Half>(weights), count);
            }
          }
        }});
  }

  /// The gradient to the rows that were read is the gradient to the output.
  void backward(Calls& calls, Gradients& gradients) override {
    Gradients::Place gradient = gradients.use(fused_layer_.output);
    const memory weights = builder_.gradient(fused_layer_.first_parameter, vectors());
    calls.emplace_back(
        OwnWork{{weights, gradient.value},
                [weights, from = gradient.value, rows = builder_.rows(), count = count_](const Kernels& kernels) {
                  auto* const sums = at<float>(weights);
                  std::fill_n(sums, count, 0.0F);
                  for (std::size_t row = 0; row < rows; ++row) add_stored(kernels, sums, from, row * count, count);
                }});
    gradient.masked = false;
    if (builder_.tensor(fused_layer_.inputs.front()).trained)
      gradients.contribute(calls, fused_layer_.inputs.front(), std::move(gradient));
  }

 private:
  memory::desc vectors() const { return builder_.matrix(1, count_, Type::f32); }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const std::size_t count_;  // elements of a row
};

}  // namespace

std::unique_ptr<LayerCalls> make_embedding(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                           const Embedding& embedding) {
  return std::make_unique<EmbeddingCalls>(builder, fused_layer, embedding);
}
std::unique_ptr<LayerCalls> make_position(ProgramBuilder& builder, const FusedLayer& fused_layer) {
  return std::make_unique<PositionCalls>(builder, fused_layer);
}

}  // namespace troupe::cpu
