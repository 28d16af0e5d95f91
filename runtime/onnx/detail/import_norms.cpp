#include <algorithm>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/onnx/detail/importer.hpp"

namespace troupe::detail {

/// Whether a node goes over the tensor's last extent, which is also the last axis, and keeps an extent of 1 for it.
bool Importer::is_over_last(const OnnxNode& node, const Value& read) const {
  const std::vector<std::int64_t> over = axes(node);
  const auto axis = over.size() == 1 ? read.arranged.find_axis(over[0]) : std::nullopt;
  if (!axis || *axis + 1 != read.arranged.count_axes() || node.number("keepdims", 1) != 1) return false;
  const std::size_t extents = shape(read.tensor).extents.size();
  return extents > 0 && read.arranged.is_whole() &&
         read.arranged.is_extent(*axis, static_cast<std::uint32_t>(extents - 1));
}

void Importer::layer_norm(const OnnxNode& node) {
  Value read = readable(0);
  const auto axis = read.arranged.find_axis(node.number("axis", -1));
  const std::size_t extents = shape(read.tensor).extents.size();
  need(axis && extents > 0 && *axis + 1 == read.arranged.count_axes() &&
           read.arranged.is_extent(*axis, static_cast<std::uint32_t>(extents - 1)),
       "norms over other than the last extent, channels of an image in front among them, which no layer does");
  read.constant = decimal_of(node.f32("epsilon", 1e-5F));
  read.numbers = input_name(1);
  (void)f32s(1);
  give(made_layer_norm(output(), read, has_input(2) ? &numbers(2) : nullptr));
}

/// Of x that was centered and divided by its deviation, with the weight and the bias that follow.
Importer::Value Importer::made_layer_norm(std::string_view name, const Value& read, const OnnxNumbers* bias) {
  const std::size_t each = last_extent(read.tensor);
  const auto at = constants_.find(read.numbers);
  const OnnxNumbers* const weight = at == constants_.end() ? nullptr : &at->second;
  const std::string wanted = model_.layer_name(name, {{weight != nullptr ? weight->name : std::string_view{}, "weight"},
                                                      {bias != nullptr ? bias->name : std::string_view{}, "bias"}});
  std::vector<ModelBuilder::Start> starts{{"weight", weight != nullptr ? weight->f32 : std::vector<float>(each, 1)},
                                          {"bias", bias != nullptr ? bias->f32 : std::vector<float>(each)}};
  return keep(name, add_layer(wanted, LayerNorm{read.constant}, {read.tensor}, std::move(starts)), read.arranged);
}

void Importer::subtract(const OnnxNode& node) {
  need(node.inputs.size() == 2 && find_numbers(0) == nullptr && find_numbers(1) == nullptr &&
           input(1).form == Form::mean,
       "subtracts something else than the mean of a layer norm, which no layer does");
  const Value read = readable(0);
  need(read.tensor == input(1).tensor && read.arranged == input(1).arranged, "subtracts the mean of another tensor");
  give_next(read, Form::centered);
}
void Importer::square_root(const OnnxNode&) {
  if (input().form == Form::variance_and_more) return give_next(input(), Form::deviation);
  need(input().form == Form::more, "is no part of an L2 norm or a layer norm");
  give_next(input(), Form::norm);
}
void Importer::reciprocal(const OnnxNode&) {
  need(input().form == Form::deviation, "is no part of a layer norm");
  give_next(input(), Form::inverse_deviation);
}
void Importer::reduce_sum(const OnnxNode& node) {
  const Value read = input();
  need(read.form == Form::factors && read.factors.size() == 2 && read.factors[0] == read.factors[1] &&
           read.constant == 1 && !read.has_erf,
       "sums up something else than squares, which no layer does");
  need(is_over_last(node, read), "sums up over another than the last extent");
  give_next(read, Form::sum_of_squares);
}

/// Whether numbers are one for each element of the last extent, `each`, as a factor or a bias of a norm is.
bool Importer::is_row(const OnnxNumbers& given, std::int64_t each) {
  return !given.whole && !given.dims.empty() && given.dims.back() == each && std::cmp_equal(given.count(), each);
}

/// An epsilon, or the bias of a layer norm.
bool Importer::add_to_norm(const Value& to, std::size_t index) {
  if (to.form == Form::sum_of_squares || to.form == Form::variance) {
    need(is_number(index), "adds to a norm what is not one number");
    Value next = to;
    next.constant = number(index);
    give_next(std::move(next), to.form == Form::variance ? Form::variance_and_more : Form::more);
    return true;
  }
  const bool is_norm = to.form == Form::normalized || to.form == Form::weighted;
  if (!is_norm || !is_row(numbers(index), last_extent(to.tensor))) return false;
  give(made_layer_norm(output(), to, &numbers(index)));
  return true;
}

/// The scale of an L2 norm, or the weight of a layer norm.
bool Importer::multiply_norm(const Value& read, std::size_t index) {
  if (read.form == Form::normalized) {
    need(is_row(numbers(index), last_extent(read.tensor)), "multiplies by other numbers than one for each element");
    Value next = read;
    next.numbers = input_name(index);
    give_next(std::move(next), Form::weighted);
    return true;
  }
  if (read.form != Form::divided) return false;
  L2Norm layer{.epsilon = read.constant};
  // Its scale at the start is told where all are still alike.
  const std::vector<float>& scale = f32s(index);
  const bool alike = !scale.empty() && std::ranges::all_of(scale, [&](float one) { return one == scale[0]; });
  if (alike && scale[0] > 0) layer.scale = decimal_of(scale[0]);
  const std::string name = model_.layer_name(output(), {{numbers(index).name, "scale"}});
  give_tensor(add_layer(name, layer, {read.tensor}, {{"scale", scale}}), read.arranged);
  return true;
}

bool Importer::divide_by_norm(const Value& read, const Value& by) {
  if (read.form == Form::centered && by.form == Form::deviation && read.tensor == by.tensor) {
    give_next(by, Form::normalized);
    return true;
  }
  if (by.form != Form::norm) return false;
  const Value divided = readable(0);
  need(by.tensor == divided.tensor, "divides by the norm of another tensor");
  give_next(by, Form::divided);
  return true;
}
bool Importer::multiply_by_inverse(const Value& one, const Value& two) {
  if (one.form == Form::centered && two.form == Form::centered && one.tensor == two.tensor) {
    give_next(one, Form::centered_squares);
    return true;
  }
  if (one.form != Form::centered || two.form != Form::inverse_deviation || one.tensor != two.tensor) return false;
  give_next(two, Form::normalized);
  return true;
}

}  // namespace troupe::detail
