#include "tests/devices/cuda_trial.hpp"

// A CUDA device's pools. They are compared with the reference in cuda_contract_test, and their kernels with plain loops
// in cuda_kernels_test.
namespace troupe {
namespace {

/// Windows that overlap and have padding, an average, a tensor that two layers read, and a global average.
Graph pools(DType dtype = DType::f32) {
  const Shape image{{9, 8, 3}};
  return {"pools",
          {{std::string{kImage}, image, batch_type(dtype)}, {std::string{kLabel}, {}, DType::i32, 3}},
          dtype,
          {{"a", Conv2d{.filters = 8, .kernel = {1, 1}}, {std::string{kImage}}},
           {"max", MaxPool{.kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 1}}, {"a"}},
           {"b", Conv2d{.filters = 8, .kernel = {1, 1}}, {"max"}},
           {"average", AveragePool{.kernel = {2, 3}, .stride = {1, 2}, .padding = {0, 1}}, {"b"}},
           {"other", MaxPool{.kernel = {2, 3}, .stride = {1, 2}, .padding = {0, 1}}, {"b"}},
           {"sum", Add{}, {"average", "other"}},
           {"c", Conv2d{.filters = 8, .kernel = {1, 1}}, {"sum"}},
           {"all", GlobalAveragePool{}, {"c"}},
           {"out", Dense{3}, {"all"}},
           {"loss", SoftmaxCrossEntropy{}, {"out", std::string{kLabel}}}}};
}

TEST(CudaPools, HaveTheSameBitsEachTime) {
  for (const DType dtype : {DType::f32, DType::bf16})
    EXPECT_EQ(gradients_of(pools(dtype), {}), gradients_of(pools(dtype), {}));
}

TEST(CudaPools, AreComputedLikewiseWithALibraryAndWithoutOne) {
  EXPECT_LT(distance(gradients_of(pools(), {}, 3), gradients_of(pools(), by_kernels(), 3)), 1e-5);
}

}  // namespace
}  // namespace troupe
