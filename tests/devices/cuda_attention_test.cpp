#include "devices/cuda/dnn_trial.hpp"
#include "tests/devices/cuda_trial.hpp"

// What computes a CUDA device's attention, and what is done with a library that computes something else. What is common
// to all that cuDNN computes is in cuda_convolutions_test. Attention is compared with the reference in
// cuda_contract_test.
namespace troupe {
namespace {

/// Two layers of attention, of which the first one looks back alone.
Graph heads(DType dtype, std::uint32_t length = 33) {
  return {"heads",
          Shape{{length, 9}},
          dtype,
          {{"first", Dense{.units = 3 * 24, .flatten = false}},
           {"a", Attention{.heads = 3, .causal = true}},
           {"second", Dense{.units = 3 * 32, .flatten = false}},
           {"b", Attention{.heads = 2}},
           {"out", Dense{3}},
           {"loss", SoftmaxCrossEntropy{}}}};
}
/// Another layer reads what attention reads, so the gradient to that is added to.
Graph shared(DType dtype) {
  const Shape text{{33, 9}};
  return {"shared",
          {{std::string{kImage}, text, batch_type(dtype)}, {std::string{kLabel}, {}, DType::i32, 3}},
          dtype,
          {{"qkv", Dense{.units = 3 * 24, .flatten = false}, {std::string{kImage}}},
           {"a", Attention{.heads = 3}, {"qkv"}},
           {"other", Dense{.units = 24, .flatten = false}, {"qkv"}},
           {"sum", Add{}, {"a", "other"}},
           {"out", Dense{3}, {"sum"}},
           {"loss", SoftmaxCrossEntropy{}, {"out", std::string{kLabel}}}}};
}

TEST(CudaAttention, IsTheSameWhereTheLibraryHasNoPlanForItOrForItsGradient) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library has no errors on command";
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const TempFolder folder;
    const char* const cache = folder.path().c_str();
    const double by_both = distance_with({{"XDG_CACHE_HOME", cache}}, heads(dtype));
    EXPECT_GT(by_both, 0) << "all of it was computed by kernels of ours";
    EXPECT_LT(by_both, 0.02);
    for (const char* const fault : {"attention=cudnn_not_supported", "attention_backward=cudnn_not_supported"})
      EXPECT_EQ(distance_with({{"XDG_CACHE_HOME", cache}, {"TROUPE_CUDA_HOST_FAULT", fault}}, heads(dtype)), 0)
          << fault;
  }
}

TEST(CudaAttention, IsChosenWithItsGradient) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library";
  const TempFolder folder;
  expect_says(choices_with({{"XDG_CACHE_HOME", folder.path().c_str()}}, folder.path(), heads(DType::bf16)),
              {"; done\n", "attention bf16 7x33 heads 2x16 aligned 64 = 2\n",
               "attention backward bf16 7x33 heads 2x16 aligned 64 = 2\n",
               "attention bf16 7x33 heads 3x8 causal aligned 16 = 2\n",
               "attention backward bf16 7x33 heads 3x8 causal aligned 16 = 2\n", "\nend 4\n"});
}

TEST(CudaAttention, IsByKernelsOfOursInF32AndWithOldVersionsAndWhereItsGradientIsAddedToAnother) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library";
  for (const auto& [version, graph] : {std::pair{"91900", heads(DType::f32)},
                                       {"91501", heads(DType::bf16)},
                                       {"91900", heads(DType::bf16, 1)},
                                       {"91900", shared(DType::bf16)}}) {
    const TempFolder folder;
    const std::string chosen = choices_with(
        {{"XDG_CACHE_HOME", folder.path().c_str()}, {"TROUPE_CUDA_HOST_CUDNN", version}}, folder.path(), graph);
    expect_says(chosen, {"; done"});
    EXPECT_EQ(chosen.find("heads"), chosen.npos) << chosen;
  }
}

// Of all engines but the last one the stand-in's results are then wrong, or others each time.
TEST(CudaAttention, IsComputedByTheNextEngineWhereOneComputesSomethingElseWhichTheDescriptionSays) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library computes nothing wrong on command";
  constexpr const char *kWrong = "TROUPE_CUDA_HOST_CUDNN_WRONG", *kOthers = "TROUPE_CUDA_HOST_CUDNN_OTHER_BITS";
  for (const auto& [variable, what, said] :
       {std::tuple{kWrong, "attention", ": its results differ from those of own kernels by "},
        {kWrong, "attention_backward", ": its results differ from those of own kernels by "},
        {kOthers, "attention", ": its results have other bits when it runs again"},
        {kOthers, "attention_backward", ": its results have other bits when it runs again"}}) {
    SCOPED_TRACE(text(variable, ' ', what));
    const TempFolder folder;
    const Variables variables{{"XDG_CACHE_HOME", folder.path().c_str()}, {variable, what}};
    EXPECT_LT(distance_with(variables, heads(DType::bf16)), 0.02);
    expect_says(content_of(file_in(folder.path())), {" = 0\n", " = 2\n"});
    fs::remove(file_in(folder.path()));
    expect_says(choices_with(variables, folder.path(), heads(DType::bf16)),
                {" (not engine 2 for attention ", said, "; done"});
  }
}

/// Kernels of ours keep [length, length] for each row and head.
TEST(CudaAttention, OverLongTextsIsTriedOnAsFewRowsAndHeadsAsAnAmountOfMemoryTakes) {
  const auto tried = [](std::uint32_t length, std::uint32_t rows, std::uint32_t heads) {
    const cuda::AttentionForm form{.rows = rows, .length = length, .heads = heads, .part = 64, .alignment = 256};
    return std::get<cuda::AttentionForm>(cuda::form_to_try(form));
  };
  for (const auto& [length, rows, heads, alignment] :
       {std::tuple{1024U, 2U, 16U, 256U}, {1500U, 1U, 16U, 256U}, {4096U, 1U, 2U, 256U}, {8192U, 1U, 1U, 128U}}) {
    const cuda::AttentionForm found = tried(length, 8, 16);
    EXPECT_EQ(found.rows, rows) << length;
    EXPECT_EQ(found.heads, heads) << length;
    EXPECT_EQ(found.alignment, alignment) << length;
    EXPECT_TRUE(heads == 1 || cuda::trial_bytes(found) <= cuda::kMostTrialBytes) << length;
  }
  EXPECT_EQ(tried(1024, 1, 3).rows, 1U);
  EXPECT_EQ(tried(4096, 2, 3).heads, 2U);
}

TEST(CudaAttention, ThatThereIsNoMemoryToTryOutIsByTheNextEngineWhichTheDescriptionSays) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real driver has no errors on command";
  std::string said;
  for (int call = 1; call < 100 && said.find("no memory to try it out for attention") == said.npos; ++call) {
    const TempFolder folder;
    said = choices_with({{"XDG_CACHE_HOME", folder.path().c_str()},
                         {"TROUPE_CUDA_HOST_FAULT", text("cuMemAlloc_v2:", call, "=out_of_memory").c_str()}},
                        folder.path(), heads(DType::bf16));
  }
  expect_says(said, {"(there is no memory to try it out for attention bf16 ", "; done"});
}

// From here on this process uses the driver itself.

TEST(CudaAttention, HasTheSameBitsEachTime) {
  for (const DType dtype : {DType::bf16, DType::f16})
    EXPECT_EQ(gradients_of(heads(dtype), {}), gradients_of(heads(dtype), {}));
}

// A step has no time for the library to compile another kernel.
TEST(CudaAttention, OfFewerRowsIsByKernelsOfOurs) {
  const Graph graph = heads(DType::bf16);
  const CudaDeviceOptions found{.products = "own"};
  EXPECT_EQ(gradients_of(graph, found, 3), gradients_of(graph, by_kernels(), 3));
}

}  // namespace
}  // namespace troupe
