#pragma once

// The room model: a model as data: its layers (layer.hpp, layer_kinds.hpp), what they make together (graph.hpp) and
// where its parameters lie (layout.hpp). It computes nothing, and knows of no device, rank or file.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/layer.hpp"

namespace troupe {

/// How numbers are kept: f32 and bf16 in a batch, in activations and in the weights a replica reads, i32 in labels and
/// tokens. Parameters, optimizer state and the gradients that are exchanged are always f32.
enum class DType : std::uint8_t { f32, bf16, i32 };
constexpr std::uint64_t size_bytes(DType type) noexcept { return type == DType::bf16 ? 2 : 4; }
std::string_view name_of(DType type) noexcept;

/// The extents of one sample, without the batch dimension; images are height, width, channels. Without extents: a
/// single number.
struct Shape {
  std::vector<std::uint32_t> extents;
  std::uint64_t count_elements() const noexcept;
  std::string to_string() const;
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// A part of a sample that has a name: its image, its label, boxes.
struct Field {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  /// Of labels and tokens (i32), which are 0 to classes - 1, or negative where none is known; 0: any.
  std::uint32_t classes = 0;
  std::string to_string() const;  // image [28, 28, 1] f32
  friend bool operator==(const Field&, const Field&) = default;
};

/// The one called `name`; null: none is.
const Field* find_field(const std::vector<Field>& fields, std::string_view name) noexcept;

/// What the data sets of this project call the two parts that a classifier reads.
inline constexpr std::string_view kImage = "image";
inline constexpr std::string_view kLabel = "label";
/// What a text has in the place of an image.
inline constexpr std::string_view kTokens = "tokens";

/// One tensor that training changes: by its gradient, or, a running statistic, by what the batches have.
struct Parameter {
  std::string name;                    // layer.weight, layer.bias
  std::vector<std::uint64_t> extents;  // row-major
  std::uint32_t layer = 0;             // index in Graph::layers()
  double deviation = 0;                // it starts as N(mean, deviation^2); 0: all of it as `mean`
  double mean = 0;
  /// Not 0: it is a running statistic, not trained. Where others have a gradient, replicas give the negative of what
  /// the batch has, times its samples; an update moves it so much of the way to the mean of these over all samples.
  double momentum = 0;
  bool is_statistic() const noexcept { return momentum != 0; }
  std::uint64_t count_elements() const noexcept;
};

/// Layers of a graph by their indices, both ends included.
struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

/// A model as a value: layers that read fields of a batch and one another's tensors, without cycles, and end in one
/// loss or several, whose sum is minimized. It knows its parameters and its costs, so planning needs no device. Tensors
/// are numbered: the fields first, then what each layer puts out.
class Graph {
 public:
  /// Infers every shape and lists the parameters. `fields`: what the model reads of a sample, numbers in `dtype`.
  /// Throws Error{invalid} naming the layer when shapes do not fit, when a layer reads what there is not or nobody
  /// reads what it puts out, when two things share a name, when no layer has parameters, or when the last layer is
  /// no loss. Where a layer draws (dropout), fields() also has the sample's key (dropout.hpp), which is no layer's
  /// input.
  Graph(std::string name, std::vector<Field> fields, DType dtype, std::vector<Layer> layers);
  /// A classifier: of an "image" of shape `input` and a "label".
  Graph(std::string name, Shape input, DType dtype, std::vector<Layer> layers);
  /// A model whose arithmetic is not told, f32, without layers: its parameters alone. `fields`: all that its batches
  /// have. Throws Error{invalid} naming the parameter whose name is empty or taken, or whose extents are not positive
  /// or too many.
  Graph(std::string name, std::vector<Field> fields, std::vector<Parameter> parameters);

  /// Of these layers a device is asked to keep only what others read: what is inside a range is computed again in the
  /// backward pass (gradient checkpointing), which takes less memory and more time, and changes no number. A device
  /// may keep all the same. Source: Chen et al. 2016 (Training deep nets with sublinear memory cost), section 3.
  /// Throws Error{invalid} unless the ranges are ascending, apart from one another, and without a loss.
  void recompute(std::vector<LayerRange> ranges);
  const std::vector<LayerRange>& recomputed() const noexcept { return recomputed_; }

  const std::string& name() const noexcept { return name_; }
  DType dtype() const noexcept { return dtype_; }
  const std::vector<Field>& fields() const noexcept { return fields_; }
  const std::vector<Layer>& layers() const noexcept { return layers_; }
  std::uint32_t output_tensor(std::size_t layer) const noexcept {
    return static_cast<std::uint32_t>(fields_.size() + layer);
  }
  /// The tensors that layer `index` reads; a loss: logits, then labels or numbers.
  const std::vector<std::uint32_t>& inputs_of(std::size_t index) const { return inputs_.at(index); }
  const Shape& shape_of(std::uint32_t tensor) const { return shapes_.at(tensor); }
  /// What layer `index` puts out; a loss's entry is the shape of its logits.
  const Shape& output_of(std::size_t index) const { return shapes_.at(output_tensor(index)); }
  /// How many inputs of layers `tensor` is.
  std::uint32_t count_readers(std::uint32_t tensor) const noexcept;
  /// Whether a parameter has a part in `tensor`: then a gradient to it is computed.
  bool is_trained(std::uint32_t tensor) const { return trained_.at(tensor); }
  /// The classes that the last loss tells apart, whose right answers and samples are counted; 0 without layers.
  std::uint32_t count_classes() const noexcept;
  /// In the order of the layers, weight before bias.
  const std::vector<Parameter>& parameters() const noexcept { return parameters_; }
  std::uint64_t count_parameters() const noexcept;
  /// Floating-point operations (a multiply-add is 2) of one sample: forward, and forward with backward. A gradient to
  /// what no parameter has a part in is never computed; what is computed again counts twice. Without layers: as if
  /// every parameter of two extents were a matrix.
  std::uint64_t forward_flops() const noexcept;
  std::uint64_t training_flops() const noexcept;
  /// Layer `index`'s part of forward_flops().
  std::uint64_t forward_flops(std::size_t index) const { return 2 * multiply_adds_.at(index); }
  /// A text that is equal exactly when two graphs compute the same, whatever they compute again; hashed into the plan.
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
