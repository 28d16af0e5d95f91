#include "runtime/model/detail/layer_rows.hpp"

namespace troupe::detail {
namespace {

constexpr double kMostWeight = 1e30;

}  // namespace

LayerKind softmax_cross_entropy_row() {
  return {
      .name = "softmax_cross_entropy",
      .help =
          "A loss: -log of the probability that softmax gives to the label. It reads logits, then a field of "
          "labels; a sample whose label is below 0 does not count. Where a sample has labels of extents [...], each "
          "of them has a row of logits and counts as a sample.",
      .shape = "anything, one element for each class; with labels [...]: [..., classes]",
      .is_loss = true,
      .made = SoftmaxCrossEntropy{},
      .attributes = {{"weight", slot_of<&SoftmaxCrossEntropy::weight>, 0, kMostWeight,
                      "factor, where a model has several losses", false, true}},
      .infer = same_shape};
}

}  // namespace troupe::detail
