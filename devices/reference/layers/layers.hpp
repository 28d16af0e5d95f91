#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/graph.hpp"

// The arithmetic of layers in f64, as plain loops: a pair of functions for each kind except losses.
namespace troupe::reference {

/// A tensor between layers, for all rows of a batch.
struct Tensor {
  Shape shape;                            // of one row
  std::vector<double> values, gradients;  // [rows, shape]; tokens are stored as numbers
};

/// A parameter, and where its gradient is added up.
struct ParameterValues {
  const double* values;
  double* gradients;
};

/// The operands of a layer. A tensor may be among the inputs twice.
struct LayerWork {
  std::uint32_t rows;
  bool training;                 // otherwise an evaluation
  const std::uint64_t* samples;  // number of rows that count; known after the losses
  std::vector<Tensor*> inputs;
  Tensor* output;
  std::vector<ParameterValues> parameters;  // in the graph's order
  std::uint32_t layer = 0;                  // index in the graph
  /// [rows, 2] halves of the samples' keys (runtime/model/dropout.hpp); empty: an evaluation, without
  /// dropout.
  std::span<const std::int32_t> sample_keys{};
};

// forward() writes the output's values; backward() adds to the gradients of inputs and parameters, from the gradient of
// the output.
void forward(const Dense& dense, const LayerWork& work);
void backward(const Dense& dense, const LayerWork& work);
void forward(const Conv2d& conv, const LayerWork& work);
void backward(const Conv2d& conv, const LayerWork& work);
void forward(const MaxPool& pool, const LayerWork& work);
void backward(const MaxPool& pool, const LayerWork& work);
void forward(const AveragePool& pool, const LayerWork& work);
void backward(const AveragePool& pool, const LayerWork& work);
void forward(const GlobalAveragePool& pool, const LayerWork& work);
void backward(const GlobalAveragePool& pool, const LayerWork& work);
void forward(const Flatten& flatten, const LayerWork& work);
void backward(const Flatten& flatten, const LayerWork& work);
void forward(const Dropout& dropout, const LayerWork& work);
void backward(const Dropout& dropout, const LayerWork& work);
void forward(const Relu& relu, const LayerWork& work);
void backward(const Relu& relu, const LayerWork& work);
void forward(const Tanh& tanh, const LayerWork& work);
void backward(const Tanh& tanh, const LayerWork& work);
void forward(const Sigmoid& sigmoid, const LayerWork& work);
void backward(const Sigmoid& sigmoid, const LayerWork& work);
void forward(const Gelu& gelu, const LayerWork& work);
void backward(const Gelu& gelu, const LayerWork& work);
void forward(const Add& add, const LayerWork& work);
void backward(const Add& add, const LayerWork& work);
void forward(const L2Norm& norm, const LayerWork& work);
void backward(const L2Norm& norm, const LayerWork& work);
void forward(const BatchNorm& norm, const LayerWork& work);
void backward(const BatchNorm& norm, const LayerWork& work);
void forward(const Multiply& multiply, const LayerWork& work);
void backward(const Multiply& multiply, const LayerWork& work);
void forward(const Concat& concat, const LayerWork& work);
void backward(const Concat& concat, const LayerWork& work);
void forward(const Embedding& embedding, const LayerWork& work);
void backward(const Embedding& embedding, const LayerWork& work);
void forward(const Position& position, const LayerWork& work);
void backward(const Position& position, const LayerWork& work);
void forward(const LayerNorm& norm, const LayerWork& work);
void backward(const LayerNorm& norm, const LayerWork& work);
void forward(const Attention& attention, const LayerWork& work);
void backward(const Attention& attention, const LayerWork& work);
void forward(const Transpose& transpose, const LayerWork& work);
void backward(const Transpose& transpose, const LayerWork& work);

}  // namespace troupe::reference
