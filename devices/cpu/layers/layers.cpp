#include "devices/cpu/layers/layers.hpp"

#include "devices/cpu/kernels/norms.hpp"

namespace troupe::cpu {
namespace {

using dnnl::algorithm;

bool gathers(const ProgramBuilder& builder, const BatchNorm& norm) {
  return norm.synchronized && !builder.gathered().parts.empty();
}

struct Make {
  ProgramBuilder& builder;
  const FusedLayer& fused_layer;

  using Made = std::unique_ptr<LayerCalls>;
  Made operator()(const Dense& dense) const { return make_dense(builder, fused_layer, dense); }
  Made operator()(const Conv2d& conv) const { return make_convolution(builder, fused_layer, conv); }
  Made operator()(const MaxPool& pool) const {
    return make_pool(builder, fused_layer,
                     {algorithm::pooling_max, pool.kernel, pool_stride(pool.stride, pool.kernel), pool.padding});
  }
  Made operator()(const AveragePool& pool) const {
    return make_pool(
        builder, fused_layer,
        {algorithm::pooling_avg_exclude_padding, pool.kernel, pool_stride(pool.stride, pool.kernel), pool.padding});
  }
  Made operator()(const GlobalAveragePool&) const { return make_global_average_pool(builder, fused_layer); }
  Made operator()(const Relu&) const { return make_relu(builder, fused_layer); }
  Made operator()(const Tanh&) const { return make_eltwise(builder, fused_layer, Activation::tanh); }
  Made operator()(const Sigmoid&) const { return make_eltwise(builder, fused_layer, Activation::sigmoid); }
  Made operator()(const Gelu&) const { return make_gelu(builder, fused_layer); }
  Made operator()(const Dropout& dropout) const { return make_dropout(builder, fused_layer, dropout); }
  Made operator()(const Add&) const { return make_sum(builder, fused_layer); }
  Made operator()(const L2Norm& norm) const { return make_l2_norm(builder, fused_layer, norm); }
  Made operator()(const BatchNorm& norm) const {
    return gathers(builder, norm) ? make_synchronized_norm(builder, fused_layer, norm)
                                  : make_batch_norm(builder, fused_layer, norm);
  }
  Made operator()(const Multiply&) const { return make_product(builder, fused_layer); }
  Made operator()(const Concat&) const { return make_concat(builder, fused_layer); }
  Made operator()(const Embedding& embedding) const { return make_embedding(builder, fused_layer, embedding); }
  Made operator()(const Position&) const { return make_position(builder, fused_layer); }
  Made operator()(const LayerNorm& norm) const { return make_layer_norm(builder, fused_layer, norm); }
  Made operator()(const Attention& attention) const { return make_attention(builder, fused_layer, attention); }
  Made operator()(const Transpose& transpose) const { return make_transpose(builder, fused_layer, transpose); }
  // Flatten and the losses have no calls of their own.
  Made operator()(const Flatten&) const { return nullptr; }
  Made operator()(const SoftmaxCrossEntropy&) const { return nullptr; }
  Made operator()(const SmoothL1&) const { return nullptr; }
  Made operator()(const SigmoidCrossEntropy&) const { return nullptr; }
};

}  // namespace

bool has_own_batch_norm(const ProgramBuilder& builder, const BatchNorm& norm) {
  return !gathers(builder, norm) && !usable_norm_kernels().empty();
}

std::unique_ptr<LayerCalls> make_layer_calls(ProgramBuilder& builder, const FusedLayer& fused_layer) {
  return std::visit(Make{builder, fused_layer}, builder.graph().layers()[fused_layer.layer].operation);
}

}  // namespace troupe::cpu
