// A plan counts what replicas take of a GPU's memory from the graph alone. Here the two are compared.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "apps/models/models.hpp"
#include "devices/cuda/driver_api.hpp"
#include "runtime/config/config.hpp"
#include "runtime/planning/detail/gpu_memory.hpp"
#include "tests/support/gpu.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;

struct Network {
  const char* name;
  const char* model;  // TOML
  std::vector<Field> fields;
  std::uint32_t rows;
};

std::vector<Field> images(std::uint32_t side, std::uint32_t channels) {
  return {{std::string{kImage}, {{side, side, channels}}, DType::f32},
          {std::string{kLabel}, {}, DType::i32, /*classes=*/10}};
}
std::vector<Field> windows(std::uint32_t length) {
  return {{std::string{kTokens}, {{length}}, DType::i32, 64}, {std::string{kLabel}, {{length}}, DType::i32, 64}};
}

const Network kNetworks[] = {
    {"mlp", "model = { name = \"mlp\", units = [1024, 512] }", images(28, 1), 3000},
    {"lenet", "model = { name = \"lenet\" }", images(28, 1), 2000},
    {"resnet", "model = { name = \"resnet\", depth = 8 }", images(32, 3), 50},
    {"gpt", "model = { name = \"gpt\", width = 64, heads = 4, depth = 2 }", windows(128), 64},
    {"gpt in bf16", "model = { name = \"gpt\", width = 64, heads = 4, depth = 2, dtype = \"bf16\" }", windows(128), 64},
    {"gpt of short texts in bf16", "model = { name = \"gpt\", width = 64, heads = 8, depth = 1, dtype = \"bf16\" }",
     windows(20), 500},
};

class GpuMemory : public ::testing::TestWithParam<Network> {
 protected:
  GpuMemory() {
    std::string why;
    driver_ = *cuda::Driver::load(why, gpu::kDriver);
    device_ = make_cuda_device(space_, {.products = {}, .cublaslt = {}});
  }
  std::size_t free_bytes() const {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(driver_.mem_get_info(&free, &total), cuda::Result::success);
    return free;
  }

  AddressSpace space_;
  cuda::Driver driver_;
  std::unique_ptr<Device> device_;
};

TEST_P(GpuMemory, OfAReplicaIsCountedByPlans) {
  const Network& network = GetParam();
  const Graph graph = build_model(parse_configuration(network.model, "gpu_memory_test", {}).settings, network.fields);
  const Layout layout{graph};
  const BatchLayout batch{network.rows, graph.fields()};
  std::uint32_t arenas = 0;
  const auto take = [&](std::uint64_t element_bytes) {
    return device_->allocate(arena_id(Peer{0}, ++arenas), MemoryKind::device, layout.count_elements() * element_bytes);
  };
  ReplicaMemory memory{.parameters = take(4), .half = {}, .gradients = take(4)};
  if (graph.dtype() == DType::bf16) memory.half = take(2);
  const auto compile = [&] {
    return device_->compile(graph, layout, batch, make_buckets(GroupId{}, graph, layout, 0), memory);
  };
  // A driver loads code when a library first needs it. Like the context it stays, and plans say that it comes on top.
  const std::size_t at_first = free_bytes();
  (void)compile();
  const std::size_t before = free_bytes();
  const auto replica = compile();
  const std::size_t taken = before - free_bytes();
  const detail::GpuReplicaBytes planned = detail::gpu_replica_bytes(graph, network.rows);
  const std::string& description = device_->traits().description;
  const auto says = [&](const char* what) { return description.find(what) != std::string::npos; };
  // Before compute capability 9.0 the library's workspaces are smaller than what is counted.
  const std::uint64_t less = says("compute capability 7") || says("compute capability 8") ? 56 * kMebi : 0;
  const std::uint64_t library = says("products by cuBLASLt") ? planned.library - less : 0;
  const std::uint64_t dnn = says("by cuDNN") ? planned.dnn : 0;
  constexpr std::uint64_t kPieces = 4 * kMebi;  // a GPU gives memory in pieces of up to 2 MiB
  std::cout << network.name << ": a replica takes " << (taken >> 20) << " MiB, code that was loaded for it "
            << ((std::max(at_first, before) - before) >> 20) << " MiB\n";  // of interest in the report of a GPU
  EXPECT_LE(taken, planned.activations + planned.products + library + dnn + kPieces);
  EXPECT_GE(taken + kPieces, planned.activations + library) << "products in parts take something, too";
  EXPECT_GT(planned.activations, 8 * kMebi) << "too small a network to say anything";
}
INSTANTIATE_TEST_SUITE_P(Gpu, GpuMemory, ::testing::ValuesIn(kNetworks), [](const auto& info) {
  std::string name = info.param.name;
  std::erase_if(name, [](char c) { return c == ' '; });
  return name;
});

}  // namespace
}  // namespace troupe
