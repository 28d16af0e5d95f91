#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "devices/cpu/program_builder.hpp"

// The implementation of each kind of layer on this device: one source for each makes the calls of its two passes.
namespace troupe::cpu {

/// The number of bytes that a layer gathers from each rank (RankGather) within its passes; 0: none.
struct GatheredBytes {
  std::uint64_t forward = 0, backward = 0;
};

/// The primitives of one fused layer while a program is built. forward() is called once, then backward() once if a
/// gradient to the output is computed.
class LayerCalls {
 public:
  virtual ~LayerCalls() = default;
  virtual GatheredBytes gathered() const { return {}; }
  /// Adds the calls that write this rank's part. Called before forward() if forward() needs gathered data.
  virtual void before_forward(Calls& /*calls*/) {}
  /// The same for backward().
  virtual void before_backward(Calls& /*calls*/, Gradients& /*gradients*/) {}
  /// Adds the calls from the fused layer's inputs to its output.
  virtual void forward(Calls& calls) = 0;
  /// Whether an evaluation has its own calls; otherwise it uses those of forward().
  virtual bool has_evaluation() const { return false; }
  /// As forward(), in an evaluation. Called last.
  virtual void evaluation(Calls& calls) { forward(calls); }
  /// Adds the calls from the gradient of the output to those of parameters and inputs.
  virtual void backward(Calls& calls, Gradients& gradients) = 0;
};

/// Both arguments outlive the result. Throws Error{unsupported} naming the layer if this device cannot run it.
std::unique_ptr<LayerCalls> make_layer_calls(ProgramBuilder& builder, const FusedLayer& fused_layer);

std::unique_ptr<LayerCalls> make_dense(ProgramBuilder& builder, const FusedLayer& fused_layer, const Dense& dense);
std::unique_ptr<LayerCalls> make_convolution(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                             const Conv2d& conv);
/// A pooling window; it covers the whole image if `kernel` has the image's size.
struct PoolWindow {
  dnnl::algorithm algorithm;
  Size2 kernel, stride, padding;
};
std::unique_ptr<LayerCalls> make_pool(ProgramBuilder& builder, const FusedLayer& fused_layer, const PoolWindow& window);
std::unique_ptr<LayerCalls> make_global_average_pool(ProgramBuilder& builder, const FusedLayer& fused_layer);
std::unique_ptr<LayerCalls> make_relu(ProgramBuilder& builder, const FusedLayer& fused_layer);
/// `function`: tanh or sigmoid.
std::unique_ptr<LayerCalls> make_eltwise(ProgramBuilder& builder, const FusedLayer& fused_layer, Activation function);
std::unique_ptr<LayerCalls> make_gelu(ProgramBuilder& builder, const FusedLayer& fused_layer);
std::unique_ptr<LayerCalls> make_dropout(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                         const Dropout& dropout);
std::unique_ptr<LayerCalls> make_sum(ProgramBuilder& builder, const FusedLayer& fused_layer);
std::unique_ptr<LayerCalls> make_l2_norm(ProgramBuilder& builder, const FusedLayer& fused_layer, const L2Norm& norm);
/// The parameters of a batch norm in the order of the graph.
enum NormParameter : std::size_t { kScale, kShift, kRunningMean, kRunningVariance };
/// What a batch norm has for each channel, f32 [channels] each.
struct NormTensors {
  dnnl::memory scale, shift, running_mean, running_variance, to_scale, to_shift;
  dnnl::memory mean, variance;  // of the batch
};
NormTensors take_norm_tensors(ProgramBuilder& builder, const FusedLayer& fused_layer, std::size_t channels);
std::unique_ptr<LayerCalls> make_batch_norm(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                            const BatchNorm& norm);
/// Whether kernels of our own compute a batch norm, which can also add another tensor to what it puts out.
bool has_own_batch_norm(const ProgramBuilder& builder, const BatchNorm& norm);
/// The same by kernels of our own; null if this processor has none.
std::unique_ptr<LayerCalls> make_own_batch_norm(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                                const BatchNorm& norm);
/// For a rank that gathers (ProgramBuilder::gathered()).
std::unique_ptr<LayerCalls> make_synchronized_norm(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                                   const BatchNorm& norm);
std::unique_ptr<LayerCalls> make_product(ProgramBuilder& builder, const FusedLayer& fused_layer);
std::unique_ptr<LayerCalls> make_concat(ProgramBuilder& builder, const FusedLayer& fused_layer);
std::unique_ptr<LayerCalls> make_embedding(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                           const Embedding& embedding);
std::unique_ptr<LayerCalls> make_position(ProgramBuilder& builder, const FusedLayer& fused_layer);
std::unique_ptr<LayerCalls> make_layer_norm(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                            const LayerNorm& norm);
std::unique_ptr<LayerCalls> make_attention(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                           const Attention& attention);
std::unique_ptr<LayerCalls> make_transpose(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                           const Transpose& transpose);

/// oneDNN's name of the algorithm whose backward pass reads the output.
dnnl::algorithm algorithm_of(Activation activation) noexcept;
/// Adds the call that applies the activation to `to`, in place.
void add_activation(ProgramBuilder& builder, Calls& calls, Activation activation, const dnnl::memory& to);
/// Adds the call that multiplies `gradient` by the activation's slope at `output`, in place.
void add_activation_backward(Calls& calls, Activation activation, const dnnl::memory& gradient,
                             const dnnl::memory& output);

/// For a fused layer with one input: `add(gradient, input_gradient)` adds the calls that compute the second from the
/// first; the second is empty if it is not computed.
template <class Add>
void add_backward(ProgramBuilder& builder, const FusedLayer& fused_layer, Calls& calls, Gradients& gradients,
                  Add&& add) {
  const Gradients::Place gradient = gradients.use(fused_layer.output);
  const FlowTensor& input = builder.tensor(fused_layer.inputs.front());
  Gradients::Place input_gradient;
  if (input.trained) input_gradient = gradients.take_place(input.width);
  add(gradient.value, input_gradient.value);
  if (input.trained) gradients.contribute(calls, fused_layer.inputs.front(), std::move(input_gradient));
}

}  // namespace troupe::cpu
