#include "devices/cuda/short_work_list.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "devices/cuda/gpu.hpp"

// Which launches of a recorded step become one kernel. What that kernel does is in cuda_kernels_test.
namespace troupe::cuda {
namespace {

template <class Args>
bool add(ShortWorkList& list, Lane lane = Lane::main) {
  const Args args{};
  return list.add({.kernel = kKernelOf<Args>, .blocks = 1, .args_bytes = sizeof args, .lane = lane},
                  reinterpret_cast<const std::byte*>(&args));
}

/// The kernels that are launched, and how many pieces are in each that has several.
std::vector<std::pair<KernelId, std::uint32_t>> launched(ShortWorkList& list) {
  std::vector<std::pair<KernelId, std::uint32_t>> all;
  list.flush([&](KernelId kernel, const void* args) {
    all.emplace_back(kernel, kernel == KernelId::short_works ? static_cast<const ShortWorksArgs*>(args)->count : 0);
  });
  return all;
}
using Launched = std::vector<std::pair<KernelId, std::uint32_t>>;

TEST(ShortWorkList, MakesOneKernelOfWorkThatFollowsEachOther) {
  ShortWorkList list{nullptr};
  EXPECT_EQ(launched(list), Launched{});
  std::uint64_t ring = 0;
  list.begin({.stream = nullptr, .count = nullptr, .ring = &ring, .to = nullptr, .slots = 1, .words = 1});
  EXPECT_TRUE(add<CopySumsArgs>(list));
  EXPECT_TRUE(add<NoteTimeArgs>(list));
  EXPECT_TRUE(add<WaitArgs>(list));
  EXPECT_TRUE(add<WaitArgs>(list));
  EXPECT_EQ(launched(list), (Launched{{KernelId::short_works, 4}}));
  EXPECT_TRUE(add<SumUpArgs>(list));
  EXPECT_TRUE(add<SignalArgs>(list));
  EXPECT_TRUE(list.add(EndStepBlockArgs{}));
  EXPECT_EQ(launched(list), (Launched{{KernelId::short_works, 3}}));
  EXPECT_EQ(launched(list), Launched{});
}

TEST(ShortWorkList, LaunchesOnePieceAloneAsItsOwnKernel) {
  ShortWorkList list{nullptr};
  EXPECT_TRUE(add<WaitArgs>(list));
  EXPECT_EQ(launched(list), (Launched{{KernelId::wait, 0}}));
  EXPECT_TRUE(add<SumUpArgs>(list));
  EXPECT_EQ(launched(list), (Launched{{KernelId::short_works, 1}}));
  std::uint64_t ring = 0;
  list.begin({.stream = nullptr, .count = nullptr, .ring = &ring, .to = nullptr, .slots = 1, .words = 1});
  EXPECT_EQ(launched(list), (Launched{{KernelId::load_step_block, 0}}));
}

TEST(ShortWorkList, PutsNothingThatReadsMemoryBehindAWaitOrASignal) {
  ShortWorkList list{nullptr};
  EXPECT_TRUE(add<WaitArgs>(list));
  EXPECT_FALSE(add<CopySumsArgs>(list));
  EXPECT_FALSE(add<SumUpArgs>(list));
  EXPECT_FALSE(add<SignalArgs>(list));
  EXPECT_EQ(launched(list).size(), 1);
  EXPECT_TRUE(add<SignalArgs>(list));
  EXPECT_FALSE(add<CopySumsArgs>(list));
  EXPECT_FALSE(add<WaitArgs>(list));
}

TEST(ShortWorkList, TakesNoOtherKernelsAndNothingOfTheLaneBeside) {
  ShortWorkList list{nullptr};
  EXPECT_FALSE(add<ClearArgs>(list));
  EXPECT_FALSE(add<SignalArgs>(list, Lane::beside));
  for (std::uint32_t n = 0; n < kMostShortWorks; ++n) EXPECT_TRUE(add<NoteTimeArgs>(list));
  EXPECT_FALSE(add<NoteTimeArgs>(list));
}

}  // namespace
}  // namespace troupe::cuda
