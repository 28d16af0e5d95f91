#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>

#include "devices/cuda/cuda_device.hpp"
#include "tests/contracts/device_world.hpp"
#include "tests/support/gpu.hpp"

// What computes a CUDA device's products, and what happens where a library cannot. What it computes is compared with
// the reference in cuda_contract_test.
namespace troupe {
namespace {

constexpr std::uint32_t kRows = 7;

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

struct NoSink final : BucketSink {
  void ready(const Bucket&, Stream&) noexcept override {}
};

/// A replica of net() on a device of its own, and a batch.
class Trial {
 public:
  explicit Trial(CudaDeviceOptions options, DType dtype = DType::f32)
      : device_(make_cuda_device(space_, std::move(options))), graph_(net(dtype)) {
    const std::uint64_t count = layout_.count_elements();
    std::vector<float> start(count);
    fill_initial(graph_, layout_, 3, start);
    memory_ = {put<float>(start), {}, put<float>(std::vector<float>(count))};
    if (dtype == DType::bf16) {
      std::vector<std::uint16_t> image;
      for (const float value : start) image.push_back(to_bf16(value));
      memory_.bf16 = put<std::uint16_t>(image);
    }
    replica_ = device_->compile(graph_, layout_, rows_, make_buckets(GroupId{}, graph_, layout_, 0), memory_);
    sums_ = put<StepSums>({StepSums{}});
    stream_ = device_->stream();
  }

  std::string description() const { return device_->traits().description; }
  Stream& stream() { return *stream_; }
  AddressSpace& space() { return space_; }
  /// Enqueues a step on batch `key`.
  void step(std::uint64_t key) {
    std::vector<std::byte> bytes(rows_.size_bytes());
    const BatchLayout::Entry& image = rows_.entry(kImage);
    const bool is_f32 = graph_.dtype() == DType::f32;
    for (std::uint64_t i = 0; i < kRows * image.row_elements(); ++i) {
      const auto value = static_cast<float>(random_normal(key, i));
      const std::uint16_t rounded = to_bf16(value);
      std::memcpy(bytes.data() + image.offset + i * (is_f32 ? sizeof value : sizeof rounded),
                  is_f32 ? static_cast<const void*>(&value) : &rounded, is_f32 ? sizeof value : sizeof rounded);
    }
    std::memset(bytes.data() + rows_.entry(kLabel).offset, 0, kRows * sizeof(std::int32_t));
    const Memory batch = put<std::byte>(bytes);
    replica_->step(*stream_, batch, kRows, sums_, sink_);
  }
  Status end() {
    const Point point = stream_->mark();
    Blocking blocking = Blocking::on_thread("test");
    return space_.timeline(point.line).wait(blocking, point.value, Deadline::after(std::chrono::seconds{30}), "a step");
  }
  std::vector<float> gradients() {
    std::vector<float> values(layout_.count_elements());
    copies().read(memory_.gradients,
                  [&](std::span<const std::byte> bytes) { std::memcpy(values.data(), bytes.data(), bytes.size()); });
    return values;
  }

 private:
  template <class T>
  Memory put(const std::vector<T>& values) {
    const Memory to = device_->allocate(arena_id(Peer{0}, ++arenas_), MemoryKind::device, values.size() * sizeof(T));
    copies().write(to, [&](std::span<std::byte> bytes) { std::memcpy(bytes.data(), values.data(), bytes.size()); });
    return to;
  }
  HostCopies copies() { return {*device_, space_, arena_id(Peer{0}, ++arenas_), std::chrono::seconds{20}}; }

  AddressSpace space_;
  std::uint32_t arenas_ = 0;
  std::unique_ptr<Device> device_;
  const Graph graph_;
  const Layout layout_{graph_};
  const BatchLayout rows_{kRows, graph_.fields()};
  ReplicaMemory memory_;
  std::unique_ptr<Replica> replica_;
  Memory sums_;
  NoSink sink_;
  std::unique_ptr<Stream> stream_;
};

std::vector<float> gradients_by(const CudaDeviceOptions& options, DType dtype = DType::f32) {
  Trial trial{options, dtype};
  trial.step(5);
  const Status status = trial.end();
  TROUPE_CHECK(status.ok(), status.code(), status.text());
  return trial.gradients();
}

/// The distance of two vectors, divided by the length of one.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, length = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    apart += std::pow(static_cast<double>(a[i]) - b[i], 2);
    length += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(apart / length);
}

/// What `say` returns in a process of its own with these variables, or the error.
std::string said_with(std::initializer_list<std::pair<const char*, const char*>> variables,
                      const std::function<std::string()>& say) {
  return gpu::in_child([&] {
    for (const auto& [name, value] : variables) (void)::setenv(name, value, 1);
    try {
      return say();
    } catch (const Error& error) {
      return text(name_of(error.code()), ": ", error.what());
    }
  });
}
std::string described(const CudaDeviceOptions& options) { return Trial{options}.description(); }

void expect_says(const std::string& said, std::initializer_list<const char*> parts) {
  for (const char* const part : parts) EXPECT_NE(said.find(part), said.npos) << said;
}

TEST(CudaProducts, AreByTheLibraryWhereThereIsOne) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a machine may have no library, or another version";
  expect_says(said_with({}, [] { return described({}); }), {"products by cuBLASLt 13.1.0"});
  expect_says(said_with({}, [] { return described({.tf32 = true}); }), {"products by cuBLASLt 13.1.0 in TF32"});
}

TEST(CudaProducts, AreByKernelsOfOursWithALineWhereThereIsNoLibrary) {
  const auto without = [] { return described({.cublaslt = "libno-such-library.so"}); };
  expect_says(said_with({}, without), {"products by own kernels (libno-such-library.so: cannot open"});
}

TEST(CudaProducts, AreByKernelsOfOursWithALineWhereTheLibraryDoesNotStart) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real library has no errors on command";
  expect_says(
      said_with({{"TROUPE_CUDA_HOST_FAULT", "cublasLtCreate=cublaslt_not_initialized"}}, [] { return described({}); }),
      {"products by own kernels (cuBLASLt, a handle on Stand-in", "the library was not initialized"});
}

TEST(CudaProducts, AreNotByALibraryThatTheDriverIsTooOldFor) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real driver has one version";
  expect_says(said_with({{"TROUPE_CUDA_HOST_DRIVER", "12040"}}, [] { return described({}); }),
              {"products by own kernels (libcublasLt.so.12: "});
}

TEST(CudaProducts, AreChosenByAVariableOrAnOption) {
  expect_says(said_with({{"TROUPE_CUDA_PRODUCTS", "own"}}, [] { return described({}); }),
              {"products by own kernels (as TROUPE_CUDA_PRODUCTS"});
  expect_says(said_with({{"TROUPE_CUDA_PRODUCTS", "tensor"}}, [] { return described({}); }),
              {"invalid: TROUPE_CUDA_PRODUCTS is \"tensor\"", "write \"cublaslt\" or \"own\""});
  expect_says(said_with({{"TROUPE_CUDA_PRODUCTS", "cublaslt"}},
                        [] { return described({.cublaslt = "libno-such-library.so"}); }),
              {"environment: there is no usable cuBLASLt (libno-such-library.so", "LD_LIBRARY_PATH"});
  if (!gpu::is_stand_in()) return;
  expect_says(said_with({{"TROUPE_CUDA_PRODUCTS", "own"}}, [] { return described({.products = "cublaslt"}); }),
              {"products by cuBLASLt"});
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
    Trial trial{{}};
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
          Trial trial{{}};
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
  Trial trial{{}};
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
