#include "tests/devices/cuda_trial.hpp"

// What computes a CUDA device's pools, and what is done with a library that computes something else. What is common to
// all that cuDNN computes is in cuda_convolutions_test. Pools are compared with the reference in cuda_contract_test.
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

TEST(CudaPools, AreTheSameWhereTheLibraryHasNoPlanForSomeOfThem) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library has no errors on command";
  for (const auto& [fault, dtype] : {std::pair{"max_pool=cudnn_not_supported", DType::f32},
                                     {"max_pool_backward=cudnn_not_supported", DType::bf16},
                                     {"average_pool=cudnn_not_supported", DType::f16},
                                     {"average_pool_backward=cudnn_not_supported", DType::f32}}) {
    SCOPED_TRACE(fault);
    const TempFolder folder;
    const double apart =
        distance_with({{"XDG_CACHE_HOME", folder.path().c_str()}, {"TROUPE_CUDA_HOST_FAULT", fault}}, pools(dtype));
    EXPECT_LT(apart, dtype == DType::f32 ? 1e-5 : 0.02);
    if (dtype != DType::f32) continue;
    EXPECT_GT(apart, 0) << "all pools were computed by kernels of ours";
  }
}

TEST(CudaPools, AreChosenWithAnIndexForTheGradientOfAMaxPool) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library";
  const TempFolder folder;
  expect_says(choices_with({{"XDG_CACHE_HOME", folder.path().c_str()}}, folder.path(), pools()),
              {"; done\n", "max_pool f32 7x9x8x8 to 5x8 window 3x3 padding 1x1 stride 2x1 aligned 256 = 1 1:2\n",
               "max_pool f32 7x9x8x8 to 5x8 window 3x3 padding 1x1 stride 2x1 index aligned 256 = 1 1:2\n",
               "max_pool backward f32 7x9x8x8 to 5x8 window 3x3 padding 1x1 stride 2x1 index aligned 256 = 1 1:2\n",
               "average_pool backward f32 7x4x4x8 to 1x1 window 4x4 padding 0x0 stride 1x1 aligned 256 = 1 1:2\n"});
}

// Of an engine with settings the stand-in's results are then wrong.
TEST(CudaPools, AreComputedByTheNextEngineWhereOneComputesSomethingElseWhichTheDescriptionSays) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library computes nothing wrong on command";
  for (const char* const wrong : {"max_pool", "max_pool_backward", "average_pool", "average_pool_backward"}) {
    SCOPED_TRACE(wrong);
    const TempFolder folder;
    const Variables variables{{"XDG_CACHE_HOME", folder.path().c_str()}, {"TROUPE_CUDA_HOST_CUDNN_WRONG", wrong}};
    EXPECT_LT(distance_with(variables, pools()), 1e-5);
    expect_says(content_of(file_in(folder.path())), {" = 0\n", " = 1 1:2\n"});
    fs::remove(file_in(folder.path()));
    expect_says(choices_with(variables, folder.path(), pools()),
                {" (not engine 1 for ", ": its results differ from those of own kernels by ", "; done"});
  }
}

// From here on this process uses the driver itself.

TEST(CudaPools, HaveTheSameBitsEachTime) {
  for (const DType dtype : {DType::f32, DType::bf16})
    EXPECT_EQ(gradients_of(pools(dtype), {}), gradients_of(pools(dtype), {}));
}

TEST(CudaPools, OfFewerRowsAreComputedWithTheEngineOfWholeBatches) {
  EXPECT_LT(distance(gradients_of(pools(), {}, 3), gradients_of(pools(), by_kernels(), 3)), 1e-5);
}

}  // namespace
}  // namespace troupe
