#include "runtime/planning/detail/gpu_memory.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/compute/device.hpp"
#include "runtime/memory/lifetimes.hpp"
#include "runtime/model/curves_before_pools.hpp"
#include "runtime/model/fused_relu_gradients.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/model/shared_gradients.hpp"

// Mirrors what devices/cuda/cuda_replica.cpp takes, which a plan must know on machines without a GPU, too. A test
// compares the two.
namespace troupe::detail {
namespace {

constexpr std::uint64_t kF32 = sizeof(float);
/// Source: cuBLAS documentation, cublasSetWorkspace (for Hopper and later).
constexpr std::uint64_t kWorkspace = std::uint64_t{32} << 20;
/// What a plan of cuDNN may need (DnnLibrary::kMostWorkspace). It works where products do.
constexpr std::uint64_t kDnnWorkspace = std::uint64_t{256} << 20;
/// What a plan of attention needs besides.
constexpr std::uint64_t kDnnAttention = 1024;
/// Two blocks of 64 x 64 sums for each processor of the largest GPUs.
constexpr std::uint64_t kMostProcessors = 192, kProductParts = 2 * kMostProcessors * 64 * 64 * kF32;
/// Of what kernels keep (devices/cuda/kernels).
constexpr std::uint64_t kLossOfRow = 16, kNumbersOfRow = 8, kMomentsOfChannel = 12, kSlopesOfChannel = 8,
                        kLinkOfToken = 8;
/// The largest window of a max pool whose index has one byte.
constexpr std::uint64_t kWindowOfAByte = 256;

std::uint64_t on_a_boundary(std::uint64_t bytes) noexcept { return (bytes + 255) / 256 * 256; }

bool is_loss(const Graph& graph, std::uint32_t layer) { return kind_of(graph.layers()[layer].operation).is_loss; }

class ReplicaMemoryOf {
 public:
  ReplicaMemoryOf(const Graph& graph, std::uint32_t rows)
      : graph_(graph), rows_(rows), element_bytes_(size_bytes(graph.dtype())), is_moved_(graph.layers().size()) {
    const std::size_t tensors = graph.fields().size() + graph.layers().size();
    for (std::uint32_t t = 0; t < tensors; ++t) same_.push_back(t);
    for (const CurveBeforePool& moved : curves_before_pools(graph)) is_moved_[moved.curve] = true;
    for (std::uint32_t l = 0; l < graph.layers().size(); ++l)
      if (puts_out_what_it_reads(l)) same_[graph.output_tensor(l)] = same_[graph.inputs_of(l).front()];
    const SharedGradients shared{graph};
    for (const std::uint32_t t : same_) same_gradients_.push_back(shared.by_tensor()[t]);
    is_unwritten_.resize(tensors);
    for (const FusedNorm& fused : fused_norms(graph)) {
      is_unwritten_[graph.output_tensor(fused.norm)] = true;
      if (fused.sum) is_unwritten_[graph.output_tensor(fused.sum->layer)] = true;
    }
    for (const FusedReluGradient& fused : fused_relu_gradients_)
      same_gradients_[graph.output_tensor(fused.before)] = graph.output_tensor(fused.relu);
  }

  GpuReplicaBytes all() const {
    std::uint64_t activations = 0, scratch = 0;
    for (std::uint32_t f = 0; f < graph_.fields().size(); ++f) activations += values(f, element_size_of_field(f));
    for (std::uint32_t l = 0; l < graph_.layers().size(); ++l) {
      const std::uint32_t output = graph_.output_tensor(l);
      if (!is_loss(graph_, l) && same_[output] == output && !is_unwritten_[output])
        activations += values(output, only_losses_read(output) ? kF32 : element_bytes_);
      activations += on_a_boundary(kept(l));
      scratch = std::max(scratch, scratch_of(l));
    }
    activations += gradients() + on_a_boundary(scratch) + on_a_boundary(sizeof(std::uint64_t));
    activations +=
        kMostAnnounced * on_a_boundary(BatchLayout{static_cast<std::uint32_t>(rows_), graph_.fields()}.size_bytes());
    return {activations, kProductParts, 2 * kWorkspace + landing() + relu_masks(), dnn()};
  }

 private:
  bool puts_out_what_it_reads(std::uint32_t layer) const {
    return std::holds_alternative<Flatten>(graph_.layers()[layer].operation) || is_moved_[layer];
  }
  std::uint64_t width(std::uint32_t tensor) const { return graph_.shape_of(tensor).count_elements(); }
  std::uint64_t values(std::uint32_t tensor, std::uint64_t element_bytes) const {
    return on_a_boundary(rows_ * width(tensor) * element_bytes);
  }
  std::uint64_t element_size_of_field(std::uint32_t field) const { return size_bytes(graph_.fields()[field].dtype); }
  bool only_losses_read(std::uint32_t tensor) const {
    for (std::uint32_t l = 0; l < graph_.layers().size(); ++l)
      for (const std::uint32_t input : graph_.inputs_of(l))
        if (same_[input] == tensor && !is_loss(graph_, l) && !puts_out_what_it_reads(l)) return false;
    return true;
  }

  /// What a layer keeps from its forward to its backward pass.
  std::uint64_t kept(std::uint32_t layer) const {
    const Operation& operation = graph_.layers()[layer].operation;
    if (std::holds_alternative<SoftmaxCrossEntropy>(operation))
      return rows_ * width(graph_.inputs_of(layer).at(1)) * kLossOfRow;
    if (is_loss(graph_, layer)) return rows_ * kLossOfRow;
    const Shape& shape = graph_.output_of(layer);
    const std::uint64_t channels = shape.extents.empty() ? 1 : shape.extents.back();
    const std::uint64_t positions = rows_ * (shape.count_elements() / channels);
    if (const auto* const attention = std::get_if<Attention>(&operation))
      return pairs(*attention, shape) * element_bytes_;
    if (std::holds_alternative<Conv2d>(operation)) return weights_of(layer) * element_bytes_;
    if (const auto* const pool = std::get_if<MaxPool>(&operation)) {
      const std::uint64_t window = std::uint64_t{pool->kernel.height} * pool->kernel.width;
      return rows_ * shape.count_elements() * (window <= kWindowOfAByte ? 1 : 4);
    }
    if (std::holds_alternative<BatchNorm>(operation))
      return on_a_boundary(channels * kMomentsOfChannel) + channels * kSlopesOfChannel;
    if (std::holds_alternative<LayerNorm>(operation) || std::holds_alternative<L2Norm>(operation))
      return positions * kNumbersOfRow;
    return 0;
  }
  std::uint64_t scratch_of(std::uint32_t layer) const {
    const Operation& operation = graph_.layers()[layer].operation;
    const Shape& shape = graph_.output_of(layer);
    if (std::holds_alternative<Embedding>(operation))
      return rows_ * (shape.count_elements() / shape.extents.back()) * kLinkOfToken;
    const auto* const attention = std::get_if<Attention>(&operation);
    if (attention == nullptr) return 0;
    const std::uint64_t count = pairs(*attention, shape);
    const std::uint64_t own = on_a_boundary(count * kF32) + (element_bytes_ != kF32 ? count * element_bytes_ : 0);
    return std::max(own, dnn_scratch_of(*attention, shape));
  }
  /// Where cuDNN may compute attention: a sum for each place, and the weights over whole tiles.
  std::uint64_t dnn_scratch_of(const Attention& attention, const Shape& shape) const {
    const std::uint64_t length = shape.extents[0], matrices = rows_ * attention.heads;
    if (element_bytes_ == kF32 || length < 2 || shape.extents[1] / attention.heads % 8 != 0) return 0;
    const std::uint64_t down = (length + 63) / 64 * 64, across = (length + 127) / 128 * 128;
    return on_a_boundary(matrices * length * kF32) + matrices * down * across * 2 + kDnnAttention;
  }
  std::uint64_t pairs(const Attention& attention, const Shape& shape) const {
    return rows_ * attention.heads * shape.extents[0] * shape.extents[0];
  }
  std::uint64_t weights_of(std::uint32_t layer) const {
    for (const Parameter& parameter : graph_.parameters())
      if (parameter.layer == layer) return parameter.count_elements();  // its first one
    return 0;
  }
  /// Convolutions that are no products of matrices.
  bool is_convolution(std::uint32_t layer) const {
    const auto* const conv = std::get_if<Conv2d>(&graph_.layers()[layer].operation);
    return conv != nullptr && !is_one_product(*conv);
  }
  /// Where the gradients to weights and bias of the largest product land that a library computes.
  std::uint64_t landing() const {
    std::uint64_t most = 0;
    for (std::uint32_t l = 0; l < graph_.layers().size(); ++l) {
      const Operation& operation = graph_.layers()[l].operation;
      if (!std::holds_alternative<Dense>(operation) && !std::holds_alternative<Conv2d>(operation)) continue;
      std::uint64_t bytes = 0;
      for (const Parameter& parameter : graph_.parameters())
        if (parameter.layer == l && !is_convolution(l)) bytes += on_a_boundary(parameter.count_elements() * kF32);
      most = std::max(most, bytes);
    }
    return most;
  }
  /// The workspace for what cuDNN may compute, and where the gradients to weights of convolutions land.
  std::uint64_t dnn() const {
    std::uint64_t landing = 0;
    bool computes = false;
    for (std::uint32_t l = 0; l < graph_.layers().size(); ++l) {
      if (!is_convolution(l)) continue;
      landing += on_a_boundary(weights_of(l) * element_bytes_);
      computes = true;
    }
    // Gradients to weights have a workspace of their own.
    return landing + (computes ? 2 * (kDnnWorkspace - kWorkspace) : 0);
  }
  std::uint64_t relu_masks() const {
    std::uint64_t bytes = 0;
    for (const FusedReluGradient& fused : fused_relu_gradients_)
      bytes += on_a_boundary(relu_mask_bytes(rows_, graph_.output_of(fused.relu)));
    return bytes;
  }
  /// They share memory: each is in use from the first layer of the backward pass that writes it to the one that reads
  /// it.
  std::uint64_t gradients() const {
    std::vector<std::optional<Lifetime>> uses(same_.size());
    std::uint32_t turn = 0;
    const auto take_turn = [&](std::uint32_t tensor) {
      if (!graph_.is_trained(tensor)) return;
      std::optional<Lifetime>& use = uses[same_gradients_[tensor]];
      if (!use) use = Lifetime{turn, turn};
      use->last = turn;
    };
    const auto count = static_cast<std::uint32_t>(graph_.layers().size());
    for (std::uint32_t l = 0; l < count; ++l)
      if (is_loss(graph_, l)) take_turn(graph_.inputs_of(l).front()), ++turn;
    std::optional<std::uint32_t> read_aside;  // the gradient to weights may be computed from it until the next one is
    for (std::uint32_t l = count; l-- > 0; ++turn) {
      if (is_loss(graph_, l) || puts_out_what_it_reads(l) || !graph_.is_trained(graph_.output_tensor(l))) continue;
      take_turn(graph_.output_tensor(l));
      for (const std::uint32_t input : graph_.inputs_of(l)) take_turn(input);
      const Operation& operation = graph_.layers()[l].operation;
      if (!std::holds_alternative<Dense>(operation) && !std::holds_alternative<Conv2d>(operation)) continue;
      if (read_aside) take_turn(*read_aside);
      read_aside = graph_.output_tensor(l);
    }
    if (read_aside) --turn, take_turn(*read_aside);
    std::vector<BlockLifetimes> blocks;
    for (std::uint32_t t = 0; t < uses.size(); ++t)
      if (uses[t]) blocks.push_back({values(t, element_bytes_), {*uses[t]}});
    return share_by_lifetimes(blocks).size_bytes;
  }

  const Graph& graph_;
  const std::uint64_t rows_;
  const std::uint64_t element_bytes_;
  std::vector<bool> is_moved_;  // by layer: curves that max pools apply
  const std::vector<FusedReluGradient> fused_relu_gradients_ = fused_relu_gradients(graph_);
  std::vector<std::uint32_t> same_;            // by tensor: the one whose memory it has
  std::vector<std::uint32_t> same_gradients_;  // likewise for the gradient to it
  std::vector<bool> is_unwritten_;             // likewise: between the layers of a FusedNorm
};

}  // namespace

bool is_one_product(const Conv2d& conv) noexcept {
  constexpr Size2 kOne{1, 1};
  return conv.kernel == kOne && conv.stride == kOne && conv.padding == Size2{0, 0} && conv.groups == 1;
}

GpuReplicaBytes gpu_replica_bytes(const Graph& graph, std::uint32_t rows) {
  if (graph.layers().empty()) return {};
  return ReplicaMemoryOf{graph, rows}.all();
}

std::uint64_t nccl_buffer_bytes(std::uint32_t ranks) noexcept {
  constexpr std::uint64_t kBuffer = std::uint64_t{4} << 20;
  return ranks > 1 ? (ranks - 1) * kBuffer : 0;
}

}  // namespace troupe::detail
