// Which of a machine's GPUs are CUDA's.

#include "apps/session/gpus.hpp"

#include <gmock/gmock.h>

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Gpus, OfCudaAreThoseOfTheMachineWithTheSameBusIds) {
  const std::vector<Accelerator> machine{{.name = "GPU 0", .numa = 0, .nearest_nics = {"eth0"}, .bus = "0000:3b:00.0"},
                                         {.name = "GPU 1", .numa = 1, .nearest_nics = {"eth1"}, .bus = "0000:af:00.0"}};
  // CUDA_VISIBLE_DEVICES may change their order, and a virtual machine may hide where a GPU is.
  const std::vector<Accelerator> matched = matched_by_bus(
      {{.name = {}, .model = "A", .memory_bytes = 5, .nearest_nics = {}, .bus = "0000:af:00.0", .cuda = true},
       {.name = {}, .model = "B", .nearest_nics = {}, .bus = "0000:01:00.0", .cuda = true}},
      machine);
  ASSERT_EQ(matched.size(), 2U);
  EXPECT_EQ(matched[0].name, "GPU 1");
  EXPECT_EQ(matched[0].model, "A");
  EXPECT_EQ(matched[0].memory_bytes, 5U);
  EXPECT_EQ(matched[0].numa, 1);
  EXPECT_THAT(matched[0].nearest_nics, ElementsAre("eth1"));
  EXPECT_TRUE(matched[0].cuda);
  EXPECT_EQ(matched[1].name, "GPU 1 of CUDA");
  EXPECT_EQ(matched[1].numa, -1);
  EXPECT_THAT(matched[1].nearest_nics, IsEmpty());
}

}  // namespace
}  // namespace troupe
