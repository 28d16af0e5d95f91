#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "devices/cpu/kernels/kernels.hpp"
#include "devices/cpu/loss.hpp"
#include "devices/cpu/onednn.hpp"
#include "devices/cpu/operations.hpp"
#include "runtime/compute/device.hpp"

namespace troupe::cpu {

/// Where a program's parameters lie in this process; all [layout].
struct ProgramMemory {
  float* parameters = nullptr;
  std::uint16_t* bf16 = nullptr;  // null for f32 graphs
  float* gradients = nullptr;
};

/// A graph as flat lists of calls: primitives, activations, scratch and arguments are made once, here. Weights are read
/// and gradients written where they lie in the flat buffers, plain row-major, so nothing is ever packed. Where oneDNN
/// does not multiply bf16 (processors without AVX-512), a bf16 graph is kept in bf16 all the same; each product's
/// operands are widened to f32 right before it, and its result is rounded to bf16. Threads: the constructor's, then one
/// stream's.
class StepProgram {
 public:
  /// For the first `rows` rows of a batch, 1 to batch.rows(). `room`: a program of the same graph with at least as many
  /// rows, whose activations this one uses too and which outlives it, since a stream runs one program at a time; null:
  /// it takes its own. Throws Error{unsupported} naming the layer that cannot be done, Error{invalid} when the buckets
  /// are not whole parameters, each in one of them.
  StepProgram(const Graph& graph, const Layout& layout, const BatchLayout& batch, std::uint32_t rows,
              const std::vector<Bucket>& buckets, const ProgramMemory& memory, std::uint32_t threads,
              const StepProgram* room = nullptr);
  /// On the stream's thread.
  void run(const RunProgram& what);
  /// How many pieces the forward pass has, and which of the buckets a piece is the first to read.
  std::uint32_t count_forward() const noexcept { return static_cast<std::uint32_t>(forward_.size()); }
  const std::vector<std::uint32_t>& first_read(std::uint32_t piece) const { return first_read_.at(piece); }
  /// The implementation of each primitive, one a line.
  const std::string& description() const noexcept { return description_; }

 private:
  using Type = dnnl::memory::data_type;

  /// What flows, numbered as in the graph: a field of numbers, or what a stage puts out.
  struct Tensor {
    std::uint64_t width = 0;  // elements of a row
    bool trained = false;     // a gradient to it is computed
    dnnl::memory value;       // [rows, width]; a field's lies in the step's batch
  };
  enum class StageKind : std::uint8_t { product, relu, sum };
  /// A Dense layer with the ReLU that alone reads it, if there is one; a ReLU by itself; or a sum.
  struct Stage {
    std::string name;
    std::uint32_t layer = 0;  // of the graph
    StageKind kind = StageKind::product;
    std::vector<std::uint32_t> inputs;  // tensors
    std::uint32_t output = 0;
    // A product's:
    std::uint64_t width = 0;  // of its input
    std::uint32_t units = 0;
    bool relu = false;
    std::size_t parameter = 0;  // index of the weight; the bias follows
  };
  struct Loss {
    std::uint32_t layer = 0;
    std::uint32_t tensor = 0;  // of the logits
    LossShape shape;
    std::uint64_t labels_offset = 0;  // bytes in the batch
    dnnl::memory logits;              // f32: the tensor's value, or a copy of it
    dnnl::memory gradient;
  };
  enum class ElementwiseKind : std::uint8_t { relu, add, mask, copy, widen, round };
  /// A loop over all elements of tensors; a field's address is read when it is called, since it is not known before.
  struct Elementwise {
    ElementwiseKind kind;
    dnnl::memory to, from, other;  // add: to = from + other; mask: to = 0 where from is not above 0
    std::uint64_t count;
  };
  using Call = std::variant<BoundPrimitive, Elementwise>;
  struct Gradients;

  void read_stages(const Graph& graph);
  void read_losses(const Graph& graph);
  void make_activations(const Graph& graph, const StepProgram* room);
  void make_wide(const StepProgram* room);
  void make_forward(const std::vector<Bucket>& buckets);
  void add_product(std::vector<Call>& calls, const Stage& stage);
  std::vector<std::uint32_t> buckets_of(const Stage& stage, const std::vector<Bucket>& buckets) const;
  void make_backward(const Graph& graph, const std::vector<Bucket>& buckets, const StepProgram* room);
  void check_cover(std::vector<Bucket> buckets) const;
  /// The calls of one stage: from the gradient of its output to those of its weights and of its inputs.
  void add_backward(std::vector<Call>& calls, const Stage& stage, Gradients& gradients);
  void add_product_backward(std::vector<Call>& calls, const Stage& stage, const dnnl::memory& gradient,
                            const dnnl::memory& input_gradient);
  /// `stored` as an operand: itself, or where it must be widened, the f32 copy at `place`.
  dnnl::memory operand(const dnnl::memory& stored, const dnnl::memory& place) const;
  /// Adds the call that converts `from` to `to`, unless both are the same.
  void convert(std::vector<Call>& calls, const dnnl::memory& from, const dnnl::memory& to) const;
  void take_scratch(const StepProgram* room);
  void call(const std::vector<Call>& calls) const;
  void call(const Elementwise& loop) const;
  /// Losses and right answers of the rows that were computed last; with gradients where it trains.
  StepSums call_losses(const RunProgram& what, bool training) const;
  /// Of a step without samples: zeros.
  void clear(StepSums& sums) const;
  /// A step's matrix products alone, on whatever batch came last.
  void call_products() const;

  dnnl::primitive_attr attributes(bool relu) const;
  dnnl::inner_product_forward::primitive_desc forward_descriptor(const Stage& stage, Type output, bool relu);
  /// Settles on an implementation and notes its name.
  template <class Descriptor>
  void choose(Descriptor& descriptor, const Stage& stage, const char* pass);
  template <class Descriptor>
  dnnl::memory scratch_for(const Descriptor& descriptor);
  dnnl::memory weights_of(const Stage& stage) const;
  dnnl::memory at(float* flat, std::size_t parameter, const dnnl::memory::desc& desc) const;
  dnnl::memory::desc matrix(std::uint64_t rows, std::uint64_t columns, Type type) const;
  /// Memory of its own, or where `shared` is given, that one's.
  dnnl::memory take(const dnnl::memory::desc& desc, const dnnl::memory* shared) const;

  const Layout layout_;
  const BatchLayout batch_;
  const std::uint32_t rows_;
  const ProgramMemory memory_;
  const Type type_;      // of what is stored
  const Type computed_;  // of the products' operands
  const Kernels& kernels_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<Tensor> tensors_;
  std::vector<Stage> stages_;            // in the graph's order
  std::vector<Loss> losses_;             // the last one counts samples and right answers
  std::vector<dnnl::memory> gradients_;  // to tensors, each for several by turns
  // f32 copies of the operands of one product; none where operands are used as they are stored.
  dnnl::memory wide_inputs_, wide_weights_, wide_outputs_;
  std::vector<dnnl::memory> scratchpads_;               // all the same place: primitives run one after another
  dnnl::memory scratch_;                                // none where nothing is needed, or another program's serves
  std::vector<std::vector<Call>> forward_;              // a piece ends where the next stage reads another bucket
  std::vector<std::vector<std::uint32_t>> first_read_;  // by piece: places in the buckets
  std::vector<std::vector<Call>> segments_;
  std::string description_;
};

}  // namespace troupe::cpu
