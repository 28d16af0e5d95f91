#include "runtime/model/detail/layer_rows.hpp"

namespace troupe::detail {
namespace {

LayerResult infer_dense(const LayerShapes& layer) {
  const std::uint32_t units = std::get<Dense>(layer.operation).units;
  const std::uint64_t in = layer.inputs.front().count_elements();
  const std::uint64_t weights = limited_product(layer, "weights", units, in);
  return {Shape{{units}}, weight_and_bias({units, in}, in), weights};
}

}  // namespace

LayerKind dense_row() {
  return {.name = "dense",
          .help = "Each of its units is a weighted sum of everything that it reads, and a bias.",
          .shape = "anything to [units]",
          .made = Dense{},
          .attributes = {{"units",
                          slot_of<&Dense::units>,
                          1,
                          kMostCounted,
                          "number of outputs",
                          true,
                          false,
                          {"out_features", "outputs", "filters", "width"}}},
          .elsewhere = {"linear", "fc", "fully_connected", "inner_product"},
          .infer = infer_dense};
}

}  // namespace troupe::detail
