#include <algorithm>

#include "devices/cpu/layers/layers.hpp"
#include "devices/cpu/layers/own_dense.hpp"
#include "devices/cpu/layers/panel_dense.hpp"
#include "devices/cpu/parallel.hpp"

namespace troupe::cpu {
namespace {

using dnnl::inner_product_backward_data;
using dnnl::inner_product_backward_weights;
using dnnl::inner_product_forward;
using dnnl::memory;
using Type = ProgramBuilder::Type;

/// An f32 forward pass of at least this number of rows copies its weights to oneDNN's own layout. For 2048 rows that
/// takes about 1 % of the product's time, and saves 2 to 6 %.
constexpr std::uint64_t kRowsThatPayForACopy = 256;

/// Plain layouts everywhere else: docs/adr/0003-plain-weight-layouts-on-the-cpu.md.
class DenseCalls final : public LayerCalls {
 public:
  DenseCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const Dense& dense)
      : builder_(builder),
        fused_layer_(fused_layer),
        inputs_(dense.flatten ? fused_layer.input_shape.count_elements() : fused_layer.input_shape.extents.back()),
        rows_(builder.rows() * (fused_layer.input_shape.count_elements() / inputs_)),
        input_(builder.matrix(rows_, inputs_, builder.computed())),
        output_(builder.matrix(rows_, dense.units, builder.computed())),
        weights_(builder.matrix(dense.units, inputs_, builder.computed())),
        bias_(dense.bias ? memory::desc{{static_cast<memory::dim>(dense.units)}, Type::f32, memory::format_tag::a}
                         : memory::desc{}),
        panels_(builder, {rows_, inputs_, dense.units, fused_layer.activation == Activation::relu, blocks()}) {}

  void forward(Calls& calls) override {
    if (panels_.forward()) return forward_by_panels(calls);
    if (const DenseKernels* const kernels = own_kernels()) return forward_by(*kernels, calls);
    const memory stored_output = as(output_, builder_.tensor(fused_layer_.output).value);
    const memory output = builder_.result(stored_output);
    auto descriptor = forward_descriptor(forward_weights(), output.get_desc(), fused_layer_.activation);
    builder_.choose(descriptor, fused_layer_, "forward");
    const memory input = builder_.operand(calls, stored_input(calls));
    const memory weights =
        builder_.arranged(calls, builder_.operand(calls, stored_weights()), descriptor.weights_desc());
    BoundArguments arguments{{DNNL_ARG_SRC, input},
                             {DNNL_ARG_WEIGHTS, weights},
                             {DNNL_ARG_DST, output},
                             {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}};
    if (has_bias()) arguments.emplace_back(DNNL_ARG_BIAS, bias());
    calls.emplace_back(Product{{inner_product_forward{descriptor}, arguments}});
    builder_.convert(calls, output, stored_output);
  }

  void backward(Calls& calls, Gradients& gradients) override {
    add_backward(builder_, fused_layer_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      const memory output_gradient = builder_.operand(calls, as(output_, gradient));
      to_weights(calls, output_gradient);
      if (input_gradient) to_input(calls, output_gradient, as(input_, input_gradient));
    });
  }

 private:
  /// Null: oneDNN computes the forward pass. A rule on shapes, so that two runs of one job compute the same bits.
  const DenseKernels* own_kernels() const {
    // In bf16, below this number of inputs the sums over lanes cost more than is saved, except of few units.
    constexpr std::uint64_t kLeastInputs = 512, kFewUnits = 16;
    const bool bf16 = builder_.computed() == Type::bf16;
    if (rows_ >= kRowsThatPayForACopy || (bf16 && has_amx_instructions())) return nullptr;
    if (bf16 && inputs_ < kLeastInputs && units() > kFewUnits) return nullptr;
    const auto usable = usable_dense_kernels(bf16);
    return usable.empty() ? nullptr : usable.back();
  }

  void forward_by(const DenseKernels& kernels, Calls& calls) {
    builder_.choose_own(fused_layer_, "forward", kernels.name);
    const memory stored_output = as(output_, builder_.tensor(fused_layer_.output).value);
    const memory output = builder_.result(stored_output);
    const memory input = builder_.operand(calls, stored_input(calls));
    const memory weights = builder_.operand(calls, stored_weights());
    add_own_dense(builder_, calls, kernels, {rows_, inputs_, units(), fused_layer_.activation == Activation::relu, {}},
                  {input, weights, bias(), output});
    finish_forward(calls, output, stored_output);
  }

  void forward_by_panels(Calls& calls) {
    builder_.choose_own(fused_layer_, "forward", panels_.name());
    const memory stored_output = as(output_, builder_.tensor(fused_layer_.output).value);
    const memory output = builder_.result(stored_output);
    const memory input = builder_.operand(calls, input_in_its_layout());
    const memory weights = builder_.operand(calls, stored_weights());
    panels_.forward(calls, input, weights, bias(), output);
    finish_forward(calls, output, stored_output);
  }

  /// What kernels of our own do not do.
  void finish_forward(Calls& calls, const memory& output, const memory& stored_output) {
    if (fused_layer_.activation != Activation::relu && fused_layer_.activation != Activation::none)
      add_activation(builder_, calls, fused_layer_.activation, output);
    builder_.convert(calls, output, stored_output);
  }

  /// A new place with the shape of `desc`.
  memory as(memory::desc desc, const memory& place) const {
    return {with_type(std::move(desc), type_of(place)), builder_.engine(), place.get_data_handle()};
  }
  Described<inner_product_forward> forward_descriptor(const memory::desc& weights, const memory::desc& output,
                                                      Activation activation) const {
    return describe<inner_product_forward>(builder_.engine(), builder_.attributes(activation),
                                           dnnl::prop_kind::forward_training, input_, weights, bias_, output);
  }
  memory::desc forward_weights() const {
    if (builder_.stored() != Type::f32 || rows_ < kRowsThatPayForACopy) return weights_;
    return {dims_of(weights_), Type::f32, memory::format_tag::any};
  }

  Described<inner_product_forward> hint() const { return forward_descriptor(weights_, output_, Activation::none); }

  void to_weights(Calls& calls, const memory& output_gradient) {
    constexpr const char* kPass = "gradient of the weights";
    const auto gradient = [&](std::size_t parameter, const memory::desc& desc) {
      return builder_.gradient(fused_layer_.first_parameter + parameter, desc);
    };
    if (panels_.to_weights()) {
      builder_.choose_own(fused_layer_, kPass, panels_.name());
      return panels_.to_weights(calls, builder_.operand(calls, input_in_its_layout()), output_gradient,
                                gradient(0, with_type(weights_, Type::f32)),
                                has_bias() ? gradient(1, bias_) : memory{});
    }
    const bool own_sums = has_bias() && builder_.stored() == Type::f32 && rows_ >= kRowsThatPayForACopy;
    auto descriptor = describe_backward<inner_product_backward_weights>(
        hint(), builder_.engine(), builder_.attributes(), input_, with_type(weights_, Type::f32),
        own_sums ? memory::desc{} : bias_, output_);
    builder_.choose(descriptor, fused_layer_, kPass);
    BoundArguments arguments{{DNNL_ARG_SRC, builder_.operand(calls, stored_input(calls))},
                             {DNNL_ARG_DIFF_DST, output_gradient},
                             {DNNL_ARG_DIFF_WEIGHTS, gradient(0, descriptor.diff_weights_desc())},
                             {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}};
    if (own_sums)
      add_bias_sums(calls, output_gradient, gradient(1, bias_));
    else if (has_bias())
      arguments.emplace_back(DNNL_ARG_DIFF_BIAS, gradient(1, descriptor.diff_bias_desc()));
    calls.emplace_back(Product{{inner_product_backward_weights{descriptor}, arguments}});
  }

  /// The gradient to the bias: the sum of the rows of `gradient` [rows, units]. oneDNN's product of many rows in f32
  /// takes three times as long for it. A thread adds up a range of units, row by row, so the sums do not depend on the
  /// number of threads.
  void add_bias_sums(Calls& calls, const memory& gradient, const memory& bias) {
    calls.emplace_back(OwnWork{
        {bias, gradient}, [=, rows = rows_, width = units(), threads = usable_threads()](const Kernels& kernels) {
          for_each_in_parallel(threads, threads, [&](std::size_t part, std::size_t) {
            const std::size_t first = width * part / threads, count = width * (part + 1) / threads - first;
            auto* const sums = static_cast<float*>(bias.get_data_handle()) + first;
            const auto* row = static_cast<const float*>(gradient.get_data_handle()) + first;
            std::fill_n(sums, count, 0.0F);
            for (std::size_t r = 0; r < rows; ++r, row += width) kernels.column_sums(sums, row, 1, count);
          });
        }});
  }

  void to_input(Calls& calls, const memory& output_gradient, const memory& input_gradient) {
    constexpr const char* kPass = "gradient of the input";
    if (panels_.to_input()) {
      builder_.choose_own(fused_layer_, kPass, panels_.name());
      const memory wide_gradient = builder_.result(input_gradient);
      panels_.to_input(calls, output_gradient, builder_.operand(calls, stored_weights()), wide_gradient);
      return builder_.convert(calls, wide_gradient, input_gradient);
    }
    auto descriptor = describe_backward<inner_product_backward_data>(hint(), builder_.engine(), builder_.attributes(),
                                                                     input_, weights_, output_);
    builder_.choose(descriptor, fused_layer_, kPass);
    const memory weights = builder_.operand(calls, stored_weights());
    // A gradient whose tensor is in blocks is computed in a plain place first; into_blocks() then copies it.
    const std::uint32_t read = fused_layer_.inputs.front();
    const memory wide_gradient =
        builder_.in_blocks(read) ? builder_.places().take(input_) : builder_.result(input_gradient);
    calls.emplace_back(Product{{inner_product_backward_data{descriptor},
                                {{DNNL_ARG_DIFF_DST, output_gradient},
                                 {DNNL_ARG_WEIGHTS, weights},
                                 {DNNL_ARG_DIFF_SRC, wide_gradient},
                                 {DNNL_ARG_SCRATCHPAD, builder_.scratch_for(descriptor)}}}});
    if (builder_.in_blocks(read)) return builder_.into_blocks(calls, read, wide_gradient, input_gradient);
    builder_.convert(calls, wide_gradient, input_gradient);
  }

  /// Of the input; without channels: it is not in blocks.
  ColumnOrder blocks() const {
    const std::uint32_t read = fused_layer_.inputs.front();
    if (!builder_.in_blocks(read)) return {};
    const auto& image = builder_.graph().shape_of(read).extents;  // fused_layer_.input_shape may be that, flattened
    return {.channels = image[2], .pixels = image[0] * image[1]};
  }
  /// Whatever that is; the description is of a plain matrix.
  memory input_in_its_layout() const {
    const std::uint32_t read = fused_layer_.inputs.front();
    return builder_.value_as(read, with_type(input_, type_of(builder_.tensor(read).value)));
  }
  memory stored_input(Calls& calls) const {
    const std::uint32_t read = fused_layer_.inputs.front();
    const Type stored = type_of(builder_.tensor(read).value);
    return builder_.unblocked(calls, read, with_type(input_, stored));
  }
  std::uint64_t units() const { return static_cast<std::uint64_t>(dims_of(output_)[1]); }
  bool has_bias() const noexcept { return fused_layer_.count_parameters > 1; }
  memory bias() const { return has_bias() ? builder_.bias(fused_layer_.first_parameter + 1, bias_) : memory{}; }
  memory stored_weights() const { return builder_.weights(fused_layer_.first_parameter, weights_); }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const std::uint64_t inputs_;                          // of a unit
  const std::uint64_t rows_;                            // of the product
  const memory::desc input_, output_, weights_, bias_;  // without a bias, bias_ has no dimensions
  const PanelPasses panels_;
};

}  // namespace

std::unique_ptr<LayerCalls> make_dense(ProgramBuilder& builder, const FusedLayer& fused_layer, const Dense& dense) {
  return std::make_unique<DenseCalls>(builder, fused_layer, dense);
}

}  // namespace troupe::cpu
