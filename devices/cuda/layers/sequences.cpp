#include <cmath>
#include <utility>

#include "devices/cuda/layers/layers.hpp"

namespace troupe::cuda {
namespace {

/// The products of attention: matrices of each head of each row. Tensors are [rows, length, parts of width], a weight
/// is [rows, heads, length, length].
class HeadProducts {
 public:
  HeadProducts(const Attention& attention, const LayerWork& work, const Pass& pass)
      : pass_(pass),
        heads_(attention.heads),
        length_(work.output->shape.extents[0]),
        width_(work.output->shape.extents[1]) {}

  std::uint64_t part() const noexcept { return width_ / heads_; }
  std::uint64_t count_weights() const noexcept { return pass_.rows * heads_ * length_ * length_; }
  std::uint64_t length() const noexcept { return length_; }
  float scale() const noexcept { return 1 / std::sqrt(static_cast<float>(part())); }

  /// Queries (0), keys (1) or values (2) of [length, 3 width], or the gradients to them.
  Matrix of_input(const void* at, Stored type, std::uint64_t which) const {
    const auto* const first = static_cast<const std::byte*>(at) + which * width_ * bytes_of(type);
    return {first, 3 * width_, 1, length_ * 3 * width_, part(), type, 0};
  }
  Matrix of_output(const void* at, Stored type) const { return {at, width_, 1, length_ * width_, part(), type, 0}; }
  Matrix weights(const void* at, Stored type) const {
    return {at, length_, 1, heads_ * length_ * length_, length_ * length_, type, 0};
  }
  static Matrix transposed(Matrix of) {
    std::swap(of.rows, of.columns);
    return of;
  }
  /// to [length, columns] = scale a b.
  void multiply(const Matrix& to, std::uint32_t adds, const Matrix& a, const Matrix& b, std::uint64_t columns,
                std::uint64_t inner, float scale = 1) const {
    MultiplyArgs args{};
    args.to.at = const_cast<void*>(to.at), args.to.type = to.type, args.to.adds = adds, args.to.scale = scale;
    args.place = to, args.a = a, args.b = b;
    args.extents = {pass_.rows * heads_, length_, columns, inner};
    args.inner_batches = heads_;
    pass_.math.multiply(pass_.stream, args);
  }

 private:
  const Pass& pass_;
  const std::uint64_t heads_, length_, width_;
};

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
  pass.stream.launch(links, links.count);
  pass.stream.clear_at(reinterpret_cast<std::byte*>(table.gradient), table.count * sizeof(float));
  EmbedBackArgs args{};
  args.to = table.gradient;
  args.gradient = work.output->gradient, args.gradient_type = work.output->gradient_type;
  args.tokens = links.tokens, args.links = links.links;
  args.count = links.count, args.width = embedding.width, args.vocabulary = embedding.vocabulary;
  args.factor = pass.gradient_factor;
  pass.stream.launch(args, args.count * args.width);
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
  pass.math.sum_columns(pass.stream, to_positions, work.parameters[0].gradient, pass.gradient_factor);
  move_all(work.gradients[0], output.gradient, output.gradient_type, pass.rows * output.width(), pass);
}

// Weights have the type of the tensors: a library multiplies operands of one type only. Scores, which are summed up
// before they become weights, stay f32.
void forward(const Attention& attention, const LayerWork& work, const Pass& pass) {
  const Tensor &input = *work.inputs[0], &output = *work.output;
  const HeadProducts heads{attention, work, pass};
  auto* const scores = reinterpret_cast<float*>(input.type == Stored::f32 ? work.kept : pass.scratch);
  heads.multiply(heads.weights(scores, Stored::f32), 0, heads.of_input(input.at, input.type, 0),
                 HeadProducts::transposed(heads.of_input(input.at, input.type, 1)), heads.length(), heads.part(),
                 heads.scale());
  SoftmaxRowsArgs softmax{
      nullptr,   work.kept, scores, heads.count_weights() / heads.length(), heads.length(), attention.causal ? 1U : 0U,
      input.type};
  pass.stream.launch(softmax, softmax.count_rows * kSummedColumns);
  heads.multiply(heads.of_output(output.at, output.type), 0, heads.weights(work.kept, input.type),
                 heads.of_input(input.at, input.type, 2), heads.part(), heads.length());
}

void backward(const Attention& attention, const LayerWork& work, const Pass& pass) {
  const GradientTo& to = work.gradients[0];
  if (to.at == nullptr) return;
  const Tensor &input = *work.inputs[0], &output = *work.output;
  const HeadProducts heads{attention, work, pass};
  const Matrix weights = heads.weights(work.kept, input.type);
  auto* const to_weights = reinterpret_cast<float*>(pass.scratch);
  std::byte* const to_scores =
      pass.scratch + (input.type == Stored::f32 ? 0 : on_a_boundary(heads.count_weights() * sizeof(float)));
  const Matrix gradient = heads.of_output(output.gradient, output.gradient_type);
  heads.multiply(heads.of_input(to.at, to.type, 2), to.adds, HeadProducts::transposed(weights), gradient, heads.part(),
                 heads.length());
  heads.multiply(heads.weights(to_weights, Stored::f32), 0, gradient,
                 HeadProducts::transposed(heads.of_input(input.at, input.type, 2)), heads.length(), heads.part());
  SoftmaxRowsBackArgs softmax{
      nullptr,        to_scores,     to_weights, work.kept, heads.count_weights() / heads.length(),
      heads.length(), heads.scale(), input.type};
  pass.stream.launch(softmax, softmax.count_rows * kSummedColumns);
  const Matrix slopes = heads.weights(to_scores, input.type);
  heads.multiply(heads.of_input(to.at, to.type, 0), to.adds, slopes, heads.of_input(input.at, input.type, 1),
                 heads.part(), heads.length());
  heads.multiply(heads.of_input(to.at, to.type, 1), to.adds, HeadProducts::transposed(slopes),
                 heads.of_input(input.at, input.type, 0), heads.part(), heads.length());
}

}  // namespace troupe::cuda
