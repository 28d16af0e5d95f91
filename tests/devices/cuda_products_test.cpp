#include "tests/devices/cuda_trial.hpp"

// What computes a CUDA device's products, and what happens where a library cannot. Which library is opened is in
// cuda_libraries_test. What it computes is compared with the reference in cuda_contract_test.
namespace troupe {
namespace {

Graph net(DType dtype = DType::f32) {
  return {"net",
          Shape{{6, 70}},
          dtype,
          {{"a", Dense{.units = 96, .flatten = false}},
           {"attention", Attention{.heads = 4}},
           {"b", Dense{.units = 9, .flatten = false}},
           {"r", Relu{}},
           {"out", Dense{3}},
           {"loss", SoftmaxCrossEntropy{}}}};
}

std::vector<float> gradients_by(const CudaDeviceOptions& options, DType dtype = DType::f32) {
  return gradients_of(net(dtype), options);
}

TEST(CudaProducts, AreNotByALibraryThatTheDriverIsTooOldFor) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real driver has one version";
  expect_says(said_with({{"TROUPE_CUDA_HOST_DRIVER", "12040"}},
                        [] {
                          return Trial{{}, net()}.description();
                        }),
              {"products by own kernels (libcublasLt.so.12: "});
}

/// How far a step's gradients are from those by kernels of ours, where the stand-in has such errors.
double distance_with(const char* fault, DType dtype) {
  return std::stod(said_with({{"TROUPE_CUDA_HOST_FAULT", fault}}, [dtype] {
    return text(distance(gradients_by({.products = "cublaslt"}, dtype), gradients_by({.products = "own"}, dtype)));
  }));
}

TEST(CudaProducts, AreTheSameWhereTheLibraryHasNoAlgorithmForSomeOfThem) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library has no errors on command";
  for (const char* const fault :
       {"epilogue_relu_bias=cublaslt_not_supported", "epilogue_bias=cublaslt_not_supported",
        "epilogue_sums_of_b=cublaslt_not_supported",
        "epilogue_relu_bias=cublaslt_not_supported,epilogue_bias=cublaslt_not_supported",
        "epilogue_none=cublaslt_not_supported", "cublasLtMatmulAlgoGetHeuristic:3=cublaslt_not_supported"}) {
    SCOPED_TRACE(fault);
    const double f32 = distance_with(fault, DType::f32), bf16 = distance_with(fault, DType::bf16);
    EXPECT_LT(f32, 1e-5);
    EXPECT_GT(f32, 0) << "all products were computed by kernels of ours";
    EXPECT_LT(bf16, 0.02);
  }
  EXPECT_EQ(distance_with("cublasLtMatmulAlgoGetHeuristic=cublaslt_not_supported", DType::f32), 0);
}

TEST(CudaProducts, EndTheStreamWithTheReasonWhenTheLibraryFails) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library has no errors on command";
  const auto ended = [] {
    Trial trial{{}, net()};
    trial.step(1);
    const Status status = trial.end();
    return text(name_of(status.code()), ": ", status.text());
  };
  expect_says(said_with({{"TROUPE_CUDA_HOST_FAULT", "cublasLtMatmul:2=cublaslt_execution_failed"}}, ended),
              {"device_fault: ", "cuBLASLt, a product on Stand-in", "failed to launch"});
}

TEST(CudaProducts, AndTheirDeviceGiveEverythingBackWhicheverCallOfTheDriverFails) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real driver has no errors on command";
  for (const char* const call :
       {"cuDevicePrimaryCtxRetain", "cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc_v2", "cuMemHostAlloc",
        "cuMemPoolCreate", "cuStreamCreateWithPriority", "cuMemsetD8Async", "cuMemHostRegister_v2", "cuLaunchKernel",
        "cublasLtCreate", "cublasLtMatmulDescCreate", "cublasLtMatrixLayoutCreate"}) {
    for (int number = 1; number <= 8; ++number) {
      const bool library = std::string{call}.starts_with("cublasLt");
      const std::string fault = text(call, ':', number, library ? "=cublaslt_alloc_failed" : "=out_of_memory");
      const int code = gpu::exit_code_of([&] {
        (void)::setenv("TROUPE_CUDA_HOST_FAULT", fault.c_str(), 1);
        try {
          Trial trial{{}, net()};
          trial.step(1);
          (void)trial.end();
        } catch (const Error&) {  // as it should
        }
      });
      EXPECT_EQ(code, 0) << fault;
    }
  }
}

// From here on this process uses the driver itself.

TEST(CudaProducts, HaveTheSameBitsEachTime) {
  for (const DType dtype : {DType::f32, DType::bf16}) EXPECT_EQ(gradients_by({}, dtype), gradients_by({}, dtype));
}

TEST(CudaProducts, AreRoundedToTf32OnlyWhereThatIsAskedFor) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library, or a GPU without TF32";
  const std::vector<float> own = gradients_by({.products = "own"});
  EXPECT_LT(distance(gradients_by({}), own), 1e-5);
  const double rounded = distance(gradients_by({.tf32 = true}), own);
  EXPECT_GT(rounded, 1e-5);
  EXPECT_LT(rounded, 1e-2);
}

// Another rank may be reading them still: that is what the wait was for.
TEST(CudaProducts, LeaveGradientsAsTheyAreOnAStreamThatHasFailed) {
  Trial trial{{}, net()};
  trial.step(1);
  ASSERT_TRUE(trial.end().ok());
  const std::vector<float> before = trial.gradients();
  const auto arena = Arena::create(arena_id(Peer{1}, 1), 1 << 12);
  trial.space().map(arena);
  const TimelineId line = arena->make_timeline();
  trial.stream().wait({line, 1});
  trial.step(2);
  trial.space().timeline(line).poison({Code::peer_lost, "a peer has ended"});
  EXPECT_EQ(trial.end().code(), Code::peer_lost);
  EXPECT_EQ(trial.gradients(), before);
}

}  // namespace
}  // namespace troupe
