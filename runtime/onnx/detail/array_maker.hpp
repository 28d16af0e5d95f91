#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/onnx/detail/onnx_file.hpp"

// What the computations of constants.cpp and moved_numbers.cpp are made of.

namespace troupe::detail {

using WholeNumbers = std::vector<std::int64_t>;
using ArrayInputs = std::span<const OnnxNumbers* const>;

/// So that numbers that no longer depend on the rows can be shapes and indices.
inline void forget_rows(OnnxNumbers& numbers) {
  if (std::ranges::find(numbers.of_rows, true) == numbers.of_rows.end()) numbers.of_rows.clear();
}

/// Thrown where a node's numbers cannot be computed.
struct NotComputed {};
inline void need_computable(bool holds) {
  if (!holds) throw NotComputed{};
}

inline std::int64_t count_of_dims(const WholeNumbers& dims) {
  std::int64_t count = 1;
  need_computable(dims.size() <= kMostDims);
  for (const std::int64_t dim : dims) need_computable(dim >= 0 && !__builtin_mul_overflow(count, dim, &count));
  return count;
}

inline const OnnxNumbers& input_of(ArrayInputs inputs, std::size_t index) {
  need_computable(index < inputs.size() && inputs[index] != nullptr);
  return *inputs[index];
}
/// Whole numbers that do not depend on the number of rows.
inline const WholeNumbers& whole_of(ArrayInputs inputs, std::size_t index) {
  const OnnxNumbers& found = input_of(inputs, index);
  need_computable(found.whole && found.of_rows.empty());
  return found.integers;
}
inline std::int64_t one_whole_of(ArrayInputs inputs, std::size_t index) {
  need_computable(whole_of(inputs, index).size() == 1);
  return whole_of(inputs, index)[0];
}
/// Of an attribute, or, in newer opsets, of the second input.
inline WholeNumbers axes_of(const OnnxNode& node, ArrayInputs inputs, std::size_t dims) {
  WholeNumbers axes;
  if (const auto* list = node.list("axes"))
    axes = *list;
  else if (inputs.size() > 1 && inputs[1] != nullptr)
    axes = whole_of(inputs, 1);
  for (std::int64_t& axis : axes) {
    axis += axis < 0 ? static_cast<std::int64_t>(dims) : 0;
    need_computable(axis >= 0 && axis < static_cast<std::int64_t>(dims));
  }
  return axes;
}
inline std::size_t axis_of(const OnnxNode& node, std::int64_t otherwise, std::size_t dims) {
  std::int64_t axis = node.number("axis", otherwise);
  axis += axis < 0 ? static_cast<std::int64_t>(dims) : 0;
  need_computable(axis >= 0 && axis < static_cast<std::int64_t>(dims));
  return static_cast<std::size_t>(axis);
}

/// Makes arrays, and counts their numbers.
class ArrayMaker {
 public:
  explicit ArrayMaker(std::uint64_t& left) : left_(left) {}

  OnnxNumbers empty(WholeNumbers dims, bool is_whole) {
    OnnxNumbers made;
    const auto count = static_cast<std::uint64_t>(count_of_dims(dims));
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
  OnnxNumbers chosen(const OnnxNumbers& from, WholeNumbers dims, Place place) {
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
  OnnxNumbers reshaped(const OnnxNumbers& from, WholeNumbers dims) {
    need_computable(count_of_dims(dims) == static_cast<std::int64_t>(from.count()));
    return chosen(from, std::move(dims), [](std::size_t i) { return i; });
  }
  OnnxNumbers expanded(const OnnxNumbers& from, const WholeNumbers& to) {
    const WholeNumbers strides = broadcast_strides(from.dims, to);
    return chosen(from, to, [&](std::size_t i) { return place(i, to, strides); });
  }
  /// Strides in an array of `from`, of each dimension of `to`; 0 where it repeats.
  static WholeNumbers broadcast_strides(const WholeNumbers& from, const WholeNumbers& to) {
    need_computable(from.size() <= to.size());
    WholeNumbers strides(to.size());
    std::int64_t stride = 1;
    for (std::size_t back = 1; back <= from.size(); ++back) {
      const std::int64_t dim = from[from.size() - back];
      need_computable(dim == 1 || dim == to[to.size() - back]);
      if (dim != 1) strides[to.size() - back] = stride;
      stride *= dim;
    }
    return strides;
  }
  static std::size_t place(std::size_t index, const WholeNumbers& dims, const WholeNumbers& strides) {
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

inline WholeNumbers broadcast_dims(const WholeNumbers& one, const WholeNumbers& two) {
  WholeNumbers dims(std::max(one.size(), two.size()));
  for (std::size_t back = 1; back <= dims.size(); ++back) {
    const std::int64_t a = back <= one.size() ? one[one.size() - back] : 1;
    const std::int64_t b = back <= two.size() ? two[two.size() - back] : 1;
    need_computable(a == b || a == 1 || b == 1);
    dims[dims.size() - back] = a == 1 ? b : a;
  }
  return dims;
}

using ArrayComputation = OnnxNumbers (*)(const OnnxNode&, ArrayInputs, ArrayMaker&);
/// Of an operation that only puts numbers elsewhere (moved_numbers.cpp); null: it is another one.
ArrayComputation find_move(std::string_view operation);

}  // namespace troupe::detail
