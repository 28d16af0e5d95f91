#include "runtime/onnx/detail/constants.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "runtime/onnx/detail/array_maker.hpp"

namespace troupe::detail {
namespace {

OnnxNumbers constant_of_shape(const OnnxNode& node, ArrayInputs inputs, ArrayMaker& maker) {
  const auto at = node.tensors.find("value");
  need_computable(at == node.tensors.end() || at->second.count() == 1);
  OnnxNumbers made = maker.empty(whole_of(inputs, 0), at != node.tensors.end() && at->second.whole);
  if (at == node.tensors.end()) return made;
  if (made.whole) std::ranges::fill(made.integers, at->second.integers[0]);
  if (!made.whole) std::ranges::fill(made.f32, at->second.f32[0]);
  return made;
}
OnnxNumbers range(const OnnxNode&, ArrayInputs inputs, ArrayMaker& maker) {
  const std::int64_t first = one_whole_of(inputs, 0), end = one_whole_of(inputs, 1), step = one_whole_of(inputs, 2);
  std::int64_t span = 0;
  need_computable(step > 0 && !__builtin_sub_overflow(end, first, &span) &&
                  span <= std::numeric_limits<std::int32_t>::max());
  OnnxNumbers made = maker.empty({span <= 0 ? 0 : (span - 1) / step + 1}, true);
  for (std::size_t i = 0; i < made.count(); ++i) made.integers[i] = first + static_cast<std::int64_t>(i) * step;
  return made;
}
OnnxNumbers cast(const OnnxNode& node, ArrayInputs inputs, ArrayMaker& maker) {
  const OnnxNumbers& from = input_of(inputs, 0);
  const std::int64_t to = node.number("to", 1);
  constexpr std::int64_t kBool = 9;
  if (is_whole(to) == from.whole && to != kBool) return maker.reshaped(from, from.dims);
  need_computable(from.of_rows.empty());
  OnnxNumbers made = maker.empty(from.dims, is_whole(to));
  made.name = from.name;
  for (std::size_t i = 0; i < from.count(); ++i) {
    const double number = from.at(i);
    need_computable(!made.whole || to == kBool || std::abs(number) < 1e15);
    if (made.whole) made.integers[i] = to == kBool ? number != 0 : static_cast<std::int64_t>(number);
    if (!made.whole) made.f32[i] = static_cast<float>(number);
  }
  return made;
}

// ---- Arithmetic ----

/// Of two numbers, or of one and itself.
struct Arithmetic {
  double (*of)(double, double);
  bool gives_bool = false;
};
const std::map<std::string_view, Arithmetic>& arithmetic() {
  static const std::map<std::string_view, Arithmetic> all{
      {"Add", {[](double a, double b) { return a + b; }}},
      {"Sub", {[](double a, double b) { return a - b; }}},
      {"Mul", {[](double a, double b) { return a * b; }}},
      {"Div", {[](double a, double b) { return a / b; }}},
      {"Pow", {[](double a, double b) { return std::pow(a, b); }}},
      {"Max", {[](double a, double b) { return std::max(a, b); }}},
      {"Min", {[](double a, double b) { return std::min(a, b); }}},
      {"Sqrt", {[](double a, double) { return std::sqrt(a); }}},
      {"Reciprocal", {[](double a, double) { return 1 / a; }}},
      {"Neg", {[](double a, double) { return -a; }}},
      {"Abs", {[](double a, double) { return std::abs(a); }}},
      {"Floor", {[](double a, double) { return std::floor(a); }}},
      {"Not", {[](double a, double) { return double(a == 0); }, true}},
      {"IsNaN", {[](double a, double) { return double(std::isnan(a)); }, true}},
      {"And", {[](double a, double b) { return double(a != 0 && b != 0); }, true}},
      {"Or", {[](double a, double b) { return double(a != 0 || b != 0); }, true}},
      {"Equal", {[](double a, double b) { return double(a == b); }, true}},
      {"Less", {[](double a, double b) { return double(a < b); }, true}},
      {"LessOrEqual", {[](double a, double b) { return double(a <= b); }, true}},
      {"Greater", {[](double a, double b) { return double(a > b); }, true}},
      {"GreaterOrEqual", {[](double a, double b) { return double(a >= b); }, true}}};
  return all;
}

/// Whether the result is a multiple of the number of rows; only a few operations have one.
bool is_of_rows(std::string_view operation, const OnnxNumbers& one, std::size_t i, const OnnxNumbers& two,
                std::size_t k) {
  const bool a = one.is_of_rows(i), b = two.is_of_rows(k);
  if (!a && !b) return false;
  if (operation == "Equal") return false;  // no number of the file is the number of rows
  need_computable((operation == "Mul" && a != b) ||
                  (operation == "Div" && a && !b && two.integers[k] != 0 && one.integers[i] % two.integers[k] == 0));
  return true;
}

OnnxNumbers computed_each(const OnnxNode& node, const Arithmetic& how, ArrayInputs inputs, ArrayMaker& maker) {
  need_computable(inputs.size() == 1 || inputs.size() == 2);
  const OnnxNumbers& one = input_of(inputs, 0);
  const OnnxNumbers& two = input_of(inputs, inputs.size() - 1);
  need_computable(one.whole == two.whole || node.operation == "Pow");
  const WholeNumbers dims = broadcast_dims(one.dims, two.dims);
  const WholeNumbers strides = ArrayMaker::broadcast_strides(one.dims, dims),
                     others = ArrayMaker::broadcast_strides(two.dims, dims);
  OnnxNumbers made = maker.empty(dims, one.whole || how.gives_bool);
  if (!one.of_rows.empty() || !two.of_rows.empty()) made.of_rows.resize(made.count());
  for (std::size_t i = 0; i < made.count(); ++i) {
    const std::size_t a = ArrayMaker::place(i, dims, strides), b = ArrayMaker::place(i, dims, others);
    double number = how.of(one.at(a), two.at(b));
    if (!made.of_rows.empty()) {
      made.of_rows[i] = is_of_rows(node.operation, one, a, two, b);
      if (node.operation == "Equal" && one.is_of_rows(a) != two.is_of_rows(b)) number = 0;
    }
    if (!made.whole) {
      made.f32[i] = static_cast<float>(number);
    } else {
      need_computable(std::abs(number) < 1e15);
      made.integers[i] = static_cast<std::int64_t>(number);
    }
  }
  forget_rows(made);
  return made;
}

OnnxNumbers where(const OnnxNode&, ArrayInputs inputs, ArrayMaker& maker) {
  const OnnxNumbers &condition = input_of(inputs, 0), &yes = input_of(inputs, 1), &no = input_of(inputs, 2);
  need_computable(condition.whole && yes.whole == no.whole);
  const WholeNumbers dims = broadcast_dims(broadcast_dims(condition.dims, yes.dims), no.dims);
  const WholeNumbers of_condition = ArrayMaker::broadcast_strides(condition.dims, dims);
  OnnxNumbers made = maker.expanded(yes, dims);
  const OnnxNumbers other = maker.expanded(no, dims);
  if (!other.of_rows.empty()) made.of_rows.resize(made.count());
  for (std::size_t i = 0; i < made.count(); ++i) {
    if (condition.integers[ArrayMaker::place(i, dims, of_condition)] != 0) continue;
    made.whole ? void(made.integers[i] = other.integers[i]) : void(made.f32[i] = other.f32[i]);
    if (!made.of_rows.empty()) made.of_rows[i] = other.is_of_rows(i);
  }
  forget_rows(made);
  return made;
}

OnnxNumbers reduce_prod(const OnnxNode& node, ArrayInputs inputs, ArrayMaker& maker) {
  const OnnxNumbers& from = input_of(inputs, 0);
  need_computable(from.whole && from.dims.size() == 1 && from.of_rows.empty());
  OnnxNumbers made = maker.empty(node.number("keepdims", 1) != 0 ? WholeNumbers{1} : WholeNumbers{}, true);
  made.integers[0] = 1;
  for (const std::int64_t one : from.integers)
    need_computable(!__builtin_mul_overflow(made.integers[0], one, &made.integers[0]));
  return made;
}

const std::map<std::string_view, ArrayComputation>& computations() {
  static const std::map<std::string_view, ArrayComputation> all{{"Cast", cast},
                                                                {"ConstantOfShape", constant_of_shape},
                                                                {"Range", range},
                                                                {"ReduceProd", reduce_prod},
                                                                {"Where", where}};
  return all;
}

}  // namespace

std::optional<OnnxNumbers> Constants::computed(const OnnxNode& node, ArrayInputs inputs) {
  ArrayMaker maker{left_};
  try {
    for (const OnnxNumbers* one : inputs)  // so that products of dimensions never overflow
      need_computable(one == nullptr || one->dims.size() <= 1 || (one->count() > 0 && one->dims.size() <= kMostDims));
    if (const ArrayComputation move = find_move(node.operation)) return move(node, inputs, maker);
    if (const auto at = computations().find(node.operation); at != computations().end())
      return at->second(node, inputs, maker);
    if (const auto at = arithmetic().find(node.operation); at != arithmetic().end())
      return computed_each(node, at->second, inputs, maker);
  } catch (const NotComputed&) {
    return std::nullopt;  // such a node is then refused by its name
  }
  return std::nullopt;
}

}  // namespace troupe::detail
