#include "devices/cpu/best_primitives.hpp"

#include <array>
#include <cstring>
#include <optional>

#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using dnnl::prop_kind;
using Tag = memory::format_tag;
using Type = memory::data_type;
using Offers = std::vector<OfferedPrimitive>;
using Arguments = std::vector<std::pair<int, memory>>;

/// Fills every byte. The elements, f32 or bf16, are then small numbers that no operation makes large.
constexpr int kFill = 0x3c;

constexpr std::array kArguments{DNNL_ARG_SRC,        DNNL_ARG_WEIGHTS,    DNNL_ARG_BIAS,         DNNL_ARG_DST,
                                DNNL_ARG_DIFF_SRC,   DNNL_ARG_DIFF_DST,   DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS,
                                DNNL_ARG_MEAN,       DNNL_ARG_VARIANCE,   DNNL_ARG_SCALE,        DNNL_ARG_SHIFT,
                                DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT, DNNL_ARG_WORKSPACE};
constexpr std::array kImages{Tag::acdb, Tag::aBcd16b, Tag::aBcd8b, Tag::abcd};

memory::dim size(std::uint64_t count) { return static_cast<memory::dim>(count); }
memory::dims size(const Size2& of) { return {of.height, of.width}; }

/// Makes what oneDNN offers for one pass of a layer.
class Offering {
 public:
  Offering(const Graph& graph, std::uint32_t rows, const StepProgram::LayerPass& part, const dnnl::engine& engine,
           const dnnl::stream& stream)
      : graph_(graph),
        rows_(rows),
        part_(part),
        engine_(engine),
        stream_(stream),
        type_(graph.dtype() == DType::bf16 && onednn_has_bf16() ? Type::bf16 : Type::f32),
        input_(graph.shape_of(graph.inputs_of(part.layer).front())),
        output_(graph.output_of(part.layer)),
        trained_(graph.is_trained(graph.inputs_of(part.layer).front())) {}

  std::vector<Offers> all() {
    std::visit([this](const auto& layer) { offer(layer); }, graph_.layers()[part_.layer].operation);
    if (offers_.empty() || !part_.backward || !trained_) return std::move(offers_);
    if (part_.adds) offer_addition();
    if (part_.slope != Activation::none) offer_eltwise(algorithm_of(part_.slope), input_);
    return std::move(offers_);
  }

 private:
  void offer(const Conv2d& conv) {
    if (!part_.backward) return offer_convolution<dnnl::convolution_forward>(conv);
    offer_convolution<dnnl::convolution_backward_weights>(conv);
    if (trained_) offer_convolution<dnnl::convolution_backward_data>(conv);
  }

  template <class Primitive>
  void offer_convolution(const Conv2d& conv) {
    Offers& to = offers_.emplace_back();
    const memory::dims from = image_dims(input_), into = image_dims(output_);
    memory::dims weights{conv.filters, size(input_.extents[2] / conv.groups), conv.kernel.height, conv.kernel.width};
    if (conv.groups > 1) weights = {conv.groups, conv.filters / conv.groups, weights[1], weights[2], weights[3]};
    const memory::desc bias{{conv.filters}, Type::f32, Tag::a};
    const memory::dims dilation{conv.dilation.height - 1, conv.dilation.width - 1};
    for (const auto how : {algorithm::convolution_direct, algorithm::convolution_winograd}) {
      for (const Tag tag : {Tag::any, Tag::acdb, Tag::abcd}) {
        if (how == algorithm::convolution_winograd && tag != Tag::any) continue;
        try_to([&] {
          const memory::desc source{from, type_, tag}, target{into, type_, tag};
          const auto weights_of = [&](Type type) { return memory::desc{weights, type, Tag::any}; };
          const auto forward = describe<dnnl::convolution_forward>(
              engine_, attributes(), prop_kind::forward_training, how, source, weights_of(type_), bias, target,
              size(conv.stride), dilation, size(conv.padding), size(conv.padding));
          if constexpr (std::is_same_v<Primitive, dnnl::convolution_forward>) {
            add<Primitive>(to, forward);
          } else if constexpr (std::is_same_v<Primitive, dnnl::convolution_backward_weights>) {
            add<Primitive>(
                to, describe_backward<Primitive>(forward, engine_, {}, how, source, weights_of(Type::f32), bias, target,
                                                 size(conv.stride), dilation, size(conv.padding), size(conv.padding)));
          } else {
            add<Primitive>(
                to, describe_backward<Primitive>(forward, engine_, {}, how, source, weights_of(type_), target,
                                                 size(conv.stride), dilation, size(conv.padding), size(conv.padding)));
          }
        });
      }
    }
  }

  void offer(const Dense& dense) {
    const std::uint64_t inputs = dense.flatten ? input_.count_elements() : input_.extents.back();
    const std::uint64_t rows = rows_ * (input_.count_elements() / inputs);
    if (!part_.backward) return offer_dense<dnnl::inner_product_forward>(rows, inputs, dense.units);
    offer_dense<dnnl::inner_product_backward_weights>(rows, inputs, dense.units);
    if (trained_) offer_dense<dnnl::inner_product_backward_data>(rows, inputs, dense.units);
  }

  template <class Primitive>
  void offer_dense(std::uint64_t rows, std::uint64_t inputs, std::uint64_t units) {
    Offers& to = offers_.emplace_back();
    const memory::desc bias{{size(units)}, Type::f32, Tag::a};
    for (const Tag tag : {Tag::any, Tag::ab}) {
      try_to([&] {
        const memory::desc source{{size(rows), size(inputs)}, type_, tag},
            target{{size(rows), size(units)}, type_, tag};
        const auto weights_of = [&](Type type) { return memory::desc{{size(units), size(inputs)}, type, tag}; };
        const auto forward = describe<dnnl::inner_product_forward>(engine_, attributes(), prop_kind::forward_training,
                                                                   source, weights_of(type_), bias, target);
        if constexpr (std::is_same_v<Primitive, dnnl::inner_product_forward>) {
          add<Primitive>(to, forward);
        } else if constexpr (std::is_same_v<Primitive, dnnl::inner_product_backward_weights>) {
          add<Primitive>(
              to, describe_backward<Primitive>(forward, engine_, {}, source, weights_of(Type::f32), bias, target));
        } else {
          add<Primitive>(to, describe_backward<Primitive>(forward, engine_, {}, source, weights_of(type_), target));
        }
      });
    }
  }

  void offer(const MaxPool& pool) {
    offer_pool({algorithm::pooling_max, pool.kernel, pool_stride(pool.stride, pool.kernel), pool.padding});
    if (part_.activation != Activation::none && !part_.backward) offer_eltwise(algorithm_of(part_.activation), output_);
  }
  void offer(const AveragePool& pool) {
    offer_pool(
        {algorithm::pooling_avg_exclude_padding, pool.kernel, pool_stride(pool.stride, pool.kernel), pool.padding});
  }
  void offer(const GlobalAveragePool&) {
    const Size2 whole{static_cast<std::uint32_t>(input_.extents[0]), static_cast<std::uint32_t>(input_.extents[1])};
    offer_pool({algorithm::pooling_avg_exclude_padding, whole, {1, 1}, {0, 0}});
  }
  void offer_pool(const PoolWindow& window) {
    Offers& to = offers_.emplace_back();
    for (const Tag tag : kImages) {
      try_to([&] {
        const memory::desc source{image_dims(input_), type_, tag}, target{image_dims(output_), type_, tag};
        auto forward = describe_pool(engine_, {}, window.algorithm, source, target, size(window.stride),
                                     size(window.kernel), size(window.padding));
        if (!part_.backward) return add<dnnl::pooling_forward>(to, forward);
        choose_implementation(forward, "a pool");
        if (is_reference_code(forward.impl_info_str())) return;
        // The backward pass reads what the forward pass saved, so it gets the same memories.
        const Arguments noted = arguments_of(forward, {});
        BoundPrimitive{dnnl::pooling_forward{forward}, noted}.execute(stream_);
        Arguments workspace;
        for (const auto& argument : noted)
          if (argument.first == DNNL_ARG_WORKSPACE) workspace.push_back(argument);
        add<dnnl::pooling_backward>(
            to,
            describe_pool_backward(forward, engine_, {}, window.algorithm, source, target, size(window.stride),
                                   size(window.kernel), size(window.padding)),
            workspace);
      });
    }
  }

  void offer(const BatchNorm& norm) {
    Offers& to = offers_.emplace_back();
    using dnnl::normalization_flags;
    const auto epsilon = static_cast<float>(norm.epsilon);
    auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
    if (part_.activation == Activation::relu && !part_.sums) flags = flags | normalization_flags::fuse_norm_relu;
    for (const Tag tag : kImages) {
      if (tag == Tag::aBcd8b && type_ == Type::bf16) continue;  // bnorm_jit:avx512_core_bf16 writes 16 channels there
      try_to([&] {
        const memory::desc data{image_dims(input_), type_, tag};
        const auto forward = describe_norm<dnnl::batch_normalization_forward>(engine_, {}, prop_kind::forward_training,
                                                                              data, epsilon, flags);
        if (!part_.backward) return add<dnnl::batch_normalization_forward>(to, forward);
        add<dnnl::batch_normalization_backward>(
            to, describe_norm_backward<dnnl::batch_normalization_backward>(forward, engine_, {}, data, epsilon, flags));
      });
    }
    if (part_.sums && !part_.backward) offer_sum();
  }

  void offer(const LayerNorm& norm) {
    Offers& to = offers_.emplace_back();
    const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
    const auto epsilon = static_cast<float>(norm.epsilon);
    const std::uint64_t width = input_.extents.back(), rows = rows_ * (input_.count_elements() / width);
    try_to([&] {
      const memory::desc data{{size(rows), size(width)}, type_, Tag::ab}, moments{{size(rows)}, Type::f32, Tag::a};
      const auto forward = describe_norm<dnnl::layer_normalization_forward>(engine_, {}, prop_kind::forward_training,
                                                                            data, moments, epsilon, flags);
      if (!part_.backward) return add<dnnl::layer_normalization_forward>(to, forward);
      add<dnnl::layer_normalization_backward>(to, describe_norm_backward<dnnl::layer_normalization_backward>(
                                                      forward, engine_, {}, data, moments, epsilon, flags));
    });
  }

  void offer(const Relu&) { offer_eltwise(algorithm_of(Activation::relu), output_); }
  void offer(const Tanh&) { offer_eltwise(algorithm_of(Activation::tanh), output_); }
  void offer(const Sigmoid&) { offer_eltwise(algorithm_of(Activation::sigmoid), output_); }
  void offer(const Gelu&) { offer_eltwise(algorithm::eltwise_gelu_erf, output_); }
  void offer_eltwise(algorithm function, const Shape& shape) {
    Offers& to = offers_.emplace_back();
    try_to([&] {
      const memory::desc data = as_matrix(shape);
      const auto forward = describe_eltwise(engine_, {}, function, data);
      if (!part_.backward) return add<dnnl::eltwise_forward>(to, forward);
      add<dnnl::eltwise_backward>(to, describe_eltwise_backward(forward, engine_, {}, function, data));
    });
  }

  /// Another tensor is added to the layer's result; then comes the activation.
  void offer_sum() {
    const memory::desc data = as_matrix(output_);
    offer_binary(data, attributes(), filled(data), filled(data));
  }
  /// The gradient to the input is added to what is there.
  void offer_addition() {
    const memory::desc data = as_matrix(input_);
    const memory sum = filled(data);
    offer_binary(data, {}, sum, sum);
  }
  void offer_binary(const memory::desc& data, const dnnl::primitive_attr& with, const memory& from,
                    const memory& result) {
    add<dnnl::binary>(offers_.emplace_back(),
                      describe<dnnl::binary>(engine_, with, algorithm::binary_add, data, data, data),
                      {{DNNL_ARG_SRC_0, from}, {DNNL_ARG_SRC_1, filled(data)}, {DNNL_ARG_DST, result}});
  }
  memory::desc as_matrix(const Shape& shape) const {
    return {{size(rows_), size(shape.count_elements())}, type_, Tag::ab};
  }

  void offer(const auto&) {}  // oneDNN has no primitive for this layer

  /// Not every algorithm exists in every layout in oneDNN.
  template <class Make>
  static void try_to(Make&& make) {
    try {
      make();
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;
    }
  }

  template <class Primitive, class Descriptor>
  void add(Offers& to, Descriptor descriptor, const Arguments& given = {}) {
    do {
      const std::string name = descriptor.impl_info_str();
      if (is_reference_code(name) || !may_run(descriptor)) continue;
      to.push_back({BoundPrimitive{Primitive{descriptor}, arguments_of(descriptor, given)}, name});
    } while (descriptor.next_impl());
  }

  template <class Descriptor>
  Arguments arguments_of(const Descriptor& descriptor, const Arguments& given) {
    Arguments arguments = given;
    for (const int argument : kArguments) {
      const auto is_given = [&](const auto& one) { return one.first == argument; };
      const memory::desc desc = descriptor.query_md(dnnl::query::exec_arg_md, argument);
      if (desc.get_size() == 0 || std::ranges::any_of(given, is_given)) continue;
      arguments.emplace_back(argument, filled(argument, desc));
    }
    return arguments;
  }

  /// What several primitives of a pass use is in one place, as in a step. A workspace has what one primitive noted.
  memory filled(int argument, const memory::desc& desc) {
    if (argument == DNNL_ARG_WORKSPACE) return filled(desc);
    const auto is_it = [&](const auto& one) { return one.first == argument && one.second.get_desc() == desc; };
    if (const auto at = std::ranges::find_if(filled_, is_it); at != filled_.end()) return at->second;
    return filled_.emplace_back(argument, filled(desc)).second;
  }

  memory filled(const memory::desc& desc) const {
    memory made{desc, engine_};
    std::memset(made.get_data_handle(), kFill, desc.get_size());
    return made;
  }

  dnnl::primitive_attr attributes() const {
    dnnl::primitive_attr made;
    if (part_.activation == Activation::none) return made;
    dnnl::post_ops after;
    append_activation(after, algorithm_of(part_.activation));
    made.set_post_ops(after);
    return made;
  }

  memory::dims image_dims(const Shape& shape) const {
    const auto& extents = shape.extents;
    if (extents.size() == 3) return {size(rows_), size(extents[2]), size(extents[0]), size(extents[1])};
    return {size(rows_), size(extents.back()), 1, 1};
  }

  const Graph& graph_;
  const std::uint32_t rows_;
  const StepProgram::LayerPass& part_;
  const dnnl::engine& engine_;
  const dnnl::stream& stream_;
  const Type type_;
  const Shape input_, output_;
  const bool trained_;  // the gradient to the input is computed
  Arguments filled_;
  std::vector<Offers> offers_;
};

}  // namespace

std::vector<std::vector<OfferedPrimitive>> offered_primitives(const Graph& graph, std::uint32_t rows,
                                                              const StepProgram::LayerPass& part,
                                                              const dnnl::engine& engine, const dnnl::stream& stream) {
  std::vector<Offers> offers = Offering{graph, rows, part, engine, stream}.all();
  for (const Offers& one : offers)
    TROUPE_CHECK(!one.empty(), Code::unsupported, "layer ", graph.layers()[part.layer].name,
                 ": oneDNN has nothing but reference code for it on this machine");
  return offers;
}

}  // namespace troupe::cpu
