#include <gmock/gmock.h>

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <future>

#include "actors/remote/network_module.hpp"
#include "runtime/memory/timeline.hpp"
#include "tests/actors/remote/asking.hpp"
#include "tests/support/child_process.hpp"

// Tests that need access to both ends, or a transport that misbehaves.
namespace troupe::test {
namespace {

using ::testing::HasSubstr;
using troupe::testing::eventually;

constexpr std::uint64_t kKiB = 1024;

TEST(RemoteActors, KeepTheOrderOverATransportThatReordersAndRefuses) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    LoopbackWorld world({.seed = seed, .delay_rounds = 6, .refuse_percent = 30});
    std::vector<Tensor> tensors;
    for (std::uint64_t i = 0; i < 200; ++i) {
      if (i % 5 == 3) {
        tensors.push_back(world.here->tensor(1024 * (1 + i % 7), i));
        std::memcpy(world.here->space.address(tensors.back().memory()), &i, sizeof i);
        caf::anon_send(world.server, Note::value, std::uint64_t{0}, i, tensors.back());
      } else if (i % 5 == 4) {
        caf::anon_send(world.server, Note::value, std::uint64_t{0}, i, std::vector<char>(i * 500));
      } else {
        caf::anon_send(world.server, Note::value, std::uint64_t{0}, i);
      }
    }
    const auto noted = ask<std::uint64_t, std::uint64_t>(world.here->system, world.server, Noted::value);
    ASSERT_TRUE(noted.ok()) << noted.why.text();
    EXPECT_EQ(noted.get<0>(), 200u);
    EXPECT_EQ(noted.get<1>(), 0u) << "seed " << seed;
    EXPECT_GT(world.there->remote->counters().reordered, 0u);
  }
}

TEST(RemoteActors, AnswerOutOfMemoryWhenAPayloadHasNoPlaceToLand) {
  LoopbackWorld world({}, {}, {.landing_bytes = 256 * kKiB});
  const auto large =
      ask<std::uint64_t>(world.here->system, world.server, Digest::value, world.here->tensor(512 * kKiB, 1));
  EXPECT_EQ(large.why.code(), Code::out_of_memory) << large.why.text();
  const auto fits =
      ask<std::uint64_t>(world.here->system, world.server, Digest::value, world.here->tensor(128 * kKiB, 1));
  EXPECT_TRUE(fits.ok()) << fits.why.text();
  EXPECT_TRUE((ask<std::uint64_t>(world.here->system, world.server, Echo::value, std::uint64_t{1})).ok());
}

TEST(RemoteActors, LetBodiesWaitForMemoryToLeaveFrom) {
  LoopbackWorld world({.seed = 1, .delay_rounds = 4}, {.sending_bytes = 128 * kKiB});
  for (std::uint64_t i = 0; i < 50; ++i) {
    caf::anon_send(world.server, Note::value, std::uint64_t{0}, i, std::vector<char>(100 * kKiB));
  }
  const auto noted = ask<std::uint64_t, std::uint64_t>(world.here->system, world.server, Noted::value);
  ASSERT_TRUE(noted.ok()) << noted.why.text();
  EXPECT_EQ(noted.get<0>(), 50u);
  EXPECT_EQ(noted.get<1>(), 0u);
}

TEST(RemoteActors, ReuseTheMemoryOfTensorsThatEnded) {
  LoopbackWorld world({}, {}, {.landing_bytes = 1024 * kKiB});
  const Tensor tensor = world.here->tensor(512 * kKiB, 1);
  for (int i = 0; i < 10; ++i) {
    const auto sum = ask<std::uint64_t>(world.here->system, world.server, Digest::value, tensor);
    ASSERT_TRUE(sum.ok()) << i << ": " << sum.why.text();
  }
}

TEST(RemoteActors, PassTensorsOfEveryDataTypeAloneAndBesideOtherValues) {
  LoopbackWorld world;
  const caf::actor keeper = world.there->system.spawn([]() -> caf::behavior {
    return {[](const Tensor& tensor) { return static_cast<std::uint64_t>(tensor.dtype()); },
            [](std::uint64_t, const Tensor& tensor) { return static_cast<std::uint64_t>(tensor.dtype()); }};
  });
  world.there->remote->publish("keeper", keeper);
  auto blocking = Blocking::on_thread("test");
  const caf::actor remote = world.here->remote->resolve(blocking, World::kThere, "keeper", Deadline::after(kLong));
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::i32}) {
    const Tensor bytes = world.here->tensor(48, 1);
    const Tensor tensor(bytes.memory(), {48 / size_bytes(type)}, type, {}, nullptr);
    const auto alone = ask<std::uint64_t>(world.here->system, remote, tensor);
    ASSERT_TRUE(alone.ok()) << name_of(type) << ": " << alone.why.text();
    EXPECT_EQ(alone.get<0>(), static_cast<std::uint64_t>(type));
    const auto beside = ask<std::uint64_t>(world.here->system, remote, std::uint64_t{1}, tensor);
    ASSERT_TRUE(beside.ok()) << name_of(type) << ": " << beside.why.text();
    EXPECT_EQ(beside.get<0>(), static_cast<std::uint64_t>(type));
  }
  caf::anon_send_exit(keeper, caf::exit_reason::user_shutdown);
}

TEST(RemoteActors, SendATensorNotBeforeItIsValidAndKeepItsPlace) {
  LoopbackWorld world;
  const TimelineId line = world.here->space.make_private_timeline();
  const Tensor tensor = world.here->tensor(4096, 0, /*shared=*/false, Point{line, 1});
  caf::anon_send(world.server, Note::value, std::uint64_t{0}, std::uint64_t{0}, tensor);
  caf::anon_send(world.server, Note::value, std::uint64_t{0}, std::uint64_t{1});
  auto noted = std::async(std::launch::async, [&] {
    return ask<std::uint64_t, std::uint64_t>(world.here->system, world.server, Noted::value);
  });
  ASSERT_TRUE(eventually([&] { return world.here->remote->counters().sent >= 3; }));
  // Another actor is not blocked meanwhile, and the content that is written now is what arrives.
  ASSERT_TRUE((ask<caf::actor>(world.here->system, world.here->remote->directory(World::kThere),
                               RemoteActors::Find::value, std::string("server")))
                  .ok());
  const std::uint64_t stamp = 0;
  std::memcpy(world.here->space.address(tensor.memory()), &stamp, sizeof stamp);
  world.here->space.timeline(line).signal(1);
  const auto answer = noted.get();
  ASSERT_TRUE(answer.ok()) << answer.why.text();
  EXPECT_EQ(answer.get<0>(), 2u);
  EXPECT_EQ(answer.get<1>(), 0u);
}

TEST(RemoteActors, AnswerWithThePoisonWhenATensorWillNeverBeValid) {
  LoopbackWorld world;
  const TimelineId line = world.here->space.make_private_timeline();
  const Tensor tensor = world.here->tensor(4096, 0, /*shared=*/false, Point{line, 1});
  auto sum = std::async(std::launch::async,
                        [&] { return ask<std::uint64_t>(world.here->system, world.server, Digest::value, tensor); });
  ASSERT_TRUE(eventually([&] { return world.here->remote->counters().sent >= 2; }));
  world.here->space.timeline(line).poison(Status{Code::device_fault, "the stream broke"});
  EXPECT_EQ(sum.get().why.code(), Code::device_fault);
  EXPECT_TRUE((ask<std::uint64_t>(world.here->system, world.server, Echo::value, std::uint64_t{1})).ok());
}

TEST(RemoteActors, AnswerWithThePoisonWhenAnAnswersTensorWillNeverBeValid) {
  LoopbackWorld world;
  const TimelineId line = world.there->space.make_private_timeline();
  const Tensor tensor = world.there->tensor(4096, 0, /*shared=*/false, Point{line, 1});
  const caf::actor giver = world.there->system.spawn(
      [](caf::event_based_actor*, Tensor given) -> caf::behavior {
        return {[given](Echo, std::uint64_t) { return given; }};
      },
      tensor);
  world.there->remote->publish("giver", giver);
  auto blocking = Blocking::on_thread("test");
  const caf::actor remote = world.here->remote->resolve(blocking, World::kThere, "giver", Deadline::after(kLong));
  const auto before = world.there->remote->counters().sent;
  auto given = std::async(std::launch::async,
                          [&] { return ask<Tensor>(world.here->system, remote, Echo::value, std::uint64_t{1}); });
  ASSERT_TRUE(eventually([&] { return world.there->remote->counters().sent > before; }));
  world.there->space.timeline(line).poison(Status{Code::device_fault, "the stream broke"});
  const auto answer = given.get();
  EXPECT_EQ(answer.why.code(), Code::device_fault) << answer.why.text();
}

TEST(RemoteActors, PassThePointOfATensorWhoseTimelineIsShared) {
  LoopbackWorld world;
  const TimelineId line = world.here->common->make_timeline();
  const Tensor tensor = world.here->tensor(4096, 0, /*shared=*/true, Point{line, 5});
  const auto echo = ask<Tensor>(world.here->system, world.server, Echo::value, tensor);
  ASSERT_TRUE(echo.ok()) << echo.why.text();
  EXPECT_EQ(echo.get().valid_from(), (Point{line, 5}));
}

// A sleeper that a wait counts there would change the bytes of whatever lies in its place.
TEST(RemoteActors, RefuseATensorWhosePointIsNoTimeline) {
  LoopbackWorld world;
  const Memory bytes = world.here->common->allocate(4 * sizeof(TimelineWord), sizeof(TimelineWord));
  const auto index = static_cast<std::uint32_t>(bytes.offset / sizeof(TimelineWord));
  const Tensor tensor = world.here->tensor(4096, 0, /*shared=*/true, Point{{bytes.arena, index + 1}, 5});
  const auto echo = ask<Tensor>(world.here->system, world.server, Echo::value, tensor);
  EXPECT_EQ(echo.why.code(), Code::corrupt) << echo.why.text();
  EXPECT_THAT(echo.why.text(), HasSubstr("timeline"));
}

// The key of a sink and the number of a loan are two things, though one field of the wire holds either.
TEST(RemoteActors, KeepWhatIsLentWhenATensorForASinkWillNeverBeValid) {
  LoopbackWorld world;
  const std::shared_ptr<int> alive = std::make_shared<int>(1);
  const Tensor lent = world.here->tensor(64, 0, /*shared=*/true);
  ASSERT_TRUE((ask<std::uint64_t>(world.here->system, world.server, Keep::value,
                                  Tensor{lent.memory(), lent.extents(), lent.dtype(), {}, alive}))
                  .ok());
  const TimelineId line = world.here->space.make_private_timeline();
  world.here->space.timeline(line).poison(Status{Code::device_fault, "the stream broke"});
  for (std::uint64_t key = 1; key < 4; ++key) {
    const Tensor tensor = world.here->tensor(4096, 0, /*shared=*/false, Point{line, 1}).into({key});
    EXPECT_EQ((ask<std::uint64_t>(world.here->system, world.server, Digest::value, tensor).why.code()),
              Code::device_fault);
  }
  EXPECT_EQ(alive.use_count(), 2) << "the tensor that the other process keeps";
}

TEST(RemoteActors, AnswerWhatIsOutstandingWhenTheyStop) {
  LoopbackWorld world;
  caf::scoped_actor self(world.here->system);
  auto hanging = self->request(world.server, kLong, Hang::value, std::uint64_t{1});
  EXPECT_TRUE(world.here->stop());
  Code code = Code::ok;
  hanging.receive([](std::uint64_t) {}, [&](const caf::error& error) { code = from_caf(error).code(); });
  EXPECT_EQ(code, Code::aborted);
  const auto late = ask<std::uint64_t>(world.here->system, world.server, Echo::value, std::uint64_t{1});
  EXPECT_FALSE(late.ok());
}

TEST(RemoteActors, SendWhatWasSentBeforeTheyStop) {
  LoopbackWorld world({.seed = 1, .delay_rounds = 20});
  const Tensor tensor = world.here->tensor(1 << 20, 1);
  for (int i = 0; i < 20; ++i) caf::anon_send(world.server, Keep::value, tensor);
  EXPECT_TRUE(world.here->stop());
  const auto kept = [&] {
    return ask<std::uint64_t>(world.there->system, world.there->server, Keep::value, Tensor{}).get();
  };
  EXPECT_TRUE(eventually([&] { return kept() > 20; }));
}

TEST(RemoteActors, RefuseTypesThatStayInTheirProcess) {
  LoopbackWorld world;
  const auto answer = ask<std::uint64_t>(world.here->system, world.server, Echo::value, Private{1});
  EXPECT_EQ(answer.why.code(), Code::unsupported);
  EXPECT_THAT(std::string(answer.why.text()), HasSubstr("Private"));
}

TEST(RemoteActors, RefuseMoreTensorsThanAHeadHasRecordsFor) {
  LoopbackWorld world;
  const std::vector<Tensor> many(65, world.here->tensor(64, 1));
  caf::scoped_actor self(world.here->system);
  Code code = Code::ok;
  self->request(world.server, kLong, Digest::value, many)
      .receive([](std::uint64_t) {}, [&](const caf::error& error) { code = from_caf(error).code(); });
  EXPECT_EQ(code, Code::unsupported);
}

/// Three ends, each connected to both others.
class ThreeEnds : public ::testing::Test {
 protected:
  ThreeEnds() {
    for (std::uint32_t i = 0; i < 3; ++i) {
      ends.push_back(
          std::make_unique<RemoteEnd>(Peer{i}, [&](AddressSpace& space) { return network.endpoint(Peer{i}, space); }));
    }
    for (auto& end : ends) {
      for (auto& other : ends) {
        if (end != other) end->meet(other->self, other->introduction());
      }
    }
    for (auto& end : ends) end->start();
    auto blocking = Blocking::on_thread("test");
    for (std::uint32_t i = 1; i < 3; ++i) {
      servers.push_back(ends[0]->remote->resolve(blocking, Peer{i}, "server", Deadline::after(kLong)));
    }
  }
  ~ThreeEnds() override {
    servers.clear();
    for (auto& end : ends) end->stop();
  }

  LoopbackNetwork network;
  std::vector<std::unique_ptr<RemoteEnd>> ends;
  std::vector<caf::actor> servers;  // of peers 1 and 2, as peer 0 sees them
};

TEST_F(ThreeEnds, AnswerARequestThatASecondProcessHandsToAThird) {
  const auto answer = ask<std::uint64_t>(ends[0]->system, servers[0], Pass::value, servers[1], std::uint64_t{9});
  ASSERT_TRUE(answer.ok()) << answer.why.text();
  EXPECT_EQ(answer.get(), 9u);
}

TEST_F(ThreeEnds, LeaveTheOthersAloneWhenOneIsLost) {
  network.kill(Peer{1});
  EXPECT_EQ((ask<std::uint64_t>(ends[0]->system, servers[0], Hang::value, std::uint64_t{1}).why.code()),
            Code::peer_lost);
  EXPECT_TRUE((ask<std::uint64_t>(ends[0]->system, servers[1], Echo::value, std::uint64_t{1})).ok());
  ends[1]->stop(std::chrono::milliseconds(1));
}

TEST_F(ThreeEnds, RefusePeersThatAreNoneOrTheSame) {
  RemoteActors& remote = *ends[0]->remote;
  EXPECT_THROW(remote.add_peer(Peer{3}, ends[0]->remote->identity()), Error);
  EXPECT_THROW(remote.add_peer(Peer{3}, ends[1]->remote->identity()), Error);
  EXPECT_THROW(remote.add_peer(Peer{3}, std::vector<std::byte>(24)), Error);
  EXPECT_THROW(remote.directory(Peer{3}), Error);
}

TEST_F(ThreeEnds, RefuseAPeerWhoseNumberDoesNotFitIntoAHeader) {
  caf::actor_system_config config;
  configure_remote(config);
  caf::actor_system system(config);
  std::vector<std::byte> identity = node_id_bytes(system.node());
  identity.resize(identity.size() + sizeof(std::uint64_t));
  try {
    ends[0]->remote->add_peer(Peer{65536}, identity);
    FAIL() << "its messages would name peer 0 as their sender";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("65536"));
  }
}

TEST(RemoteActors, RefuseAnActorSystemWithoutAnIdentity) {
  caf::actor_system_config config;
  caf::actor_system system(config);
  AddressSpace space;
  LoopbackNetwork network;
  const auto transport = network.endpoint(Peer{0}, space);
  LaneLoop control(*transport, Lane::control, {}, "control");
  LaneLoop bulk(*transport, Lane::bulk, {}, "bulk");
  EXPECT_THROW(RemoteActors(system, space, control, bulk, Peer{0}), Error);
}

}  // namespace
}  // namespace troupe::test
