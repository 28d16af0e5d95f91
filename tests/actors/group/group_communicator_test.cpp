#include "apps/group/group_communicator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "devices/reference/reference_device.hpp"
#include "tests/actors/group/group_world.hpp"
#include "tests/transports/bootstrap_ranks.hpp"

namespace troupe::test {
namespace {

constexpr std::uint64_t kArenaBytes = 4 << 20;

/// Processes of a group, each with a communicator and the same amount of numbers.
class Summing {
 public:
  explicit Summing(std::uint32_t size) : world_(size, std::vector<std::uint64_t>(size, kArenaBytes)), all_(size) {
    at_each([&](std::uint32_t peer, Blocking& blocking) {
      Group& group = world_.group(peer);
      all_[peer] =
          std::make_unique<GroupCommunicator>(blocking, group, make_reference_device(group.space()), long_enough());
    });
  }

  template <class Work>
  void at_each(Work work) {
    testing::at_once(all_.size(), [&](std::size_t peer) {
      auto blocking = Blocking::on_thread("test");
      work(static_cast<std::uint32_t>(peer), blocking);
    });
  }
  GroupCommunicator& of(std::uint32_t peer) { return *all_[peer]; }
  std::span<float> numbers(std::uint32_t peer, const Memory& memory) {
    return {world_.group(peer).space().address_of<float>(memory), memory.size_bytes / sizeof(float)};
  }
  Memory allocate(std::uint32_t peer, std::uint64_t count) {
    return world_.group(peer).arena().allocate(count * sizeof(float));
  }
  void kill(std::uint32_t peer) { world_.kill(peer); }

 private:
  GroupWorld world_;
  std::vector<std::unique_ptr<GroupCommunicator>> all_;  // end before the groups
};

TEST(GroupCommunicator, AddsUpAndCopiesBuffersOfAnySize) {
  for (const std::uint32_t size : {1u, 2u, 3u, 5u}) {
    Summing summing(size);
    summing.at_each([&](std::uint32_t peer, Blocking& blocking) {
      GroupCommunicator& all = summing.of(peer);
      for (const std::uint64_t count : {1u, 7u, 33u, 4097u, 300'001u}) {
        const Memory data = summing.allocate(peer, count);
        const auto numbers = summing.numbers(peer, data);
        for (std::uint64_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i % 1000 + peer);
        all.communicator().all_reduce(all.stream(), data);
        all.finish(blocking, long_enough());
        const std::uint64_t of_peers = size * (size - 1) / 2;
        for (std::uint64_t i = 0; i < count; ++i)
          ASSERT_EQ(numbers[i], static_cast<float>(i % 1000 * size + of_peers)) << size << ", " << count << ", " << i;
        for (float& number : numbers) number = static_cast<float>(peer);
        all.communicator().broadcast(all.stream(), data, Rank{size - 1});
        all.finish(blocking, long_enough());
        EXPECT_THAT(numbers, ::testing::Each(static_cast<float>(size - 1))) << size << ", " << count;
      }
    });
  }
}

TEST(GroupCommunicator, EndsAWaitWhenAProcessIsLost) {
  Summing summing(3);
  summing.at_each([&](std::uint32_t peer, Blocking& blocking) {
    if (peer == 2) return summing.kill(peer);
    GroupCommunicator& all = summing.of(peer);
    all.communicator().all_reduce(all.stream(), summing.allocate(peer, 1000));
    EXPECT_EQ(error_of([&] { all.finish(blocking, long_enough()); }).code(), Code::peer_lost);
  });
}

}  // namespace
}  // namespace troupe::test
