#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "devices/cpu/program_builder.hpp"

// What each kind of layer is on this device: a source of its own makes the calls of its two passes.
namespace troupe::cpu {

/// What a layer gathers of each rank (RankGather) in the middle of its passes; 0: nothing.
struct GatheredBytes {
  std::uint64_t forward = 0, backward = 0;
};

/// One stage's primitives while a program is laid out. forward() is called once, then backward() once where a gradient
/// to the output is computed.
class LayerCalls {
 public:
  virtual ~LayerCalls() = default;
  virtual GatheredBytes gathered() const { return {}; }
  /// Adds the calls that write this rank's part. Before forward(), where that is after something has been gathered.
  virtual void before_forward(Calls& /*calls*/) {}
  /// The same, before backward().
  virtual void before_backward(Calls& /*calls*/, Gradients& /*gradients*/) {}
  /// Adds the calls from the stage's inputs to its output.
  virtual void forward(Calls& calls) = 0;
  /// Whether an evaluation has calls of its own; otherwise they are those of forward().
  virtual bool has_evaluation() const { return false; }
  /// As forward(), in an evaluation. Called last.
  virtual void evaluation(Calls& calls) { forward(calls); }
  /// Adds the calls from the gradient of the output to those of parameters and inputs.
  virtual void backward(Calls& calls, Gradients& gradients) = 0;
};

/// Both outlive what is made. Throws Error{unsupported} naming the layer when it cannot be done here.
std::unique_ptr<LayerCalls> make_layer_calls(ProgramBuilder& builder, const Stage& stage);

std::unique_ptr<LayerCalls> make_dense(ProgramBuilder& builder, const Stage& stage, const Dense& dense);
std::unique_ptr<LayerCalls> make_convolution(ProgramBuilder& builder, const Stage& stage, const Conv2d& conv);
/// A window over the whole image where `kernel` is as large.
struct PoolWindow {
  dnnl::algorithm algorithm;
  Size2 kernel, stride, padding;
};
std::unique_ptr<LayerCalls> make_pool(ProgramBuilder& builder, const Stage& stage, const PoolWindow& window);
std::unique_ptr<LayerCalls> make_relu(ProgramBuilder& builder, const Stage& stage);
/// `algorithm`: of oneDNN; one that goes back from the output, or GELU.
std::unique_ptr<LayerCalls> make_eltwise(ProgramBuilder& builder, const Stage& stage, dnnl::algorithm algorithm);
std::unique_ptr<LayerCalls> make_dropout(ProgramBuilder& builder, const Stage& stage, const Dropout& dropout);
std::unique_ptr<LayerCalls> make_sum(ProgramBuilder& builder, const Stage& stage);
std::unique_ptr<LayerCalls> make_l2_norm(ProgramBuilder& builder, const Stage& stage, const L2Norm& norm);
/// The parameters of a batch norm in the order of the graph.
enum NormParameter : std::size_t { kScale, kShift, kRunningMean, kRunningVariance };
std::unique_ptr<LayerCalls> make_batch_norm(ProgramBuilder& builder, const Stage& stage, const BatchNorm& norm);
/// Of a rank that gathers (ProgramBuilder::gathered()).
std::unique_ptr<LayerCalls> make_synchronized_norm(ProgramBuilder& builder, const Stage& stage, const BatchNorm& norm);
std::unique_ptr<LayerCalls> make_product(ProgramBuilder& builder, const Stage& stage);
std::unique_ptr<LayerCalls> make_concat(ProgramBuilder& builder, const Stage& stage);
std::unique_ptr<LayerCalls> make_embedding(ProgramBuilder& builder, const Stage& stage, const Embedding& embedding);
std::unique_ptr<LayerCalls> make_position(ProgramBuilder& builder, const Stage& stage);
std::unique_ptr<LayerCalls> make_layer_norm(ProgramBuilder& builder, const Stage& stage, const LayerNorm& norm);
std::unique_ptr<LayerCalls> make_attention(ProgramBuilder& builder, const Stage& stage, const Attention& attention);
std::unique_ptr<LayerCalls> make_transpose(ProgramBuilder& builder, const Stage& stage, const Transpose& transpose);

/// As oneDNN calls it, with its gradient from the output.
dnnl::algorithm algorithm_of(Activation activation) noexcept;
/// Adds the call that applies the activation to `to`, in place.
void add_activation(ProgramBuilder& builder, Calls& calls, Activation activation, const dnnl::memory& to);
/// Adds the calls that multiply `gradient` by the activation's slope at `output`, in place.
void add_activation_backward(ProgramBuilder& builder, Calls& calls, Activation activation, const dnnl::memory& gradient,
                             const dnnl::memory& output);

/// For a stage with one input: `add(gradient, input_gradient)` adds the calls from one to the other; the second is none
/// where it is not computed.
template <class Add>
void go_back(ProgramBuilder& builder, const Stage& stage, Calls& calls, Gradients& gradients, Add&& add) {
  const Gradients::Place gradient = gradients.use(stage.output);
  const FlowTensor& input = builder.tensor(stage.inputs.front());
  Gradients::Place input_gradient;
  if (input.trained) input_gradient = gradients.take_place(input.width);
  add(gradient.value, input_gradient.value);
  if (input.trained) gradients.contribute(calls, stage.inputs.front(), std::move(input_gradient));
}

}  // namespace troupe::cpu
