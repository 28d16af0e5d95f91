#include "runtime/model/detail/layer_rows.hpp"

namespace troupe::detail {
namespace {

LayerResult infer_dense(const LayerShapes& layer) {
  const auto& dense = std::get<Dense>(layer.operation);
  Shape output = layer.inputs.front();
  const std::uint64_t all = output.count_elements();
  const std::uint64_t in = dense.flatten ? all : output.extents.back();
  output.extents.resize(dense.flatten ? 1 : output.extents.size());
  output.extents.back() = dense.units;
  const std::uint64_t weights = limited_product(layer, "weights", dense.units, in);
  return {std::move(output), weight_and_bias({dense.units, in}, in, dense.bias),
          limited_product(layer, "multiplications", weights, all / in)};
}

}  // namespace

LayerKind dense_row() {
  return {.name = "dense",
          .help = "Each unit is a weighted sum of all inputs plus a bias.",
          .shape = "anything to [units]; without `flatten` [..., n] to [..., units]",
          .made = Dense{},
          .attributes = {{"units",
                          slot_of<&Dense::units>,
                          1,
                          kMostCounted,
                          "number of outputs",
                          true,
                          false,
                          {"out_features", "outputs", "filters", "width"}},
                         {"flatten", slot_of<&Dense::flatten>, 0, 1,
                          "whether a unit reads all elements; false: only the last extent, at each position of the "
                          "others, with the same weights"},
                         {"bias", slot_of<&Dense::bias>, 0, 1, "whether there is a bias", false, false, {"use_bias"}}},
          .elsewhere = {"linear", "fc", "fully_connected", "inner_product"},
          .infer = infer_dense};
}

}  // namespace troupe::detail
