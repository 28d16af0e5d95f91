#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace troupe {

// What layers compute, as values. Each kind has one row in the table of layer kinds (layer_kinds.hpp), which names it
// and its attributes, checks them and infers its shape. Images are [height, width, channels].

/// The size of a kernel, a stride or a padding.
struct Size2 {
  std::uint32_t height = 1;
  std::uint32_t width = 1;
  friend bool operator==(const Size2&, const Size2&) = default;
};

/// The distance between neighbouring windows of a pool: 0 means the kernel's size.
constexpr Size2 pool_stride(Size2 stride, Size2 kernel) noexcept {
  return {stride.height == 0 ? kernel.height : stride.height, stride.width == 0 ? kernel.width : stride.width};
}

/// y = x W^T + b, W [units, in] row-major, b [units].
struct Dense {
  std::uint32_t units = 0;
  bool flatten = true;  // x is the whole input; false: x is the last extent, at each position of the other extents
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
/// the labels. The target is 1 - smoothing for the label, plus smoothing / classes for every class (Szegedy et al.
/// 2016, Rethinking the Inception architecture, section 7). A label that is below 0, or `ignore`, marks a row of logits
/// that does not count. If a sample has one label, all its logits are one row; labels of extents [...] belong to logits
/// [..., classes], and each label counts as a sample.
struct SoftmaxCrossEntropy {
  double weight = 1;
  double smoothing = 0;
  std::int32_t ignore = -1;
  friend bool operator==(const SoftmaxCrossEntropy&, const SoftmaxCrossEntropy&) = default;
};
/// A cross-correlation: y[h, w, f] = b[f] + the sum over i, j, c of W[f, c, i, j] x[h * stride - padding + i *
/// dilation, w * stride - padding + j * dilation, c], where x is 0 outside of the image. W [filters, channels / groups,
/// kernel height, kernel width] row-major, b [filters]. With groups, filters and channels are divided into that many
/// parts, and each part of the filters reads the part of the channels with the same number.
struct Conv2d {
  std::uint32_t filters = 0;
  Size2 kernel{};
  Size2 stride{};
  Size2 padding{0, 0};  // on each side
  Size2 dilation{};     // distance of the elements that a kernel reads; 1: neighbours
  std::uint32_t groups = 1;
  bool bias = true;  // false: there is no b
  friend bool operator==(const Conv2d&, const Conv2d&) = default;
};
/// y = the largest x of a window; if several are equal, the first one gets the gradient.
struct MaxPool {
  Size2 kernel{2, 2};
  Size2 stride{0, 0};   // 0: the kernel's
  Size2 padding{0, 0};  // less than the kernel
  friend bool operator==(const MaxPool&, const MaxPool&) = default;
};
/// y = the mean of those elements of a window that are inside the image.
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
/// In training: y = 0 with probability `rate`, otherwise x / (1 - rate); in an evaluation y = x. The choice depends
/// only on the seed, the sample, the layer and the element (dropout.hpp).
struct Dropout {
  double rate = 0.5;
  friend bool operator==(const Dropout&, const Dropout&) = default;
};

/// A loss of numbers x and a field y of the same number of elements: for each element, with d = x - y, d^2 / (2 beta)
/// if |d| < beta, otherwise |d| - beta / 2. A sample's loss is the mean of these times `weight`; a sample never counts
/// as correct. Source: Girshick 2015 (Fast R-CNN), equation 3, where beta is 1.
struct SmoothL1 {
  double weight = 1;
  double beta = 1;
  friend bool operator==(const SmoothL1&, const SmoothL1&) = default;
};
/// A loss of logits x, one per class, and a field t of as many targets from 0 to 1, for classes that do not exclude
/// each other: for each class -t log s(x) - (1 - t) log(1 - s(x)), where s is the sigmoid. A sample's loss is the mean
/// over the classes whose target is not below 0, times `weight`; a sample without such a class does not count.
struct SigmoidCrossEntropy {
  double weight = 1;
  friend bool operator==(const SigmoidCrossEntropy&, const SigmoidCrossEntropy&) = default;
};
/// y[c] = scale[c] x[c] / sqrt(epsilon + the sum of the squares of x over the last extent). The parameter scale [last
/// extent] starts as `scale`. Source: Liu, Rabinovich, Berg 2015 (ParseNet), section 3.3, in the form used by SSD.
struct L2Norm {
  double scale = 20;
  double epsilon = 1e-10;
  friend bool operator==(const L2Norm&, const L2Norm&) = default;
};

/// y = scale (x - mean) / sqrt(variance + epsilon) + shift, for each channel (the last extent). In training, mean and
/// variance are those of the channel in the batch, over its rows and positions; in an evaluation they are the running
/// ones, which each step moves by the fraction `momentum` toward the batch's (with the variance over n - 1). Parameters
/// [channels]: weight (scale), bias (shift), running_mean, running_var. Source: Ioffe, Szegedy 2015 (Batch
/// normalization), algorithms 1 and 2; momentum as in PyTorch.
struct BatchNorm {
  double momentum = 0.1;
  double epsilon = 1e-5;
  bool synchronized = false;  // over the batches of all ranks in the step; otherwise over the rank's own
  friend bool operator==(const BatchNorm&, const BatchNorm&) = default;
};
/// y = the product of two or more tensors of the same shape, element by element.
struct Multiply {
  friend bool operator==(const Multiply&, const Multiply&) = default;
};
/// y = two or more tensors concatenated in their last extent; the other extents are equal.
struct Concat {
  friend bool operator==(const Concat&, const Concat&) = default;
};

/// y[i_0, i_1, ...] = x at the indices j, where j_order[k] = i_k: extent k of y is extent order[k] of x. The batch
/// dimension stays in front.
struct Transpose {
  std::vector<std::uint32_t> order;  // each extent of x once, counted from 0
  friend bool operator==(const Transpose&, const Transpose&) = default;
};

/// y [..., width] = the rows of W [vocabulary, width] whose numbers are the tokens [...]; zeros for a token below 0.
struct Embedding {
  std::uint32_t vocabulary = 0;
  std::uint32_t width = 0;
  double deviation = 1;  // of the starting weights
  friend bool operator==(const Embedding&, const Embedding&) = default;
};
/// y [length, width] = x + W, W [length, width]: a vector for each position.
struct Position {
  double deviation = 0.02;  // of the starting weights
  friend bool operator==(const Position&, const Position&) = default;
};
/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias; mean and (biased) variance are over the last extent, at
/// each position of the others; weight and bias [last extent]. Source: Ba, Kiros, Hinton 2016 (Layer normalization).
struct LayerNorm {
  double epsilon = 1e-5;
  friend bool operator==(const LayerNorm&, const LayerNorm&) = default;
};
/// Multi-head self-attention: x [length, 3 width] has queries, keys and values side by side, each divided into `heads`
/// parts; y [length, width] = softmax(Q K^T / sqrt(width / heads)) V for each head. Causal: a position reads only
/// itself and earlier ones. Source: Vaswani et al. 2017 (Attention is all you need), section 3.2.
struct Attention {
  std::uint32_t heads = 1;
  bool causal = false;
  friend bool operator==(const Attention&, const Attention&) = default;
};

/// In the order of layer_kinds().
using Operation =
    std::variant<Dense, Relu, Add, SoftmaxCrossEntropy, Conv2d, MaxPool, AveragePool, GlobalAveragePool, Flatten, Tanh,
                 Sigmoid, Gelu, SmoothL1, SigmoidCrossEntropy, L2Norm, Dropout, BatchNorm, Multiply, Concat,  //
                 Embedding, Position, LayerNorm, Attention,  // for sequences
                 Transpose>;

struct Layer {
  std::string name;  // also the name of its output tensor
  Operation operation;
  /// The names of fields and earlier layers that it reads. Empty: the output of the previous layer (for the first
  /// layer, the first field), and for a loss also the field "label".
  std::vector<std::string> inputs{};
  friend bool operator==(const Layer&, const Layer&) = default;
};

}  // namespace troupe
