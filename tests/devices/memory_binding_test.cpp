// On this host, and on machines that hwloc is given a description of: there it takes every order and carries none out.

#include "devices/discovery/memory_binding.hpp"

#include <gmock/gmock.h>
#include <sys/mman.h>

#include "devices/discovery/discovery.hpp"
#include "runtime/base/error.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::uint64_t kBytes = std::uint64_t{4} << 20;
constexpr const char* kTwoNodes = "numa:2 core:4 pu:1";

TEST(MemoryBinding, IsNoneForNoNodes) { EXPECT_EQ(make_memory_binding({}), nullptr); }

TEST(MemoryBinding, PutsAnArenaOnTheNodeOfThisHost) {
  const std::uint32_t node = discover().numa.front().os_index;
  const auto binding = make_memory_binding({node});
  const auto arena = Arena::create({1}, kBytes, binding.get());
  if (!binding->refusal().empty()) GTEST_SKIP() << binding->refusal();
  EXPECT_THAT(binding->locate(arena->base(), arena->size_bytes(), 16), ElementsAre(Pair(node, 16u)));
}

TEST(MemoryBinding, OfAThreadEndsWithIt) {
  const auto binding = make_memory_binding({discover().numa.front().os_index});
  if (!binding->refusal().empty()) GTEST_SKIP() << binding->refusal();
  {
    const ThreadMemory bound(binding.get());
    const auto second = make_memory_binding(binding->nodes());
    EXPECT_THAT(second->refusal(), HasSubstr("a memory policy of its own"));
  }
  EXPECT_THAT(make_memory_binding(binding->nodes())->refusal(), IsEmpty());
}

TEST(MemoryBinding, LeavesThePolicyAloneThatTheProcessHadBefore) {
  const std::vector<std::uint32_t> nodes{discover().numa.front().os_index};
  const auto users = make_memory_binding(nodes);
  if (!users->refusal().empty()) GTEST_SKIP() << users->refusal();
  const ThreadMemory before(users.get());
  const auto later = make_memory_binding(nodes);
  { const ThreadMemory bound(later.get()); }
  EXPECT_THAT(make_memory_binding(nodes)->refusal(), HasSubstr("a memory policy of its own")) << "it was ended";
}

TEST(MemoryBinding, SaysThatANodeIsNotHere) {
  const auto binding = make_memory_binding({700});
  EXPECT_THAT(binding->refusal(), HasSubstr("no NUMA node 700"));
  const auto arena = Arena::create({1}, kBytes, binding.get());  // it goes on without
  EXPECT_EQ(arena->size_bytes() % Arena::kPageBytes, 0u);
}

TEST(MemoryBinding, TakesTheNodesOfAMachineThatIsDescribed) {
  const auto binding = make_memory_binding({1, 0}, kTwoNodes);
  EXPECT_THAT(binding->nodes(), ElementsAre(0u, 1u));
  const auto arena = Arena::create({1}, kBytes, binding.get());
  const ThreadMemory thread(binding.get());
  EXPECT_THAT(binding->refusal(), IsEmpty());
  EXPECT_THAT(make_memory_binding({2}, kTwoNodes)->refusal(), HasSubstr("no NUMA node 2"));
}

TEST(MemoryBinding, DoesNotCountPagesOfWhichNothingIsKnown) {
  const auto binding = make_memory_binding({1}, kTwoNodes);  // hwloc then says that a page may be on both
  const auto arena = Arena::create({1}, kBytes, binding.get());
  EXPECT_THAT(binding->locate(arena->base(), arena->size_bytes(), 16), IsEmpty());
}

TEST(MemoryBinding, RefusesADescriptionThatIsNone) { EXPECT_THROW(make_memory_binding({0}, "no machine"), Error); }

}  // namespace
}  // namespace troupe
