#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "devices/cpu/calls.hpp"
#include "devices/cpu/loss.hpp"
#include "devices/cpu/operations.hpp"
#include "devices/cpu/program_builder.hpp"
#include "runtime/compute/device.hpp"

namespace troupe::cpu {

struct ProgramOptions {
  std::uint32_t threads = 1;  // that a call may use
  bool shares = true;         // tensors that are never needed at the same time share memory
};

/// A graph as flat lists of calls: primitives, activations, scratch memory and arguments are created once, in the
/// constructor. Weights are read from, and gradients written to, the flat buffers, plain row-major; those of
/// convolutions are packed first. Where oneDNN does not multiply bf16 (processors without AVX-512), tensors of a bf16
/// graph are still stored in bf16; each primitive's operands are converted to f32 just before it, and its result is
/// rounded to bf16. Threads: the constructor's, then one stream's.
class StepProgram {
 public:
  /// For the first `rows` rows of a batch, 1 to batch.rows(). `room`: a program of the same graph with at least as many
  /// rows, whose memory this one uses too and which outlives it, since a stream runs one program at a time; null: it
  /// allocates its own. Throws Error{unsupported} naming the layer that this device cannot run, Error{invalid} if the
  /// buckets do not consist of whole parameters, each in exactly one bucket.
  StepProgram(const Graph& graph, const Layout& layout, const BatchLayout& batch, std::uint32_t rows,
              const std::vector<Bucket>& buckets, const ProgramMemory& memory, const ProgramOptions& options,
              const StepProgram* room = nullptr);
  /// Runs on the stream's thread.
  void run(const RunProgram& what);
  /// A part of a pass: calls, and the bytes that are gathered from each rank after them (RankGather); 0: none.
  struct Piece {
    Calls calls{};
    std::uint64_t gathered_bytes = 0;
  };
  /// The pieces of the passes. A piece of the backward pass that gathers nothing is the last of its bucket.
  const std::vector<Piece>& forward() const noexcept { return forward_; }
  const std::vector<Piece>& backward() const noexcept { return backward_; }
  /// The buckets that the forward pass first reads in this piece.
  const std::vector<std::uint32_t>& first_read(std::uint32_t piece) const { return first_read_.at(piece); }
  /// The implementation of each primitive, one per line.
  const std::string& description() const noexcept { return description_; }
  /// The memory of its tensors.
  const TensorMemory& places() const noexcept { return places_; }
  /// The calls of one pass of a fused layer.
  struct LayerPass {
    std::uint32_t layer = 0;  // of the graph
    bool backward = false;
    Activation activation{};  // of the fused layer
    Activation slope{};       // backward: of the fused layer before this input, through which this one goes back
    bool sums = false;        // a batch norm, to which another tensor is added
    bool adds = false;        // backward: the gradient to the input, or to that tensor, is added to another layer's
    std::size_t piece = 0;    // of the forward or backward pass
    std::size_t first = 0;    // call of the piece
    std::size_t count = 0;
  };
  /// All parts in the order of a step.
  const std::vector<LayerPass>& parts() const noexcept { return parts_; }
  /// Runs one of parts() on the data that the last step left, for measurements. The program must have run a step.
  void run(const LayerPass& part) const;

 private:
  struct Loss {
    std::uint32_t layer = 0;
    troupe::Operation operation;
    std::uint32_t tensor = 0;  // of the logits
    LossShape shape;
    std::uint32_t labels = 1;          // of a row of the batch, each a row of the loss; 1 if targets are numbers
    std::uint64_t targets_offset = 0;  // bytes in the batch
    dnnl::memory logits;               // f32: the tensor's value, or a copy of it
    dnnl::memory gradient;
  };
  /// A field that a layer uses as row numbers of its table.
  struct Tokens {
    std::uint64_t offset = 0;  // bytes in the batch
    std::uint64_t row = 0;     // number of tokens in a row of the batch
    std::uint32_t vocabulary = 0;
  };
  struct Layers;
  /// Calls of a piece of the backward pass that compute a range of layers again.
  struct Recomputation {
    std::size_t piece = 0;
    std::size_t first = 0, count = 0;               // calls
    std::size_t first_place = 0, count_places = 0;  // places that were taken for it
  };

  void read_losses(const ProgramBuilder& builder);
  void read_tokens(const Graph& graph);
  /// Throws Error{corrupt} for a token that is not in the vocabulary.
  void check_tokens(const RunProgram& what) const;
  void make_forward(Layers& layers, const std::vector<Bucket>& buckets);
  std::vector<std::uint32_t> buckets_of(const FusedLayer& fused_layer, const std::vector<Bucket>& buckets) const;
  void make_backward(Layers& layers, const std::vector<Bucket>& buckets);
  /// Adds the calls that compute a range of layers again, if the backward pass enters one with `fused_layer`.
  void compute_again(Layers& layers, std::size_t fused_layer, std::vector<Recomputation>& made);
  /// Removes calls of `made` whose results are not used later.
  void remove_unused(const Recomputation& made);
  void make_evaluation(Layers& layers);
  /// Calls `visit(memory)` for each memory that each call uses, `next_call()` before each call, and `begin_list()`
  /// before each list: first a step's, then an evaluation's if its calls differ.
  template <class BeginList, class NextCall, class Visit>
  void for_memories(BeginList&& begin_list, NextCall&& next_call, Visit&& visit) const;
  void place_tensors();
  void check_cover(std::vector<Bucket> buckets) const;
  /// Losses and correct answers of the rows that were computed last; in training also the gradients.
  StepSums call_losses(const RunProgram& what, bool training) const;
  /// Writes the batch's values of running statistics, times its samples, to the places of gradients of those
  /// parameters.
  void give_statistics(std::uint64_t samples) const;
  /// For a step without samples: zeros.
  void clear(StepSums& sums) const;

  const Layout layout_;
  const BatchLayout batch_;
  const std::uint32_t rows_;
  const ProgramMemory memory_;
  const Kernels& kernels_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  TensorMemory places_;
  std::vector<Loss> losses_;    // the last one counts samples and correct answers
  std::vector<Tokens> tokens_;  // checked before they are read
  std::vector<Piece> forward_;  // a piece also ends where the next fused layer reads another bucket
  std::vector<std::vector<std::uint32_t>> first_read_;  // by piece: indices of buckets
  std::optional<Calls> evaluation_;                     // the forward pass of an evaluation, if it differs
  std::vector<BatchStatistic> statistics_;
  std::vector<Piece> backward_;
  std::vector<LayerPass> parts_;
  std::string description_;
};

}  // namespace troupe::cpu
