#include "runtime/model/dropout.hpp"

#include "runtime/model/detail/layer_rows.hpp"

namespace troupe {

Field sample_key_field() { return {std::string{kSampleKey}, {{2}}, DType::i32}; }

namespace detail {

LayerKind dropout_row() {
  return {.name = "dropout",
          .help =
              "In training, each element becomes 0 with probability `rate`, and the others are divided by 1 - `rate`; "
              "in evaluation nothing changes. Which elements become 0 depends only on train.seed, the epoch, the "
              "sample and the layer: it is the same for any number of ranks and after a resume. Source: Srivastava et "
              "al. 2014 (Dropout), with the factor applied in training.",
          .shape = "anything, same shape",
          .made = Dropout{},
          .attributes = {{.name = "rate",
                          .slot = slot_of<&Dropout::rate>,
                          .low = 0,
                          .high = 0.99,
                          .help = "probability that an element becomes 0",
                          .elsewhere = {"p", "prob", "ratio", "dropout_rate"}}},
          .infer = same_shape};
}

}  // namespace detail
}  // namespace troupe
