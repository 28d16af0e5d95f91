#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe {

/// How numbers are kept in a batch, in activations and in the weights a replica reads. Parameters, optimizer state and
/// the gradients that are exchanged are always f32.
enum class DType : std::uint8_t { f32, bf16 };
constexpr std::uint64_t size_bytes(DType type) noexcept { return type == DType::f32 ? 4 : 2; }
std::string_view name_of(DType type) noexcept;

/// The extents of one sample, without the batch dimension; images are height, width, channels.
struct Shape {
  std::vector<std::uint32_t> extents;
  std::uint64_t count_elements() const noexcept;
  std::string to_string() const;
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// y = x W^T + b, W [units, in] row-major, b [units].
struct Dense {
  std::uint32_t units = 0;
  friend bool operator==(const Dense&, const Dense&) = default;
};
/// y = max(x, 0).
struct Relu {
  friend bool operator==(const Relu&, const Relu&) = default;
};
/// The loss: -log softmax(x)[label], summed over the samples. A label below 0 marks a row that does not count.
struct SoftmaxCrossEntropy {
  friend bool operator==(const SoftmaxCrossEntropy&, const SoftmaxCrossEntropy&) = default;
};
using Operation = std::variant<Dense, Relu, SoftmaxCrossEntropy>;

struct Layer {
  std::string name;
  Operation operation;
  friend bool operator==(const Layer&, const Layer&) = default;
};

/// One trainable tensor.
struct Parameter {
  std::string name;                    // layer.weight, layer.bias
  std::vector<std::uint64_t> extents;  // row-major
  std::uint32_t layer = 0;             // index in Graph::layers()
  double deviation = 0;                // weights start as N(0, deviation^2); 0: as zeros
  std::uint64_t count_elements() const noexcept;
};

/// A model as a value: a chain of layers whose shapes fit. It knows its parameters and its costs, so planning needs no
/// device.
class Graph {
 public:
  /// Infers every shape and lists the parameters. Throws Error{invalid} naming the layer when the shapes do not fit,
  /// when two layers share a name, when there is no layer with units, or when the last layer is not a loss.
  Graph(std::string name, Shape input, DType dtype, std::vector<Layer> layers);
  /// A model whose arithmetic is not told, f32, without layers: its parameters alone. Throws Error{invalid} naming the
  /// parameter whose name is empty or taken, or whose extents are not positive or too many.
  Graph(std::string name, Shape input, std::vector<Parameter> parameters);

  const std::string& name() const noexcept { return name_; }
  DType dtype() const noexcept { return dtype_; }
  const Shape& input() const noexcept { return input_; }
  const std::vector<Layer>& layers() const noexcept { return layers_; }
  /// What layer `index` puts out; the loss's entry is its input's shape (the logits).
  const Shape& output_of(std::size_t index) const { return outputs_.at(index); }
  /// 0 without layers.
  std::uint32_t count_classes() const noexcept;
  /// In the order of the layers, weight before bias.
  const std::vector<Parameter>& parameters() const noexcept { return parameters_; }
  std::uint64_t count_parameters() const noexcept;
  /// Floating-point operations (a multiply-add is 2) of one sample: forward, and forward with backward. The gradient
  /// to the network's input is never computed. Without layers: as if every parameter of two extents were a matrix.
  std::uint64_t forward_flops() const noexcept;
  std::uint64_t training_flops() const noexcept;
  /// A text that is equal exactly when two graphs are; hashed into the plan.
  std::string to_string() const;

 private:
  std::string name_;
  Shape input_;
  DType dtype_;
  std::vector<Layer> layers_;
  std::vector<Shape> outputs_;
  std::vector<Parameter> parameters_;
};

}  // namespace troupe
