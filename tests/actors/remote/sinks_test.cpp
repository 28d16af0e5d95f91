#include <gtest/gtest.h>

#include <caf/event_based_actor.hpp>
#include <cstring>
#include <vector>

#include "tests/actors/remote/asking.hpp"
#include "tests/support/child_process.hpp"

// Tensors that are stored in memory that the receiver has provided, and the kinds of memory that they can be in.
namespace troupe::test {
namespace {

using ::troupe::testing::eventually;

constexpr SinkKey kKey{7};

class RemoteSinks : public ::testing::Test {
 protected:
  RemoteActors& remote_there() { return *world->there->remote; }
  Memory buffer(std::uint64_t bytes) { return world->there->fresh(bytes, false); }

  /// The memory of a tensor that has arrived.
  Memory place_of(const Tensor& tensor) {
    const auto where = ask<std::uint32_t, std::uint64_t>(world->here->system, world->server, Where::value, tensor);
    if (!where.ok()) return {};
    return {{where.get<0>()}, where.get<1>(), tensor.memory().size_bytes};
  }

  std::unique_ptr<LoopbackWorld> world = std::make_unique<LoopbackWorld>();
};

TEST_F(RemoteSinks, TakeTheTensorsThatNameThem) {
  const Memory memory = buffer(8192);
  remote_there().post_sink(kKey, memory);
  const Tensor tensor = world->here->tensor(8192, 1);
  const auto sum = ask<std::uint64_t>(world->here->system, world->server, Digest::value, tensor.into(kKey));
  ASSERT_TRUE(sum.ok()) << sum.why.text();
  EXPECT_EQ(sum.get(), digest(world->here->space, tensor));
  EXPECT_EQ(std::memcmp(world->there->space.address(memory), world->here->space.address(tensor.memory()), 8192), 0);
}

TEST_F(RemoteSinks, AreUsedOnceEachInTheOrderOfPosting) {
  const Memory first = buffer(4096);
  const Memory second = buffer(8192);
  remote_there().post_sink(kKey, first);
  remote_there().post_sink(kKey, second);
  const Tensor tensor = world->here->tensor(4096, 1).into(kKey);
  EXPECT_EQ(place_of(tensor), first);
  EXPECT_EQ(place_of(tensor), slice(second, 0, 4096));
  EXPECT_NE(place_of(tensor).arena, first.arena) << "the pool's turn";
}

TEST_F(RemoteSinks, LeaveTensorsThatNameNoneOrAnotherToThePool) {
  const Memory memory = buffer(4096);
  remote_there().post_sink(kKey, memory);
  const Tensor tensor = world->here->tensor(4096, 1);
  EXPECT_NE(place_of(tensor).arena, memory.arena);
  EXPECT_NE(place_of(tensor.into({8})).arena, memory.arena);
  EXPECT_EQ(place_of(tensor.into(kKey)), memory);
}

TEST_F(RemoteSinks, StayPostedWhenTheTensorIsLargerThanTheNext) {
  const Memory memory = buffer(4096);
  remote_there().post_sink(kKey, memory);
  EXPECT_NE(place_of(world->here->tensor(8192, 1).into(kKey)).arena, memory.arena);
  EXPECT_EQ(place_of(world->here->tensor(4096, 1).into(kKey)), memory);
}

TEST_F(RemoteSinks, StayPostedWhenTheTensorGoesByReference) {
  remote_there().post_sink(kKey, buffer(4096));
  const Tensor shared = world->here->tensor(4096, 1, /*shared=*/true);
  EXPECT_EQ(place_of(shared.into(kKey)), shared.memory());
  EXPECT_EQ(remote_there().withdraw_sinks(kKey), 1u);
}

TEST_F(RemoteSinks, StayPostedWhenSeveralTensorsAreSentTogether) {
  remote_there().post_sink(kKey, buffer(4096));
  const Tensor one = world->here->tensor(4096, 1).into(kKey);
  const auto sums = ask<std::uint64_t, std::uint64_t, std::uint64_t>(world->here->system, world->server, Digest::value,
                                                                     one, one, one);
  ASSERT_TRUE(sums.ok()) << sums.why.text();
  EXPECT_EQ(sums.get<2>(), digest(world->here->space, one));
  EXPECT_EQ(remote_there().withdraw_sinks(kKey), 1u);
}

TEST_F(RemoteSinks, TakeTheCopiedTensorOfAMessageWhoseOthersGoByReference) {
  remote_there().post_sink(kKey, buffer(4096));
  const Tensor shared = world->here->tensor(4096, 1, /*shared=*/true);
  const Tensor copied = world->here->tensor(4096, 2);
  const auto sums = ask<std::uint64_t, std::uint64_t, std::uint64_t>(world->here->system, world->server, Digest::value,
                                                                     shared, copied.into(kKey), shared);
  ASSERT_TRUE(sums.ok()) << sums.why.text();
  EXPECT_EQ(sums.get<1>(), digest(world->here->space, copied));
  EXPECT_EQ(remote_there().withdraw_sinks(kKey), 0u);
}

TEST_F(RemoteSinks, KeepTheirOwnerAsLongAsTheTensorLives) {
  std::weak_ptr<const void> kept;
  {
    const auto owner = std::make_shared<const int>(1);
    kept = owner;
    remote_there().post_sink(kKey, buffer(4096), owner);
  }
  const Tensor tensor = world->here->tensor(4096, 1).into(kKey);
  ASSERT_TRUE(ask<std::uint64_t>(world->here->system, world->server, Keep::value, tensor).ok());
  EXPECT_FALSE(kept.expired());
  caf::scoped_actor self(world->here->system);
  self->send(world->server, Forget::value);
  EXPECT_TRUE(eventually([&] { return kept.expired(); }));
}

TEST_F(RemoteSinks, AreGivenBackWhenWithdrawn) {
  auto owner = std::make_shared<const int>(1);
  remote_there().post_sink(kKey, buffer(4096), owner);
  remote_there().post_sink(kKey, buffer(4096), owner);
  EXPECT_EQ(owner.use_count(), 3);
  EXPECT_EQ(remote_there().withdraw_sinks(kKey), 2u);
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_EQ(remote_there().withdraw_sinks(kKey), 0u);
}

TEST_F(RemoteSinks, RefuseKeysAndMemoryThatAreNone) {
  EXPECT_THROW(remote_there().post_sink({}, buffer(64)), Error);
  EXPECT_THROW(remote_there().post_sink(kKey, {}), Error);
  EXPECT_THROW(remote_there().post_sink(kKey, {arena_id({9}, 9), 0, 64}), Error);
}

/// Memory of the test's own in an end's address space.
class RemoteMemory : public RemoteSinks {
 protected:
  Memory bind(RemoteEnd& end, std::vector<float>& numbers, MemoryKind kind) {
    const ArenaId id = arena_id(end.self, 77);
    const std::uint64_t bytes = numbers.size() * sizeof(float);
    end.space.bind({id, reinterpret_cast<std::byte*>(numbers.data()), bytes, kind});
    return {id, 0, bytes};
  }
  std::vector<float> numbers = std::vector<float>(1024, 1.5F);
};

TEST_F(RemoteMemory, OfTheApplicationIsSentAsThatOfArenas) {
  const Tensor tensor{bind(*world->here, numbers, MemoryKind::host), {1024}, DType::f32, {}, nullptr};
  const auto sum = ask<std::uint64_t>(world->here->system, world->server, Digest::value, tensor);
  ASSERT_TRUE(sum.ok()) << sum.why.text();
  EXPECT_EQ(sum.get(), digest(world->here->space, tensor));
}

TEST_F(RemoteMemory, OfTheApplicationIsASinkToo) {
  const Memory memory = bind(*world->there, numbers, MemoryKind::pinned);
  remote_there().post_sink(kKey, memory);
  EXPECT_EQ(place_of(world->here->tensor(4096, 1).into(kKey)), memory);
  EXPECT_NE(numbers[0], 1.5F);
}

TEST_F(RemoteMemory, OfADeviceIsNotSentByATransportThatCannotReadIt) {
  const Memory memory = bind(*world->here, numbers, MemoryKind::device);
  const Tensor tensor{memory, {1024}, DType::f32, {}, nullptr, MemoryKind::device};
  const auto sum = ask<std::uint64_t>(world->here->system, world->server, Digest::value, tensor);
  EXPECT_EQ(sum.why.code(), Code::unsupported) << sum.why.text();
  EXPECT_NE(sum.why.text().find("copy it to host memory"), std::string::npos) << sum.why.text();
}

TEST_F(RemoteMemory, OfADeviceIsNoSinkForATransportThatCannotWriteIt) {
  const Memory memory = bind(*world->there, numbers, MemoryKind::device);
  EXPECT_THROW(remote_there().post_sink(kKey, memory), Error);
}

TEST_F(RemoteMemory, IsOfTheKindThatItsTensorSays) {
  const Tensor tensor{bind(*world->here, numbers, MemoryKind::device), {1024}, DType::f32, {}, nullptr};
  const auto sum = ask<std::uint64_t>(world->here->system, world->server, Digest::value, tensor);
  EXPECT_EQ(sum.why.code(), Code::invalid) << sum.why.text();
}

}  // namespace
}  // namespace troupe::test
