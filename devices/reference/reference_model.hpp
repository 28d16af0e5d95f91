#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe::reference {

/// The results of one batch. Gradients are sums over the rows that count.
struct Result {
  double loss = 0;
  std::uint64_t correct = 0;
  std::uint64_t samples = 0;
  std::vector<double> gradients;  // [layout]; empty if not requested
};

/// The content of one field of a batch: numbers [rows, elements], or labels or tokens [rows, elements]. A field of
/// sample keys is empty in an evaluation, which has no dropout.
struct FieldValues {
  std::vector<double> numbers;
  std::vector<std::int32_t> labels;
};

/// The mathematics of a graph in f64, for flat parameters and rows.
class Model {
 public:
  Model(const Graph& graph, const Layout& layout) : graph_(graph), layout_(layout) {}
  /// `parameters` [layout]; `fields` in the graph's order, `rows` rows each. With gradients it is a
  /// step of training, otherwise an evaluation. Throws Error{corrupt} for a label that is not a
  /// class.
  Result run(std::span<const double> parameters, std::span<const FieldValues> fields, std::uint32_t rows,
             bool with_gradients) const;

 private:
  struct Pass;
  const Graph graph_;
  const Layout layout_;
};

}  // namespace troupe::reference
