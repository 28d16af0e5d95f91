#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "devices/cuda/math.hpp"
#include "runtime/model/layer_kinds.hpp"

// What the layers of a graph enqueue: a pair of functions for each kind.
namespace troupe::cuda {

/// A tensor of a batch, and the gradient to it.
struct Tensor {
  Shape shape;                    // of one row
  std::byte* at = nullptr;        // [rows, shape]
  std::byte* gradient = nullptr;  // likewise; null: none is computed
  Stored type = Stored::f32;      // of the values
  Stored gradient_type = Stored::f32;
  bool is_field = false;

  std::uint64_t width() const noexcept { return shape.count_elements(); }
};

struct LayerParameter {
  const void* values = nullptr;
  const std::uint16_t* half = nullptr;  // rounded, where the graph is in bf16 or f16
  float* gradient = nullptr;
  std::uint64_t count = 0;
  Stored type = Stored::f32;
  const float* as_floats() const noexcept { return static_cast<const float*>(values); }
};

/// A layer with everything that it works on.
struct LayerWork {
  std::uint32_t layer = 0;            // index in the graph
  std::vector<const Tensor*> inputs;  // a tensor may be here twice
  std::vector<GradientTo> gradients;  // by input; at null: none is computed
  const Tensor* output = nullptr;     // of a loss: null
  std::vector<LayerParameter> parameters{};
  std::byte* kept = nullptr;  // memory from the forward to the backward pass; of a convolution: its weights
  /// Of the ReLU that has put out the input, in this step: backward() gives the gradient to what that has read. Null:
  /// it gives the one to what that has put out.
  const std::byte* relu_mask = nullptr;
  /// Of a max pool: what it applies to what it puts out, in the place of the curve before it. Without a value: nothing.
  std::optional<Curve> curve;
  bool is_first_loss = false, is_last_loss = false;
  /// Of a batch norm that is computed with the ReLU behind it (fused_norms.hpp): what that puts out. Null: it is not.
  const Tensor* relu = nullptr;
  const Tensor* added = nullptr;  // to the norm, before the ReLU; null: nothing
};

/// Weights of convolutions that are to be written in another order; see weight_orders.hpp.
using WeightOrders = std::vector<WeightOrder>;
/// Enqueues them, times the factor.
void order_weights(CudaStream& stream, const WeightOrders& orders, const Factor& factor);

/// A step or an evaluation that is being enqueued.
struct Pass {
  CudaStream& stream;
  const Math& math;
  std::uint32_t rows;
  bool training;
  std::byte* scratch;        // of the layer, until its function returns
  const std::int32_t* keys;  // of the rows' samples; null: nothing is dropped
  std::uint64_t* samples;    // that count in this step; known behind the last loss
  Factor loss_factor;        // of the gradients of losses
  Factor gradient_factor;    // of gradients to parameters, which takes the other one away
  WeightOrders& landed;      // gradients to bring to their place before others ask for them
  StepSums* sums;
};

/// Bytes that a layer keeps, and of scratch, for batches of `rows`.
struct LayerRoom {
  std::uint64_t kept = 0, scratch = 0;
  std::uint64_t dnn_kept = 0;  // at least, where cuDNN may compute the layer
  MathRoom math{};
};
/// Throws Error{unsupported} with the reason for what has no kernels.
LayerRoom room_for(const LayerWork& work, const Operation& operation, std::uint32_t rows);

/// What `math` can choose before the first step, for batches of `rows`. `relu`: the tensor that a ReLU behind the layer
/// writes, where that alone reads the layer's; null: there is none. `trains`: there will be a backward pass.
void prepare(const LayerWork& work, const Operation& operation, const Tensor* relu, std::uint32_t rows, bool trains,
             Math& math);
// Of the layers whose ReLU is computed apart.
void prepare(const Attention& attention, const LayerWork& work, std::uint32_t rows, bool trains, Math& math);
/// Of a convolution. `relu`: as above.
void prepare(const Conv2d& conv, const LayerWork& work, const Tensor* relu, std::uint32_t rows, bool trains,
             Math& math);

void forward(const LayerWork& work, const Operation& operation, const Pass& pass);
/// What is done before the forward pass with the weights of a convolution; nothing: they are read as they are.
std::optional<WeightOrder> kept_weights(const LayerWork& work, const Operation& operation);
/// Without a value: it is no curve.
std::optional<Curve> curve_of(const Operation& operation) noexcept;
/// Whether a convolution is one product of matrices: each pixel's channels times the weights.
bool is_affine(const Conv2d& conv) noexcept;
/// The layer and the ReLU behind it, which writes `to`, at once. `mask`: of a dense layer, where the ReLU's mask goes;
/// null: none is written. False: nothing is done, each is to be computed alone.
bool forward_with_relu(const Operation& operation, const LayerWork& work, const Tensor& to, std::byte* mask,
                       const Pass& pass);
/// Whether backward() of a dense layer can with this relu_mask.
bool has_relu_gradient(const Dense& dense, const LayerWork& work, const std::byte* mask, const Pass& pass);
/// Of a loss: nothing, since its forward pass gives the gradient, too. Of a layer with weights: the gradient to them
/// may still be computed aside (CudaStream::aside), from its input and the gradient to its output.
void backward(const LayerWork& work, const Operation& operation, const Pass& pass);

/// All elements, one after the other. At null, or where they are already: nothing is done.
void move_all(const GradientTo& to, const void* from, Stored type, std::uint64_t count, const Pass& pass);

// By kind; forward(Loss) also adds to the sums.
void forward(const Dense& dense, const LayerWork& work, const Pass& pass);
void backward(const Dense& dense, const LayerWork& work, const Pass& pass);
void forward(const Conv2d& conv, const LayerWork& work, const Pass& pass);
void backward(const Conv2d& conv, const LayerWork& work, const Pass& pass);
void forward(const MaxPool& pool, const LayerWork& work, const Pass& pass);
void backward(const MaxPool& pool, const LayerWork& work, const Pass& pass);
void forward(const AveragePool& pool, const LayerWork& work, const Pass& pass);
void backward(const AveragePool& pool, const LayerWork& work, const Pass& pass);
void forward(const GlobalAveragePool& pool, const LayerWork& work, const Pass& pass);
void backward(const GlobalAveragePool& pool, const LayerWork& work, const Pass& pass);
void forward(const Relu& curve, const LayerWork& work, const Pass& pass);
void backward(const Relu& curve, const LayerWork& work, const Pass& pass);
void forward(const Tanh& curve, const LayerWork& work, const Pass& pass);
void backward(const Tanh& curve, const LayerWork& work, const Pass& pass);
void forward(const Sigmoid& curve, const LayerWork& work, const Pass& pass);
void backward(const Sigmoid& curve, const LayerWork& work, const Pass& pass);
void forward(const Gelu& curve, const LayerWork& work, const Pass& pass);
void backward(const Gelu& curve, const LayerWork& work, const Pass& pass);
void forward(const Add& add, const LayerWork& work, const Pass& pass);
void backward(const Add& add, const LayerWork& work, const Pass& pass);
void forward(const Multiply& multiply, const LayerWork& work, const Pass& pass);
void backward(const Multiply& multiply, const LayerWork& work, const Pass& pass);
void forward(const Concat& concat, const LayerWork& work, const Pass& pass);
void backward(const Concat& concat, const LayerWork& work, const Pass& pass);
void forward(const Transpose& transpose, const LayerWork& work, const Pass& pass);
void backward(const Transpose& transpose, const LayerWork& work, const Pass& pass);
void forward(const Dropout& dropout, const LayerWork& work, const Pass& pass);
void backward(const Dropout& dropout, const LayerWork& work, const Pass& pass);
void forward(const BatchNorm& norm, const LayerWork& work, const Pass& pass);
void backward(const BatchNorm& norm, const LayerWork& work, const Pass& pass);
/// The gradient to a sum with a batch norm, from the one to what the ReLU behind it has put out, both in the memory of
/// `sum`; with the sums over the batch that the norm's backward() then takes.
void backward_of_sum(const LayerWork& norm, const Tensor& sum, const Pass& pass);
void forward(const LayerNorm& norm, const LayerWork& work, const Pass& pass);
void backward(const LayerNorm& norm, const LayerWork& work, const Pass& pass);
void forward(const L2Norm& norm, const LayerWork& work, const Pass& pass);
void backward(const L2Norm& norm, const LayerWork& work, const Pass& pass);
void forward(const Embedding& embedding, const LayerWork& work, const Pass& pass);
void backward(const Embedding& embedding, const LayerWork& work, const Pass& pass);
void forward(const Position& position, const LayerWork& work, const Pass& pass);
void backward(const Position& position, const LayerWork& work, const Pass& pass);
void forward(const Attention& attention, const LayerWork& work, const Pass& pass);
void backward(const Attention& attention, const LayerWork& work, const Pass& pass);
void forward(const SoftmaxCrossEntropy& loss, const LayerWork& work, const Pass& pass);
void forward(const SmoothL1& loss, const LayerWork& work, const Pass& pass);
void forward(const SigmoidCrossEntropy& loss, const LayerWork& work, const Pass& pass);

}  // namespace troupe::cuda
