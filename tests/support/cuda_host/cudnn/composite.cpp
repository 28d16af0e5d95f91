// Graphs of several operations, and how they are computed.
#include "tests/support/cuda_host/cudnn/composite.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace troupe::cuda::dnn::host {
namespace {

using Values = std::vector<float>;

/// The tensors of an operation that it reads.
std::vector<const TensorForm*> read_by(const GraphOperation& of) {
  std::vector<const TensorForm*> all{&of.x};
  for (const auto* const one : {&of.b, &of.t})
    if (*one) all.push_back(&**one);
  return all;
}

/// Where each element lies, in the order of the extents, the last one first.
template <class Act>
void for_each_place(const Extents& extents, const Extents& strides, Act&& act) {
  Extents i{};
  for (i[0] = 0; i[0] < extents[0]; ++i[0])
    for (i[1] = 0; i[1] < extents[1]; ++i[1])
      for (i[2] = 0; i[2] < extents[2]; ++i[2])
        for (i[3] = 0; i[3] < extents[3]; ++i[3])
          act(i,
              static_cast<std::size_t>(i[0] * strides[0] + i[1] * strides[1] + i[2] * strides[2] + i[3] * strides[3]));
}

Extents packed(const Extents& of) { return {of[1] * of[2] * of[3], of[2] * of[3], of[3], 1}; }

/// Strides of a packed tensor whose extents of 1 are repeated.
Extents repeated(const Extents& of) {
  Extents strides = packed(of);
  for (std::size_t d = 0; d < 4; ++d)
    if (of[d] == 1) strides[d] = 0;
  return strides;
}

bool can_be_repeated(const Extents& from, const Extents& to) {
  for (std::size_t d = 0; d < 4; ++d)
    if (from[d] != to[d] && from[d] != 1) return false;
  return true;
}

/// As it lies between two operations.
float rounded_to(DataType type, float value) {
  if (type == DataType::bf16) return widened(rounded(value));
  return type == DataType::f16 ? from_f16(to_f16(value)) : value;
}

float curve(const GraphOperation& of, float x, float b, float t) {
  switch (of.mode) {
    case PointwiseMode::add: return x + b;
    case PointwiseMode::subtract: return x - b;
    case PointwiseMode::multiply: return x * b;
    case PointwiseMode::divide: return x / b;
    case PointwiseMode::exp: return std::exp(x);
    case PointwiseMode::log: return std::log(x);
    case PointwiseMode::at_least: return x >= b ? 1.0F : 0.0F;
    case PointwiseMode::select: return t != 0 ? x : b;
    default: return x;
  }
}

/// Tensors by id, each packed.
class Interpreter {
 public:
  std::map<std::int64_t, Values> values;

  void run(const GraphOperation& of) {
    Values& y = values[of.y.id];
    y.assign(of.y.count(), 0.0F);
    switch (of.kind) {
      case DescriptorType::product_operation: multiply(of, y); break;
      case DescriptorType::reduction_operation: reduce(of, y); break;
      case DescriptorType::reshape: reshape(of, y); break;
      default: pointwise(of, y); break;
    }
    for (float& one : y) one = rounded_to(of.y.type, one);
  }

 private:
  void pointwise(const GraphOperation& of, Values& y) {
    const auto operand = [&](const TensorForm& one) { return std::pair{&values[one.id], repeated(one.extents)}; };
    const auto x = operand(of.x), b = operand(of.b ? *of.b : of.x), t = operand(of.t ? *of.t : of.x);
    const auto in = [](const auto& one, const Extents& i) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < 4; ++d) at += i[d] * one.second[d];
      return (*one.first)[static_cast<std::size_t>(at)];
    };
    for_each_place(of.y.extents, packed(of.y.extents), [&](const Extents& i, std::size_t to) {
      y[to] = of.mode == PointwiseMode::index ? static_cast<float>(i[static_cast<std::size_t>(of.axis)])
                                              : curve(of, in(x, i), in(b, i), in(t, i));
    });
  }
  void reduce(const GraphOperation& of, Values& y) {
    const bool is_max = of.reduction == ReductionOperator::max;
    std::vector<double> sums(y.size(), is_max ? -std::numeric_limits<double>::infinity() : 0);
    const Values& x = values[of.x.id];
    const Extents to = repeated(of.y.extents);
    std::size_t from = 0;
    for_each_place(of.x.extents, to, [&](const Extents&, std::size_t at) {
      sums[at] = is_max ? std::max(sums[at], double{x[from]}) : sums[at] + x[from];
      ++from;
    });
    y = {sums.begin(), sums.end()};
  }
  void multiply(const GraphOperation& of, Values& y) {
    const Values &a = values[of.x.id], &b = values[of.b->id];
    const auto [batches, heads, rows, inner] = of.x.extents;
    const std::int64_t columns = of.y.extents[3];
    for (std::int64_t m = 0; m < batches * heads * rows; ++m)
      for (std::int64_t n = 0; n < columns; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < inner; ++k)
          sum += double{a[static_cast<std::size_t>(m * inner + k)]} *
                 b[static_cast<std::size_t>((m / rows * inner + k) * columns + n)];
        y[static_cast<std::size_t>(m * columns + n)] = static_cast<float>(sum);
      }
  }
  /// An element of y is that of x at the same place.
  void reshape(const GraphOperation& of, Values& y) {
    std::map<std::size_t, float> at;
    std::size_t next = 0;
    for_each_place(of.x.extents, of.x.strides,
                   [&](const Extents&, std::size_t place) { at[place] = values[of.x.id][next++]; });
    next = 0;
    for_each_place(of.y.extents, of.y.strides, [&](const Extents&, std::size_t place) { y[next++] = at[place]; });
  }
};

std::string mistake_in(const GraphOperation& of) {
  const Extents &x = of.x.extents, &y = of.y.extents;
  const auto differ = [&](const char* what) {
    return std::string{what} + " whose tensors do not match: x " + of.x.text() + (of.b ? ", b " + of.b->text() : "") +
           ", y " + of.y.text();
  };
  switch (of.kind) {
    case DescriptorType::product_operation: {
      const Extents& b = of.b->extents;
      return b == Extents{x[0], x[1], x[3], y[3]} && y == Extents{x[0], x[1], x[2], b[3]} ? "" : differ("a product");
    }
    case DescriptorType::reduction_operation: return can_be_repeated(y, x) ? "" : differ("a reduction");
    case DescriptorType::reshape: return of.x.count() == of.y.count() ? "" : differ("a reshape");
    default: break;
  }
  const auto operands = read_by(of);
  const bool fits =
      std::ranges::all_of(operands, [&](const TensorForm* one) { return can_be_repeated(one->extents, y); });
  const std::size_t needed = of.mode == PointwiseMode::select ? 3
                             : of.mode == PointwiseMode::exp || of.mode == PointwiseMode::log ||
                                     of.mode == PointwiseMode::index || of.mode == PointwiseMode::relu
                                 ? 1
                                 : 2;
  if (operands.size() != needed) return "a curve with " + std::to_string(operands.size()) + " operands";
  return fits ? "" : differ("a curve");
}

}  // namespace

std::string Composite::mistake() const {
  std::set<std::int64_t> written;
  for (const GraphOperation& each : operations) {
    if (std::string found = mistake_in(each); !found.empty()) return found;
    for (const TensorForm* const read : read_by(each))
      if (read->is_virtual && !written.contains(read->id))
        return "an operation that reads tensor " + std::to_string(read->id) + ", which none before it has put out";
    if (!written.insert(each.y.id).second) return "two operations that put out tensor " + std::to_string(each.y.id);
  }
  return {};
}

long Composite::count_products() const noexcept {
  return std::ranges::count(operations, DescriptorType::product_operation, &GraphOperation::kind);
}

bool Composite::is_known() const {
  const auto is_stored = [](const Operand& one) {
    return one.tensor.type == DataType::bf16 || one.tensor.type == DataType::f16 || one.tensor.type == DataType::f32;
  };
  return std::ranges::all_of(tensors(), is_stored) && (count_products() == 2 || count_products() == 5);
}

const char* Composite::fault_name() const noexcept {
  return count_products() == 2 ? "attention" : "attention_backward";
}

std::vector<Computation::Operand> Composite::tensors() const {
  std::set<std::int64_t> seen, written;
  for (const GraphOperation& each : operations) written.insert(each.y.id);
  std::vector<Operand> all;
  const auto add = [&](const TensorForm& one) {
    if (one.is_virtual || one.is_by_value || !seen.insert(one.id).second) return;
    all.push_back({one, !written.contains(one.id), written.contains(one.id)});
  };
  for (const GraphOperation& each : operations) {
    for (const TensorForm* const read : read_by(each)) add(*read);
    add(each.y);
  }
  return all;
}

std::vector<std::int64_t> Composite::constants() const {
  std::set<std::int64_t> ids;
  for (const GraphOperation& each : operations)
    for (const TensorForm* const read : read_by(each))
      if (read->is_by_value) ids.insert(read->id);
  return {ids.begin(), ids.end()};
}

std::string Composite::compute(const EngineConfig&, const Found& found) const {
  Interpreter interpreter;
  const auto ids = constants();
  for (std::size_t i = 0; i < ids.size(); ++i) interpreter.values[ids[i]] = {found.constants[i]};
  const auto all = tensors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].is_read) continue;
    Values& read = interpreter.values[all[i].tensor.id];
    for_each_place(all[i].tensor.extents, all[i].tensor.strides, [&](const Extents&, std::size_t at) {
      read.push_back(load(found.tensors[i], stored(all[i].tensor.type), at));
    });
  }
  for (const GraphOperation& each : operations) interpreter.run(each);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].is_written) continue;
    std::size_t next = 0;
    const Values& written = interpreter.values[all[i].tensor.id];
    for_each_place(all[i].tensor.extents, all[i].tensor.strides, [&](const Extents&, std::size_t at) {
      store(found.tensors[i], stored(all[i].tensor.type), at, written[next++]);
    });
  }
  if (found.workspace != nullptr) std::fill_n(found.workspace, words_of_part(*this), 0.0F);
  return {};
}

}  // namespace troupe::cuda::dnn::host
