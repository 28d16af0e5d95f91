#include <gtest/gtest.h>
#include <sys/mman.h>

#include <caf/event_based_actor.hpp>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/actors/remote/asking.hpp"

// Tensors of more bytes than 31 bits count.
namespace troupe::test {
namespace {

constexpr std::uint64_t kBytes = (std::uint64_t{2} << 30) + (1 << 20);
constexpr std::uint64_t kNeededBytes = std::uint64_t{5} << 30;  // an arena is whole when it is made, then a hole

std::uint64_t available_bytes() {
  std::ifstream info("/proc/meminfo");
  for (std::string key; info >> key;) {
    std::uint64_t kib = 0;
    if (key == "MemAvailable:" && info >> kib) return kib << 10;
  }
  return 0;
}

/// The tensor's number of elements, and its last one.
caf::behavior looker(caf::event_based_actor*, const AddressSpace* space) {
  return {[space](const Tensor& tensor) {
    const std::uint64_t count = tensor.extents()[0] * tensor.extents()[1];
    return caf::make_message(count, std::uint64_t{space->address_of<std::uint32_t>(tensor.memory())[count - 1]});
  }};
}

TEST(RemoteTensor, OfMoreThanTwoGiBGoesByReference) {
  if (available_bytes() < kNeededBytes) GTEST_SKIP() << "needs 5 GiB of memory that is free";
  const ArenaId id = arena_id(Peer{0}, 5);
  LoopbackWorld world({}, {.shares = [id](Peer, ArenaId arena) { return arena == id; }});
  const auto arena = Arena::create(id, kBytes + Arena::kPageBytes);
  world.here->space.map(arena);
  world.there->space.map(Arena::open(arena->ticket()));
  const Memory memory = arena->allocate(kBytes, Arena::kPageBytes);
  std::byte* const bytes = world.here->space.address(memory);
  ASSERT_EQ(::madvise(bytes, kBytes, MADV_REMOVE), 0) << "no holes in this kernel's shared memory";
  const std::uint32_t last = 0x12345678;
  std::memcpy(bytes + kBytes - sizeof last, &last, sizeof last);
  const Tensor tensor{memory, {kBytes / 4096, 1024}, DType::f32, {}, nullptr};

  world.there->remote->publish("looker", world.there->system.spawn(looker, &world.there->space));
  auto blocking = Blocking::on_thread("test");
  const caf::actor to = world.here->remote->resolve(blocking, World::kThere, "looker", Deadline::after(kLong));
  const auto seen = ask<std::uint64_t, std::uint64_t>(world.here->system, to, tensor);
  ASSERT_TRUE(seen.ok()) << seen.why.text();
  EXPECT_EQ(seen.get<0>(), kBytes / 4);
  EXPECT_EQ(seen.get<1>(), last);
}

TEST(RemoteMessage, OfMoreThanTwoGiBIsRefusedAtOnce) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes several times the memory of this test";
#endif
  if (available_bytes() < 2 * kNeededBytes) GTEST_SKIP() << "needs 10 GiB of memory that is free";
  LoopbackWorld world;
  const std::string large(wire::kLargestBody, 'x');  // with its length it is more
  const auto refused = ask<std::string>(world.here->system, world.server, Echo::value, large);
  EXPECT_EQ(refused.why.code(), Code::unsupported) << refused.why.text();
  const std::string small("still there");
  EXPECT_EQ((ask<std::string>(world.here->system, world.server, Echo::value, small)).get(), small);
}

}  // namespace
}  // namespace troupe::test
