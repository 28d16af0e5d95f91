#include "runtime/model/detail/layer_rows.hpp"

namespace troupe::detail {
namespace {

constexpr double kMostWeight = 1e30;
constexpr double kMostBeta = 1e30;
constexpr double kMostLabel = 0x7fffffff;

template <auto kMember>
LayerAttribute weight_attribute() {
  return {"weight", slot_of<kMember>, 0, kMostWeight, "factor of this loss in the sum", false, true};
}

}  // namespace

LayerKind softmax_cross_entropy_row() {
  return {
      .name = "softmax_cross_entropy",
      .help =
          "A loss: -log of the probability that softmax gives to the label. It reads logits, then a field of "
          "labels; a sample whose label is below 0 or `ignore` does not count. Where a sample has labels of extents "
          "[...], each of them has a row of logits and counts as a sample.",
      .shape = "anything, one element for each class; with labels [...]: [..., classes]",
      .is_loss = true,
      .made = SoftmaxCrossEntropy{},
      .attributes = {weight_attribute<&SoftmaxCrossEntropy::weight>(),
                     {"smoothing",
                      slot_of<&SoftmaxCrossEntropy::smoothing>,
                      0,
                      1,
                      "fraction of the target that all classes share equally, in evaluations too",
                      false,
                      false,
                      {"label_smoothing"}},
                     {"ignore",
                      slot_of<&SoftmaxCrossEntropy::ignore>,
                      -1,
                      kMostLabel,
                      "a label that does not count, a class or none; -1: only those below 0",
                      false,
                      false,
                      {"ignore_index", "ignore_label"}}},
      .infer = same_shape};
}

LayerKind smooth_l1_row() {
  return {.name = "smooth_l1",
          .help =
              "A loss: the mean over the elements of d²/(2 beta) where the distance d of an element and its target is "
              "below beta, else of d - beta/2. It reads numbers, then a field of as many numbers. A sample is never "
              "counted as right.",
          .shape = "anything",
          .is_loss = true,
          .has_number_targets = true,
          .made = SmoothL1{},
          .attributes = {weight_attribute<&SmoothL1::weight>(),
                         {"beta",
                          slot_of<&SmoothL1::beta>,
                          0,
                          kMostBeta,
                          "distance above which the loss grows linearly",
                          false,
                          true,
                          {"delta"}}},
          .elsewhere = {"huber"},
          .infer = same_shape};
}

LayerKind sigmoid_cross_entropy_row() {
  return {
      .name = "sigmoid_cross_entropy",
      .help =
          "A loss for classes that do not exclude one another: the mean over the classes of -log of the probability "
          "that sigmoid gives to the target. It reads logits, then a field of as many targets from 0 to 1; a class "
          "whose target is below 0 does not count. A sample is right where each class is on its target's side.",
      .shape = "anything, one element for each class",
      .is_loss = true,
      .has_number_targets = true,
      .made = SigmoidCrossEntropy{},
      .attributes = {weight_attribute<&SigmoidCrossEntropy::weight>()},
      .elsewhere = {"binary_cross_entropy", "bce_with_logits"},
      .infer = same_shape};
}

}  // namespace troupe::detail
