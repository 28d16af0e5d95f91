#include <cstdlib>

#include "devices/cuda/engine_choices.hpp"
#include "tests/devices/cuda_trial.hpp"

// What computes a CUDA device's convolutions, and what happens where a library cannot. Which library is opened is in
// cuda_libraries_test. What it computes is compared with the reference in cuda_contract_test.
namespace troupe {
namespace {

Graph net(DType dtype = DType::f32) {
  return {"net",
          Shape{{8, 6, 3}},
          dtype,
          {{"a", Conv2d{.filters = 8, .kernel = {3, 3}, .padding = {1, 1}}},
           {"r", Relu{}},
           {"b", Conv2d{.filters = 6, .kernel = {3, 2}, .stride = {2, 1}}},
           {"out", Dense{3}},
           {"loss", SoftmaxCrossEntropy{}}}};
}

/// Its weights have one order, channels last or first.
Graph one_channel() {
  return {"one channel",
          Shape{{9, 8, 1}},
          DType::f32,
          {{"a", Conv2d{.filters = 8, .kernel = {3, 3}}}, {"out", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}}};
}

TEST(CudaConvolutions, AreNotByALibraryOfAnotherMajorVersion) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library has one version";
  for (const auto& [version, said] :
       {std::pair{"8907", "(cuDNN 8.9.7 is not one of version 9"}, {"100000", "(cuDNN 10.0.0 is not one of version 9"}})
    expect_says(said_with({{"TROUPE_CUDA_HOST_CUDNN", version}},
                          [] {
                            return Trial{{}, net()}.description();
                          }),
                {"convolutions and 16-bit attention by own kernels ", said});
}

TEST(CudaConvolutions, AreTheSameWhereTheLibraryHasNoPlanForSomeOfThem) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library has no errors on command";
  for (const char* const fault :
       {"convolution_relu=cudnn_not_supported", "convolution_bias=cudnn_not_supported",
        "convolution_relu=cudnn_not_supported,convolution_bias=cudnn_not_supported",
        "convolution_to_images=cudnn_not_supported", "convolution_to_weights=cudnn_not_supported"}) {
    SCOPED_TRACE(fault);
    const Variables variables{{"TROUPE_CUDA_HOST_FAULT", fault}};
    const double f32 = distance_with(variables, net()), bf16 = distance_with(variables, net(DType::bf16)),
                 f16 = distance_with(variables, net(DType::f16));
    EXPECT_LT(f32, 1e-5);
    EXPECT_GT(f32, 0) << "all convolutions were computed by kernels of ours";
    EXPECT_LT(bf16, 0.02);
    EXPECT_LT(f16, 0.02);
  }
  EXPECT_EQ(distance_with({{"TROUPE_CUDA_HOST_FAULT", "cudnnBackendCreateDescriptor=cudnn_not_supported"}}, net()), 0);
}

TEST(CudaConvolutions, EndTheStreamWithTheReasonWhenTheLibraryFails) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library has no errors on command";
  const auto ended = [] {
    Trial trial{by_library(), net()};
    trial.step(1);
    const Status status = trial.end();
    return text(name_of(status.code()), ": ", status.text());
  };
  // Each of the five plans was recorded and run once before, and for each an engine that refuses the first was tried.
  const TempFolder folder;
  expect_says(said_with({{"XDG_CACHE_HOME", folder.path().c_str()},
                         {"TROUPE_CUDA_HOST_FAULT", "cudnnBackendExecute:17=cudnn_execution_failed"}},
                        ended),
              {"device_fault: ", "cuDNN on Stand-in", "the execution failed on the GPU"});
}

/// What a step on a device of this process says, with a folder for caches.
std::string described_with(const fs::path& folder, std::uint32_t rows = kTrialRows) {
  return said_with({{"XDG_CACHE_HOME", folder.c_str()}}, [rows] {
    Trial trial{by_library(), net()};
    trial.step(1, rows);
    return text(trial.description(), trial.end().ok() ? "; done" : "; failed");
  });
}

TEST(CudaConvolutions, AreChosenOnceAndKeptForTheNextRun) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library";
  const TempFolder folder;
  expect_says(described_with(folder.path()), {"cuDNN 9.19.0; done"});
  const std::string first = content_of(file_in(folder.path()));
  expect_says(first, {"troupe cudnn choices 3\nStand-in", ", cuDNN 9.19.0, driver 13000\n",
                      "forward f32 7x8x6x3 to 8x6x8 kernel 3x3", " bias relu aligned ", " = 1 1:2\n", "\nend 5\n"});
  expect_says(described_with(folder.path()), {"cuDNN 9.19.0; done"});
  EXPECT_EQ(content_of(file_in(folder.path())), first);
}

TEST(CudaConvolutions, TakeAKeptChoiceInsteadOfAskingTheLibrary) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library";
  const TempFolder folder;
  (void)described_with(folder.path());
  std::string kept = content_of(file_in(folder.path()));
  for (std::size_t at = kept.find(" = 1 1:2"); at != kept.npos; at = kept.find(" = 1 1:2"))
    kept.replace(at, 8, " = 1 1:3");
  std::ofstream{file_in(folder.path())} << kept;
  expect_says(described_with(folder.path()), {"cuDNN 9.19.0; done"});
  EXPECT_EQ(content_of(file_in(folder.path())), kept);
  // In a step of fewer rows the engine of whole batches is taken. The stand-in would propose another setting.
  expect_says(described_with(folder.path(), 3), {"cuDNN 9.19.0; done"});
  const std::string both = content_of(file_in(folder.path()));
  expect_says(both, {"forward f32 3x8x6x3 to 8x6x8", "end 10\n"});
  EXPECT_EQ(both.find(" = 1 1:2"), both.npos) << both;
}

TEST(CudaConvolutions, AreByTheFastestEngineThatIsRightWhereTheDriverMeasuresTimes) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real GPU takes the time that it takes";
  constexpr const char* kTimes =
      "convolution_relu:0=20,convolution_relu:1=900,convolution_bias:0=30,convolution_bias:1=9,"
      "troupe_convolve=99,troupe_convolve_to_images=99,troupe_convolve_to_weights=99";
  const TempFolder folder;
  const Variables variables{{"XDG_CACHE_HOME", folder.path().c_str()}, {"TROUPE_CUDA_HOST_TIMES", kTimes}};
  const std::string said = choices_with(variables, folder.path(), net());
  expect_says(said, {"; done", " bias relu aligned 256 256 256 128 = 0 in 20\n",
                     " bias aligned 256 256 256 64 = 1 1:2 in 9\n", " = 1 1:2 in 10\n", "\nend 5\n"});
  EXPECT_EQ(choices_with(variables, folder.path(), net()), said);
  const TempFolder other;
  expect_says(choices_with({{"XDG_CACHE_HOME", other.path().c_str()},
                            {"TROUPE_CUDA_HOST_TIMES", kTimes},
                            {"TROUPE_CUDA_HOST_CUDNN_WRONG", "convolution_bias"}},
                           other.path(), net()),
              {" bias aligned 256 256 256 64 = 0 in 30\n", "not engine 1 for forward f32 "});
}

TEST(CudaConvolutions, AreByKernelsOfOursWhereTheseAreFaster) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real GPU takes the time that it takes";
  const TempFolder folder;
  const Variables variables{
      {"XDG_CACHE_HOME", folder.path().c_str()},
      {"TROUPE_CUDA_HOST_TIMES", "troupe_convolve=99,troupe_convolve_to_weights=5,troupe_add_parts=1"}};
  const std::string said = choices_with(variables, folder.path(), net());
  expect_says(said, {"; done",
                     "to_weights f32 7x8x6x3 to 8x6x8 kernel 3x3 padding 1x1 stride 1x1 dilation 1x1 groups 1 "
                     "aligned 256 256 256 0 = own in 6\n"});
  EXPECT_EQ(choices_with(variables, folder.path(), net()), said);
  const double apart = distance_with(variables, net());
  EXPECT_LT(apart, 1e-5);
  EXPECT_GT(apart, 0) << "all convolutions were computed by kernels of ours";
}

TEST(CudaConvolutions, IgnoreAFileOfChoicesThatIsBrokenOrOfAnotherVersionWithALineAndReplaceIt) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library";
  const TempFolder folder;
  (void)described_with(folder.path());
  const fs::path file = file_in(folder.path());
  const std::string good = content_of(file);
  std::string old = good;
  old.replace(old.find("9.19.0"), 6, "9.18.1");
  for (const auto& [spoilt, reason] : {std::pair{std::string{}, "it is not complete"},
                                       {std::string{"x\n"}, "it is no file of choices that this build writes"},
                                       {old, "it is of Stand-in"},
                                       {good.substr(0, good.find("to_images")), "it is not complete"},
                                       {good.substr(0, good.rfind("end")) + "end 4\n", "it is not complete"},
                                       {good.substr(0, good.rfind("end")) + "a = x\nend 6\n", "\"x\" is no number"}}) {
    SCOPED_TRACE(reason);
    std::ofstream{file} << spoilt;
    expect_says(described_with(folder.path()), {"cuDNN 9.19.0 (", file.c_str(), " is ignored: ", reason, "; done"});
    EXPECT_EQ(content_of(file), good);
  }
}

TEST(CudaConvolutions, ChooseAnewWhereTheLibraryNoLongerHasAKeptChoice) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library";
  const TempFolder folder;
  (void)described_with(folder.path());
  const fs::path file = file_in(folder.path());
  const std::string good = content_of(file);
  // An engine that there is not, one whose bits differ each time, one that cannot be recorded, a setting it lacks.
  for (const char* const choice : {" = 77", " = 3", " = 4", " = 1 9:1"}) {
    std::string spoilt = good;
    spoilt.replace(spoilt.find(" = 1 1:2"), 8, choice);
    std::ofstream{file} << spoilt;
    expect_says(described_with(folder.path()), {"cuDNN 9.19.0; done"});
    EXPECT_EQ(content_of(file), good) << choice;
  }
}

// Of an engine with settings the stand-in's results are then wrong.
TEST(CudaConvolutions, AreComputedByTheNextEngineWhereOneComputesSomethingElseWhichTheDescriptionSays) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library computes nothing wrong on command";
  for (const char* const wrong :
       {"convolution_relu", "convolution_bias", "convolution_to_images", "convolution_to_weights"}) {
    SCOPED_TRACE(wrong);
    const TempFolder folder;
    const auto described = [] {
      const std::string said = Trial{by_library(), net()}.description();  // later devices read what was chosen
      const double apart = distance(gradients_of(net(), by_library()), gradients_of(net(), by_kernels()));
      return text(said, apart < 1e-5 ? "; right" : "; wrong");
    };
    expect_says(
        said_with({{"XDG_CACHE_HOME", folder.path().c_str()}, {"TROUPE_CUDA_HOST_CUDNN_WRONG", wrong}}, described),
        {" (not engine 1 for ", ": its results differ from those of own kernels by ", "; right"});
    expect_says(content_of(file_in(folder.path())), {" = 0\n", " = 1 1:2\n"});
  }
}

TEST(CudaConvolutions, SayThatChoicesAreNotKeptWhereTheFolderCannotBeMade) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library";
  expect_says(described_with("/dev/null"), {"cuDNN 9.19.0 (choices are not kept: /dev/null/troupe", "; done"});
}

TEST(EngineChoices, OfSeveralProcessesAreMerged) {
  const TempFolder folder;
  const std::string file = (folder.path() / "choices.txt").string();
  cuda::EngineChoices one{file, "a"}, other{file, "a"};
  one.add("x", {.engine = 1, .knobs = {{2, 3}, {4, -5}}});
  one.save();
  other.add("y", {.engine = cuda::EngineChoice::kOwn, .microseconds = 2.5F});
  other.save();
  const cuda::EngineChoices read{file, "a"};
  EXPECT_EQ(read.note(), "");
  ASSERT_NE(read.find("x"), nullptr);
  EXPECT_EQ(*read.find("x"), (cuda::EngineChoice{.engine = 1, .knobs = {{2, 3}, {4, -5}}}));
  ASSERT_NE(read.find("y"), nullptr);
  EXPECT_EQ(read.find("y")->engine, cuda::EngineChoice::kOwn);
  EXPECT_EQ(read.find("y")->microseconds, 2.5F);
  EXPECT_EQ(read.find("z"), nullptr);
}

// Of the calls for memory some are for the workspace; which ones is nobody's business.
TEST(CudaConvolutions, DoWithoutAWorkspaceThatDoesNotFit) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real GPU has no errors on command";
  const auto computed = [] {
    const std::vector<float> found = gradients_of(net(), by_library());
    return text(distance(found, gradients_of(net(), by_kernels())) < 1e-5 ? "right" : "wrong");
  };
  bool did_without = false;
  for (int call = 1; call < 40 && !did_without; ++call) {
    const TempFolder folder;
    const std::string fault = text("cuMemAlloc_v2:", call, "=out_of_memory");
    const std::string said =
        said_with({{"XDG_CACHE_HOME", folder.path().c_str()}, {"TROUPE_CUDA_HOST_FAULT", fault.c_str()}}, computed);
    const std::string choices = content_of(file_in(folder.path()));
    did_without = said == "right" && choices.find(" = 0\n") != choices.npos;  // the engine that needs no workspace
  }
  EXPECT_TRUE(did_without);
}

/// How a step ends where the kernel fails that brings gradients to their places.
std::string ended_without_bringing(bool owns_gradients) {
  return said_with({{"TROUPE_CUDA_HOST_FAULT", "troupe_order_weights:2=illegal_address"}}, [&] {
    Trial trial{by_library(), one_channel(), owns_gradients};
    trial.step(1);
    return text(name_of(trial.end().code()));
  });
}

TEST(CudaConvolutions, WriteGradientsInTheirPlaceWhereNobodyElseReadsThem) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real driver has no errors on command";
  EXPECT_EQ(ended_without_bringing(true), name_of(Code::ok));
  EXPECT_EQ(ended_without_bringing(false), name_of(Code::device_fault));
}

// From here on this process uses the driver itself.

TEST(CudaConvolutions, HaveTheSameBitsEachTime) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    EXPECT_EQ(gradients_of(net(dtype), {}), gradients_of(net(dtype), {}));
}

TEST(CudaConvolutions, AreRoundedToTf32OnlyWhereThatIsAskedFor) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library, or a GPU without TF32";
  const std::vector<float> own = gradients_of(net(), by_kernels());
  EXPECT_LT(distance(gradients_of(net(), by_library()), own), 1e-5);
  CudaDeviceOptions options = by_library();
  options.tf32 = true;
  const double rounded = distance(gradients_of(net(), options), own);
  EXPECT_GT(rounded, 1e-5);
  EXPECT_LT(rounded, 1e-2);
}

TEST(CudaConvolutions, OfFewerRowsAreComputedWithTheMemoryThatThereIs) {
  EXPECT_LT(distance(gradients_of(net(), {}, 3), gradients_of(net(), by_kernels(), 3)), 1e-5);
}

TEST(CudaConvolutions, AreTheSameWhereverGradientsAreWritten) {
  for (const Graph& graph : {net(), one_channel()})
    EXPECT_LT(distance(gradients_of(graph, {}, kTrialRows, true), gradients_of(graph, {})), 1e-5);
}

TEST(CudaConvolutions, LeaveGradientsAsTheyAreOnAStreamThatHasFailed) { expect_gradients_as_before_a_failure(net()); }

}  // namespace
}  // namespace troupe
