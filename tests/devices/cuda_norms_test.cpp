#include "tests/devices/cuda_trial.hpp"

// What computes a CUDA device's batch norms, and what is done with a library that computes something else. What is
// common to all that cuDNN computes is in cuda_convolutions_test. Norms are compared with the reference in
// cuda_contract_test.
namespace troupe {
namespace {

/// Batch norms of images and of vectors.
Graph norms(DType dtype = DType::f32) {
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
/// A norm of the batch itself, and one whose input two layers read.
Graph others() {
  const Shape image{{9, 8, 8}};
  return {"others",
          {{std::string{kImage}, image, batch_type(DType::f32)}, {std::string{kLabel}, {}, DType::i32, 3}},
          DType::f32,
          {{"first", BatchNorm{}, {std::string{kImage}}},
           {"a", Conv2d{.filters = 8, .kernel = {1, 1}}, {"first"}},
           {"n", BatchNorm{}, {"a"}},
           {"sum", Add{}, {"a", "n"}},
           {"out", Dense{3}, {"sum"}},
           {"loss", SoftmaxCrossEntropy{}, {"out", std::string{kLabel}}}}};
}

TEST(CudaNorms, AreTheSameWhereTheLibraryHasNoPlanForThemOrForTheirGradient) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library has no errors on command";
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const TempFolder folder;
    const char* const cache = folder.path().c_str();
    const double by_both = distance_with({{"XDG_CACHE_HOME", cache}}, norms(dtype));
    EXPECT_GT(by_both, 0) << "all of it was computed by kernels of ours";
    EXPECT_LT(by_both, dtype == DType::f32 ? 1e-5 : 0.02);
    for (const char* const fault : {"batch_norm=cudnn_not_supported", "batch_norm_backward=cudnn_not_supported"})
      EXPECT_EQ(distance_with({{"XDG_CACHE_HOME", cache}, {"TROUPE_CUDA_HOST_FAULT", fault}}, norms(dtype)), 0)
          << fault;
  }
}

TEST(CudaNorms, AreChosenWithTheirGradients) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library";
  const TempFolder folder;
  expect_says(choices_with({{"XDG_CACHE_HOME", folder.path().c_str()}}, folder.path(), norms()),
              {"; done\n", "batch_norm f32 7x72x8 epsilon 1e-05 aligned 64 = 1 1:2\n",
               "batch_norm backward f32 7x72x8 epsilon 1e-05 aligned 64 = 1 1:2\n",
               "batch_norm f32 7x1x16 epsilon 1e-05 aligned 64 = 1 1:2\n", "\nend 4\n"});
}

TEST(CudaNorms, AreByTheFastestEngineWhereTheDriverMeasuresTimes) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real GPU takes the time that it takes";
  const TempFolder folder;
  expect_says(choices_with({{"XDG_CACHE_HOME", folder.path().c_str()}, {"TROUPE_CUDA_HOST_TIMES", "batch_norm:1=11"}},
                           folder.path(), norms()),
              {"; done\n", "batch_norm f32 7x72x8 epsilon 1e-05 aligned 64 = 0 in 10\n",
               "batch_norm backward f32 7x72x8 epsilon 1e-05 aligned 64 = 1 1:2 in 10\n"});
}

TEST(CudaNorms, AreByKernelsOfOursWhereTheirGradientIsAddedToAnotherOrNobodyAsksForIt) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library";
  const TempFolder folder;
  const std::string chosen = choices_with({{"XDG_CACHE_HOME", folder.path().c_str()}}, folder.path(), others());
  expect_says(chosen, {"; done"});
  EXPECT_EQ(chosen.find("batch_norm"), chosen.npos) << chosen;
}

// Of all engines but the last one the stand-in's results are then wrong.
TEST(CudaNorms, AreComputedByTheNextEngineWhereOneComputesSomethingElseWhichTheDescriptionSays) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library computes nothing wrong on command";
  for (const char* const wrong : {"batch_norm", "batch_norm_backward"}) {
    SCOPED_TRACE(wrong);
    const TempFolder folder;
    const Variables variables{{"XDG_CACHE_HOME", folder.path().c_str()}, {"TROUPE_CUDA_HOST_CUDNN_WRONG", wrong}};
    EXPECT_LT(distance_with(variables, norms(DType::f32)), 1e-5);
    expect_says(content_of(file_in(folder.path())), {" = 0\n", " = 1 1:2\n"});
    fs::remove(file_in(folder.path()));
    expect_says(choices_with(variables, folder.path(), norms()),
                {" (not engine 1 for batch_norm ", ": its results differ from those of own kernels by ", "; done"});
  }
}

// From here on this process uses the driver itself.

TEST(CudaNorms, HaveTheSameBitsEachTime) {
  for (const DType dtype : {DType::f32, DType::bf16})
    EXPECT_EQ(gradients_of(norms(dtype), {}), gradients_of(norms(dtype), {}));
}

// A step has no time for the library to compile another kernel.
TEST(CudaNorms, OfFewerRowsAreByKernelsOfOurs) {
  const CudaDeviceOptions found{.products = "own"};
  EXPECT_EQ(gradients_of(norms(), found, 3), gradients_of(norms(), by_kernels(), 3));
}

}  // namespace
}  // namespace troupe
