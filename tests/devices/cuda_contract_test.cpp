#include "apps/models/models.hpp"
#include "devices/cuda/cuda_device.hpp"
#include "tests/contracts/device_contract.hpp"
#include "tests/contracts/golden_contract.hpp"
#include "tests/contracts/layer_contract.hpp"
#include "tests/contracts/replica_contract.hpp"
#include "tests/contracts/stream_contract.hpp"
#include "tests/support/gpu.hpp"

// The CUDA device over the driver that is found. The stand-in ends the program with an error when work was not ordered,
// memory was used that was freed or not declared, or anything was left behind.
namespace troupe::contracts {
namespace {

DeviceCase cuda_case() {
  return {"Gpu", [](AddressSpace& space, std::chrono::milliseconds deadline) {
            return make_cuda_device(space, {.wait_deadline = deadline});
          }};
}

INSTANTIATE_TEST_SUITE_P(Cuda, StreamContract, ::testing::Values(cuda_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, ReplicaContract, ::testing::Values(cuda_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, GoldenContract, ::testing::Values(cuda_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceContract, ::testing::Values(cuda_case()), case_name);

/// The networks of apps/, for small images and short texts.
class CudaModels : public LayerContract {
 protected:
  struct Small {
    const char* name;
    Shape image;  // of a text: its length
    std::uint32_t depth;
  };
  static Graph graph_of(const Small& model, DType dtype) {
    Settings settings;
    settings.model.name = model.name, settings.model.dtype = dtype, settings.model.depth = model.depth;
    settings.model.width = 24, settings.model.heads = 3;
    Field image{std::string{kImage}, model.image, dtype}, label{std::string{kLabel}, {}, DType::i32, kLayerClasses};
    if (model.image.extents.size() == 1) {
      image = {std::string{kTokens}, model.image, DType::i32, 31};
      label.shape = model.image, label.classes = 31;
    }
    return build_model(settings, {std::move(image), std::move(label)});
  }
  void compare_models(DType dtype, const Tolerance& within) {
    for (const Small& model : {Small{"lenet", {{28, 28, 1}}, 0}, Small{"convnet", {{20, 20, 3}}, 0},
                               Small{"resnet", {{12, 12, 3}}, 20}, Small{"gpt", {{17}}, 2}})
      EXPECT_TRUE(compare(graph_of(model, dtype), 1, within)) << model.name << " was refused";
  }
};

TEST_P(CudaModels, HaveTheGradientsOfTheReference) { compare_models(DType::f32, tolerance_of(DType::f32)); }
TEST_P(CudaModels, HaveNearlyTheGradientsOfTheReferenceInBf16) { compare_models(DType::bf16, {0.3, 0.03}); }

#if defined(__SANITIZE_THREAD__)
// They take minutes there. cuda_threads_test looks for races within kernels, the suites above for those around them.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LayerContract);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaModels);
#else
INSTANTIATE_TEST_SUITE_P(Cuda, LayerContract, ::testing::Values(cuda_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, CudaModels, ::testing::Values(cuda_case()), case_name);
#endif

}  // namespace
}  // namespace troupe::contracts
