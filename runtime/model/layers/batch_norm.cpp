#include "runtime/model/detail/layer_rows.hpp"

namespace troupe::detail {
namespace {

LayerResult infer_batch_norm(const LayerShapes& layer) {
  const auto& norm = std::get<BatchNorm>(layer.operation);
  const Shape& input = layer.inputs.front();
  TROUPE_CHECK(input.extents.size() == 1 || input.extents.size() == 3, Code::invalid, layer.where, ": reads ",
               input.to_string(), "; it takes an image of height, width and channels, or channels alone");
  const std::vector<std::uint64_t> channels{input.extents.back()};
  return {input,
          {{.name = "weight", .extents = channels, .mean = 1},
           {.name = "bias", .extents = channels},
           {.name = "running_mean", .extents = channels, .momentum = norm.momentum},
           {.name = "running_var", .extents = channels, .mean = 1, .momentum = norm.momentum}}};
}

}  // namespace

LayerKind batch_norm_row() {
  return {
      .name = "batch_norm",
      .help =
          "Each channel minus its mean, divided by its standard deviation, then scaled and shifted by two parameters. "
          "In training mean and variance are those of the rank's own batch (with synchronized, of the batches of all "
          "ranks), over all positions of an image; evaluations use running ones, which are averaged over the ranks and "
          "kept with the parameters. The variance divides by n, the number of values of a channel in the batch; the "
          "running one moves toward n / (n - 1) times that. A plan whose batches have n = 1 is refused; in a shorter "
          "step n = 1 counts as a variance of 0, with the weight of that one sample.",
      .shape = "[height, width, channels] or [channels], same shape",
      .made = BatchNorm{},
      .attributes = {{"momentum", slot_of<&BatchNorm::momentum>, 0, 1,
                      "fraction by which a step moves the running mean and variance toward the batch's", false, true},
                     {"epsilon", slot_of<&BatchNorm::epsilon>, 0, 1, "added to the variance", false, true, {"eps"}},
                     {"synchronized", slot_of<&BatchNorm::synchronized>, 0, 1,
                      "mean and variance over the batches of all ranks of a step, which wait for each other in each "
                      "such layer; not with policies whose ranks do not take their steps together", false, false,
                      {"sync", "synchronised"}}},
      .elsewhere = {"batchnorm", "bn", "batch_normalization", "batch_norm2d"},
      .infer = infer_batch_norm};
}

}  // namespace troupe::detail
