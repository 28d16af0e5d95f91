#include "runtime/model/detail/layer_rows.hpp"

namespace troupe::detail {
namespace {

constexpr double kMostScale = 1e6;
constexpr double kMostNormEpsilon = 1;

LayerResult infer_l2_norm(const LayerShapes& layer) {
  const Shape& read = layer.inputs.front();
  const double scale = std::get<L2Norm>(layer.operation).scale;
  return {read, {{.name = "scale", .extents = {read.extents.back()}, .mean = scale}}};
}

}  // namespace

LayerKind l2_norm_row() {
  return {.name = "l2_norm",
          .help =
              "Divides by the L2 norm over the last extent (of an image: the channels of each position), and "
              "multiplies by a learned scale of each channel.",
          .shape = "anything, same shape",
          .made = L2Norm{},
          .attributes = {{"scale", slot_of<&L2Norm::scale>, 0, kMostScale, "starting value of each channel's scale",
                          false, true},
                         {"epsilon",
                          slot_of<&L2Norm::epsilon>,
                          0,
                          kMostNormEpsilon,
                          "added to the sum of the squares",
                          false,
                          true,
                          {"eps"}}},
          .elsewhere = {"l2_normalization", "l2norm"},
          .infer = infer_l2_norm};
}

}  // namespace troupe::detail
