#include "tests/devices/cuda_trial.hpp"

// Batch norms in steps of a CUDA device. They are compared with the reference in cuda_contract_test.
namespace troupe {
namespace {

/// With a ReLU behind it, between other layers, and of vectors.
Graph norms(DType dtype) {
  return {"norms",
          Shape{{9, 8, 3}},
          dtype,
          {{"a", Conv2d{.filters = 8, .kernel = {1, 1}}},
           {"n", BatchNorm{}},
           {"r", Relu{}},
           {"b", Conv2d{.filters = 8, .kernel = {1, 1}}},
           {"m", BatchNorm{}},
           {"d", Dense{16}},
           {"o", BatchNorm{}},
           {"out", Dense{3}},
           {"loss", SoftmaxCrossEntropy{}}}};
}

TEST(CudaNorms, HaveTheSameBitsEachTime) {
  for (const DType dtype : {DType::f32, DType::bf16})
    EXPECT_EQ(gradients_of(norms(dtype), {}), gradients_of(norms(dtype), {}));
}

}  // namespace
}  // namespace troupe
