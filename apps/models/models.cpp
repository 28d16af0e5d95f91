#include "apps/models/models.hpp"

#include <array>
#include <string>
#include <string_view>

#include "runtime/error.hpp"

namespace troupe {
namespace {

/// ChainerMN's MNIST network for units = [1000, 1000]: dense layers l1, l2, ... with a ReLU after each but the last.
Graph build_mlp(const Settings& settings, const Shape& input, std::uint32_t classes) {
  std::vector<Layer> layers;
  std::size_t number = 1;
  for (const std::uint32_t units : settings.model.units) {
    layers.push_back({text("l", number), Dense{units}});
    layers.push_back({text("relu", number), Relu{}});
    ++number;
  }
  layers.push_back({text("l", number), Dense{classes}});
  layers.push_back({"loss", SoftmaxCrossEntropy{}});
  return {settings.model.name, input, settings.model.dtype, std::move(layers)};
}

struct Registered {
  std::string_view name;
  Graph (*build)(const Settings&, const Shape&, std::uint32_t);
};
constexpr std::array kModels{Registered{"mlp", build_mlp}};

}  // namespace

Graph build_model(const Settings& settings, const Shape& input, std::uint32_t classes) {
  std::string names;
  for (const Registered& model : kModels) {
    if (model.name == settings.model.name) return model.build(settings, input, classes);
    names += text(names.empty() ? "" : ", ", model.name);
  }
  fail(Code::invalid, text("model.name = \"", settings.model.name, "\": there is no such model; there are: ", names));
}

}  // namespace troupe
