#include <gmock/gmock.h>

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <cstring>
#include <future>
#include <vector>

#include "tests/actors/remote/asking.hpp"
#include "tests/support/child_process.hpp"

// Tensors in memory that neither the host nor the transport can read: they are sent through pinned memory.
namespace troupe::test {
namespace {

using ::testing::HasSubstr;
using ::troupe::testing::eventually;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr SinkKey kStagingKey{7};

RemoteOptions few_slots() { return {.staging_bytes = 4 * kMiB}; }

/// Holds a lane's thread until it is let go, or for a minute.
struct HeldLane final : LaneTask {
  void run() noexcept override { (void)let_go.get_future().wait_for(std::chrono::minutes(1)); }
  std::promise<void> let_go;
};

class RemoteStaging : public ::testing::Test {
 protected:
  void make_world(const FakeOptions& device = {.simulated_memory = true, .runs_itself = true},
                  const RemoteOptions& there = few_slots(),
                  const LoopbackAdversity& adversity = {.seed = 1, .delay_rounds = 5, .refuse_percent = 20}) {
    world = std::make_unique<LoopbackWorld>(adversity, few_slots(), there, device);
  }
  Tensor tensor(std::uint64_t bytes, std::uint64_t seed, Point valid_from = {},
                std::shared_ptr<const void> owner = nullptr) {
    return world->here->tensor_on_device(++arenas, bytes, seed, valid_from, std::move(owner));
  }
  /// Of the same content.
  std::uint64_t digest_of(std::uint64_t bytes, std::uint64_t seed) {
    return digest(world->here->space, world->here->tensor(bytes, seed));
  }
  Answer<std::uint64_t> ask_digest(const Tensor& of) {
    return ask<std::uint64_t>(world->here->system, world->server, Digest::value, of);
  }

  HeldLane held;  // outlives the lanes
  std::unique_ptr<LoopbackWorld> world;
  std::uint32_t arenas = 10;
};

TEST_F(RemoteStaging, CarriesTensorsOfAnySize) {
  make_world();
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{4100}, kMiB, kMiB + 4, 5 * kMiB + 12}) {
    const auto sum = ask_digest(tensor(bytes, bytes + 1));
    ASSERT_TRUE(sum.ok()) << bytes << ": " << sum.why.text();
    EXPECT_EQ(sum.get(), digest_of(bytes, bytes + 1)) << bytes;
  }
}

TEST_F(RemoteStaging, CarriesSeveralTensorsOfAMessageWhereverTheyLie) {
  make_world();
  const Tensor on_device = tensor(3 * kMiB + 20, 1);
  const Tensor in_host = world->here->tensor(68, 2);
  const Tensor shared = world->here->tensor(4096, 3, /*shared=*/true);
  for (const auto& [x, y, z] : {std::tuple{on_device, in_host, shared}, std::tuple{in_host, shared, on_device},
                                std::tuple{on_device, on_device, in_host}}) {
    const auto sums =
        ask<std::uint64_t, std::uint64_t, std::uint64_t>(world->here->system, world->server, Digest::value, x, y, z);
    ASSERT_TRUE(sums.ok()) << sums.why.text();
    const auto expected = [&](const Tensor& of) {
      return of.kind() == MemoryKind::device ? digest_of(3 * kMiB + 20, 1) : digest(world->here->space, of);
    };
    EXPECT_EQ(sums.get<0>(), expected(x));
    EXPECT_EQ(sums.get<1>(), expected(y));
    EXPECT_EQ(sums.get<2>(), expected(z));
  }
}

TEST_F(RemoteStaging, CarriesTensorsBesideBodiesOfAnySize) {
  make_world();
  const caf::actor looker = at_other_end(
      *world->there, *world->here, world->there->system.spawn([space = &world->there->space]() -> caf::behavior {
        return {[space](const std::vector<char>& body, const Tensor& tensor) {
          return caf::make_message(std::uint64_t{body.size()}, digest(*space, tensor));
        }};
      }));
  for (const std::size_t size : {0, 3900, 5000, 3 << 20}) {
    const auto seen = ask<std::uint64_t, std::uint64_t>(world->here->system, looker, std::vector<char>(size, 'x'),
                                                        tensor(kMiB + 8, size));
    ASSERT_TRUE(seen.ok()) << size << ": " << seen.why.text();
    EXPECT_EQ(seen.get<0>(), size);
    EXPECT_EQ(seen.get<1>(), digest_of(kMiB + 8, size));
  }
}

TEST_F(RemoteStaging, KeepsTheOrderOfMessagesWithAndWithoutSuchTensors) {
  make_world();
  constexpr std::uint64_t kNotes = 60;
  std::vector<Tensor> tensors;
  for (std::uint64_t i = 0; i < kNotes; i += 3) {
    tensors.push_back(tensor(i % 2 == 0 ? 2 * kMiB + 4 * i : 8 + 4 * i, i));
    std::memcpy(world->here->device->address(tensors.back().memory()), &i, sizeof i);
  }
  caf::scoped_actor self(world->here->system);
  for (std::uint64_t i = 0; i < kNotes; ++i) {
    if (i % 3 == 0)
      self->send(world->server, Note::value, std::uint64_t{0}, i, tensors[i / 3]);
    else if (i % 3 == 1)
      self->send(world->server, Note::value, std::uint64_t{0}, i);
    else
      self->send(world->server, Note::value, std::uint64_t{0}, i, std::vector<char>(100'000));
  }
  const auto noted = ask<std::uint64_t, std::uint64_t>(world->here->system, world->server, Noted::value);
  ASSERT_TRUE(noted.ok()) << noted.why.text();
  EXPECT_EQ(noted.get<0>(), kNotes);
  EXPECT_EQ(noted.get<1>(), 0u);
}

TEST_F(RemoteStaging, LetsAnotherTensorPassALargeOne) {
  make_world({.simulated_memory = true});
  const Tensor large = tensor(30 * kMiB, 1);
  const Tensor small = tensor(4, 2);
  std::atomic<bool> has_small{false}, has_large{false};
  const auto taker = [&](std::atomic<bool>& has) {
    return at_other_end(*world->there, *world->here, world->there->system.spawn([&has]() -> caf::behavior {
      return {[&has](const Tensor&) { has = true; }};
    }));
  };
  const caf::actor takes_large = taker(has_large), takes_small = taker(has_small);
  const RemoteActors& remote = *world->here->remote;
  const std::uint64_t before = remote.counters().sent;
  caf::anon_send(takes_large, large);
  caf::anon_send(takes_small, small);
  FakeDevice& device = *world->here->device;
  ASSERT_TRUE(eventually([&] { return remote.counters().sent == before + 2; }));
  // Each copy is a piece of the device's work, and so is its point: five of the 31 are done.
  ASSERT_TRUE(eventually([&] { return (device.count_done() < 11 && device.run_one(), has_small.load()); }));
  EXPECT_FALSE(has_large);
  EXPECT_TRUE(eventually([&] { return (device.run_one(), has_large.load()); }));
}

/// While nothing leaves, a peer that is alone has half of the slots, with two pieces: one on its way, the next copied.
TEST_F(RemoteStaging, CopiesTheNextPieceWhileOneIsOnItsWay) {
  make_world({.simulated_memory = true});
  FakeDevice& device = *world->here->device;
  const Tensor large = tensor(8 * kMiB, 1);
  device.run_until_idle();  // what precedes the first tensor
  const std::uint64_t before = device.count_done();
  ASSERT_TRUE(world->here->bulk->post(held));
  caf::scoped_actor self(world->here->system);
  auto asked = self->request(world->server, kLong, Digest::value, large);
  ASSERT_TRUE(eventually([&] { return (device.run_one(), device.count_done() == before + 4); })) << "a copy, its point";
  EXPECT_EQ(device.run_until_idle(), 0U) << "a third piece has no slot";
  held.let_go.set_value();
  ASSERT_TRUE(eventually([&] { return (device.run_one(), device.count_done() == before + 16); }));
  asked.receive([&](std::uint64_t sum) { EXPECT_EQ(sum, digest_of(8 * kMiB, 1)); },
                [](const caf::error& error) { FAIL() << from_caf(error).text(); });
}

TEST_F(RemoteStaging, CopiesFromThePointOnAndEndsTheLoanWithTheLastCopy) {
  make_world({.simulated_memory = true});
  const TimelineId line = world->here->own->make_timeline();
  auto owner = std::make_shared<const int>(1);
  const std::weak_ptr<const void> kept = owner;
  FakeDevice& device = *world->here->device;
  device.run_until_idle();  // what precedes the first tensor
  const std::uint64_t before = device.count_done();
  caf::scoped_actor self(world->here->system);
  auto asked = self->request(world->server, kLong, Digest::value, tensor(2 * kMiB, 1, {line, 1}, std::move(owner)));
  self->send(world->server, Note::value, std::uint64_t{0}, std::uint64_t{0});
  EXPECT_EQ(device.run_until_idle(), 0u);
  world->here->space.timeline(line).signal(1);
  ASSERT_TRUE(eventually([&] { return device.run_one(); }));
  EXPECT_FALSE(kept.expired());
  EXPECT_TRUE(eventually([&] { return (device.run_one(), kept.expired()); }));
  EXPECT_EQ(device.count_done() - before, 4u);
  asked.receive([&](std::uint64_t sum) { EXPECT_EQ(sum, digest_of(2 * kMiB, 1)); },
                [](const caf::error& error) { FAIL() << from_caf(error).text(); });
}

TEST_F(RemoteStaging, StoresTheTensorInTheSinkThatItNames) {
  make_world();
  const Memory memory = world->there->fresh(3 * kMiB, false);
  world->there->remote->post_sink(kStagingKey, memory);
  const Tensor sent = tensor(3 * kMiB, 1).into(kStagingKey);
  const auto where = ask<std::uint32_t, std::uint64_t>(world->here->system, world->server, Where::value, sent);
  ASSERT_TRUE(where.ok()) << where.why.text();
  EXPECT_EQ(where.get<0>(), memory.arena.value);
  EXPECT_EQ(where.get<1>(), memory.offset);
  const Tensor landed{memory, {3 * kMiB / 4}, DType::f32, {}, nullptr};
  EXPECT_EQ(digest(world->there->space, landed), digest_of(3 * kMiB, 1));
}

TEST_F(RemoteStaging, AnswersOutOfMemoryWhenTheReceiverHasNone) {
  RemoteOptions there = few_slots();
  there.landing_bytes = 2 * kMiB;
  make_world({.simulated_memory = true, .runs_itself = true}, there);
  EXPECT_EQ(ask_digest(tensor(4 * kMiB, 1)).why.code(), Code::out_of_memory);
  const auto sum = ask_digest(tensor(kMiB, 2));
  ASSERT_TRUE(sum.ok()) << sum.why.text();
  EXPECT_EQ(sum.get(), digest_of(kMiB, 2));
}

TEST_F(RemoteStaging, OfADeviceThatFailsEndsRequestsAndLeavesTheRest) {
  // Pieces of work: the slots are cleared, then a copy and its point for each MiB. The third copy fails.
  make_world({.fail_at = 5, .simulated_memory = true, .runs_itself = true});
  world->there->remote->post_sink(kStagingKey, world->there->fresh(6 * kMiB, false));
  const auto sum = ask_digest(tensor(6 * kMiB, 1).into(kStagingKey));
  EXPECT_EQ(sum.why.code(), Code::device_fault) << sum.why.text();
  const auto later = ask_digest(tensor(4, 1));
  EXPECT_EQ(later.why.code(), Code::device_fault) << later.why.text();
  const Tensor in_host = world->here->tensor(4096, 1);
  EXPECT_EQ(ask_digest(in_host).get(), digest(world->here->space, in_host));
  EXPECT_TRUE(eventually([&] { return world->there->remote->withdraw_sinks(kStagingKey) == 1; }))
      << "the sink is not free";
}

TEST_F(RemoteStaging, OfMemoryThatTheDeviceDoesNotKnowEndsOnlyItsRequest) {
  make_world();
  std::vector<float> numbers(1024);
  world->here->space.bind(
      {arena_id(Peer{0}, 9), reinterpret_cast<std::byte*>(numbers.data()), 4096, MemoryKind::device});
  const Memory unmapped{arena_id(Peer{0}, 9), 0, 4096};
  auto blocking = Blocking::on_thread("test");
  const TimelineId line = world->here->own->make_timeline();
  const auto other = ask<caf::actor>(world->here->system, world->server, Worker::value);
  ASSERT_TRUE(other.ok()) << other.why.text();
  caf::scoped_actor self(world->here->system);
  auto asked = self->request(world->server, kLong, Digest::value,
                             Tensor{unmapped, {1024}, DType::f32, {line, 1}, nullptr, MemoryKind::device});
  // Answered when the message waits for its point.
  ASSERT_TRUE(ask<std::uint64_t>(world->here->system, other.get(), Echo::value, std::uint64_t{1}).ok());
  world->here->space.unmap(blocking, unmapped.arena);
  world->here->space.timeline(line).signal(1);
  asked.receive([](std::uint64_t) { FAIL() << "it was sent"; },
                [](const caf::error& error) { EXPECT_EQ(from_caf(error).code(), Code::invalid); });
  EXPECT_TRUE(ask_digest(tensor(kMiB, 1)).ok());
}

TEST_F(RemoteStaging, EndsWithTheReceiver) {
  make_world({.simulated_memory = true});
  auto owner = std::make_shared<const int>(1);
  const std::weak_ptr<const void> kept = owner;
  caf::scoped_actor self(world->here->system);
  auto asked = self->request(world->server, kLong, Digest::value, tensor(9 * kMiB, 1, {}, std::move(owner)));
  FakeDevice& device = *world->here->device;
  ASSERT_TRUE(eventually([&] { return (device.run_one(), device.count_done() > 3); }));
  world->kill_there();
  asked.receive([](std::uint64_t) { FAIL() << "nobody is there"; },
                [](const caf::error& error) { EXPECT_EQ(from_caf(error).code(), Code::peer_lost); });
  EXPECT_TRUE(eventually([&] { return (device.run_until_idle(), kept.expired()); }));
  EXPECT_LT(device.count_done(), 15u) << "it went on copying for the dead";
}

TEST_F(RemoteStaging, OfASenderThatDiesFreesTheSink) {
  make_world({.simulated_memory = true}, few_slots(), {});
  world->here->remote->post_sink(kStagingKey, world->here->fresh(9 * kMiB, false));
  const Tensor sent = world->there->tensor_on_device(10, 9 * kMiB, 1).into(kStagingKey);
  const caf::actor server_here = at_other_end(*world->here, *world->there, world->here->server);
  const auto other = ask<caf::actor>(world->there->system, server_here, Worker::value);
  ASSERT_TRUE(other.ok()) << other.why.text();
  caf::anon_send(server_here, Keep::value, sent);
  FakeDevice& device = *world->there->device;
  ASSERT_TRUE(eventually([&] { return (device.run_one(), device.count_done() > 8); }));
  // On the same lane as the pieces: it arrives after the first of them.
  const Tensor behind = world->there->tensor(128 << 10, 1);
  ASSERT_TRUE(ask<std::uint64_t>(world->there->system, other.get(), Digest::value, behind).ok());
  EXPECT_EQ(world->here->remote->withdraw_sinks(kStagingKey), 0u) << "it is being filled";
  world->kill_there();
  EXPECT_TRUE(eventually([&] { return world->here->remote->withdraw_sinks(kStagingKey) == 1; }));
}

}  // namespace
}  // namespace troupe::test
