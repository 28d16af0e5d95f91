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

/// A graph as flat lists of calls: primitives, activations, scratch and arguments are made once, here. Weights are read
/// and gradients written where they lie in the flat buffers, plain row-major; those of convolutions are packed on the
/// way. Where oneDNN does not multiply bf16 (processors without AVX-512), a bf16 graph is kept in bf16 all the same;
/// each primitive's operands are widened to f32 right before it, and its result is rounded to bf16. Threads: the
/// constructor's, then one stream's.
class StepProgram {
 public:
  /// For the first `rows` rows of a batch, 1 to batch.rows(). `room`: a program of the same graph with at least as many
  /// rows, whose activations this one uses too and which outlives it, since a stream runs one program at a time; null:
  /// it takes its own. Throws Error{unsupported} naming the layer that cannot be done, Error{invalid} when the buckets
  /// are not whole parameters, each in one of them.
  StepProgram(const Graph& graph, const Layout& layout, const BatchLayout& batch, std::uint32_t rows,
              const std::vector<Bucket>& buckets, const ProgramMemory& memory, const ProgramOptions& options,
              const StepProgram* room = nullptr);
  /// On the stream's thread.
  void run(const RunProgram& what);
  /// A part of a pass: calls, and how much of each rank is gathered behind them (RankGather); 0: nothing.
  struct Piece {
    Calls calls{};
    std::uint64_t gathered_bytes = 0;
  };
  /// The pieces of the passes. One of the backward pass that gathers nothing is the last of its bucket.
  const std::vector<Piece>& forward() const noexcept { return forward_; }
  const std::vector<Piece>& backward() const noexcept { return backward_; }
  /// Which of the buckets a piece of the forward pass is the first to read.
  const std::vector<std::uint32_t>& first_read(std::uint32_t piece) const { return first_read_.at(piece); }
  /// The implementation of each primitive, one a line.
  const std::string& description() const noexcept { return description_; }
  /// Where its tensors lie.
  const Places& places() const noexcept { return places_; }
  /// The calls of one pass of a stage.
  struct Part {
    std::uint32_t layer = 0;  // of the graph
    bool backward = false;
    Activation activation{};  // of the stage
    Activation slope{};       // backward: of the stage before, through which this one goes back
    std::size_t piece = 0;    // of the forward or backward pass
    std::size_t first = 0;    // call of the piece
    std::size_t count = 0;
  };
  /// In the order of a step.
  const std::vector<Part>& parts() const noexcept { return parts_; }
  /// Runs one of parts() on what the last step left, for measurements. The program has run a step.
  void run(const Part& part) const;

 private:
  struct Loss {
    std::uint32_t layer = 0;
    troupe::Operation operation;
    std::uint32_t tensor = 0;  // of the logits
    LossShape shape;
    std::uint32_t labels = 1;          // of a row of the batch, each a row of the loss; 1 where targets are numbers
    std::uint64_t targets_offset = 0;  // bytes in the batch
    dnnl::memory logits;               // f32: the tensor's value, or a copy of it
    dnnl::memory gradient;
  };
  /// A field that a layer takes for rows of its table.
  struct Tokens {
    std::uint64_t offset = 0;  // bytes in the batch
    std::uint64_t row = 0;     // tokens of a row of the batch
    std::uint32_t vocabulary = 0;
  };
  struct Layers;
  /// Calls of a piece of the backward pass that compute a range of layers again.
  struct Recomputation {
    std::size_t piece = 0;
    std::size_t first = 0, count = 0;               // calls
    std::size_t first_place = 0, count_places = 0;  // that were taken for it
  };

  void read_losses(const ProgramBuilder& builder);
  void read_tokens(const Graph& graph);
  /// Throws Error{corrupt} for a token that is in no vocabulary.
  void check_tokens(const RunProgram& what) const;
  void make_forward(Layers& layers, const std::vector<Bucket>& buckets);
  std::vector<std::uint32_t> buckets_of(const Stage& stage, const std::vector<Bucket>& buckets) const;
  void make_backward(Layers& layers, const std::vector<Bucket>& buckets);
  /// Adds the calls that compute the range of layers again that the backward pass comes to with `stage`, if any.
  void compute_again(Layers& layers, std::size_t stage, std::vector<Recomputation>& made);
  /// Removes calls of `made` of which nothing is used later.
  void remove_unused(const Recomputation& made);
  void make_evaluation(Layers& layers);
  /// Calls `visit(memory)` with what each call uses, and before that `next_call()`, and before those of a list
  /// `begin_list()`: first a step's, then an evaluation's where those differ.
  template <class BeginList, class NextCall, class Visit>
  void for_memories(BeginList&& begin_list, NextCall&& next_call, Visit&& visit) const;
  void place_tensors();
  void check_cover(std::vector<Bucket> buckets) const;
  /// Losses and right answers of the rows that were computed last; with gradients where it trains.
  StepSums call_losses(const RunProgram& what, bool training) const;
  /// Writes what the batch has of running statistics, times its samples, where other parameters have gradients.
  void give_statistics(std::uint64_t samples) const;
  /// Of a step without samples: zeros.
  void clear(StepSums& sums) const;

  const Layout layout_;
  const BatchLayout batch_;
  const std::uint32_t rows_;
  const ProgramMemory memory_;
  const Kernels& kernels_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  Places places_;
  std::vector<Loss> losses_;                            // the last one counts samples and right answers
  std::vector<Tokens> tokens_;                          // checked before they are read
  std::vector<Piece> forward_;                          // also ends where the next stage reads another bucket
  std::vector<std::vector<std::uint32_t>> first_read_;  // by piece: places in the buckets
  std::optional<Calls> evaluation_;                     // the forward pass, where that of an evaluation differs
  std::vector<BatchStatistic> statistics_;
  std::vector<Piece> backward_;
  std::vector<Part> parts_;
  std::string description_;
};

}  // namespace troupe::cpu
