#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace troupe {

// What layers do, as values. Each kind has one row in the table of layer kinds (layer_kinds.hpp), which names it and
// its attributes, checks them and infers its shape. Images are [height, width, channels].

/// Of a kernel, a stride, a padding.
struct Size2 {
  std::uint32_t height = 1;
  std::uint32_t width = 1;
  friend bool operator==(const Size2&, const Size2&) = default;
};

/// The distance of neighbouring windows of a pool: 0 stands for the kernel's size.
constexpr Size2 pool_stride(Size2 stride, Size2 kernel) noexcept {
  return {stride.height == 0 ? kernel.height : stride.height, stride.width == 0 ? kernel.width : stride.width};
}

/// y = x W^T + b, W [units, in] row-major, b [units].
struct Dense {
  std::uint32_t units = 0;
  bool flatten = true;  // x is all that the layer reads; false: the last extent, at each place of the others
  bool bias = true;     // false: there is no b
  friend bool operator==(const Dense&, const Dense&) = default;
};
/// y = max(x, 0).
struct Relu {
  friend bool operator==(const Relu&, const Relu&) = default;
};
/// y = the sum of two or more tensors of one shape.
struct Add {
  friend bool operator==(const Add&, const Add&) = default;
};
/// A loss of logits and a field of labels: the cross entropy of softmax(x) and a target, times `weight`, summed over
/// the labels. The target gives the label 1 - smoothing, and every class smoothing / classes beside that (Szegedy et
/// al. 2016, Rethinking the Inception architecture, section 7). A label below 0, or `ignore`, marks a row of logits
/// that does not count. Where a sample has one label, all its logits are its row; labels of extents [...] go with
/// logits [..., classes], and each of them counts as a sample.
struct SoftmaxCrossEntropy {
  double weight = 1;
  double smoothing = 0;
  std::int32_t ignore = -1;
  friend bool operator==(const SoftmaxCrossEntropy&, const SoftmaxCrossEntropy&) = default;
};
/// A cross-correlation: y[h, w, f] = b[f] + the sum over i, j, c of W[f, c, i, j] x[h * stride - padding + i *
/// dilation, w * stride - padding + j * dilation, c], where x is 0 outside of the image. W [filters, channels / groups,
/// kernel height, kernel width] row-major, b [filters]. With groups, filters and channels are cut into as many parts,
/// and a part of the filters reads the part of the channels of the same number.
struct Conv2d {
  std::uint32_t filters = 0;
  Size2 kernel{};
  Size2 stride{};
  Size2 padding{0, 0};  // on each of two sides
  Size2 dilation{};     // distance of the elements that a kernel reads; 1: neighbours
  std::uint32_t groups = 1;
  bool bias = true;  // false: there is no b
  friend bool operator==(const Conv2d&, const Conv2d&) = default;
};
/// y = the largest x of a window; where several are, the first one has the gradient.
struct MaxPool {
  Size2 kernel{2, 2};
  Size2 stride{0, 0};   // 0: the kernel's
  Size2 padding{0, 0};  // less than the kernel
  friend bool operator==(const MaxPool&, const MaxPool&) = default;
};
/// y = the mean of the elements of a window that lie in the image.
struct AveragePool {
  Size2 kernel{2, 2};
  Size2 stride{0, 0};
  Size2 padding{0, 0};
  friend bool operator==(const AveragePool&, const AveragePool&) = default;
};
/// y [channels] = the mean over height and width.
struct GlobalAveragePool {
  friend bool operator==(const GlobalAveragePool&, const GlobalAveragePool&) = default;
};
/// The same elements in one extent, in the order height, width, channels.
struct Flatten {
  friend bool operator==(const Flatten&, const Flatten&) = default;
};
/// y = tanh(x).
struct Tanh {
  friend bool operator==(const Tanh&, const Tanh&) = default;
};
/// y = 1 / (1 + e^-x).
struct Sigmoid {
  friend bool operator==(const Sigmoid&, const Sigmoid&) = default;
};
/// y = x Phi(x), Phi the distribution function of N(0, 1) (by erf, not by the approximation with tanh).
struct Gelu {
  friend bool operator==(const Gelu&, const Gelu&) = default;
};
/// While it trains: y = x / (1 - rate), or 0 with probability `rate`; otherwise y = x. What is drawn depends on the
/// seed, the sample, the layer and the element alone (dropout.hpp).
struct Dropout {
  double rate = 0.5;
  friend bool operator==(const Dropout&, const Dropout&) = default;
};

/// A loss of numbers x and a field y of as many: of each element, with d = x - y, d^2 / (2 beta) where |d| < beta, else
/// |d| - beta / 2. A sample's loss is their mean times `weight`; none is right or wrong. Source: Girshick 2015 (Fast
/// R-CNN), equation 3, where beta is 1.
struct SmoothL1 {
  double weight = 1;
  double beta = 1;
  friend bool operator==(const SmoothL1&, const SmoothL1&) = default;
};
/// A loss of logits x, one for each class, and a field t of as many targets from 0 to 1, of classes that do not exclude
/// one another: of each class -t log s(x) - (1 - t) log(1 - s(x)), s the sigmoid. A sample's loss is the mean over the
/// classes whose target is not below 0, times `weight`; without such a class it does not count.
struct SigmoidCrossEntropy {
  double weight = 1;
  friend bool operator==(const SigmoidCrossEntropy&, const SigmoidCrossEntropy&) = default;
};
/// y[c] = scale[c] x[c] / sqrt(epsilon + the sum of the squares of x over the last extent), scale [last extent], which
/// starts as `scale`. Source: Liu, Rabinovich, Berg 2015 (ParseNet), section 3.3, as SSD has it.
struct L2Norm {
  double scale = 20;
  double epsilon = 1e-10;
  friend bool operator==(const L2Norm&, const L2Norm&) = default;
};

/// y = scale (x - mean) / sqrt(variance + epsilon) + shift, channel by channel (the last extent). In training mean and
/// variance are those of the channel in the batch, over its rows and places; in an evaluation they are the running
/// ones, of which a step moves `momentum` of the way to the batch's (its variance over n - 1). Parameters [channels]:
/// weight (scale), bias (shift), running_mean, running_var. Source: Ioffe, Szegedy 2015 (Batch normalization),
/// algorithms 1 and 2; PyTorch's meaning of momentum.
struct BatchNorm {
  double momentum = 0.1;
  double epsilon = 1e-5;
  bool synchronized = false;  // the batch is that of all ranks in the step, otherwise the rank's own
  friend bool operator==(const BatchNorm&, const BatchNorm&) = default;
};
/// y = the product of two or more tensors of one shape, element by element.
struct Multiply {
  friend bool operator==(const Multiply&, const Multiply&) = default;
};
/// y = two or more tensors behind one another in their last extent; the others are equal.
struct Concat {
  friend bool operator==(const Concat&, const Concat&) = default;
};

/// y[i_0, i_1, ...] = x at the indices j, where j_order[k] = i_k: extent k of y is extent order[k] of x. The batch
/// dimension stays where it is.
struct Transpose {
  std::vector<std::uint32_t> order;  // each extent of x once, counted from 0
  friend bool operator==(const Transpose&, const Transpose&) = default;
};

/// y [..., width] = the rows of W [vocabulary, width] that the tokens [...] number; zeros for a token below 0.
struct Embedding {
  std::uint32_t vocabulary = 0;
  std::uint32_t width = 0;
  double deviation = 1;  // of the starting weights
  friend bool operator==(const Embedding&, const Embedding&) = default;
};
/// y [length, width] = x + W, W [length, width]: what there is to know about a place.
struct Position {
  double deviation = 0.02;  // of the starting weights
  friend bool operator==(const Position&, const Position&) = default;
};
/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, mean and (biased) variance over the last extent, for each
/// place of the others; weight and bias [last extent]. Source: Ba, Kiros, Hinton 2016 (Layer normalization).
struct LayerNorm {
  double epsilon = 1e-5;
  friend bool operator==(const LayerNorm&, const LayerNorm&) = default;
};
/// Multi-head attention of a sequence to itself: x [length, 3 width] has queries, keys and values side by side, each
/// cut into `heads` parts; y [length, width] = softmax(Q K^T / sqrt(width / heads)) V, head by head. Causal: a place
/// reads itself and those before it. Source: Vaswani et al. 2017 (Attention is all you need), section 3.2.
struct Attention {
  std::uint32_t heads = 1;
  bool causal = false;
  friend bool operator==(const Attention&, const Attention&) = default;
};

/// In the order of layer_kinds().
using Operation =
    std::variant<Dense, Relu, Add, SoftmaxCrossEntropy, Conv2d, MaxPool, AveragePool, GlobalAveragePool, Flatten, Tanh,
                 Sigmoid, Gelu, SmoothL1, SigmoidCrossEntropy, L2Norm, Dropout, BatchNorm, Multiply, Concat,  //
                 Embedding, Position, LayerNorm, Attention,  // of sequences
                 Transpose>;

struct Layer {
  std::string name;  // also of the tensor that it puts out
  Operation operation;
  /// What it reads: fields, and layers that stand before it. Empty: what the layer before puts out (the first layer:
  /// the first field), and a loss also the field "label".
  std::vector<std::string> inputs{};
  friend bool operator==(const Layer&, const Layer&) = default;
};

}  // namespace troupe
