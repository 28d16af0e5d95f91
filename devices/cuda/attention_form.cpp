#include "devices/cuda/attention_form.hpp"

#include <cmath>
#include <limits>

#include "devices/cuda/dnn_operation.hpp"
#include "devices/cuda/graph_operations.hpp"
#include "runtime/base/error.hpp"

namespace troupe::cuda {
namespace {

using dnn::DataType;
using dnn::Descriptor;
using dnn::PointwiseMode;
using dnn::ReductionOperator;

constexpr std::int64_t kAttentionScale = 50, kAttentionMask = 51, kAttentionOne = 52;

DnnExtents transposed(const DnnExtents& of) { return {of[0], of[1], of[3], of[2]}; }

/// The operations of one form. cuDNN's engines are found by the order and the types here.
class AttentionBuilder {
 public:
  AttentionBuilder(const AttentionForm& form, Descriptors& made) : form_(form), made_(made), all_(made) {}
  void forward();
  void backward();
  const std::vector<Descriptor>& all() const noexcept { return all_.all(); }

 private:
  /// [rows, heads, length, part] of what has so many elements for each place of a text.
  Descriptor of_heads(std::int64_t id, std::int64_t step, bool transposes = false);
  Descriptor of_rows(std::int64_t id);
  Descriptor scores(DataType type = DataType::f32) { return all_.between(kScores, type, kScoreStrides); }
  Descriptor transposed_scores() { return all_.between(kScores, io_, transposed(kScoreStrides)); }
  Descriptor row() { return all_.between(kRow, DataType::f32, kRowStrides); }
  Descriptor constant(std::int64_t id);
  Descriptor pointwise(PointwiseMode mode, Descriptor x, Descriptor b = nullptr);
  Descriptor masked(Descriptor x);
  Descriptor scaled_scores();

  const AttentionForm& form_;
  Descriptors& made_;
  GraphOperations all_;
  const DataType io_ = data_type_of(form_.type);
  const std::int64_t rows_ = form_.rows, heads_ = form_.heads, length_ = form_.length, part_ = form_.part,
                     width_ = heads_ * part_;
  const DnnExtents kScores{rows_, heads_, length_, length_},
      kScoreStrides{heads_ * length_ * length_, length_*length_, length_, 1}, kRow{rows_, heads_, length_, 1},
      kRowStrides{heads_ * length_, length_, 1, 1};
};

Descriptor AttentionBuilder::of_heads(std::int64_t id, std::int64_t step, bool transposes) {
  const DnnExtents extents{rows_, heads_, length_, part_}, strides{length_ * step, part_, step, 1};
  return describe(made_, DnnTensor{id, transposes ? transposed(extents) : extents, io_, form_.alignment,
                                   transposes ? transposed(strides) : strides});
}

Descriptor AttentionBuilder::of_rows(std::int64_t id) {
  return describe(made_, DnnTensor{id, kRow, DataType::f32, form_.alignment, kRowStrides});
}

Descriptor AttentionBuilder::constant(std::int64_t id) { return describe(made_, DnnConstant{id, 0}); }

Descriptor AttentionBuilder::pointwise(PointwiseMode mode, Descriptor x, Descriptor b) {
  const Descriptor y = scores();
  all_.pointwise(mode, y, x, b);
  return y;
}

/// A place reads itself and those before it.
Descriptor AttentionBuilder::masked(Descriptor x) {
  if (!form_.causal) return x;
  const Descriptor place = scores(DataType::i32), read = scores(DataType::i32), is_read = scores(DataType::boolean),
                   y = scores();
  all_.index(place, x, 2);
  all_.index(read, x, 3);
  all_.pointwise(PointwiseMode::at_least, is_read, place, read);
  all_.pointwise(PointwiseMode::select, y, x, constant(kAttentionMask), is_read);
  return y;
}

void AttentionBuilder::forward() {
  const Descriptor products = scores();
  all_.multiply(products, of_heads(kQueries, 3 * width_), of_heads(kKeys, 3 * width_, true));
  const Descriptor scaled = masked(pointwise(PointwiseMode::multiply, products, constant(kAttentionScale)));
  const Descriptor largest = row(), sum = row(), logarithm = row(), weights = scores(io_);
  all_.reduce(ReductionOperator::max, largest, scaled);
  const Descriptor exponentials = pointwise(PointwiseMode::exp, pointwise(PointwiseMode::subtract, scaled, largest));
  all_.reduce(ReductionOperator::add, sum, exponentials);
  all_.pointwise(PointwiseMode::log, logarithm, sum);
  all_.pointwise(PointwiseMode::add, of_rows(kLogSums), largest, logarithm);
  all_.pointwise(PointwiseMode::divide, weights, exponentials, sum);
  all_.multiply(of_heads(kAttended, width_), weights, of_heads(kValues, 3 * width_));
}

void AttentionBuilder::backward() {
  const std::int64_t three = 3 * width_;
  const Descriptor queries = of_heads(kQueries, three), keys = of_heads(kKeys, three, true),
                   to_output = of_heads(kToAttended, width_), scale = constant(kAttentionScale),
                   sums = of_rows(kProductSums);
  const Descriptor by_output = all_.between({rows_, heads_, length_, part_}, DataType::f32,
                                            {heads_ * length_ * part_, length_ * part_, width_, 1}),
                   sum = row();
  all_.pointwise(PointwiseMode::multiply, by_output, to_output, of_heads(kAttended, width_));
  all_.reduce(ReductionOperator::add, sum, by_output);
  all_.pointwise(PointwiseMode::multiply, sums, sum, constant(kAttentionOne));
  const Descriptor products = scores();
  all_.multiply(products, queries, keys);
  const Descriptor less =
      pointwise(PointwiseMode::subtract, pointwise(PointwiseMode::multiply, products, scale), of_rows(kLogSums));
  const Descriptor weights = pointwise(PointwiseMode::exp, masked(less));
  const Descriptor turned = transposed_scores();
  all_.reshape(turned, weights);
  all_.multiply(of_heads(kToValues, three), turned, to_output);
  const Descriptor to_weights = scores();
  all_.multiply(to_weights, to_output, of_heads(kValues, three, true));
  const Descriptor to_scores = pointwise(
      PointwiseMode::multiply,
      pointwise(PointwiseMode::multiply, pointwise(PointwiseMode::subtract, to_weights, sums), weights), scale);
  const Descriptor turned_back = transposed_scores();
  all_.reshape(turned_back, to_scores);
  all_.multiply(of_heads(kToKeys, three), turned_back, queries);
  const Descriptor again =
      all_.between({rows_, heads_, length_, part_}, DataType::f32, {length_ * three, part_, three, 1});
  all_.reshape(again, keys);
  all_.multiply(of_heads(kToQueries, three), to_scores, again);
}

}  // namespace

std::string text_of(const AttentionForm& f) {
  return text("attention ", f.is_backward ? "backward " : "", name_of(f.type), ' ', f.rows, 'x', f.length, " heads ",
              f.heads, 'x', f.part, f.causal ? " causal" : "", " aligned ", f.alignment);
}

std::vector<dnn::Descriptor> operations_of(const AttentionForm& form, Descriptors& made) {
  AttentionBuilder builder{form, made};
  form.is_backward ? builder.backward() : builder.forward();
  return builder.all();
}

std::vector<DnnConstant> constants_of(const AttentionForm& form) {
  std::vector<DnnConstant> all{{kAttentionScale, 1 / std::sqrt(static_cast<float>(form.part))}};
  if (form.causal) all.push_back({kAttentionMask, -std::numeric_limits<float>::infinity()});
  if (form.is_backward) all.push_back({kAttentionOne, 1});
  return all;
}

}  // namespace troupe::cuda
