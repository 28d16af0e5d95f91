#include "runtime/model/layer_list.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe {

std::string LayerList::add(Operation operation, std::vector<std::string> inputs, std::string name) {
  if (name.empty()) {
    const std::string kind{kind_of(operation).name};
    do name = text(kind, '_', ++counts_[kind]);
    while (has(name));
  }
  layers_.push_back({std::move(name), std::move(operation), std::move(inputs)});
  return layers_.back().name;
}

bool LayerList::has(std::string_view name) const noexcept {
  return std::ranges::any_of(layers_, [&](const Layer& layer) { return layer.name == name; });
}

std::vector<Layer> LayerList::finish() const {
  std::vector<Layer> layers = layers_;
  if (layers.empty() || !kind_of(layers.back().operation).is_loss) layers.push_back({"loss", SoftmaxCrossEntropy{}});
  return layers;
}

}  // namespace troupe
