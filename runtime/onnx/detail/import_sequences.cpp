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

/// Of queries and keys in heads; `transposed`: the keys' last two extents are exchanged.
std::optional<Importer::Value> Importer::scores_of(Value queries, const Value& keys, bool transposed) const {
  if (shape(queries.tensor).extents.size() != 2 || shape(keys.tensor).extents.size() != 2) return std::nullopt;
  const auto one = queries.arranged.heads(false), two = keys.arranged.heads(transposed);
  if (!one || !two || one->heads != two->heads || one->width != two->width || one->lead != two->lead)
    return std::nullopt;
  const bool of_one_tensor = queries.tensor == keys.tensor && one->part == 0U && two->part == 1U;
  if (!of_one_tensor) {
    need(!one->part && !two->part && shape(queries.tensor) == shape(keys.tensor),
         "multiplies parts that are not queries, keys and values side by side, or of one sequence by another, which no "
         "layer does");
    queries.keys = keys.tensor;
  }
  queries.queries = *one;
  queries.constant *= keys.constant;
  queries.form = Form::scores;
  return queries;
}

/// Queries by keys, or shares by values. False: neither.
bool Importer::multiply_heads() {
  if (input(0).form == Form::shares) {
    give_arranged(read_by(input(0), made(1)), true, "");
    return true;
  }
  const auto scaled = [&](std::size_t index) {
    const Value read = input(index);
    const bool is_scaled = read.form == Form::factors && read.factors.size() == 1 && !read.has_erf;
    return is_scaled ? read : made(index);
  };
  const Value queries = scaled(0);
  std::optional<Value> scores = scores_of(queries, scaled(1), true);
  if (scores) give(std::move(*scores));
  return scores.has_value();
}

/// Since opset 23, of queries, keys and values [rows, heads, length, width / heads] or [rows, length, width].
void Importer::attention(const OnnxNode& node) {
  need(!has_input(4) && !has_input(5) && node.outputs.size() == 1 && node.f32("softcap", 0) == 0,
       "keeps keys and values, or caps scores, which no layer does");
  const std::int64_t count = node.number("q_num_heads", 0);
  need(node.number("kv_num_heads", count) == count, "has other heads of keys than of queries, which no layer does");
  const auto heads = [&](std::size_t index) {
    Value read = made(index);
    if (read.arranged.count_axes() == 4) return read;
    std::vector<OnnxExtent> extents = read.arranged.extents();
    need(extents.size() == 3 && count > 0 && extents[2].count % count == 0, "has no heads");
    extents = {extents[0], extents[1], {count}, {extents[2].count / count}};
    need(read.arranged.reshape(extents) && read.arranged.permute(std::vector<std::int64_t>{0, 2, 1, 3}),
         "has no heads");
    return read;
  };
  const bool is_cut = made(std::size_t{0}).arranged.count_axes() == 4;
  std::optional<Value> scores = scores_of(heads(0), heads(1), false);
  need(scores.has_value(), "is not of a sequence to itself");
  const Arrangement::Heads& queries = scores->queries;
  scores->constant = node.f32s.contains("scale") ? node.f32("scale", 1)
                                                 : 1 / std::sqrt(static_cast<double>(queries.width) / queries.heads);
  scores->causal = node.number("is_causal", 0) != 0;
  if (has_input(3)) {
    OnnxNumbers given = numbers(3);
    for (std::int64_t& one : given.integers) one = one != 0 ? 0 : -1;  // true: a place that is read
    *scores = masked(*scores, given, given.whole ? -0.5 : -1e4);
  }
  Value read = read_by(*scores, heads(2));
  if (!is_cut)
    need(read.arranged.permute(std::vector<std::int64_t>{0, 2, 1, 3}) &&
             read.arranged.reshape({read.arranged.extent(0), read.arranged.extent(1), {-1}}),
         "has no heads");
  give_arranged(std::move(read), true, "");
}

/// Numbers that are added to the scores; those below `hidden_below` hide a place.
Importer::Value Importer::masked(Value scores, const OnnxNumbers& mask, double hidden_below) const {
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
  scores.causal = scores.causal || hides;
  return scores;
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
  need(find_numbers(fixed) != nullptr && find_numbers(3 - fixed) == nullptr && input(3 - fixed).form == Form::scores &&
           is_number(fixed) && numbers(fixed).f32[0] < -1e4F,
       "chooses elements, which only the mask of an attention does");
  OnnxNumbers hidden = numbers(0);
  need(hidden.whole, "chooses by numbers that are no bools");
  for (std::int64_t& one : hidden.integers) one = (one != 0) == (fixed == 1) ? -1 : 0;
  give(masked(input(3 - fixed), hidden, -0.5));
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
Importer::Value Importer::read_by(const Value& shares, const Value& values) {
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
    need(!found->part && shape(values.tensor) == shape(read),
         "reads values of another sequence than its queries are of");
    read = add_layer(own_name() + ".joined", Concat{}, {shares.tensor, *shares.keys, values.tensor});
  } else {
    need(values.tensor == read && found->part == 2U, "reads other parts than queries, keys and values side by side");
  }
  Value made{.form = Form::pending, .factors = {read}, .operation = Attention{heads.heads, shares.causal}};
  made.shape = Shape{{shape(read).extents[0], heads.width}};
  made.arranged = Arrangement::of_heads(made.shape.extents[0], heads, rows_);
  return made;
}

}  // namespace troupe::detail
