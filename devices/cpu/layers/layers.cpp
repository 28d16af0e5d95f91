#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

using dnnl::algorithm;

struct Make {
  ProgramBuilder& builder;
  const Stage& stage;

  using Made = std::unique_ptr<LayerCalls>;
  Made operator()(const Dense& dense) const { return make_dense(builder, stage, dense); }
  Made operator()(const Conv2d& conv) const { return make_convolution(builder, stage, conv); }
  Made operator()(const MaxPool& pool) const {
    return make_pool(builder, stage,
                     {algorithm::pooling_max, pool.kernel, pool_stride(pool.stride, pool.kernel), pool.padding});
  }
  Made operator()(const AveragePool& pool) const {
    return make_pool(
        builder, stage,
        {algorithm::pooling_avg_exclude_padding, pool.kernel, pool_stride(pool.stride, pool.kernel), pool.padding});
  }
  Made operator()(const GlobalAveragePool&) const {
    const auto& image = stage.input_shape.extents;
    return make_pool(builder, stage, {algorithm::pooling_avg_exclude_padding, {image[0], image[1]}, {1, 1}, {0, 0}});
  }
  Made operator()(const Relu&) const { return make_relu(builder, stage); }
  Made operator()(const Tanh&) const { return make_eltwise(builder, stage, algorithm_of(Activation::tanh)); }
  Made operator()(const Sigmoid&) const { return make_eltwise(builder, stage, algorithm_of(Activation::sigmoid)); }
  Made operator()(const Gelu&) const { return make_eltwise(builder, stage, algorithm::eltwise_gelu_erf); }
  Made operator()(const Dropout& dropout) const { return make_dropout(builder, stage, dropout); }
  Made operator()(const Add&) const { return make_sum(builder, stage); }
  Made operator()(const L2Norm& norm) const { return make_l2_norm(builder, stage, norm); }
  Made operator()(const BatchNorm& norm) const {
    const bool gathers = norm.synchronized && !builder.gathered().parts.empty();
    return gathers ? make_synchronized_norm(builder, stage, norm) : make_batch_norm(builder, stage, norm);
  }
  Made operator()(const Multiply&) const { return make_product(builder, stage); }
  Made operator()(const Concat&) const { return make_concat(builder, stage); }
  Made operator()(const Embedding& embedding) const { return make_embedding(builder, stage, embedding); }
  Made operator()(const Position&) const { return make_position(builder, stage); }
  Made operator()(const LayerNorm& norm) const { return make_layer_norm(builder, stage, norm); }
  Made operator()(const Attention& attention) const { return make_attention(builder, stage, attention); }
  Made operator()(const Transpose& transpose) const { return make_transpose(builder, stage, transpose); }
  // Flatten and the losses have no calls of their own.
  Made operator()(const Flatten&) const { return nullptr; }
  Made operator()(const SoftmaxCrossEntropy&) const { return nullptr; }
  Made operator()(const SmoothL1&) const { return nullptr; }
  Made operator()(const SigmoidCrossEntropy&) const { return nullptr; }
};

}  // namespace

std::unique_ptr<LayerCalls> make_layer_calls(ProgramBuilder& builder, const Stage& stage) {
  return std::visit(Make{builder, stage}, builder.graph().layers()[stage.layer].operation);
}

}  // namespace troupe::cpu
