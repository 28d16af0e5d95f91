#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/layer.hpp"

namespace troupe {

/// Puts layers one after the other, and names those without a name: conv2d_1, conv2d_2, relu_1. A graph made of them
/// has the same parameters as one whose layers were named by hand, and the same initial weights.
///   LayerList net;
///   const auto a = net.add(Conv2d{.filters = 20, .kernel = {5, 5}});
///   net.add(Conv2d{.filters = 20, .kernel = {3, 3}, .padding = {1, 1}});
///   net.add(Add{}, {a, net.last()});
class LayerList {
 public:
  /// Adds a layer that reads `inputs`, or, if there are none, the output of the previous layer. Returns its name. If
  /// `name` is empty, the layer gets a name that no other layer has.
  std::string add(Operation operation, std::vector<std::string> inputs = {}, std::string name = {});
  /// The name of the last added layer; there must be one.
  const std::string& last() const { return layers_.back().name; }
  bool has(std::string_view name) const noexcept;
  /// The layers. If the last one is not a loss, a softmax cross entropy called "loss" is appended.
  std::vector<Layer> finish() const;

 private:
  std::vector<Layer> layers_;
  std::map<std::string, std::size_t, std::less<>> counts_;  // number of generated names, by kind
};

}  // namespace troupe
