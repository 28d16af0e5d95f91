#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe::reference {

/// What one batch gives. Gradients are sums over the rows that count.
struct Result {
  double loss = 0;
  std::uint64_t correct = 0;
  std::uint64_t samples = 0;
  std::vector<double> gradients;  // [layout]; empty when none were asked for
};

/// What a batch has in one field: numbers [rows, elements], or labels or tokens [rows, elements]. A field of sample
/// keys is empty in an evaluation, where nothing is drawn.
struct FieldValues {
  std::vector<double> numbers;
  std::vector<std::int32_t> labels;
};

/// A graph's mathematics in f64, from flat parameters and rows.
class Model {
 public:
  Model(const Graph& graph, const Layout& layout) : graph_(graph), layout_(layout) {}
  /// `parameters` [layout], `fields` in the graph's order, of `rows` rows. With gradients it is a step of training,
  /// otherwise an evaluation. Throws Error{corrupt} for a label that is no
  /// class.
  Result run(std::span<const double> parameters, std::span<const FieldValues> fields, std::uint32_t rows,
             bool with_gradients) const;

 private:
  struct Pass;
  const Graph graph_;
  const Layout layout_;
};

}  // namespace troupe::reference
