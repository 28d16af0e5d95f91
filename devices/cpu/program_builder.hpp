#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "devices/cpu/calls.hpp"
#include "devices/cpu/places.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe::cpu {

/// Where the parts of all ranks lie in this process; see RankGather. None: the rank is alone.
struct GatheredParts {
  std::vector<std::byte*> parts{};  // in rank order
  std::size_t rank = 0;             // this one
};

/// Where a program's parameters lie in this process; all [layout].
struct ProgramMemory {
  float* parameters = nullptr;
  std::uint16_t* bf16 = nullptr;  // null for f32 graphs
  float* gradients = nullptr;
  GatheredParts gathered{};
};

/// What is applied to the output of a product by its own primitive. Its gradient follows from the output alone.
enum class Activation : std::uint8_t { none, relu, tanh, sigmoid };

/// A layer of the graph with the activation that alone reads it, where they are computed in one. An activation between
/// a convolution and a max pool belongs to the pool, which applies it to what it puts out: no activation here falls
/// anywhere, so the largest element stays the largest, and there are fewer.
struct Stage {
  std::uint32_t layer = 0;            // of the graph
  std::vector<std::uint32_t> inputs;  // tensors
  std::uint32_t output = 0;           // of the activation, where there is one; behind a max pool, the pool's
  Shape input_shape;                  // of the first one
  Shape output_shape;
  Activation activation = Activation::none;
  std::size_t first_parameter = 0;  // of the graph
  std::size_t count_parameters = 0;
};

/// What a batch has of a running statistic: where it lies once the forward pass has run, and the parameter.
struct BatchStatistic {
  dnnl::memory value;  // [count] f32
  std::size_t parameter = 0;
  float factor = 1;  // to be multiplied with
};

/// What flows, numbered as in the graph. A layer that changes nothing in memory has its input's number (tensor_of).
struct FlowTensor {
  std::uint64_t width = 0;    // elements of a row
  bool trained = false;       // a gradient to it is computed
  std::uint32_t readers = 0;  // inputs of layers that it is
  dnnl::memory value;         // [rows, width]; of a field: in the step's batch
};

/// What the layers of one program are built with, and by what they reach one another's tensors.
class ProgramBuilder {
 public:
  using Type = dnnl::memory::data_type;
  using Descriptor = dnnl::memory::desc;

  ProgramBuilder(const Graph& graph, const Layout& layout, const ProgramMemory& memory, std::uint32_t rows,
                 const dnnl::engine& engine, Places& places);

  const Graph& graph() const noexcept { return graph_; }
  std::uint32_t rows() const noexcept { return rows_; }
  const GatheredParts& gathered() const noexcept { return memory_.gathered; }
  const dnnl::engine& engine() const noexcept { return engine_; }
  Places& places() const noexcept { return places_; }
  Type stored() const noexcept { return stored_; }
  /// Of the operands of primitives: f32 where oneDNN has no bf16 on this processor.
  Type computed() const noexcept { return computed_; }
  /// In the graph's order; losses and what changes nothing in memory are no stages.
  const std::vector<Stage>& stages() const noexcept { return stages_; }
  const std::vector<FlowTensor>& tensors() const noexcept { return tensors_; }
  const FlowTensor& tensor(std::uint32_t index) const { return tensors_.at(index); }
  /// The tensor whose memory is also that of `tensor` of the graph.
  std::uint32_t tensor_of(std::uint32_t tensor) const { return same_.at(tensor); }
  /// The activation that is part of the stage which puts `tensor` out, unless the stage goes back through it by itself.
  Activation activation_of(std::uint32_t tensor) const noexcept;

  Descriptor matrix(std::uint64_t rows, std::uint64_t columns, Type type) const;
  /// Whether a tensor lies in blocks of channels (image_layouts.hpp). Only a layer that asks for it by image() or
  /// unblocked() may touch one that does, or one that works on each element by itself.
  bool in_blocks(std::uint32_t tensor) const { return blocked_.at(tensor); }
  /// [rows, height, width, channels] as `tensor` lies, whose dimensions oneDNN lists as rows, channels, height, width.
  Descriptor image(const Shape& shape, std::uint32_t tensor, Type type) const;
  /// `desc` in the stored type.
  Descriptor as_stored(Descriptor desc) const;
  /// The graph's field of that name, i32 [rows, elements], in the step's batch. It has an address in steps; a field of
  /// sample keys has none in evaluations.
  dnnl::memory field(std::string_view name) const;
  /// A tensor's value in another shape.
  dnnl::memory value_as(std::uint32_t tensor, const Descriptor& desc) const;
  /// A parameter as it is read: weights in the stored type. `desc` is plain, of any type.
  dnnl::memory weights(std::size_t parameter, const Descriptor& desc) const;
  dnnl::memory bias(std::size_t parameter, const Descriptor& desc) const;
  /// Where the gradient to a parameter is written, f32.
  dnnl::memory gradient(std::size_t parameter, const Descriptor& desc) const;

  /// `from` as an operand: itself, or where it must be widened, an f32 copy that `calls` make.
  dnnl::memory operand(Calls& calls, const dnnl::memory& from) const;
  /// Where a primitive writes what is kept in `to`: there, or where it must be rounded, in f32. settle() rounds it.
  dnnl::memory result(const dnnl::memory& to) const;
  /// Adds the call that widens or rounds `from` into `to`, unless both have one type.
  void convert(Calls& calls, const dnnl::memory& from, const dnnl::memory& to) const;
  /// `from` in the layout `desc`: itself, or a copy that `calls` make.
  dnnl::memory arranged(Calls& calls, const dnnl::memory& from, const Descriptor& desc);
  /// A tensor's value, of f32 where it lies in blocks, as matrix `desc`: height by width by channels in a row.
  dnnl::memory unblocked(Calls& calls, std::uint32_t tensor, const Descriptor& desc);
  /// Adds the call that brings matrix `from` into the place of the gradient `to` of `tensor`, which lies in blocks.
  void into_blocks(Calls& calls, std::uint32_t tensor, const dnnl::memory& from, const dnnl::memory& to);
  /// Adds the call that brings `from` into the layout of `to`, unless both are the same.
  void arrange(Calls& calls, const dnnl::memory& from, const dnnl::memory& to);

  /// With scratch memory that the program gives, and `activation` behind the product.
  dnnl::primitive_attr attributes(Activation activation = Activation::none) const;
  /// Settles on an implementation of a stage's pass and notes its name.
  template <class PrimitiveDescriptor>
  void choose(PrimitiveDescriptor& descriptor, const Stage& stage, const char* pass) {
    const std::string what = text("layer ", graph_.layers()[stage.layer].name, ", ", pass);
    choose_implementation(descriptor, what);
    if (!computes_again_) description_ += text(what, ": ", descriptor.impl_info_str(), '\n');
  }
  /// The same of code of our own.
  void choose_own(const Stage& stage, const char* pass, std::string_view name) {
    if (!computes_again_)
      description_ += text("layer ", graph_.layers()[stage.layer].name, ", ", pass, ": ", name, '\n');
  }
  template <class PrimitiveDescriptor>
  dnnl::memory scratch_for(const PrimitiveDescriptor& descriptor) const {
    return places_.take(descriptor.scratchpad_desc());
  }
  /// The implementation of each primitive, one a line.
  const std::string& description() const noexcept { return description_; }
  void add_statistic(BatchStatistic statistic) {
    if (!computes_again_) statistics_.push_back(std::move(statistic));
  }
  const std::vector<BatchStatistic>& statistics() const noexcept { return statistics_; }

  /// From here on calls are made that compute again what the stages of `range` put out. What only these stages read
  /// gets a place of its own, another one than in the forward pass; statistics were counted there.
  void begin_recomputation(const LayerRange& range);
  void end_recomputation() noexcept { computes_again_ = false; }

 private:
  void read_tensors();
  void read_stages();
  void take_values();
  Activation take_activation(Stage& stage, std::vector<bool>& fused) const;
  void move_activations_behind_pools();
  bool is_read_by_one_loss(std::uint32_t tensor) const;

  const Graph& graph_;
  const Layout& layout_;
  const ProgramMemory memory_;
  const std::uint32_t rows_;
  const Type stored_, computed_;
  const dnnl::engine engine_;
  Places& places_;
  std::vector<std::uint32_t> same_;  // by tensor of the graph
  std::vector<bool> blocked_;        // the same
  std::vector<FlowTensor> tensors_;
  std::vector<Stage> stages_;
  std::vector<BatchStatistic> statistics_;
  bool computes_again_ = false;
  std::string description_;
};

/// Where the gradients to tensors lie while the backward pass is laid out.
class Gradients {
 public:
  struct Place {
    dnnl::memory value;   // [rows, width]
    bool masked = false;  // zero where the tensor's ReLU cut off
  };

  explicit Gradients(ProgramBuilder& builder);
  bool has(std::uint32_t tensor) const { return of_.at(tensor).has_value(); }
  Place take_place(std::uint64_t width);
  /// The gradient to `tensor`, of which all parts are there.
  Place use(std::uint32_t tensor);
  /// Adds `part`, which is given up.
  void contribute(Calls& calls, std::uint32_t tensor, Place part);
  /// Adds `part`, which is kept. has(tensor).
  void add(Calls& calls, std::uint32_t tensor, const dnnl::memory& part);
  /// Makes a copy of `part` the first one. Not has(tensor).
  void copy(Calls& calls, std::uint32_t tensor, const dnnl::memory& part);

 private:
  void came(Calls& calls, std::uint32_t tensor);

  ProgramBuilder& builder_;
  std::vector<std::optional<Place>> of_;
  std::vector<std::uint32_t> missing_;  // by tensor: parts that are not there yet, one of each reader
};

}  // namespace troupe::cpu
