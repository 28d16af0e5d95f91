#include "apps/models/models.hpp"

#include <array>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {
namespace {

const Field& needed_field(const Settings& settings, const std::vector<Field>& fields, std::string_view name) {
  const Field* const found = find_field(fields, name);
  TROUPE_CHECK(found != nullptr, Code::invalid, "model ", settings.model.name, " reads a field \"", name,
               "\"; the data set has ", list_fields(fields));
  return *found;
}

/// ChainerMN's MNIST network for units = [1000, 1000]: dense layers l1, l2, ... with a ReLU after each but the last.
Graph build_mlp(const Settings& settings, const std::vector<Field>& fields) {
  Field image = needed_field(settings, fields, kImage);
  const Field label = needed_field(settings, fields, kLabel);
  image.dtype = settings.model.dtype;
  std::vector<Layer> layers;
  std::size_t number = 1;
  for (const std::uint32_t units : settings.model.units) {
    layers.push_back({text("l", number), Dense{units}});
    layers.push_back({text("relu", number), Relu{}});
    ++number;
  }
  layers.push_back({text("l", number), Dense{label.classes}});
  layers.push_back({"loss", SoftmaxCrossEntropy{}});
  return {settings.model.name, {std::move(image), label}, settings.model.dtype, std::move(layers)};
}

struct Registered {
  std::string_view name;
  Graph (*build)(const Settings&, const std::vector<Field>&);
};
constexpr std::array kModels{Registered{"mlp", build_mlp}};

}  // namespace

Graph build_model(const Settings& settings, const std::vector<Field>& fields) {
  std::string names;
  for (const Registered& model : kModels) {
    if (model.name == settings.model.name) return model.build(settings, fields);
    names += text(names.empty() ? "" : ", ", model.name);
  }
  fail(Code::invalid, text("model.name = \"", settings.model.name, "\": there is no such model; there are: ", names));
}

}  // namespace troupe
