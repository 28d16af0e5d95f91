#include <algorithm>

#include "devices/cpu/layers/layers.hpp"

// Layers with several input tensors, except sums (elementwise.cpp).
namespace troupe::cpu {
namespace {

using dnnl::memory;

class ProductCalls final : public LayerCalls {
 public:
  ProductCalls(ProgramBuilder& builder, const FusedLayer& fused_layer) : builder_(builder), fused_layer_(fused_layer) {}

  void forward(Calls& calls) override {
    const memory& output = builder_.tensor(fused_layer_.output).value;
    multiply(calls, output, input(0), input(1));
    for (std::size_t i = 2; i < fused_layer_.inputs.size(); ++i) multiply(calls, output, output, input(i));
  }

  /// The gradient to a factor is that of the product times all other factors.
  void backward(Calls& calls, Gradients& gradients) override {
    const Gradients::Place gradient = gradients.use(fused_layer_.output);
    for (std::size_t i = 0; i < fused_layer_.inputs.size(); ++i) {
      if (!builder_.tensor(fused_layer_.inputs[i]).trained) continue;
      Gradients::Place to = gradients.take_place(builder_.tensor(fused_layer_.inputs[i]).width);
      for (std::size_t other = 0, done = 0; other < fused_layer_.inputs.size(); ++other)
        if (other != i) multiply(calls, to.value, done++ == 0 ? gradient.value : to.value, input(other));
      gradients.contribute(calls, fused_layer_.inputs[i], std::move(to));
    }
  }

 private:
  memory input(std::size_t index) const {
    return builder_.value_as(fused_layer_.inputs[index], builder_.tensor(fused_layer_.output).value.get_desc());
  }

  /// `to` = `a` * `b`; `to` may be `a`.
  void multiply(Calls& calls, const memory& to, const memory& a, const memory& b) {
    const memory result = builder_.result(to);
    const memory::desc desc = result.get_desc();
    auto made =
        describe<dnnl::binary>(builder_.engine(), builder_.attributes(), dnnl::algorithm::binary_mul, desc, desc, desc);
    builder_.choose(made, fused_layer_, "product");
    calls.emplace_back(BoundPrimitive{dnnl::binary{made},
                                      {{DNNL_ARG_SRC_0, builder_.operand(calls, a)},
                                       {DNNL_ARG_SRC_1, builder_.operand(calls, b)},
                                       {DNNL_ARG_DST, result},
                                       {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(made)}}});
    builder_.convert(calls, result, to);
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
};

/// Copies: the output is a matrix with a row for each place, and each input is a block of columns in it.
class ConcatCalls final : public LayerCalls {
 public:
  ConcatCalls(ProgramBuilder& builder, const FusedLayer& fused_layer) : builder_(builder), fused_layer_(fused_layer) {
    const auto& graph = builder.graph();
    const std::size_t element = builder.stored() == ProgramBuilder::Type::f32 ? sizeof(float) : sizeof(std::uint16_t);
    for (const std::uint32_t input : graph.inputs_of(fused_layer.layer))
      widths_.push_back(graph.shape_of(input).extents.back() * element);
    width_ = fused_layer.output_shape.extents.back() * element;
    rows_ = builder.rows() * (builder.tensor(fused_layer.output).width / fused_layer.output_shape.extents.back());
  }

  void forward(Calls& calls) override {
    for_blocks([&](std::size_t i, std::size_t first) {
      calls.emplace_back(CopyColumns{{builder_.tensor(fused_layer_.output).value, width_, first},
                                     {builder_.tensor(fused_layer_.inputs[i]).value, widths_[i], 0},
                                     rows_,
                                     widths_[i]});
    });
  }

  void backward(Calls& calls, Gradients& gradients) override {
    const Gradients::Place gradient = gradients.use(fused_layer_.output);
    for_blocks([&](std::size_t i, std::size_t first) {
      if (!builder_.tensor(fused_layer_.inputs[i]).trained) return;
      Gradients::Place to = gradients.take_place(builder_.tensor(fused_layer_.inputs[i]).width);
      calls.emplace_back(CopyColumns{{to.value, widths_[i], 0}, {gradient.value, width_, first}, rows_, widths_[i]});
      gradients.contribute(calls, fused_layer_.inputs[i], std::move(to));
    });
  }

 private:
  template <class With>
  void for_blocks(With&& with) const {
    std::size_t first = 0;
    for (std::size_t i = 0; i < widths_.size(); first += widths_[i++]) with(i, first);
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  std::vector<std::size_t> widths_;  // bytes of a row of each input
  std::size_t width_ = 0;            // of a row of the output
  std::uint64_t rows_ = 0;
};

}  // namespace

std::unique_ptr<LayerCalls> make_product(ProgramBuilder& builder, const FusedLayer& fused_layer) {
  return std::make_unique<ProductCalls>(builder, fused_layer);
}
std::unique_ptr<LayerCalls> make_concat(ProgramBuilder& builder, const FusedLayer& fused_layer) {
  return std::make_unique<ConcatCalls>(builder, fused_layer);
}

}  // namespace troupe::cpu
