#include "runtime/onnx/detail/model_builder.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe::detail {
namespace {

void check_count(const std::string& where, const Shape& shape) {
  std::uint64_t count = 1;
  for (const std::uint32_t extent : shape.extents) {
    TROUPE_CHECK(extent > 0 && extent <= kMaxTensorElements / count, Code::invalid, where, ": its output ",
                 shape.to_string(), " must have positive extents and at most ", kMaxTensorElements, " elements");
    count *= extent;
  }
}

}  // namespace

ModelBuilder::ModelBuilder(const std::vector<Field>& fields, std::uint64_t most_numbers)
    : fields_(fields), numbers_left_(most_numbers) {
  for (const Field& field : fields) {
    taken_.emplace(field.name, 2);
    tensors_.push_back({field.name, field.shape, field.dtype == DType::i32 ? field.classes : 0});
  }
}

std::uint32_t ModelBuilder::add(const std::string& where_node, const std::string& wanted_name, Operation operation,
                                const std::vector<std::uint32_t>& read, std::vector<Start> starts) {
  const std::string name = free_name(wanted_name);
  const std::string where = text(where_node, ", as layer ", name);
  const std::string wrong = wrong_attribute(operation);
  TROUPE_CHECK(wrong.empty(), Code::unsupported, where, ": ", wrong);
  const LayerKind& kind = kind_of(operation);
  LayerShapes shapes{where, operation, {}};
  for (const std::uint32_t tensor : read) {
    const bool tokens = has_tokens(tensor);
    TROUPE_CHECK(tokens == kind.reads_tokens, Code::unsupported, where, ": it reads ", tensors_[tensor].name,
                 tokens ? ", which has tokens" : ", which has no tokens");
    shapes.inputs.push_back(tensors_[tensor].shape);
    shapes.token_classes = tensors_[tensor].classes;
  }
  LayerResult result = kind.infer(shapes);
  check_count(where, result.output);
  for (const Parameter& parameter : result.parameters) {
    const auto at = std::ranges::find(starts, parameter.name, &Start::parameter);
    TROUPE_CHECK(at != starts.end() && at->numbers.size() == parameter.count_elements(), Code::invalid, where, ": its ",
                 parameter.name, " has ", at == starts.end() ? 0 : at->numbers.size(), " numbers, not ",
                 parameter.count_elements());
    TROUPE_CHECK(at->numbers.size() <= numbers_left_, Code::unsupported, where,
                 ": the file uses its weights so often that the layers, each with its own, have far more numbers");
    numbers_left_ -= at->numbers.size();
    made_.parameters[text(name, '.', parameter.name)] = std::move(at->numbers);
  }
  Layer layer{name, std::move(operation), {}};
  const bool follows = read.size() == 1 && read[0] + 1 == tensors_.size() && !made_.layers.empty();
  const bool begins = read.size() == 1 && read[0] == 0 && made_.layers.empty();
  for (const std::uint32_t tensor : read)
    if (!follows && !begins) layer.inputs.push_back(tensors_[tensor].name);
  made_.layers.push_back(std::move(layer));
  tensors_.push_back({name, std::move(result.output)});
  return static_cast<std::uint32_t>(tensors_.size() - 1);
}

std::string ModelBuilder::name_of(std::string_view name) {
  std::string made;
  const bool path = name.starts_with('/');
  if (path && name.ends_with("_output_0")) name.remove_suffix(std::string_view{"_output_0"}.size());
  // Checkpoints and reports are JSON, whose text is UTF-8.
  for (const char c : printable(name.substr(path ? 1 : 0)))
    made += path && c == '/' ? '.' : c == '\n' || c == '\t' || c == '\\' ? '_' : c;
  return made;
}

std::string ModelBuilder::free_name(const std::string& wanted) {
  const auto [at, is_free] = taken_.try_emplace(wanted.empty() ? "layer" : wanted, 2);
  if (is_free) return at->first;
  for (;;) {
    std::string name = text(at->first, '_', at->second++);
    if (taken_.try_emplace(name, 2).second) return name;
  }
}

std::string ModelBuilder::layer_name(std::string_view output,
                                     const std::vector<std::pair<std::string_view, std::string_view>>& numbers) const {
  for (const auto& [name, parameter] : numbers) {
    const std::string ending = text('.', parameter);
    if (name.size() <= ending.size() || !name.ends_with(ending)) continue;
    std::string stem = name_of(name.substr(0, name.size() - ending.size()));
    if (!taken_.contains(stem)) return stem;
  }
  return name_of(output);
}

OnnxModel ModelBuilder::finish(std::string_view name, std::uint32_t output) {
  made_.name = name_of(name.empty() ? "onnx" : name);
  made_.output = tensors_[output].name;
  return std::move(made_);
}

}  // namespace troupe::detail
