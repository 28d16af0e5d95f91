#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/onnx/detail/importer.hpp"

namespace troupe::detail {

bool Importer::is_zero(std::size_t index) const {
  const OnnxNumbers* const found = find_numbers(index);
  return found != nullptr && found->whole && found->count() == 1 && found->integers[0] == 0;
}
void Importer::max(const OnnxNode&) {
  need(is_zero(1) && model_.has_tokens(input().tensor), "is no part of an embedding");
  give_next(input(), Form::row);
}
void Importer::greater_or_equal(const OnnxNode&) {
  need(is_zero(1) && model_.has_tokens(input().tensor), "is no part of an embedding");
  give_next(input(), Form::known);
}

/// Rows of a matrix that tokens number: an embedding. Or one part of a tensor.
void Importer::gather(const OnnxNode& node) {
  if (find_numbers(0) == nullptr) {
    need(find_numbers(1) != nullptr, "takes parts that are numbered by another tensor");
    return take_at(node);
  }
  need(node.number("axis", 0) == 0, "takes other than rows");
  const OnnxNumbers& weight = matrix(input_name(0));
  const Value tokens = input(1).form == Form::row ? input(1) : made(1);
  need(model_.has_tokens(tokens.tensor) && tokens.arranged.is_whole(),
       "takes rows that are not numbered by tokens of the data");
  const auto owner = static_cast<std::uint32_t>(shape(tokens.tensor).extents.size());
  Value rows{.form = Form::rows, .tensor = tokens.tensor, .numbers = input_name(0)};
  rows.arranged = tokens.arranged.with_last(owner, size_of(weight.dims[1]));
  give(std::move(rows));
}
Importer::Value Importer::made_embedding(std::string_view name, const Value& rows) {
  const OnnxNumbers& weight = matrix(rows.numbers);
  const Embedding layer{.vocabulary = size_of(weight.dims[0]), .width = size_of(weight.dims[1])};
  const std::string wanted = model_.layer_name(name, {{weight.name, "weight"}});
  return keep(name, add_layer(wanted, layer, {rows.tensor}, {{"weight", weight.f32}}), rows.arranged);
}

/// A row for each place of a sequence.
void Importer::add_position(std::size_t index) {
  const std::uint32_t read = plain(1 - index);
  const std::vector<std::int64_t>& dims = numbers(index).dims;
  const std::vector<std::uint32_t>& extents = shape(read).extents;
  const bool fits = extents.size() == 2 && dims.size() >= 2 && numbers(index).count() == shape(read).count_elements() &&
                    dims[dims.size() - 2] == extents[0] && dims.back() == extents[1];
  need(fits, "adds numbers that are neither a bias behind a MatMul nor a row for each place of a sequence");
  const std::string name = model_.layer_name(output(), {{numbers(index).name, "weight"}});
  const std::uint32_t made = add_layer(name, Position{}, {read}, {{"weight", f32s(index)}});
  give_tensor(made, value(input_name(1 - index)).arranged);
}

// ---- Attention ----

/// Queries by keys, or shares by values. False: neither.
bool Importer::multiply_heads(const OnnxNode&) {
  if (input(0).form == Form::shares) {
    give_read(input(0), made(1));
    return true;
  }
  const auto scaled = [&](std::size_t index) {
    const Value read = input(index);
    const bool is_scaled = read.form == Form::factors && read.factors.size() == 1 && !read.has_erf;
    return is_scaled ? read : made(index);
  };
  Value queries = scaled(0);
  const Value keys = scaled(1);
  const auto one = queries.arranged.heads(false), two = keys.arranged.heads(true);
  if (!one || !two || one->heads != two->heads || one->width != two->width || one->lead != two->lead) return false;
  const bool of_one_tensor = queries.tensor == keys.tensor && one->part == 0U && two->part == 1U;
  if (!of_one_tensor) {
    need(!one->part && !two->part && shape(queries.tensor) == shape(keys.tensor),
         "multiplies parts that are not queries, keys and values side by side, or of one sequence by another, which no "
         "layer does");
    queries.keys = keys.tensor;
  }
  queries.queries = *one;
  queries.constant *= keys.constant;
  give_next(std::move(queries), Form::scores);
  return true;
}

/// Numbers that are added to the scores; those below `hidden_below` hide a place.
void Importer::mask(const Value& scores, const OnnxNumbers& mask, double hidden_below) {
  const std::size_t length = shape(scores.tensor).extents[0];
  const std::size_t dims = mask.dims.size();
  const bool fits = mask.count() == length * length && dims >= 2 &&
                    mask.dims[dims - 1] == static_cast<std::int64_t>(length) &&
                    mask.dims[dims - 2] == static_cast<std::int64_t>(length);
  need(fits, "masks another number of places than there are");
  bool hides = false, is_causal = true;
  for (std::size_t i = 0; i < mask.count(); ++i) {
    const bool hidden = mask.at(i) < hidden_below;
    need(hidden || mask.at(i) == 0, "adds numbers to the scores of an attention that are no mask");
    hides = hides || hidden;
    is_causal = is_causal && hidden == (i % length > i / length);
  }
  need(!hides || is_causal, "masks other places than the later ones, which no layer does");
  Value next = scores;
  next.causal = next.causal || hides;
  give(std::move(next));
}

/// A mask of bools, or zeros in the place of shares that are NaN.
void Importer::where(const OnnxNode& node) {
  need(node.inputs.size() == 3, "reads other than three inputs");
  if (find_numbers(0) == nullptr) {
    need(input(0).form == Form::no_shares && find_numbers(1) != nullptr && input(2).form == Form::shares,
         "chooses by a tensor, which no layer does");
    return give(input(2));
  }
  const std::size_t fixed = find_numbers(1) != nullptr ? 1 : 2;
  need(find_numbers(fixed) != nullptr && find_numbers(3 - fixed) == nullptr &&
           input(3 - fixed).form == Form::scores && is_number(fixed) && numbers(fixed).f32[0] < -1e4F,
       "chooses elements, which only the mask of an attention does");
  OnnxNumbers hidden = numbers(0);
  need(hidden.whole, "chooses by numbers that are no bools");
  for (std::int64_t& one : hidden.integers) one = (one != 0) == (fixed == 1) ? -1 : 0;
  mask(input(3 - fixed), hidden, -0.5);
}
void Importer::is_nan(const OnnxNode&) {
  need(input().form == Form::shares, "is no part of an attention");
  give_next(input(), Form::no_shares);
}

void Importer::softmax_of_scores(const OnnxNode& node) {
  const std::int64_t axis = node.number("axis", -1);
  const auto axes = static_cast<std::int64_t>(input().arranged.count_axes());
  need(axis == -1 || axis == axes - 1, "is over another than the last extent");
  give_next(input(), Form::shares);
}

/// The attention itself, which becomes a layer when its heads are joined again.
void Importer::give_read(const Value& shares, const Value& values) {
  const Arrangement::Heads& heads = shares.queries;
  const auto found = values.arranged.heads(false);
  need(found && found->heads == heads.heads && found->width == heads.width && found->lead == heads.lead,
       "reads values in other heads than those of the queries");
  const double wanted = 1 / std::sqrt(static_cast<double>(heads.width) / heads.heads);
  if (!is_near(shares.constant, wanted))
    refuse(text("reads by shares whose scores were scaled by ", shares.constant,
                "; the layer attention scales by 1 / sqrt(width / heads) = ", wanted));
  std::uint32_t read = shares.tensor;
  if (shares.keys) {
    need(!found->part && shape(values.tensor) == shape(read), "reads values of another sequence than its queries are of");
    read = add_layer(own_name() + ".joined", Concat{}, {shares.tensor, *shares.keys, values.tensor});
  } else {
    need(values.tensor == read && found->part == 2U, "reads other parts than queries, keys and values side by side");
  }
  Value made{.form = Form::pending, .factors = {read}, .operation = Attention{heads.heads, shares.causal}};
  made.shape = Shape{{shape(read).extents[0], heads.width}};
  made.arranged = Arrangement::of_heads(made.shape.extents[0], heads, rows_);
  give_arranged(std::move(made), true, "");
}

}  // namespace troupe::detail
