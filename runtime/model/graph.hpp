#pragma once

// The room model: a model as data: its layers (layer.hpp, layer_kinds.hpp), the graph that they form (graph.hpp) and
// the positions of its parameters (layout.hpp). It computes nothing, and knows no device, rank or file.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/layer.hpp"

namespace troupe {

/// Number types: f32, bf16 and f16 in activations and in the weights that a replica reads, i32 in labels and tokens.
/// Parameters, optimizer state and exchanged gradients are always f32.
enum class DType : std::uint8_t { f32, bf16, f16, i32 };
/// Whether a number that came from elsewhere is one of them.
constexpr bool is_dtype(std::uint64_t number) noexcept { return number <= static_cast<std::uint64_t>(DType::i32); }
constexpr std::uint64_t size_bytes(DType type) noexcept { return type == DType::bf16 || type == DType::f16 ? 2 : 4; }
/// Whether replicas that compute in this type read a copy of the weights in 16 bits.
constexpr bool has_16_bits(DType type) noexcept { return size_bytes(type) == 2; }
/// The type of a batch's numbers for a model in `type`: batches have no f16, which a device makes of f32.
constexpr DType batch_type(DType type) noexcept { return type == DType::f16 ? DType::f32 : type; }
std::string_view name_of(DType type) noexcept;

/// The extents of one sample, without the batch dimension; images are height, width, channels. Without extents: one
/// number.
struct Shape {
  std::vector<std::uint32_t> extents;
  std::uint64_t count_elements() const noexcept;
  std::string to_string() const;
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// A named part of a sample: its image, its label, its boxes.
struct Field {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  /// For labels and tokens (i32): they are 0 to classes - 1, or negative if not known; 0: any number.
  std::uint32_t classes = 0;
  std::string to_string() const;  // image [28, 28, 1] f32
  friend bool operator==(const Field&, const Field&) = default;
};

/// The field called `name`; null: there is none.
const Field* find_field(const std::vector<Field>& fields, std::string_view name) noexcept;

/// The names that this project's data sets use for the two parts that a classifier reads.
inline constexpr std::string_view kImage = "image";
inline constexpr std::string_view kLabel = "label";
/// The name of the field that a text has instead of an image.
inline constexpr std::string_view kTokens = "tokens";

/// One tensor that training changes: by its gradient, or, for a running statistic, by statistics of the batches.
struct Parameter {
  std::string name;                    // layer.weight, layer.bias
  std::vector<std::uint64_t> extents;  // row-major
  std::uint32_t layer = 0;             // index in Graph::layers()
  double deviation = 0;                // initial values are N(mean, deviation^2); 0: all are `mean`
  double mean = 0;
  /// Not 0: a running statistic, not trained. Instead of a gradient, replicas give the negative of the batch's
  /// statistic, times its samples; an update moves it by this fraction toward the mean of these over all samples.
  double momentum = 0;
  bool is_statistic() const noexcept { return momentum != 0; }
  std::uint64_t count_elements() const noexcept;
};

/// A range of layers by index, both ends included.
struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

/// A model as a value: layers that read fields of a batch and outputs of other layers, without cycles, and end in one
/// or several losses, whose sum is minimized. It knows its parameters and its costs, so planning needs no device.
/// Tensors are numbered: first the fields, then the outputs of the layers.
class Graph {
 public:
  /// Infers every shape and lists the parameters. `fields`: what the model reads of a sample; its numbers are `dtype`.
  /// Throws Error{invalid}, which names the layer, if shapes do not fit, if a layer reads something that does not exist
  /// or its output is not read, if two items have the same name, if no layer has parameters, or if the last layer is
  /// not a loss. For a graph with dropout, fields() also contains the sample's key (dropout.hpp), which is not the
  /// input of any layer.
  Graph(std::string name, std::vector<Field> fields, DType dtype, std::vector<Layer> layers);
  /// A classifier of an "image" of shape `input`, with a "label".
  Graph(std::string name, Shape input, DType dtype, std::vector<Layer> layers);
  /// A model whose arithmetic is not known, in f32, without layers: only its parameters. `fields`: all fields of its
  /// batches. Throws Error{invalid}, which names the parameter, if a name is empty or used twice, or if extents are 0
  /// or too large.
  Graph(std::string name, std::vector<Field> fields, std::vector<Parameter> parameters);

  /// Asks devices to keep, of these layers, only the outputs that layers outside the range read; the others are
  /// computed again in the backward pass (gradient checkpointing), which takes less memory and more time and changes no
  /// number. A device may ignore this. Source: Chen et al. 2016 (Training deep nets with sublinear memory cost),
  /// section 3. Throws Error{invalid} unless the ranges are ascending, do not overlap, and contain no loss.
  void recompute(std::vector<LayerRange> ranges);
  const std::vector<LayerRange>& recomputed() const noexcept { return recomputed_; }

  const std::string& name() const noexcept { return name_; }
  DType dtype() const noexcept { return dtype_; }
  const std::vector<Field>& fields() const noexcept { return fields_; }
  const std::vector<Layer>& layers() const noexcept { return layers_; }
  std::uint32_t output_tensor(std::size_t layer) const noexcept {
    return static_cast<std::uint32_t>(fields_.size() + layer);
  }
  /// The tensors that layer `index` reads; for a loss: logits, then labels or numbers.
  const std::vector<std::uint32_t>& inputs_of(std::size_t index) const { return inputs_.at(index); }
  const Shape& shape_of(std::uint32_t tensor) const { return shapes_.at(tensor); }
  /// The shape of layer `index`'s output; for a loss, the shape of its logits.
  const Shape& output_of(std::size_t index) const { return shapes_.at(output_tensor(index)); }
  /// How many inputs of layers are `tensor`.
  std::uint32_t count_readers(std::uint32_t tensor) const noexcept;
  /// Whether `tensor` depends on a parameter: then a gradient to it is computed.
  bool is_trained(std::uint32_t tensor) const { return trained_.at(tensor); }
  /// The number of classes of the last loss, for which correct answers and samples are counted; 0 without layers.
  std::uint32_t count_classes() const noexcept;
  /// In the order of the layers, weight before bias.
  const std::vector<Parameter>& parameters() const noexcept { return parameters_; }
  std::uint64_t count_parameters() const noexcept;
  /// Floating-point operations (a multiply-add is 2) for one sample: forward, and forward with backward. A gradient to
  /// a tensor that depends on no parameter is not computed; recomputed layers count twice. Without layers: as if every
  /// parameter with two extents were a matrix.
  std::uint64_t forward_flops() const noexcept;
  std::uint64_t training_flops() const noexcept;
  /// The part of layer `index` in forward_flops().
  std::uint64_t forward_flops(std::size_t index) const { return 2 * multiply_adds_.at(index); }
  /// A text that is equal exactly if two graphs compute the same, apart from recomputation; hashed into the plan.
  std::string to_string() const;

 private:
  bool is_recomputed(std::uint32_t layer, const LayerRange& range) const noexcept;
  void check_fields() const;
  void connect();
  void infer(std::uint32_t layer);
  std::uint32_t find_tensor(std::uint32_t layer, const std::string& name) const;
  void check_count(std::uint32_t layer, std::size_t least, std::size_t most) const;
  const Shape& numbers(std::uint32_t layer, std::size_t index) const;
  const Field& tokens(std::uint32_t layer) const;
  void check_labels(std::uint32_t layer, const Shape& logits) const;
  void check_number_targets(std::uint32_t layer, const Shape& read) const;
  std::string where(std::uint32_t layer) const;

  std::string name_;
  std::vector<Field> fields_;
  DType dtype_;
  std::vector<Layer> layers_;
  std::vector<std::vector<std::uint32_t>> inputs_;  // tensors, by layer
  std::vector<Shape> shapes_;                       // by tensor
  std::vector<bool> trained_;                       // by tensor
  std::vector<Parameter> parameters_;
  std::vector<LayerRange> recomputed_;
  std::vector<std::uint64_t> multiply_adds_;  // by layer, of one sample's forward pass
};

}  // namespace troupe
