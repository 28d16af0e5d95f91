#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/layer.hpp"

namespace troupe {

/// Puts layers one behind the other, and gives names to those that have none: conv2d_1, conv2d_2, relu_1. A graph made
/// of them has the same parameters as one whose layers were named by hand, and weights start with the same values.
///   LayerList net;
///   const auto a = net.add(Conv2d{.filters = 20, .kernel = {5, 5}});
///   net.add(Conv2d{.filters = 20, .kernel = {3, 3}, .padding = {1, 1}});
///   net.add(Add{}, {a, net.last()});
class LayerList {
 public:
  /// Adds a layer that reads `inputs`, or where there are none what the one before puts out. Returns its name; empty:
  /// it is given one that no layer has yet.
  std::string add(Operation operation, std::vector<std::string> inputs = {}, std::string name = {});
  /// The name of the layer that was added last; there is one.
  const std::string& last() const { return layers_.back().name; }
  bool has(std::string_view name) const noexcept;
  /// The layers. Where the last one is no loss, a softmax cross entropy called "loss" follows it.
  std::vector<Layer> finish() const;

 private:
  std::vector<Layer> layers_;
  std::map<std::string, std::size_t, std::less<>> counts_;  // of names given, by kind
};

}  // namespace troupe
