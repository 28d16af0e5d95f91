#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "devices/cpu/calls.hpp"
#include "devices/cpu/tensor_memory.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe::cpu {

/// Where the parts of all ranks are in this process; see RankGather. Empty: the rank is alone.
struct GatheredParts {
  std::vector<std::byte*> parts{};  // in rank order
  std::size_t rank = 0;             // this rank's index
};

/// Where a program's parameters are in this process; all [layout].
struct ProgramMemory {
  float* parameters = nullptr;
  std::uint16_t* half = nullptr;  // null for f32 graphs
  float* gradients = nullptr;
  GatheredParts gathered{};
};

/// A function that a product's own primitive applies to its output. Its gradient can be computed from the output alone.
enum class Activation : std::uint8_t { none, relu, tanh, sigmoid };

/// A layer of the graph with the activation that alone reads it, where they are computed in one. A batch norm may also
/// have the sum behind it, so that what it puts out is never written. An activation between
/// a convolution and a max pool belongs to the pool, which applies it to what it puts out: no activation here falls
/// anywhere, so the largest element stays the largest, and there are fewer.
struct FusedLayer {
  std::uint32_t layer = 0;            // of the graph
  std::vector<std::uint32_t> inputs;  // tensors
  std::uint32_t output = 0;           // of the activation, where there is one; behind a max pool, the pool's
  Shape input_shape;                  // of the first one
  Shape output_shape;
  Activation activation = Activation::none;
  bool adds = false;                // a batch norm, which adds its second input before the activation
  std::size_t first_parameter = 0;  // of the graph
  std::size_t count_parameters = 0;
};

/// The value of a running statistic for one batch: where it is after the forward pass, and the parameter it updates.
struct BatchStatistic {
  dnnl::memory value;  // [count] f32
  std::size_t parameter = 0;
  float factor = 1;  // multiplies the value
};

/// A tensor of the graph, with the graph's number. A layer that changes nothing in memory has its input's number
/// (tensor_of).
struct FlowTensor {
  std::uint64_t width = 0;    // elements of a row
  bool trained = false;       // a gradient to it is computed
  std::uint32_t readers = 0;  // number of layers that read it
  dnnl::memory value;         // [rows, width]; of a field: in the step's batch
};

/// What layers need to make the calls of one program, and how they access each other's tensors.
class ProgramBuilder {
 public:
  using Type = dnnl::memory::data_type;
  using Descriptor = dnnl::memory::desc;

  ProgramBuilder(const Graph& graph, const Layout& layout, const ProgramMemory& memory, std::uint32_t rows,
                 const dnnl::engine& engine, TensorMemory& places);

  const Graph& graph() const noexcept { return graph_; }
  std::uint32_t rows() const noexcept { return rows_; }
  const GatheredParts& gathered() const noexcept { return memory_.gathered; }
  const dnnl::engine& engine() const noexcept { return engine_; }
  TensorMemory& places() const noexcept { return places_; }
  Type stored() const noexcept { return stored_; }
  /// The type of primitives' operands: f32 if oneDNN has no bf16 on this processor.
  Type computed() const noexcept { return computed_; }
  /// In the graph's order; losses, and layers that change nothing in memory, are not fused layers.
  const std::vector<FusedLayer>& fused_layers() const noexcept { return fused_layers_; }
  const std::vector<FlowTensor>& tensors() const noexcept { return tensors_; }
  const FlowTensor& tensor(std::uint32_t index) const { return tensors_.at(index); }
  /// The tensor that has the memory of the graph's tensor `tensor`.
  std::uint32_t tensor_of(std::uint32_t tensor) const { return same_.at(tensor); }
  /// The activation that is part of the fused layer which writes `tensor`; none if the fused layer computes its
  /// gradient itself.
  Activation activation_of(std::uint32_t tensor) const noexcept;

  Descriptor matrix(std::uint64_t rows, std::uint64_t columns, Type type) const;
  /// Whether a tensor is in blocks of channels (image_layouts.hpp). Such a tensor may be used only by a layer that
  /// works on single elements, or that asks for it by image() or unblocked().
  bool in_blocks(std::uint32_t tensor) const { return blocked_.at(tensor); }
  /// [rows, height, width, channels] in the layout of `tensor`; oneDNN lists the dimensions as rows, channels, height,
  /// width.
  Descriptor image(const Shape& shape, std::uint32_t tensor, Type type) const;
  /// The same of an image that a layer uses together with `other`: one block of channels is described as `other` is.
  Descriptor image_beside(std::uint32_t other, const Shape& shape, std::uint32_t tensor, Type type) const;
  /// `desc` in the stored type.
  Descriptor as_stored(Descriptor desc) const;
  /// The graph's field of that name, i32 [rows, elements], in the step's batch. It has an address in steps; a field of
  /// sample keys has none in evaluations.
  dnnl::memory field(std::string_view name) const;
  /// A tensor's value with another shape.
  dnnl::memory value_as(std::uint32_t tensor, const Descriptor& desc) const;
  /// A parameter for reading: weights are in the stored type. `desc` is plain, of any type.
  dnnl::memory weights(std::size_t parameter, const Descriptor& desc) const;
  dnnl::memory bias(std::size_t parameter, const Descriptor& desc) const;
  /// Where the gradient to a parameter is written, f32.
  dnnl::memory gradient(std::size_t parameter, const Descriptor& desc) const;

  /// `from` as an operand: itself, or, if it must be converted to f32, a copy that `calls` make.
  dnnl::memory operand(Calls& calls, const dnnl::memory& from) const;
  /// Where a primitive writes a result that is kept in `to`: in `to`, or, if it must be rounded, in f32.
  /// assign_offsets() rounds it.
  dnnl::memory result(const dnnl::memory& to) const;
  /// Adds the call that converts `from` to the type of `to`, unless both have one type.
  void convert(Calls& calls, const dnnl::memory& from, const dnnl::memory& to) const;
  /// `from` in the layout `desc`: itself, or a copy that `calls` make.
  dnnl::memory arranged(Calls& calls, const dnnl::memory& from, const Descriptor& desc);
  /// A tensor's value (f32 if it is in blocks) as plain matrix `desc`, rows of height by width by channels.
  dnnl::memory unblocked(Calls& calls, std::uint32_t tensor, const Descriptor& desc);
  /// Adds the call that copies matrix `from` to `to`, the gradient of `tensor`, which is in blocks.
  void into_blocks(Calls& calls, std::uint32_t tensor, const dnnl::memory& from, const dnnl::memory& to);
  /// Adds the call that copies `from` to the layout of `to`, unless both are the same.
  void arrange(Calls& calls, const dnnl::memory& from, const dnnl::memory& to);

  /// Attributes with scratch memory provided by the program, and `activation` after the product.
  dnnl::primitive_attr attributes(Activation activation = Activation::none) const;
  /// Chooses an implementation of a fused layer's pass and notes its name.
  template <class PrimitiveDescriptor>
  void choose(PrimitiveDescriptor& descriptor, const FusedLayer& fused_layer, const char* pass) {
    const std::string what = text("layer ", graph_.layers()[fused_layer.layer].name, ", ", pass);
    choose_implementation(descriptor, what);
    if (!computes_again_) description_ += text(what, ": ", descriptor.impl_info_str(), '\n');
  }
  /// The same of code of our own.
  void choose_own(const FusedLayer& fused_layer, const char* pass, std::string_view name) {
    if (!computes_again_)
      description_ += text("layer ", graph_.layers()[fused_layer.layer].name, ", ", pass, ": ", name, '\n');
  }
  template <class PrimitiveDescriptor>
  dnnl::memory scratch_for(const PrimitiveDescriptor& descriptor) const {
    return places_.take(descriptor.scratchpad_desc());
  }
  /// The implementation of each primitive, one per line.
  const std::string& description() const noexcept { return description_; }
  void add_statistic(BatchStatistic statistic) {
    if (!computes_again_) statistics_.push_back(std::move(statistic));
  }
  const std::vector<BatchStatistic>& statistics() const noexcept { return statistics_; }

  /// The calls made from here on compute the outputs of the fused layers of `range` again. Tensors that only these
  /// fused layers read get new places, different from those of the forward pass. Running statistics are not updated a
  /// second time.
  void begin_recomputation(const LayerRange& range);
  void end_recomputation() noexcept { computes_again_ = false; }

 private:
  void read_tensors();
  void read_stages();
  void take_values();
  void take_sum(FusedLayer& norm, std::vector<bool>& fused) const;
  Activation take_activation(FusedLayer& fused_layer, std::vector<bool>& fused) const;
  void move_activations_behind_pools();
  bool is_read_by_one_loss(std::uint32_t tensor) const;

  const Graph& graph_;
  const Layout& layout_;
  const ProgramMemory memory_;
  const std::uint32_t rows_;
  const Type stored_, computed_;
  const dnnl::engine engine_;
  TensorMemory& places_;
  std::vector<std::uint32_t> same_;  // by tensor of the graph
  std::vector<bool> blocked_;        // by tensor of the graph
  std::vector<FlowTensor> tensors_;
  std::vector<FusedLayer> fused_layers_;
  std::vector<BatchStatistic> statistics_;
  bool computes_again_ = false;
  std::string description_;
};

/// A gradient to images of which a layer reads only one pixel of each `stride_height` x `stride_width`; it is 0 at the
/// others. Images are `planes` matrices of pixels that have `elements` neighbouring elements each: one matrix for each
/// image, or for images in blocks one for each block of channels.
struct PixelGradient {
  dnnl::memory value;  // of the pixels that are read, in their order
  std::size_t planes = 0, elements = 0;
  std::size_t height = 0, width = 0;
  std::size_t stride_height = 1, stride_width = 1;
};

/// Where the gradients to tensors are while the backward pass is built.
class Gradients {
 public:
  struct Place {
    dnnl::memory value;   // [rows, width]
    bool masked = false;  // it is already zero where the tensor's ReLU cut off
  };

  explicit Gradients(ProgramBuilder& builder);
  bool has(std::uint32_t tensor) const { return of_.at(tensor).has_value(); }
  /// Whether it has a part that contribute_pixels() has kept back.
  bool has_pixels(std::uint32_t tensor) const { return pixels_.at(tensor).has_value(); }
  /// Whether one more part makes it complete.
  bool misses_one_part(std::uint32_t tensor) const { return missing_.at(tensor) == 1; }
  Place take_place(std::uint64_t width);
  /// Takes the gradient to `tensor`, which has all its parts.
  Place use(std::uint32_t tensor);
  /// Adds `part`; the sum may take its place.
  void contribute(Calls& calls, std::uint32_t tensor, Place part);
  /// Adds a part that is mostly 0. It is kept back until there is a part to which its pixels can be added: that takes
  /// less than to write and to add the zeros.
  void contribute_pixels(Calls& calls, std::uint32_t tensor, PixelGradient part);
  /// Adds `part`, which is not changed. Requires has(tensor).
  void add(Calls& calls, std::uint32_t tensor, const dnnl::memory& part);
  /// Makes a copy of `part` the first part. Requires that has(tensor) is false.
  void copy(Calls& calls, std::uint32_t tensor, const dnnl::memory& part);

 private:
  void came(Calls& calls, std::uint32_t tensor);
  void add_pixels(Calls& calls, std::uint32_t tensor, const PixelGradient& part);

  ProgramBuilder& builder_;
  std::vector<std::optional<Place>> of_;
  std::vector<std::optional<PixelGradient>> pixels_;  // kept back
  std::vector<std::uint32_t> missing_;  // by tensor: how many parts, one for each reader, are still to be added
};

}  // namespace troupe::cpu
