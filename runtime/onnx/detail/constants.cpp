#include "runtime/onnx/detail/constants.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "runtime/base/error.hpp"

namespace troupe::detail {
namespace {

using Numbers = std::vector<std::int64_t>;
using Inputs = std::span<const OnnxNumbers* const>;
constexpr std::size_t kMostDims = 16;

/// So that numbers that no longer depend on the rows can be shapes and indices.
void forget_rows(OnnxNumbers& numbers) {
  if (std::ranges::find(numbers.of_rows, true) == numbers.of_rows.end()) numbers.of_rows.clear();
}

/// What is wrong with a node: its numbers are not computed.
struct NotComputed {};
void need(bool holds) {
  if (!holds) throw NotComputed{};
}

std::int64_t count_of(const Numbers& dims) {
  std::int64_t count = 1;
  need(dims.size() <= kMostDims);
  for (const std::int64_t dim : dims) need(dim >= 0 && !__builtin_mul_overflow(count, dim, &count));
  return count;
}

const OnnxNumbers& input(Inputs inputs, std::size_t index) {
  need(index < inputs.size() && inputs[index] != nullptr);
  return *inputs[index];
}
/// Whole numbers that do not depend on the number of rows.
const Numbers& whole(Inputs inputs, std::size_t index) {
  const OnnxNumbers& found = input(inputs, index);
  need(found.whole && found.of_rows.empty());
  return found.integers;
}
std::int64_t one_whole(Inputs inputs, std::size_t index) {
  need(whole(inputs, index).size() == 1);
  return whole(inputs, index)[0];
}
/// Of an attribute, or, in newer opsets, of the second input.
Numbers axes_of(const OnnxNode& node, Inputs inputs, std::size_t dims) {
  Numbers axes;
  if (const auto* list = node.list("axes"))
    axes = *list;
  else if (inputs.size() > 1 && inputs[1] != nullptr)
    axes = whole(inputs, 1);
  for (std::int64_t& axis : axes) {
    axis += axis < 0 ? static_cast<std::int64_t>(dims) : 0;
    need(axis >= 0 && axis < static_cast<std::int64_t>(dims));
  }
  return axes;
}
std::size_t axis_of(const OnnxNode& node, std::int64_t otherwise, std::size_t dims) {
  std::int64_t axis = node.number("axis", otherwise);
  axis += axis < 0 ? static_cast<std::int64_t>(dims) : 0;
  need(axis >= 0 && axis < static_cast<std::int64_t>(dims));
  return static_cast<std::size_t>(axis);
}

/// Makes arrays, and counts their numbers.
class Maker {
 public:
  explicit Maker(std::uint64_t& left) : left_(left) {}

  OnnxNumbers empty(Numbers dims, bool is_whole) {
    OnnxNumbers made;
    const auto count = static_cast<std::uint64_t>(count_of(dims));
    TROUPE_CHECK(count <= left_, Code::unsupported, "computes ", count,
                 " numbers more than a file may; export the model with fewer of them computed");
    left_ -= count;
    made.dims = std::move(dims);
    made.whole = is_whole;
    is_whole ? made.integers.resize(count) : made.f32.resize(count);
    return made;
  }
  /// Element i is element place(i) of `from`.
  template <class Place>
  OnnxNumbers chosen(const OnnxNumbers& from, Numbers dims, Place place) {
    OnnxNumbers made = empty(std::move(dims), from.whole);
    made.name = from.name;
    if (!from.of_rows.empty()) made.of_rows.resize(made.count());
    for (std::size_t i = 0; i < made.count(); ++i) {
      const std::size_t at = place(i);
      from.whole ? void(made.integers[i] = from.integers[at]) : void(made.f32[i] = from.f32[at]);
      if (!from.of_rows.empty()) made.of_rows[i] = from.of_rows[at];
    }
    forget_rows(made);
    return made;
  }
  OnnxNumbers reshaped(const OnnxNumbers& from, Numbers dims) {
    need(count_of(dims) == static_cast<std::int64_t>(from.count()));
    return chosen(from, std::move(dims), [](std::size_t i) { return i; });
  }
  OnnxNumbers expanded(const OnnxNumbers& from, const Numbers& to) {
    const Numbers strides = broadcast_strides(from.dims, to);
    return chosen(from, to, [&](std::size_t i) { return place(i, to, strides); });
  }
  /// Strides in an array of `from`, of each dimension of `to`; 0 where it repeats.
  static Numbers broadcast_strides(const Numbers& from, const Numbers& to) {
    need(from.size() <= to.size());
    Numbers strides(to.size());
    std::int64_t stride = 1;
    for (std::size_t back = 1; back <= from.size(); ++back) {
      const std::int64_t dim = from[from.size() - back];
      need(dim == 1 || dim == to[to.size() - back]);
      if (dim != 1) strides[to.size() - back] = stride;
      stride *= dim;
    }
    return strides;
  }
  static std::size_t place(std::size_t index, const Numbers& dims, const Numbers& strides) {
    std::int64_t at = 0;
    auto rest = static_cast<std::int64_t>(index);
    for (std::size_t dim = dims.size(); dim-- > 0;) {
      at += rest % dims[dim] * strides[dim];
      rest /= dims[dim];
    }
    return static_cast<std::size_t>(at);
  }

 private:
  std::uint64_t& left_;
};

Numbers broadcast(const Numbers& one, const Numbers& two) {
  Numbers dims(std::max(one.size(), two.size()));
  for (std::size_t back = 1; back <= dims.size(); ++back) {
    const std::int64_t a = back <= one.size() ? one[one.size() - back] : 1;
    const std::int64_t b = back <= two.size() ? two[two.size() - back] : 1;
    need(a == b || a == 1 || b == 1);
    dims[dims.size() - back] = a == 1 ? b : a;
  }
  return dims;
}

// ---- Other places of the same numbers ----

OnnxNumbers gather(const OnnxNode& node, Inputs inputs, Maker& maker) {
  const OnnxNumbers& from = input(inputs, 0);
  const Numbers& indices = whole(inputs, 1);
  const std::size_t axis = axis_of(node, 0, from.dims.size());
  const std::int64_t length = from.dims[axis];
  for (const std::int64_t index : indices) need(index >= -length && index < length);
  Numbers dims(from.dims.begin(), from.dims.begin() + static_cast<std::ptrdiff_t>(axis));
  const Numbers& between = input(inputs, 1).dims;
  dims.insert(dims.end(), between.begin(), between.end());
  dims.insert(dims.end(), from.dims.begin() + static_cast<std::ptrdiff_t>(axis) + 1, from.dims.end());
  std::size_t inner = 1;
  for (std::size_t dim = axis + 1; dim < from.dims.size(); ++dim) inner *= static_cast<std::size_t>(from.dims[dim]);
  return maker.chosen(from, std::move(dims), [&](std::size_t i) {
    const std::int64_t index = indices[i / inner % indices.size()];
    const std::size_t outer = i / inner / indices.size();
    return (outer * static_cast<std::size_t>(length) + static_cast<std::size_t>(index < 0 ? index + length : index)) *
               inner +
           i % inner;
  });
}

OnnxNumbers slice(const OnnxNode& node, Inputs inputs, Maker& maker) {
  const OnnxNumbers& from = input(inputs, 0);
  const bool is_old = node.list("starts") != nullptr;
  need(!is_old || node.list("ends") != nullptr);
  const Numbers starts = is_old ? *node.list("starts") : whole(inputs, 1);
  const Numbers ends = is_old ? *node.list("ends") : whole(inputs, 2);
  Numbers axes(starts.size()), steps(starts.size(), 1);
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<std::int64_t>(i);
  if (is_old && node.list("axes") != nullptr) axes = *node.list("axes");
  if (!is_old && inputs.size() > 3 && inputs[3] != nullptr) axes = whole(inputs, 3);
  if (inputs.size() > 4 && inputs[4] != nullptr) steps = whole(inputs, 4);
  need(ends.size() == starts.size() && axes.size() == starts.size() && steps.size() == starts.size());
  Numbers dims = from.dims, strides(dims.size(), 1);
  for (std::size_t dim = dims.size(); dim-- > 1;) strides[dim - 1] = strides[dim] * from.dims[dim];
  std::int64_t base = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(axes[i] < 0 ? axes[i] + static_cast<std::int64_t>(dims.size()) : axes[i]);
    need(axis < dims.size() && steps[i] == 1);
    const std::int64_t length = from.dims[axis];
    const auto bounded = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + length : at, 0, length); };
    const std::int64_t first = bounded(starts[i]);
    base += first * strides[axis];
    dims[axis] = std::max<std::int64_t>(bounded(ends[i]) - first, 0);
  }
  const Numbers to = dims;
  return maker.chosen(from, std::move(dims),
                      [&](std::size_t i) { return static_cast<std::size_t>(base) + Maker::place(i, to, strides); });
}

OnnxNumbers concat(const OnnxNode& node, Inputs inputs, Maker& maker) {
  const OnnxNumbers& first = input(inputs, 0);
  need(first.dims.size() == 1);  // shapes
  (void)axis_of(node, 0, 1);
  std::int64_t length = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    need(input(inputs, i).dims.size() == 1 && inputs[i]->whole == first.whole);
    length += inputs[i]->dims[0];
  }
  OnnxNumbers made = maker.empty({length}, first.whole);
  made.integers.clear();
  made.f32.clear();
  for (const OnnxNumbers* one : inputs) {
    made.integers.insert(made.integers.end(), one->integers.begin(), one->integers.end());
    made.f32.insert(made.f32.end(), one->f32.begin(), one->f32.end());
    for (std::size_t i = 0; i < one->count(); ++i) made.of_rows.push_back(one->is_of_rows(i));
  }
  forget_rows(made);
  return made;
}

OnnxNumbers transpose(const OnnxNode& node, Inputs inputs, Maker& maker) {
  const OnnxNumbers& from = input(inputs, 0);
  const std::size_t count = from.dims.size();
  Numbers order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = static_cast<std::int64_t>(count - 1 - i);
  if (const auto* perm = node.list("perm")) order = *perm;
  Numbers strides(count, 1), dims, moved, seen(count);
  for (std::size_t dim = count; dim-- > 1;) strides[dim - 1] = strides[dim] * from.dims[dim];
  need(order.size() == count);
  for (const std::int64_t one : order) {
    need(one >= 0 && one < static_cast<std::int64_t>(count) && seen[static_cast<std::size_t>(one)]++ == 0);
    dims.push_back(from.dims[static_cast<std::size_t>(one)]);
    moved.push_back(strides[static_cast<std::size_t>(one)]);
  }
  const Numbers to = dims;
  return maker.chosen(from, std::move(dims), [&](std::size_t i) { return Maker::place(i, to, moved); });
}

OnnxNumbers unsqueeze(const OnnxNode& node, Inputs inputs, Maker& maker) {
  const OnnxNumbers& from = input(inputs, 0);
  const Numbers& given = node.list("axes") != nullptr ? *node.list("axes") : whole(inputs, 1);
  Numbers axes = axes_of(node, inputs, from.dims.size() + given.size());
  std::ranges::sort(axes);
  Numbers dims = from.dims;
  for (const std::int64_t axis : axes) {
    need(axis <= static_cast<std::int64_t>(dims.size()));
    dims.insert(dims.begin() + axis, 1);
  }
  return maker.reshaped(from, std::move(dims));
}
OnnxNumbers squeeze(const OnnxNode& node, Inputs inputs, Maker& maker) {
  const OnnxNumbers& from = input(inputs, 0);
  const Numbers axes = axes_of(node, inputs, from.dims.size());
  Numbers dims;
  for (std::size_t i = 0; i < from.dims.size(); ++i)
    if (axes.empty() ? from.dims[i] != 1 : std::ranges::find(axes, static_cast<std::int64_t>(i)) == axes.end())
      dims.push_back(from.dims[i]);
  return maker.reshaped(from, std::move(dims));
}
OnnxNumbers reshape(const OnnxNode&, Inputs inputs, Maker& maker) {
  const OnnxNumbers& from = input(inputs, 0);
  Numbers dims = whole(inputs, 1);
  std::int64_t known = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && i < from.dims.size()) dims[i] = from.dims[i];
    need(dims[i] == -1 || (dims[i] > 0 && !__builtin_mul_overflow(known, dims[i], &known)));
  }
  const auto rest = std::ranges::find(dims, -1);
  if (rest != dims.end()) *rest = static_cast<std::int64_t>(from.count()) / known;
  return maker.reshaped(from, std::move(dims));
}
OnnxNumbers identity(const OnnxNode&, Inputs inputs, Maker& maker) {
  return maker.reshaped(input(inputs, 0), input(inputs, 0).dims);
}
OnnxNumbers expand(const OnnxNode&, Inputs inputs, Maker& maker) {
  return maker.expanded(input(inputs, 0), broadcast(input(inputs, 0).dims, whole(inputs, 1)));
}
OnnxNumbers trilu(const OnnxNode& node, Inputs inputs, Maker& maker) {
  OnnxNumbers made = maker.reshaped(input(inputs, 0), input(inputs, 0).dims);
  need(made.dims.size() >= 2);
  const std::int64_t width = made.dims.back(), height = made.dims[made.dims.size() - 2];
  const std::int64_t above = inputs.size() > 1 && inputs[1] != nullptr ? one_whole(inputs, 1) : 0;
  need(above >= -height && above <= width);
  const bool upper = node.number("upper", 1) != 0;
  for (std::size_t i = 0; i < made.count(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t distance = at % width - at / width % height - above;
    if (upper ? distance >= 0 : distance <= 0) continue;
    made.whole ? void(made.integers[i] = 0) : void(made.f32[i] = 0);
  }
  return made;
}

// ---- New numbers ----

OnnxNumbers constant_of_shape(const OnnxNode& node, Inputs inputs, Maker& maker) {
  const auto at = node.tensors.find("value");
  need(at == node.tensors.end() || at->second.count() == 1);
  OnnxNumbers made = maker.empty(whole(inputs, 0), at != node.tensors.end() && at->second.whole);
  if (at == node.tensors.end()) return made;
  if (made.whole) std::ranges::fill(made.integers, at->second.integers[0]);
  if (!made.whole) std::ranges::fill(made.f32, at->second.f32[0]);
  return made;
}
OnnxNumbers range(const OnnxNode&, Inputs inputs, Maker& maker) {
  const std::int64_t first = one_whole(inputs, 0), end = one_whole(inputs, 1), step = one_whole(inputs, 2);
  std::int64_t span = 0;
  need(step > 0 && !__builtin_sub_overflow(end, first, &span) && span <= std::numeric_limits<std::int32_t>::max());
  OnnxNumbers made = maker.empty({span <= 0 ? 0 : (span - 1) / step + 1}, true);
  for (std::size_t i = 0; i < made.count(); ++i) made.integers[i] = first + static_cast<std::int64_t>(i) * step;
  return made;
}
OnnxNumbers cast(const OnnxNode& node, Inputs inputs, Maker& maker) {
  const OnnxNumbers& from = input(inputs, 0);
  const std::int64_t to = node.number("to", 1);
  constexpr std::int64_t kBool = 9;
  if (is_whole(to) == from.whole && to != kBool) return maker.reshaped(from, from.dims);
  need(from.of_rows.empty());
  OnnxNumbers made = maker.empty(from.dims, is_whole(to));
  made.name = from.name;
  for (std::size_t i = 0; i < from.count(); ++i) {
    const double number = from.at(i);
    need(!made.whole || to == kBool || std::abs(number) < 1e15);
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
  need((operation == "Mul" && a != b) ||
       (operation == "Div" && a && !b && two.integers[k] != 0 && one.integers[i] % two.integers[k] == 0));
  return true;
}

OnnxNumbers computed_each(const OnnxNode& node, const Arithmetic& how, Inputs inputs, Maker& maker) {
  need(inputs.size() == 1 || inputs.size() == 2);
  const OnnxNumbers& one = input(inputs, 0);
  const OnnxNumbers& two = input(inputs, inputs.size() - 1);
  need(one.whole == two.whole || node.operation == "Pow");
  const Numbers dims = broadcast(one.dims, two.dims);
  const Numbers strides = Maker::broadcast_strides(one.dims, dims), others = Maker::broadcast_strides(two.dims, dims);
  OnnxNumbers made = maker.empty(dims, one.whole || how.gives_bool);
  if (!one.of_rows.empty() || !two.of_rows.empty()) made.of_rows.resize(made.count());
  for (std::size_t i = 0; i < made.count(); ++i) {
    const std::size_t a = Maker::place(i, dims, strides), b = Maker::place(i, dims, others);
    double number = how.of(one.at(a), two.at(b));
    if (!made.of_rows.empty()) {
      made.of_rows[i] = is_of_rows(node.operation, one, a, two, b);
      if (node.operation == "Equal" && one.is_of_rows(a) != two.is_of_rows(b)) number = 0;
    }
    if (!made.whole) {
      made.f32[i] = static_cast<float>(number);
    } else {
      need(std::abs(number) < 1e15);
      made.integers[i] = static_cast<std::int64_t>(number);
    }
  }
  forget_rows(made);
  return made;
}

OnnxNumbers where(const OnnxNode&, Inputs inputs, Maker& maker) {
  const OnnxNumbers &condition = input(inputs, 0), &yes = input(inputs, 1), &no = input(inputs, 2);
  need(condition.whole && yes.whole == no.whole);
  const Numbers dims = broadcast(broadcast(condition.dims, yes.dims), no.dims);
  const Numbers of_condition = Maker::broadcast_strides(condition.dims, dims);
  OnnxNumbers made = maker.expanded(yes, dims);
  const OnnxNumbers other = maker.expanded(no, dims);
  if (!other.of_rows.empty()) made.of_rows.resize(made.count());
  for (std::size_t i = 0; i < made.count(); ++i) {
    if (condition.integers[Maker::place(i, dims, of_condition)] != 0) continue;
    made.whole ? void(made.integers[i] = other.integers[i]) : void(made.f32[i] = other.f32[i]);
    if (!made.of_rows.empty()) made.of_rows[i] = other.is_of_rows(i);
  }
  forget_rows(made);
  return made;
}

OnnxNumbers reduce_prod(const OnnxNode& node, Inputs inputs, Maker& maker) {
  const OnnxNumbers& from = input(inputs, 0);
  need(from.whole && from.dims.size() == 1 && from.of_rows.empty());
  OnnxNumbers made = maker.empty(node.number("keepdims", 1) != 0 ? Numbers{1} : Numbers{}, true);
  made.integers[0] = 1;
  for (const std::int64_t one : from.integers) need(!__builtin_mul_overflow(made.integers[0], one, &made.integers[0]));
  return made;
}

using Computation = OnnxNumbers (*)(const OnnxNode&, Inputs, Maker&);
const std::map<std::string_view, Computation>& computations() {
  static const std::map<std::string_view, Computation> all{
      {"Cast", cast},         {"Concat", concat},   {"ConstantOfShape", constant_of_shape},
      {"Expand", expand},     {"Gather", gather}, {"Identity", identity},   {"Range", range},
      {"ReduceProd", reduce_prod}, {"Reshape", reshape}, {"Slice", slice},
      {"Squeeze", squeeze},   {"Transpose", transpose}, {"Trilu", trilu},
      {"Unsqueeze", unsqueeze}, {"Where", where}};
  return all;
}

}  // namespace

std::optional<OnnxNumbers> Constants::computed(const OnnxNode& node, Inputs inputs) {
  Maker maker{left_};
  try {
    for (const OnnxNumbers* one : inputs)  // so that products of dimensions never overflow
      need(one == nullptr || one->dims.size() <= 1 || (one->count() > 0 && one->dims.size() <= kMostDims));
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
