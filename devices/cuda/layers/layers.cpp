#include "devices/cuda/layers/layers.hpp"

#include <algorithm>
#include <type_traits>
#include <variant>

namespace troupe::cuda {
namespace {

template <class Kind>
inline constexpr bool kIsLoss = std::is_same_v<Kind, SoftmaxCrossEntropy> || std::is_same_v<Kind, SmoothL1> ||
                                std::is_same_v<Kind, SigmoidCrossEntropy>;

std::uint64_t last_extent(const Tensor& tensor) {
  return tensor.shape.extents.empty() ? 1 : tensor.shape.extents.back();
}

void check_at_most(std::uint64_t found, std::uint64_t most, const char* what) {
  TROUPE_CHECK(found <= most, Code::unsupported, "it has ", found, " ", what, ", a cuda device takes ", most);
}

/// Pixels are counted in 31 bits.
void check_pixels(const LayerWork& work, std::uint32_t rows) {
  for (const Tensor* const images : {work.inputs[0], work.output})
    check_at_most(rows * (images->width() / last_extent(*images)), (std::uint64_t{1} << 31) - 1, "pixels in a batch");
}

template <class Kind>
bool is_product(const Kind& kind) {
  if constexpr (std::is_same_v<Kind, Conv2d>) return is_affine(kind);
  return std::is_same_v<Kind, Dense>;
}

template <class Kind>
LayerRoom room_for(const Kind& kind, const LayerWork& work, std::uint32_t rows) {
  LayerRoom room;
  if constexpr (kIsLoss<Kind>) {
    const bool has_labels = std::is_same_v<Kind, SoftmaxCrossEntropy>;
    room.kept = rows * (has_labels ? work.inputs[1]->width() : 1) * sizeof(RowLoss);
    return room;
  } else {
    const std::uint64_t channels = last_extent(*work.output), positions = rows * (work.output->width() / channels);
    room.math.summed_columns = channels;
    if constexpr (std::is_same_v<Kind, Position>) room.math.summed_columns = work.output->width();
    if (is_product(kind))
      for (const LayerParameter& parameter : work.parameters)
        room.math.landed_bytes += on_a_boundary(parameter.count * sizeof(float));
    if constexpr (std::is_same_v<Kind, Conv2d>) {
      check_pixels(work, rows);
      const LayerParameter& weights = work.parameters[0];
      check_at_most(weights.count, (std::uint64_t{1} << 31) - 1, "weights");
      room.kept = weights.count * bytes_of(weights.type);  // in another order
      if (!is_product(kind)) room.dnn_kept = on_a_boundary(room.kept) + weights.count * bytes_of(work.inputs[0]->type);
    }
    if constexpr (std::is_same_v<Kind, Add> || std::is_same_v<Kind, Multiply>)
      check_at_most(work.inputs.size(), kMostInputs, "inputs");
    if constexpr (std::is_same_v<Kind, Transpose>)
      check_at_most(work.output->shape.extents.size(), kMostExtents, "extents");
    if constexpr (std::is_same_v<Kind, MaxPool>)
      room.kept = rows * work.output->width() * index_bytes_of(std::uint64_t{kind.kernel.height} * kind.kernel.width);
    if constexpr (std::is_same_v<Kind, BatchNorm>) {
      room.kept = on_a_boundary(3 * channels * sizeof(float)) + 2 * channels * sizeof(float);
    }
    if constexpr (std::is_same_v<Kind, LayerNorm> || std::is_same_v<Kind, L2Norm>)
      room.kept = positions * sizeof(RowMoments);
    if constexpr (std::is_same_v<Kind, Embedding>) {
      check_at_most(positions, (std::uint64_t{1} << 31) - 1, "tokens in a batch");
      room.scratch = positions * sizeof(TokenLink);
    }
    return room;
  }
}

/// The weights, and in the backward pass the gradients to them. Scores are f32; where weights are not, they lie apart.
/// Where a library computes it, it works there instead.
LayerRoom room_for(const Attention& attention, const LayerWork& work, std::uint32_t rows) {
  const std::uint64_t length = work.output->shape.extents[0], count = rows * attention.heads * length * length;
  const Stored type = work.inputs[0]->type;
  LayerRoom room{.kept = count * bytes_of(type), .scratch = on_a_boundary(count * sizeof(float))};
  if (type != Stored::f32) room.scratch += count * bytes_of(type);
  if (fits_library(type, length, work.output->shape.extents[1] / attention.heads))
    room.scratch = std::max(room.scratch, product_sums_bytes(rows, attention.heads, length) +
                                              attention_workspace_bytes(rows, attention.heads, length));
  return room;
}

}  // namespace

LayerRoom room_for(const LayerWork& work, const Operation& operation, std::uint32_t rows) {
  return std::visit([&](const auto& kind) { return room_for(kind, work, rows); }, operation);
}

void prepare(const LayerWork& work, const Operation& operation, const Tensor* relu, std::uint32_t rows, bool trains,
             Math& math) {
  std::visit(
      [&]<class Kind>(const Kind& kind) {
        if constexpr (std::is_same_v<Kind, Conv2d>) prepare(kind, work, relu, rows, trains, math);
        if constexpr (requires { prepare(kind, work, rows, trains, math); }) prepare(kind, work, rows, trains, math);
      },
      operation);
}

std::optional<Curve> curve_of(const Operation& operation) noexcept {
  if (std::holds_alternative<Relu>(operation)) return Curve::relu;
  if (std::holds_alternative<Tanh>(operation)) return Curve::tanh;
  if (std::holds_alternative<Sigmoid>(operation)) return Curve::sigmoid;
  if (std::holds_alternative<Gelu>(operation)) return Curve::gelu;
  return std::nullopt;
}

void forward(const LayerWork& work, const Operation& operation, const Pass& pass) {
  std::visit(
      [&]<class Kind>(const Kind& kind) {
        if constexpr (!std::is_same_v<Kind, Flatten>) forward(kind, work, pass);
      },
      operation);
}

void backward(const LayerWork& work, const Operation& operation, const Pass& pass) {
  std::visit(
      [&]<class Kind>(const Kind& kind) {
        if constexpr (!std::is_same_v<Kind, Flatten> && !kIsLoss<Kind>) backward(kind, work, pass);
      },
      operation);
}

}  // namespace troupe::cuda
