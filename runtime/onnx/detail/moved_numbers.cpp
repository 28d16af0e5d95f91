#include <algorithm>
#include <map>

#include "runtime/onnx/detail/array_maker.hpp"

// Numbers of a file that are put elsewhere: shapes, transposed weights, parts.

namespace troupe::detail {
namespace {

OnnxNumbers gather(const OnnxNode& node, ArrayInputs inputs, ArrayMaker& maker) {
  const OnnxNumbers& from = input_of(inputs, 0);
  const WholeNumbers& indices = whole_of(inputs, 1);
  const std::size_t axis = axis_of(node, 0, from.dims.size());
  const std::int64_t length = from.dims[axis];
  for (const std::int64_t index : indices) need_computable(index >= -length && index < length);
  WholeNumbers dims(from.dims.begin(), from.dims.begin() + static_cast<std::ptrdiff_t>(axis));
  const WholeNumbers& between = input_of(inputs, 1).dims;
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

OnnxNumbers slice(const OnnxNode& node, ArrayInputs inputs, ArrayMaker& maker) {
  const OnnxNumbers& from = input_of(inputs, 0);
  const bool is_old = node.list("starts") != nullptr;
  need_computable(!is_old || node.list("ends") != nullptr);
  const WholeNumbers starts = is_old ? *node.list("starts") : whole_of(inputs, 1);
  const WholeNumbers ends = is_old ? *node.list("ends") : whole_of(inputs, 2);
  WholeNumbers axes(starts.size()), steps(starts.size(), 1);
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<std::int64_t>(i);
  if (is_old && node.list("axes") != nullptr) axes = *node.list("axes");
  if (!is_old && inputs.size() > 3 && inputs[3] != nullptr) axes = whole_of(inputs, 3);
  if (inputs.size() > 4 && inputs[4] != nullptr) steps = whole_of(inputs, 4);
  need_computable(ends.size() == starts.size() && axes.size() == starts.size() && steps.size() == starts.size());
  WholeNumbers dims = from.dims, strides(dims.size(), 1), seen(dims.size());
  for (std::size_t dim = dims.size(); dim-- > 1;) strides[dim - 1] = strides[dim] * from.dims[dim];
  std::int64_t base = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis =
        static_cast<std::size_t>(axes[i] < 0 ? axes[i] + static_cast<std::int64_t>(dims.size()) : axes[i]);
    need_computable(axis < dims.size() && steps[i] == 1 && seen[axis]++ == 0);
    const std::int64_t length = from.dims[axis];
    const auto bounded = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + length : at, 0, length);
    };
    const std::int64_t first = bounded(starts[i]);
    base += first * strides[axis];
    dims[axis] = std::max<std::int64_t>(bounded(ends[i]) - first, 0);
  }
  const WholeNumbers to = dims;
  return maker.chosen(from, std::move(dims), [&](std::size_t i) {
    return static_cast<std::size_t>(base) + ArrayMaker::place(i, to, strides);
  });
}

OnnxNumbers concat(const OnnxNode& node, ArrayInputs inputs, ArrayMaker& maker) {
  const OnnxNumbers& first = input_of(inputs, 0);
  need_computable(first.dims.size() == 1);  // shapes
  (void)axis_of(node, 0, 1);
  std::int64_t length = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    need_computable(input_of(inputs, i).dims.size() == 1 && inputs[i]->whole == first.whole);
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

OnnxNumbers transpose(const OnnxNode& node, ArrayInputs inputs, ArrayMaker& maker) {
  const OnnxNumbers& from = input_of(inputs, 0);
  const std::size_t count = from.dims.size();
  WholeNumbers order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = static_cast<std::int64_t>(count - 1 - i);
  if (const auto* perm = node.list("perm")) order = *perm;
  WholeNumbers strides(count, 1), dims, moved, seen(count);
  for (std::size_t dim = count; dim-- > 1;) strides[dim - 1] = strides[dim] * from.dims[dim];
  need_computable(order.size() == count);
  for (const std::int64_t one : order) {
    need_computable(one >= 0 && one < static_cast<std::int64_t>(count) && seen[static_cast<std::size_t>(one)]++ == 0);
    dims.push_back(from.dims[static_cast<std::size_t>(one)]);
    moved.push_back(strides[static_cast<std::size_t>(one)]);
  }
  const WholeNumbers to = dims;
  return maker.chosen(from, std::move(dims), [&](std::size_t i) { return ArrayMaker::place(i, to, moved); });
}

OnnxNumbers unsqueeze(const OnnxNode& node, ArrayInputs inputs, ArrayMaker& maker) {
  const OnnxNumbers& from = input_of(inputs, 0);
  const WholeNumbers& given = node.list("axes") != nullptr ? *node.list("axes") : whole_of(inputs, 1);
  WholeNumbers axes = axes_of(node, inputs, from.dims.size() + given.size());
  std::ranges::sort(axes);
  WholeNumbers dims = from.dims;
  for (const std::int64_t axis : axes) {
    need_computable(axis <= static_cast<std::int64_t>(dims.size()));
    dims.insert(dims.begin() + axis, 1);
  }
  return maker.reshaped(from, std::move(dims));
}
OnnxNumbers squeeze(const OnnxNode& node, ArrayInputs inputs, ArrayMaker& maker) {
  const OnnxNumbers& from = input_of(inputs, 0);
  const WholeNumbers axes = axes_of(node, inputs, from.dims.size());
  WholeNumbers dims;
  for (std::size_t i = 0; i < from.dims.size(); ++i)
    if (axes.empty() ? from.dims[i] != 1 : std::ranges::find(axes, static_cast<std::int64_t>(i)) == axes.end())
      dims.push_back(from.dims[i]);
  return maker.reshaped(from, std::move(dims));
}
OnnxNumbers reshape(const OnnxNode&, ArrayInputs inputs, ArrayMaker& maker) {
  const OnnxNumbers& from = input_of(inputs, 0);
  WholeNumbers dims = whole_of(inputs, 1);
  std::int64_t known = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && i < from.dims.size()) dims[i] = from.dims[i];
    need_computable(dims[i] == -1 || (dims[i] > 0 && !__builtin_mul_overflow(known, dims[i], &known)));
  }
  const auto rest = std::ranges::find(dims, -1);
  if (rest != dims.end()) *rest = static_cast<std::int64_t>(from.count()) / known;
  return maker.reshaped(from, std::move(dims));
}
OnnxNumbers identity(const OnnxNode&, ArrayInputs inputs, ArrayMaker& maker) {
  return maker.reshaped(input_of(inputs, 0), input_of(inputs, 0).dims);
}
OnnxNumbers expand(const OnnxNode&, ArrayInputs inputs, ArrayMaker& maker) {
  return maker.expanded(input_of(inputs, 0), broadcast_dims(input_of(inputs, 0).dims, whole_of(inputs, 1)));
}
OnnxNumbers trilu(const OnnxNode& node, ArrayInputs inputs, ArrayMaker& maker) {
  OnnxNumbers made = maker.reshaped(input_of(inputs, 0), input_of(inputs, 0).dims);
  need_computable(made.dims.size() >= 2);
  const std::int64_t width = made.dims.back(), height = made.dims[made.dims.size() - 2];
  const std::int64_t above = inputs.size() > 1 && inputs[1] != nullptr ? one_whole_of(inputs, 1) : 0;
  need_computable(above >= -height && above <= width);
  const bool upper = node.number("upper", 1) != 0;
  for (std::size_t i = 0; i < made.count(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t distance = at % width - at / width % height - above;
    if (upper ? distance >= 0 : distance <= 0) continue;
    made.whole ? void(made.integers[i] = 0) : void(made.f32[i] = 0);
  }
  return made;
}

}  // namespace

ArrayComputation find_move(std::string_view operation) {
  static const std::map<std::string_view, ArrayComputation> all{
      {"Concat", concat},   {"Expand", expand},      {"Gather", gather},   {"Identity", identity},
      {"Reshape", reshape}, {"Slice", slice},        {"Squeeze", squeeze}, {"Transpose", transpose},
      {"Trilu", trilu},     {"Unsqueeze", unsqueeze}};
  const auto at = all.find(operation);
  return at == all.end() ? nullptr : at->second;
}

}  // namespace troupe::detail
