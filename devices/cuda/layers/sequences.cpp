#include <optional>

#include "devices/cuda/head_products.hpp"
#include "devices/cuda/layers/layers.hpp"

namespace troupe::cuda {
namespace {

HeadProducts products_of(const Attention& attention, const LayerWork& work, std::uint32_t rows) {
  const auto& extents = work.output->shape.extents;
  return {rows, attention.heads, extents[0], extents[1]};
}

/// A library keeps the logarithms of sums where kernels of ours keep weights.
AttentionArgs forward_args(const Attention& attention, const LayerWork& work, std::uint32_t rows) {
  const Tensor &input = *work.inputs[0], &output = *work.output;
  AttentionArgs args{.rows = rows,
                     .length = output.shape.extents[0],
                     .heads = attention.heads,
                     .part = output.shape.extents[1] / attention.heads,
                     .causal = attention.causal};
  args.input = input.at, args.input_type = input.type;
  args.output = output.at, args.output_type = output.type;
  args.log_sums = reinterpret_cast<float*>(work.kept);
  return args;
}

/// Without a value: none is computed.
std::optional<AttentionBackArgs> backward_args(const LayerWork& work, bool trains, const Math& math) {
  if (!trains || work.gradients.empty() || work.gradients[0].at == nullptr) return std::nullopt;
  return AttentionBackArgs{work.gradients[0], work.output->gradient, reinterpret_cast<float*>(math.layer_scratch()),
                           work.output->gradient_type};
}

const AttentionBackArgs* pointer_to(const std::optional<AttentionBackArgs>& args) { return args ? &*args : nullptr; }

}  // namespace

void forward(const Embedding& embedding, const LayerWork& work, const Pass& pass) {
  EmbedArgs args{};
  args.to = work.output->at, args.to_type = work.output->type;
  args.table = work.parameters[0].values, args.table_type = work.parameters[0].type;
  args.tokens = reinterpret_cast<const std::int32_t*>(work.inputs[0]->at);
  args.count = pass.rows * work.inputs[0]->width(), args.width = embedding.width;
  args.vocabulary = embedding.vocabulary;
  pass.stream.launch(args, args.count * args.width);
}

void backward(const Embedding& embedding, const LayerWork& work, const Pass& pass) {
  const LayerParameter& table = work.parameters[0];
  LinkTokensArgs links{};
  links.links = reinterpret_cast<TokenLink*>(pass.scratch);
  links.tokens = reinterpret_cast<const std::int32_t*>(work.inputs[0]->at);
  links.count = pass.rows * work.inputs[0]->width();
  pass.stream.launch(links, links.count * kWarpThreads);
  pass.stream.clear_at(reinterpret_cast<std::byte*>(table.gradient), table.count * sizeof(float));
  EmbedBackArgs args{};
  args.to = table.gradient;
  args.gradient = work.output->gradient, args.gradient_type = work.output->gradient_type;
  args.tokens = links.tokens, args.links = links.links;
  args.count = links.count, args.width = embedding.width, args.vocabulary = embedding.vocabulary;
  args.factor = pass.gradient_factor;
  pass.stream.launch(args, count_tiles(args) * kBlockThreads);
}

void forward(const Position&, const LayerWork& work, const Pass& pass) {
  AddRepeatedArgs args{};
  args.to = work.output->at, args.to_type = work.output->type;
  args.from = work.inputs[0]->at, args.from_type = work.inputs[0]->type;
  args.repeated = work.parameters[0].values, args.repeated_type = work.parameters[0].type;
  args.width = work.output->width(), args.count = pass.rows * args.width;
  pass.stream.launch(args, args.count);
}

void backward(const Position&, const LayerWork& work, const Pass& pass) {
  const Tensor& output = *work.output;
  SumColumnsArgs to_positions{};
  to_positions.from = output.gradient, to_positions.from_type = output.gradient_type;
  to_positions.sums = {pass.rows, output.width(), 1, 0};
  to_positions.to = work.parameters[0].gradient, to_positions.factor = pass.gradient_factor;
  pass.math.sum_columns(pass.stream, to_positions);
  move_all(work.gradients[0], output.gradient, output.gradient_type, pass.rows * output.width(), pass);
}

void prepare(const Attention& attention, const LayerWork& work, std::uint32_t rows, bool trains, Math& math) {
  const auto back = backward_args(work, trains, math);
  math.prepare(forward_args(attention, work, rows), pointer_to(back));
}

// Weights have the type of the tensors: a library multiplies operands of one type only. Scores, which are summed up
// before they become weights, stay f32.
void forward(const Attention& attention, const LayerWork& work, const Pass& pass) {
  const auto back = backward_args(work, pass.training, pass.math);
  if (pass.math.attend(pass.stream, forward_args(attention, work, pass.rows), pointer_to(back))) return;
  const Tensor &input = *work.inputs[0], &output = *work.output;
  const HeadProducts heads = products_of(attention, work, pass.rows);
  auto* const scores = reinterpret_cast<float*>(input.type == Stored::f32 ? work.kept : pass.scratch);
  MultiplyArgs to_scores = heads.product(heads.weights(scores, Stored::f32), 0, heads.of_input(input.at, input.type, 0),
                                         HeadProducts::transposed(heads.of_input(input.at, input.type, 1)),
                                         heads.length(), heads.part(), heads.scale());
  pass.math.multiply(pass.stream, to_scores);
  SoftmaxRowsArgs softmax = heads.softmax(work.kept, scores, attention.causal, input.type);
  pass.stream.launch(softmax, softmax.count_rows * kWarpThreads);
  MultiplyArgs to_output =
      heads.product(heads.of_output(output.at, output.type), 0, heads.weights(work.kept, input.type),
                    heads.of_input(input.at, input.type, 2), heads.part(), heads.length());
  pass.math.multiply(pass.stream, to_output);
}

void backward(const Attention& attention, const LayerWork& work, const Pass& pass) {
  const auto back = backward_args(work, pass.training, pass.math);
  if (!back || pass.math.attend_back(pass.stream, forward_args(attention, work, pass.rows), *back)) return;
  const GradientTo& to = work.gradients[0];
  const Tensor &input = *work.inputs[0], &output = *work.output;
  const HeadProducts heads = products_of(attention, work, pass.rows);
  const auto multiply = [&](const Matrix& product, std::uint32_t adds, const Matrix& a, const Matrix& b,
                            std::uint64_t columns, std::uint64_t inner) {
    MultiplyArgs args = heads.product(product, adds, a, b, columns, inner);
    pass.math.multiply(pass.stream, args);
  };
  const Matrix weights = heads.weights(work.kept, input.type);
  auto* const to_weights = reinterpret_cast<float*>(pass.scratch);
  std::byte* const to_scores =
      pass.scratch + (input.type == Stored::f32 ? 0 : on_a_boundary(heads.count_weights() * sizeof(float)));
  const Matrix gradient = heads.of_output(output.gradient, output.gradient_type);
  multiply(heads.of_input(to.at, to.type, 2), to.adds, HeadProducts::transposed(weights), gradient, heads.part(),
           heads.length());
  multiply(heads.weights(to_weights, Stored::f32), 0, gradient,
           HeadProducts::transposed(heads.of_input(input.at, input.type, 2)), heads.length(), heads.part());
  SoftmaxRowsBackArgs softmax = heads.softmax_back(to_scores, to_weights, work.kept, input.type);
  pass.stream.launch(softmax, softmax.count_rows * kWarpThreads);
  const Matrix slopes = heads.weights(to_scores, input.type);
  multiply(heads.of_input(to.at, to.type, 0), to.adds, slopes, heads.of_input(input.at, input.type, 1), heads.part(),
           heads.length());
  multiply(heads.of_input(to.at, to.type, 1), to.adds, HeadProducts::transposed(slopes),
           heads.of_input(input.at, input.type, 0), heads.part(), heads.length());
}

}  // namespace troupe::cuda
