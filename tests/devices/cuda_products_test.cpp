#include "devices/cuda/cuda_stream.hpp"
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

/// ReLUs between dense layers, at several places and at one, with and without a bias.
Graph hidden_relus(DType dtype = DType::f32) {
  return {"hidden",
          Shape{{5, 70}},
          dtype,
          {{"a", Dense{.units = 130, .flatten = false}},
           {"r", Relu{}},
           {"b", Dense{.units = 9, .flatten = false, .bias = false}},
           {"c", Dense{.units = 33, .bias = false}},
           {"t", Relu{}},
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
double distance_with(const char* fault, const Graph& graph) {
  return std::stod(said_with({{"TROUPE_CUDA_HOST_FAULT", fault}}, [&graph] {
    return text(distance(gradients_of(graph, {.products = "cublaslt"}), gradients_of(graph, {.products = "own"})));
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
    const double f32 = distance_with(fault, net(DType::f32)), bf16 = distance_with(fault, net(DType::bf16));
    EXPECT_LT(f32, 1e-5);
    EXPECT_GT(f32, 0) << "all products were computed by kernels of ours";
    EXPECT_LT(bf16, 0.02);
  }
  EXPECT_EQ(distance_with("cublasLtMatmulAlgoGetHeuristic=cublaslt_not_supported", net(DType::f32)), 0);
}

/// How a step with hidden ReLUs ends, where the kernel for gradients of curves fails.
std::string ended_without_own_curves(const char* more_faults) {
  const std::string faults = text("troupe_activate_back=illegal_address", more_faults);
  return said_with({{"TROUPE_CUDA_HOST_FAULT", faults.c_str()}}, [] {
    Trial trial{{.products = "cublaslt"}, hidden_relus()};
    trial.step(1);
    return text(name_of(trial.end().code()));
  });
}

TEST(CudaProducts, GiveTheGradientsToWhatHiddenRelusHaveRead) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real driver has no errors on command";
  EXPECT_EQ(ended_without_own_curves(""), name_of(Code::ok));
  EXPECT_EQ(ended_without_own_curves(",epilogue_relu_gradient=cublaslt_not_supported"), name_of(Code::device_fault));
}

TEST(CudaProducts, AreTheSameWhereTheLibraryHasNoMasksOrNoGradientsByThem) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library has no errors on command";
  for (const char* const fault :
       {"", "epilogue_relu_gradient=cublaslt_not_supported", "epilogue_relu_mask=cublaslt_not_supported",
        "epilogue_relu_bias_mask=cublaslt_not_supported",
        "epilogue_relu_bias_mask=cublaslt_not_supported,epilogue_relu_bias=cublaslt_not_supported"}) {
    SCOPED_TRACE(fault);
    EXPECT_LT(distance_with(fault, hidden_relus()), 1e-5);
  }
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

/// How a step ends where the kernel fails that brings gradients to their places.
std::string ended_without_bringing(DType type, bool owns_gradients) {
  return said_with({{"TROUPE_CUDA_HOST_FAULT", "troupe_move_columns=illegal_address"}}, [&] {
    Trial trial{{.products = "cublaslt"}, hidden_relus(type), owns_gradients};
    trial.step(1);
    return text(name_of(trial.end().code()));
  });
}

TEST(CudaProducts, WriteGradientsInTheirPlaceWhereNobodyElseReadsThem) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real driver has no errors on command";
  for (const DType type : {DType::f32, DType::bf16}) {
    EXPECT_EQ(ended_without_bringing(type, true), name_of(Code::ok));
    EXPECT_EQ(ended_without_bringing(type, false), name_of(Code::device_fault));
  }
}

// From here on this process uses the driver itself.

TEST(CudaProducts, AreTheSameWhereverGradientsAreWritten) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const Graph& graph : {net(type), hidden_relus(type)})
      EXPECT_LT(distance(gradients_of(graph, {}, kTrialRows, true), gradients_of(graph, {})), 1e-5);
}

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

TEST(CudaProducts, OfAnnouncedBatchesAreTheSame) {
  const std::vector<float> expected = gradients_of(net(), by_kernels());  // of batch 5
  Trial trial{by_kernels(), net()};
  for (std::uint64_t key = 0; key < 6; ++key) trial.announced_step(key);
  ASSERT_TRUE(trial.end().ok());
  EXPECT_EQ(trial.gradients(), expected);
  trial.step(4);
  trial.announced_step(5);
  ASSERT_TRUE(trial.end().ok());
  EXPECT_EQ(trial.gradients(), expected);
}

/// A library that notes on which streams of the driver it is called.
struct CalledOn final : LibraryCalls {
  std::vector<void*> streams;
  void enqueue(void* stream, std::span<const std::byte>) override { streams.push_back(stream); }
};

TEST(CudaProducts, AsideAreOnAStreamOfTheirOwnUntilTheyAreJoined) {
  Trial trial{by_kernels(), net()};
  auto& stream = dynamic_cast<cuda::CudaStream&>(trial.stream());
  CalledOn library;
  const auto call = [&] { stream.launch_library(library, {}); };
  call();
  stream.aside(call);
  call();
  stream.aside(call);
  stream.join_aside();
  ASSERT_EQ(library.streams.size(), 4);
  EXPECT_NE(library.streams[1], library.streams[0]);
  EXPECT_EQ(library.streams[2], library.streams[0]);
  EXPECT_EQ(library.streams[3], library.streams[1]);
  EXPECT_THROW(stream.aside([&] { stream.aside(call); }), Error);
  stream.join_aside();
  EXPECT_TRUE(trial.end().ok());
}

TEST(CudaProducts, LeaveGradientsAsTheyAreOnAStreamThatHasFailed) { expect_gradients_as_before_a_failure(net()); }

}  // namespace
}  // namespace troupe
