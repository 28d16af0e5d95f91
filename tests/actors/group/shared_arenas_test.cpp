#include <gtest/gtest.h>

#include "actors/group/detail/shared_arenas.hpp"
#include "devices/reference/reference_device.hpp"
#include "tests/actors/group/group_world.hpp"

namespace troupe::group {
namespace {

constexpr std::uint64_t kBytes = 4096;

/// One process of a group of two, with a device that works in the host's memory.
struct Process {
  AddressSpace space;
  std::unique_ptr<Device> device = make_reference_device(space);
  SharedArenas arenas;

  void offer(Peer self, std::uint64_t arena_bytes, std::uint64_t device_bytes) {
    if (arena_bytes > 0) arenas.create(space, self, arena_bytes);
    arenas.use(*device, self, device_bytes);
  }
};

std::vector<std::vector<std::byte>> tickets_of(const Process& first, const Process& second) {
  return {first.arenas.ticket(), second.arenas.ticket()};
}

TEST(SharedArenas, KnowWhoReachesAnArenaAndTheMemoryOfADevice) {
  for (const std::uint64_t arena_bytes : {std::uint64_t{0}, kBytes}) {
    Process first, second;
    first.offer(Peer{0}, arena_bytes, kBytes);
    second.offer(Peer{1}, 0, 0);
    const auto tickets = tickets_of(first, second);
    const auto mine = first.arenas.map(first.space, tickets), other = second.arenas.map(second.space, tickets);
    first.arenas.learn({mine, other});
    const Memory memory = first.arenas.device_memory();
    EXPECT_EQ(memory.size_bytes, kBytes);
    EXPECT_TRUE(first.arenas.shares(Peer{1}, memory.arena));
    if (arena_bytes > 0) {
      EXPECT_TRUE(first.arenas.shares(Peer{1}, first.arenas.own()->id()));
    }
    EXPECT_TRUE(second.arenas.device_memory().size_bytes == 0);
    *first.space.address_of<int>(memory) = 42;
    EXPECT_EQ(*second.space.address_of<int>(memory), 42);
  }
}

TEST(SharedArenas, LeaveOutTheMemoryOfADeviceForAProcessWithoutOne) {
  Process first;
  first.offer(Peer{0}, kBytes, kBytes);
  AddressSpace space;
  SharedArenas without;
  const auto told = without.map(space, {first.arenas.ticket(), {}});
  first.arenas.learn({std::vector<std::byte>(2), told});
  EXPECT_TRUE(first.arenas.shares(Peer{1}, first.arenas.own()->id()));
  EXPECT_FALSE(first.arenas.shares(Peer{1}, first.arenas.device_memory().arena));
}

TEST(SharedArenas, RefuseTicketsOfAWrongSizeOrOfAnother) {
  Process first, second;
  first.offer(Peer{0}, kBytes, kBytes);
  second.offer(Peer{1}, 0, 0);
  const std::vector<std::byte> ticket = first.arenas.ticket();
  for (const std::size_t size : {std::size_t{1}, ticket.size() - 1, ticket.size() / 2}) {
    const Status status = test::error_of([&] {
      (void)second.arenas.map(second.space, {{ticket.begin(), ticket.begin() + static_cast<long>(size)}, {}});
    });
    EXPECT_EQ(status.code(), Code::corrupt) << size;
  }
  const std::vector<std::byte> region(ticket.end() - sizeof(RegionTicket), ticket.end());
  const Status status = test::error_of([&] { (void)second.arenas.map(second.space, {{}, region}); });
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_NE(status.text().find("peer 1 offers the memory"), std::string_view::npos) << status.text();
}

}  // namespace
}  // namespace troupe::group
