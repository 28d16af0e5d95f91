#include "runtime/graph.hpp"

#include <cmath>
#include <iomanip>
#include <sstream>
#include <unordered_set>

#include "runtime/error.hpp"

namespace troupe {
namespace {

/// No tensor may be larger, so that sizes and offsets in bytes never overflow.
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;

std::uint64_t product(const std::vector<std::uint32_t>& extents) noexcept {
  std::uint64_t count = 1;
  for (const std::uint32_t extent : extents) count *= extent;
  return count;
}

void check_input(const std::string& graph, const Shape& input) {
  TROUPE_CHECK(!input.extents.empty(), Code::invalid, "graph ", graph, ": the input has no extents; give at least one");
  std::uint64_t count = 1;
  for (const std::uint32_t extent : input.extents) {
    TROUPE_CHECK(extent > 0 && extent <= kMaxElements / count, Code::invalid, "graph ", graph, ": the input ",
                 input.to_string(), " must have positive extents and at most ", kMaxElements, " elements");
    count *= extent;
  }
}

std::string to_text(const Operation& operation) {
  if (const auto* dense = std::get_if<Dense>(&operation)) return text("dense(", dense->units, ")");
  return std::holds_alternative<Relu>(operation) ? "relu" : "softmax_cross_entropy";
}

}  // namespace

std::string_view name_of(DType type) noexcept { return type == DType::f32 ? "f32" : "bf16"; }

std::uint64_t Shape::count_elements() const noexcept { return product(extents); }

std::string Shape::to_string() const {
  std::ostringstream out;
  out << '[';
  for (std::size_t i = 0; i < extents.size(); ++i) out << (i ? ", " : "") << extents[i];
  out << ']';
  return out.str();
}

std::uint64_t Parameter::count_elements() const noexcept {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : extents) count *= extent;
  return count;
}

Graph::Graph(std::string name, Shape input, DType dtype, std::vector<Layer> layers)
    : name_(std::move(name)), input_(std::move(input)), dtype_(dtype), layers_(std::move(layers)) {
  check_input(name_, input_);
  TROUPE_CHECK(!layers_.empty(), Code::invalid, "graph ", name_, ": it has no layers");
  std::unordered_set<std::string> names;
  Shape shape = input_;
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    TROUPE_CHECK(!layer.name.empty(), Code::invalid, "graph ", name_, ": layer ", i, " has no name");
    TROUPE_CHECK(names.insert(layer.name).second, Code::invalid, "graph ", name_, ": two layers are called ",
                 layer.name, "; names must differ");
    const bool last = i + 1 == layers_.size();
    const bool loss = std::holds_alternative<SoftmaxCrossEntropy>(layer.operation);
    TROUPE_CHECK(loss == last, Code::invalid, "graph ", name_, ", layer ", layer.name, ": ",
                 loss ? "a loss must be the last layer" : "the last layer must be a loss (SoftmaxCrossEntropy)");
    if (const auto* dense = std::get_if<Dense>(&layer.operation)) {
      const std::uint64_t in = shape.count_elements();
      TROUPE_CHECK(dense->units > 0, Code::invalid, "graph ", name_, ", layer ", layer.name, ": 0 units; at least 1");
      TROUPE_CHECK(dense->units <= kMaxElements / in, Code::invalid, "graph ", name_, ", layer ", layer.name, ": ",
                   dense->units, " units on ", in, " inputs are more than ", kMaxElements, " weights");
      // LeCun: the variance of a unit's sum is that of its inputs.
      parameters_.push_back({layer.name + ".weight", {dense->units, in}, i, std::sqrt(1.0 / static_cast<double>(in))});
      parameters_.push_back({layer.name + ".bias", {dense->units}, i, 0});
      shape = Shape{{dense->units}};
    }
    outputs_.push_back(shape);
  }
  TROUPE_CHECK(!parameters_.empty(), Code::invalid, "graph ", name_,
               ": no layer has units, so there is nothing to train");
}

Graph::Graph(std::string name, Shape input, std::vector<Parameter> parameters)
    : name_(std::move(name)), input_(std::move(input)), dtype_(DType::f32), parameters_(std::move(parameters)) {
  check_input(name_, input_);
  TROUPE_CHECK(!parameters_.empty(), Code::invalid, "graph ", name_, ": it has no parameters, so nothing to train");
  std::unordered_set<std::string> names;
  for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    TROUPE_CHECK(!parameter.name.empty(), Code::invalid, "graph ", name_, ": parameter ", i, " has no name");
    TROUPE_CHECK(names.insert(parameter.name).second, Code::invalid, "graph ", name_, ": two parameters are called ",
                 parameter.name, "; names must differ");
    std::uint64_t count = 1;
    for (const std::uint64_t extent : parameter.extents) {
      TROUPE_CHECK(extent > 0 && extent <= kMaxElements / count, Code::invalid, "graph ", name_, ", parameter ",
                   parameter.name, ": its extents must be positive and make at most ", kMaxElements, " elements");
      count *= extent;
    }
    TROUPE_CHECK(std::isfinite(parameter.deviation) && parameter.deviation >= 0, Code::invalid, "graph ", name_,
                 ", parameter ", parameter.name, ": its deviation is ", parameter.deviation,
                 "; it must be 0 or positive");
    parameter.layer = i;
  }
}

std::uint32_t Graph::count_classes() const noexcept {
  if (outputs_.empty()) return 0;
  return static_cast<std::uint32_t>(outputs_.back().count_elements());
}

std::uint64_t Graph::count_parameters() const noexcept {
  std::uint64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.count_elements();
  return count;
}

// Only matrix products are counted: what touches each element once is bound by memory, not by arithmetic.
std::uint64_t Graph::forward_flops() const noexcept {
  std::uint64_t flops = 0;
  for (const Parameter& parameter : parameters_) {
    if (parameter.extents.size() == 2) flops += 2 * parameter.count_elements();
  }
  return flops;
}

std::uint64_t Graph::training_flops() const noexcept {
  if (layers_.empty()) return 3 * forward_flops();
  // Forward, gradient to the weights and gradient to the input: the same size each; the first layer has no use for the
  // last.
  return 3 * forward_flops() - 2 * parameters_.front().count_elements();
}

std::string Graph::to_string() const {
  std::ostringstream out;
  out << "graph " << std::quoted(name_) << " input " << input_.to_string() << ' ' << name_of(dtype_);
  for (const Layer& layer : layers_) out << ' ' << std::quoted(layer.name) << '=' << to_text(layer.operation);
  if (layers_.empty()) {
    for (const Parameter& parameter : parameters_) {
      out << ' ' << std::quoted(parameter.name) << '[';
      for (const std::uint64_t extent : parameter.extents) out << ' ' << extent;
      out << " ] deviation " << std::setprecision(17) << parameter.deviation;
    }
  }
  return out.str();
}

}  // namespace troupe
