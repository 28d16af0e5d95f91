#include <gmock/gmock.h>

#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <future>
#include <thread>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/directory.hpp"
#include "actors/remote/wire.hpp"
#include "tests/actors/group/group_world.hpp"
#include "tests/support/child_process.hpp"
#include "tests/transports/bootstrap_ranks.hpp"

namespace troupe::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using troupe::testing::eventually;

std::uint64_t who(caf::actor_system& system, const caf::actor& whom) {
  caf::scoped_actor self(system);
  std::uint64_t answer = ~std::uint64_t{0};
  self->request(whom, kLong, Who::value)
      .receive([&](std::uint64_t x) { answer = x; }, [](const caf::error& e) { ADD_FAILURE() << caf::to_string(e); });
  return answer;
}

Deadline soon() { return Deadline::after(std::chrono::milliseconds(100)); }

TEST(Group, OfOneProcessNeedsNoTransport) {
  GroupConfig config;
  caf::actor_system system(config);
  auto blocking = Blocking::on_thread("test");
  const auto group = Group::join(blocking, system, {});
  EXPECT_EQ(group->size(), 1u);
  const caf::actor spawned = group->spawn_at(blocking, {0}, "counter", long_enough(), std::uint64_t{5});
  group->publish("five", spawned);
  EXPECT_EQ(who(system, group->lookup(blocking, {0}, "five", long_enough())), 5u);
  EXPECT_EQ(who(system, group->lookup(blocking, "five", long_enough())), 5u);
  EXPECT_EQ(group->stop(blocking, long_enough()).text(), "everything finished");
}

// So options that were made long ago leave the whole time for joining.
TEST(GroupOptions, HaveNoDeadlineBeforeTheCallOfJoin) { EXPECT_FALSE(GroupOptions{}.deadline.has_value()); }

TEST(Group, TellsTheOthersTheVersionOfItsFrames) {
  GroupWorld world(2);
  for (const Hello& hello : world.group(0).hellos()) EXPECT_EQ(hello.protocol, wire::kVersion);
}

TEST(Group, FindsWhatAnotherProcessPublished) {
  GroupWorld world(2);
  EXPECT_EQ(who(world.system(0), world.group(0).lookup(world.blocking, {1}, "counter", long_enough())), 1u);
}

TEST(Group, WaitsUntilANameIsPublished) {
  GroupWorld world(2);
  std::thread later([&] { world.group(1).publish("late", world.ends[1]->counter); });
  EXPECT_EQ(who(world.system(0), world.group(0).lookup(world.blocking, {1}, "late", long_enough())), 1u);
  later.join();
}

TEST(Group, FindsANameAtWhicheverProcessHasIt) {
  GroupWorld world(3);
  world.group(2).publish("alone", world.ends[2]->counter);
  EXPECT_EQ(who(world.system(0), world.group(0).lookup(world.blocking, "alone", long_enough())), 2u);
}

TEST(Group, SaysWhatItLookedForAndWhere) {
  GroupWorld world(2);
  const Status one = error_of([&] { world.group(0).lookup(world.blocking, {1}, "nobody", soon()); });
  EXPECT_EQ(one.code(), Code::timeout);
  EXPECT_THAT(text_of(one), AllOf(HasSubstr("\"nobody\""), HasSubstr("peer 1")));
  const Status any = error_of([&] { world.group(0).lookup(world.blocking, "nobody", soon()); });
  EXPECT_EQ(any.code(), Code::timeout);
  EXPECT_THAT(text_of(any), AllOf(HasSubstr("\"nobody\""), HasSubstr("peer 0"), HasSubstr("peer 1")));
  EXPECT_EQ(error_of([&] { world.group(0).lookup(world.blocking, {9}, "counter", soon()); }).code(), Code::invalid);
}

TEST(Group, FindsANameAtEveryProcess) {
  GroupWorld world(3);
  const Mesh mesh = world.group(1).lookup_all(world.blocking, "counter", long_enough());
  EXPECT_THAT(mesh.dimensions(), ElementsAre(Mesh::Dimension{"peer", 3}));
  EXPECT_THAT(mesh.gather<std::uint64_t>(world.blocking, caf::make_message(Who::value), long_enough()),
              ElementsAre(0, 1, 2));
  world.group(2).publish("alone", world.ends[2]->counter);
  const Status status = error_of([&] { world.group(1).lookup_all(world.blocking, "alone", soon()); });
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_THAT(text_of(status),
              AllOf(HasSubstr("\"alone\""), HasSubstr("peer 0"), HasSubstr("peer 1"), Not(HasSubstr("peer 2"))));
}

TEST(Group, GivesANameOnce) {
  GroupWorld world(2);
  world.group(1).publish("counter", world.group(1).spawn_at(world.blocking, {1}, "idler", long_enough()));
  EXPECT_EQ(who(world.system(0), world.group(0).lookup(world.blocking, {1}, "counter", long_enough())), 1u);
}

TEST(Group, GivesANameAgainAsSoonAsItsActorHasEnded) {
  GroupWorld world(2);
  const auto spawn = [&] { return world.group(1).spawn_at(world.blocking, {1}, "idler", long_enough()); };
  const caf::actor first = spawn(), second = spawn();
  world.group(1).publish("served", first);
  EXPECT_EQ(world.group(1).lookup(world.blocking, {1}, "served", long_enough()), first);
  // Called before the directory is told of the end, since it was attached later.
  caf::actor_cast<caf::abstract_actor*>(first)->attach_functor(
      [&](const caf::error&) { world.group(1).publish("served", second); });
  caf::scoped_actor self(world.system(1));
  caf::anon_send_exit(first, caf::exit_reason::user_shutdown);
  self->wait_for(first);
  EXPECT_EQ(world.group(1).lookup(world.blocking, {1}, "served", long_enough()), second);
  EXPECT_EQ(world.group(0).lookup(world.blocking, {1}, "served", long_enough()).id(), second.id());
}

TEST(Group, RefusesToPublishAnEmptyHandle) {
  GroupWorld world(2);
  const Status status = error_of([&] { world.group(0).publish("nobody", caf::actor{}); });
  EXPECT_EQ(status.code(), Code::invalid) << status.text();
  EXPECT_THAT(text_of(status), HasSubstr("\"nobody\""));
}

TEST(Group, IsNotEndedByAPeerThatPublishesAnEmptyHandle) {
  GroupWorld world(2);
  caf::anon_send(world.group(0).remote().directory({1}), remote::Publish::value, std::string("nobody"), caf::actor{});
  EXPECT_EQ(who(world.system(0), world.group(0).lookup(world.blocking, {1}, "counter", long_enough())), 1u);
}

TEST(Group, IsNotEndedByAPeerThatLooksForANameAndIsNobody) {
  GroupWorld world(2);
  const caf::actor directory = world.group(0).remote().directory({1});
  for (int i = 0; i < 2; ++i) caf::anon_send(directory, RemoteActors::Find::value, std::string("nobody"));
  EXPECT_EQ(who(world.system(0), world.group(0).lookup(world.blocking, {1}, "counter", long_enough())), 1u);
}

TEST(Group, FindsNothingAtAKilledProcess) {
  GroupWorld world(2);
  world.kill(1);
  const Status status = error_of([&] { world.group(0).lookup(world.blocking, {1}, "counter", long_enough()); });
  EXPECT_EQ(status.code(), Code::peer_lost) << status.text();
  EXPECT_THAT(text_of(status), AllOf(HasSubstr("\"counter\""), HasSubstr("peer 1")));
}

TEST(Group, SpawnsAFunctionAtAnotherProcess) {
  GroupWorld world(2);
  const caf::actor made = world.group(0).spawn_at(world.blocking, {1}, "counter", long_enough(), std::uint64_t{42});
  EXPECT_EQ(who(world.system(0), made), 42u);
  EXPECT_EQ(made.node(), world.system(1).node());
}

TEST(Group, SpawnsForActorsThatMayNotBlock) {
  GroupWorld world(2);
  caf::scoped_actor self(world.system(0));
  caf::actor made;
  self->request(world.group(0).spawner({1}), kLong, Group::Spawn::value, std::string("counter"),
                caf::make_message(std::uint64_t{8}))
      .receive([&](caf::actor& x) { made = x; }, [](const caf::error& e) { ADD_FAILURE() << caf::to_string(e); });
  EXPECT_EQ(who(world.system(0), made), 8u);
  EXPECT_EQ(error_of([&] { world.group(0).spawner({2}); }).code(), Code::invalid);
}

TEST(Group, DoesNotSpawnInAProcessThatIsLeaving) {
  GroupWorld world(2);
  const caf::actor spawner = world.group(0).spawner({1});
  world.group(1).leave(world.blocking, long_enough());
  caf::scoped_actor self(world.system(0));
  Status status;
  self->request(spawner, std::chrono::milliseconds(500), Group::Spawn::value, std::string("idler"), caf::message{})
      .receive([&](caf::actor&) {}, [&](const caf::error& error) { status = from_caf(error); });
  EXPECT_FALSE(status.ok());
}

TEST(Group, SpawnsAFunctionWithoutArguments) {
  GroupWorld world(2);
  EXPECT_EQ(who(world.system(0), world.group(0).spawn_at(world.blocking, {1}, "idler", long_enough())), 77u);
}

TEST(Group, SpawnsAClassAtAnotherProcess) {
  GroupWorld world(2);
  const caf::actor made = world.group(0).spawn_at(world.blocking, {1}, "named counter", long_enough(),
                                                  std::string("abc"), std::uint64_t{40});
  EXPECT_EQ(who(world.system(0), made), 43u);
}

TEST(Group, RefusesToSpawnAnUnknownType) {
  GroupWorld world(2);
  const Status status = error_of([&] { world.group(0).spawn_at(world.blocking, {1}, "clown", long_enough()); });
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_THAT(text_of(status), AllOf(HasSubstr("\"clown\""), HasSubstr("peer 1"), HasSubstr("named counter")));
}

TEST(Group, RefusesToSpawnFromOtherArguments) {
  GroupWorld world(2);
  for (const char* type : {"counter", "named counter"}) {
    const Status status =
        error_of([&] { world.group(0).spawn_at(world.blocking, {1}, type, long_enough(), std::string("five")); });
    EXPECT_EQ(status.code(), Code::invalid) << status.text();
    EXPECT_THAT(text_of(status), AllOf(HasSubstr(type), HasSubstr("five")));
  }
  EXPECT_EQ(error_of([&] { world.group(0).spawn_at(world.blocking, {1}, "counter", long_enough()); }).code(),
            Code::invalid);
  EXPECT_EQ(error_of([&] { world.group(0).spawn_at(world.blocking, {1}, "named counter", long_enough()); }).code(),
            Code::invalid);
}

TEST(Group, RefusesToSpawnFromArgumentsThatCannotTravel) {
  GroupWorld world(2);
  const Status status =
      error_of([&] { world.group(0).spawn_at(world.blocking, {1}, "counter", long_enough(), Unregistered{1}); });
  EXPECT_EQ(status.code(), Code::unsupported) << status.text();
}

TEST(Group, TellsWhatAConstructorThrew) {
  GroupWorld world(2);
  const Status status = error_of([&] {
    world.group(0).spawn_at(world.blocking, {1}, "named counter", long_enough(), std::string("thorn"),
                            std::uint64_t{1});
  });
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(text_of(status), HasSubstr("a thorn"));
  EXPECT_EQ(who(world.system(0), world.group(0).spawn_at(world.blocking, {1}, "idler", long_enough())), 77u);
}

TEST(Group, SpawnsNothingAtAKilledProcess) {
  GroupWorld world(2);
  world.kill(1);
  EXPECT_EQ(error_of([&] { world.group(0).spawn_at(world.blocking, {1}, "idler", long_enough()); }).code(),
            Code::peer_lost);
}

TEST(Group, StopsTogether) {
  GroupWorld world(3);
  std::vector<StopReport> reports(3);
  testing::at_once(3, [&](std::size_t i) {
    auto blocking = Blocking::on_thread("test");
    reports[i] = world.ends[i]->group->stop(blocking, long_enough());
  });
  for (const StopReport& report : reports) EXPECT_TRUE(report.clean()) << report.text();
}

TEST(Group, SaysWhoDidNotStop) {
  GroupWorld world(3);
  std::vector<StopReport> reports(2);
  testing::at_once(2, [&](std::size_t i) {
    auto blocking = Blocking::on_thread("test");
    reports[i] = world.ends[i]->group->stop(blocking, Deadline::after(std::chrono::milliseconds(500)));
  });
  EXPECT_THAT(reports[0].running, ElementsAre(Peer{2}));
  EXPECT_THAT(reports[0].text(), HasSubstr("not stopped in time: peer 2"));
  EXPECT_FALSE(reports[1].running.empty());
}

TEST(Group, DoesNotWaitLongerThanTheFirstProcessDoes) {
  GroupWorld world(3);
  std::vector<StopReport> reports(2);
  testing::at_once(2, [&](std::size_t i) {
    auto blocking = Blocking::on_thread("test");
    reports[i] = world.ends[i]->group->stop(blocking, i == 0 ? soon() : long_enough());
  });
  EXPECT_THAT(reports[0].running, Contains(Peer{2}));
  EXPECT_THAT(reports[1].running, Contains(Peer{2})) << reports[1].text();
}

TEST(Group, SaysWhoDiedBeforeItsStop) {
  GroupWorld world(3);
  world.kill(2);
  std::vector<StopReport> reports(2);
  testing::at_once(2, [&](std::size_t i) {
    auto blocking = Blocking::on_thread("test");
    reports[i] = world.ends[i]->group->stop(blocking, long_enough());
  });
  for (const StopReport& report : reports) {
    EXPECT_THAT(report.lost, ElementsAre(Peer{2}));
    EXPECT_THAT(report.running, ElementsAre());
    EXPECT_EQ(report.text(), "lost before: peer 2");
  }
}

TEST(Group, SaysSoWhenTheFirstProcessDied) {
  GroupWorld world(2);
  world.kill(0);
  const StopReport report = world.group(1).stop(world.blocking, long_enough());
  EXPECT_THAT(report.lost, ElementsAre(Peer{0})) << report.text();
}

TEST(Group, StopsInTimeThoughAHandlerBlocks) {
  GroupWorld world(2);
  std::promise<void> blocked;
  std::promise<void> open;
  auto gate = open.get_future().share();
  const caf::actor blocker = world.system(1).spawn(
      [&blocked](std::shared_future<void> wait) -> caf::behavior {
        return {[&blocked, wait](Hang) {
          blocked.set_value();
          wait.wait();
        }};
      },
      gate);
  caf::anon_send(blocker, Hang::value);
  blocked.get_future().wait();
  const auto begin = Clock::now();
  const StopReport report = world.group(1).stop(world.blocking, Deadline::after(std::chrono::milliseconds(300)));
  EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(2300));
  EXPECT_FALSE(report.clean());
  open.set_value();
  caf::anon_send_exit(blocker, caf::exit_reason::kill);
}

TEST(Group, SaysTheSameWhenItIsStoppedAgain) {
  GroupWorld world(2);
  const StopReport first = world.group(0).stop(world.blocking, soon());
  EXPECT_EQ(world.group(0).stop(world.blocking, long_enough()).text(), first.text());
  EXPECT_EQ(world.group(0).leave(world.blocking, long_enough()).text(), first.text());
}

TEST(Group, TellsThoseWhoStayThatItLeft) {
  GroupWorld world(3);
  const caf::actor far = world.counters().members()[2];
  caf::scoped_actor self(world.system(0));
  self->monitor(far);
  auto hanging = self->request(far, kLong, Hang::value);
  EXPECT_EQ(who(world.system(0), far), 2u);
  EXPECT_TRUE(world.group(2).leave(world.blocking, long_enough()).clean());
  Status status;
  hanging.receive([](std::uint64_t) {}, [&](const caf::error& error) { status = from_caf(error); });
  EXPECT_EQ(status.code(), Code::peer_lost);
  EXPECT_THAT(text_of(status), HasSubstr("has left the group"));
  Code down = Code::ok;
  self->receive([&](const caf::down_msg& msg) { down = from_caf(msg.reason).code(); }, caf::after(kLong) >> [] {});
  EXPECT_EQ(down, Code::peer_lost);
}

TEST(Group, LeavesOnlyWhenWhatItSentHasCome) {
  GroupWorld world(2);
  const caf::actor far = world.group(1).lookup(world.blocking, {0}, "counter", long_enough());
  for (std::uint64_t i = 0; i < 1000; ++i) caf::anon_send(far, Add::value, std::uint64_t{1});
  EXPECT_TRUE(world.group(1).leave(world.blocking, long_enough()).clean());
  const Mesh mine{{{"x", 1}}, {world.ends[0]->counter}};
  EXPECT_TRUE(eventually([&] {
    return mine.gather<std::uint64_t>(world.blocking, caf::make_message(Sum::value), long_enough()).front() == 1000;
  }));
}

TEST(Group, CountsAsLostWhoseGroupEndsWithoutAStop) {
  GroupWorld world(2);
  world.ends[1]->group.reset();
  const StopReport report = world.group(0).stop(world.blocking, long_enough());
  EXPECT_THAT(report.lost, ElementsAre(Peer{1})) << report.text();
}

TEST(Group, TellsOnceOfALossAndNotOfThoseWhoLeft) {
  GroupWorld world(3);
  EXPECT_TRUE(world.group(2).leave(world.blocking, long_enough()).clean());
  world.kill(1);
  const auto lost = [&] {
    const std::scoped_lock hold(world.ends[0]->mutex);
    return world.ends[0]->lost;
  };
  EXPECT_TRUE(eventually([&] { return !lost().empty(); }));
  const StopReport report = world.group(0).stop(world.blocking, long_enough());
  EXPECT_EQ(report.text(), "lost before: peer 1");
  EXPECT_THAT(lost(), ElementsAre(Peer{1}));
}

TEST(Group, DoesNotWaitForThoseWhoLeft) {
  GroupWorld world(3);
  EXPECT_TRUE(world.group(2).leave(world.blocking, long_enough()).clean());
  std::vector<StopReport> reports(2);
  testing::at_once(2, [&](std::size_t i) {
    auto blocking = Blocking::on_thread("test");
    reports[i] = world.ends[i]->group->stop(blocking, long_enough());
  });
  EXPECT_TRUE(reports[0].clean()) << reports[0].text();
  EXPECT_TRUE(reports[1].clean()) << reports[1].text();
}

TEST(Group, EndsWhatWasSpawnedForOthersAndNamesWhatRunsOn) {
  GroupWorld world(2);
  world.group(0).spawn_at(world.blocking, {1}, "counter", long_enough(), std::uint64_t{1});
  const caf::actor stubborn = world.group(0).spawn_at(world.blocking, {1}, "counter", long_enough(), std::uint64_t{2});
  caf::anon_send(stubborn, Stay::value);
  EXPECT_EQ(who(world.system(0), stubborn), 2u);
  auto local = caf::actor_cast<caf::actor>(world.system(1).registry().get<caf::strong_actor_ptr>(stubborn.id()));
  const StopReport report = world.group(1).leave(world.blocking, soon());
  ASSERT_EQ(report.actors.size(), 1u) << report.text();
  EXPECT_THAT(report.actors[0], HasSubstr("counter"));
  caf::anon_send(local, Go::value);
}

TEST(Group, SaysOnStderrWhatNobodyWillGet) {
  const testing::Listener listener;
  LoopbackNetwork network;
  std::vector<std::unique_ptr<GroupEnd>> ends;
  for (int i = 0; i < 2; ++i) ends.push_back(std::make_unique<GroupEnd>());
  ::testing::internal::CaptureStderr();
  testing::at_once(2, [&](std::size_t i) {
    const auto peer = static_cast<std::uint32_t>(i);
    auto blocking = Blocking::on_thread("test");
    GroupOptions options;
    options.place = testing::rank_options(listener, peer, 2).place;
    options.make_transport = [&](const TransportContext& context) {
      return network.endpoint(context.self, context.space);
    };
    ends[i]->group = Group::join(blocking, ends[i]->system, std::move(options));
    if (i == 0) caf::anon_send(ends[i]->group->spawner({1}), Unregistered{1});
    ends[i]->group->stop(blocking, long_enough());
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), AllOf(HasSubstr("troupe: "), HasSubstr("Unregistered")));
}

/// A process may be in two groups, each with an actor system of its own.
TEST(Group, LivesBesideAnotherOneInTheSameProcess) {
  GroupWorld red(2);
  GroupWorld blue(2);
  const Mesh reds = red.counters();
  const Mesh blues = blue.counters();
  reds.broadcast(caf::make_message(Add::value, std::uint64_t{1}));
  blues.broadcast(caf::make_message(Add::value, std::uint64_t{20}));
  const auto becomes = [](GroupWorld& world, const Mesh& mesh, std::uint64_t sum) {
    return eventually([&] {
      return mesh.gather<std::uint64_t>(world.blocking, caf::make_message(Sum::value), long_enough()) ==
             std::vector<std::uint64_t>(2, sum);
    });
  };
  EXPECT_TRUE(becomes(red, reds, 1));
  EXPECT_TRUE(becomes(blue, blues, 20));
  testing::at_once(2, [&](std::size_t i) {
    auto blocking = Blocking::on_thread("test");
    EXPECT_TRUE(red.ends[i]->group->stop(blocking, long_enough()).clean());
  });
  EXPECT_TRUE(becomes(blue, blues, 20));
}

/// The reply to a tensor that `from` sends to the counter of `to`.
Tensor echo(GroupWorld& world, std::uint32_t from, std::uint32_t to, const Tensor& tensor) {
  caf::scoped_actor self(world.system(from));
  Tensor back;
  self->request(world.group(from).lookup(world.blocking, {to}, "counter", long_enough()), kLong, Echo::value, tensor)
      .receive([&](const Tensor& x) { back = x; }, [](const caf::error& e) { ADD_FAILURE() << caf::to_string(e); });
  return back;
}

TEST(Group, PassesTensorsInItsArenaByReferenceWithinAHost) {
  GroupWorld world(2, {1 << 20});
  const Tensor tensor(world.group(0).arena().allocate(4096), {1024}, DType::f32, {}, nullptr);
  EXPECT_EQ(echo(world, 0, 1, tensor).memory(), tensor.memory());
  EXPECT_EQ(error_of([&] { world.group(1).arena(); }).code(), Code::invalid);
}

TEST(Group, SendsTheBytesOfTensorsInOtherArenas) {
  GroupWorld world(2, {1 << 20, 1 << 20});
  const auto own = Arena::create(arena_id({0}, 1), 1 << 20);
  world.group(0).space().map(own);
  const Tensor tensor(own->allocate(4096), {1024}, DType::f32, {}, nullptr);
  *world.group(0).space().address_of<float>(tensor.memory()) = 0.5f;
  const Tensor back = echo(world, 0, 1, tensor);
  EXPECT_NE(back.memory().arena, tensor.memory().arena);
  EXPECT_EQ(*world.group(0).space().address_of<float>(back.memory()), 0.5f);
}

TEST(Group, RefusesASystemThatIsInOneAlready) {
  GroupConfig config;
  caf::actor_system system(config);
  auto blocking = Blocking::on_thread("test");
  const auto group = Group::join(blocking, system, {});
  EXPECT_EQ(error_of([&] { Group::join(blocking, system, {}); }).code(), Code::invalid);
  EXPECT_TRUE(group->stop(blocking, long_enough()).clean());
  const auto again = Group::join(blocking, system, {});
}

TEST(Group, RefusesASystemThatWasNotConfigured) {
  caf::actor_system_config config;
  caf::actor_system system(config);
  auto blocking = Blocking::on_thread("test");
  const Status status = error_of([&] { Group::join(blocking, system, {}); });
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(text_of(status), HasSubstr("configure_group"));
}

TEST(Group, RefusesOneNameForTwoActorTypes) {
  GroupConfig config;
  EXPECT_EQ(error_of([&] { register_actor(config, "counter", counter); }).code(), Code::invalid);
}

/// Runs `what` in `count` processes at once, which form groups over one network.
void with_groups(std::uint32_t count, const std::function<void(Blocking&, Group&)>& what) {
  const testing::Listener listener;
  LoopbackNetwork network;
  std::vector<std::unique_ptr<GroupEnd>> ends;
  for (std::uint32_t i = 0; i < count; ++i) ends.push_back(std::make_unique<GroupEnd>());
  testing::at_once(count, [&](std::size_t i) {
    auto blocking = Blocking::on_thread("test");
    GroupOptions options;
    options.place = testing::rank_options(listener, static_cast<std::uint32_t>(i), count).place;
    options.make_transport = [&](const TransportContext& context) {
      EXPECT_EQ(context.hellos.size(), count);
      return network.endpoint(context.self, context.space);
    };
    ends[i]->group = Group::join(blocking, ends[i]->system, std::move(options));
    what(blocking, *ends[i]->group);
    EXPECT_TRUE(ends[i]->group->stop(blocking, long_enough()).clean());
  });
}

TEST(Group, GathersEveryonesBytesAsOftenAsItIsAsked) {
  with_groups(3, [](Blocking& blocking, Group& group) {
    for (std::uint32_t round = 0; round < 5; ++round) {
      const std::vector<std::byte> mine(100 * round + group.self().value, std::byte{7});
      const auto all = group.all_gather(blocking, text("round ", round), mine, long_enough());
      ASSERT_EQ(all.size(), 3u);
      for (std::uint32_t peer = 0; peer < 3; ++peer)
        EXPECT_EQ(all[peer], std::vector<std::byte>(100 * round + peer, std::byte{7}));
    }
  });
}

TEST(Group, GathersNothingFromAProcessThatIsLateAndNamesIt) {
  with_groups(2, [](Blocking& blocking, Group& group) {
    if (group.self().value == 1) return;
    const Deadline soon = Deadline::after(std::chrono::milliseconds(200));
    const Status status = error_of([&] { group.all_gather(blocking, "apples", {}, soon); });
    EXPECT_EQ(status.code(), Code::timeout);
    EXPECT_THAT(text_of(status), AllOf(HasSubstr("peer 1"), HasSubstr("gave nothing for 'apples' within ")));
  });
}

TEST(Group, GathersNothingFromProcessesThatDoSomethingElse) {
  with_groups(2, [](Blocking& blocking, Group& group) {
    const std::string what = group.self().value == 0 ? "apples" : "pears";
    const Status status = error_of([&] { group.all_gather(blocking, what, {}, long_enough()); });
    EXPECT_EQ(status.code(), Code::invalid);
    EXPECT_THAT(text_of(status), ::testing::AllOf(HasSubstr("'apples'"), HasSubstr("'pears'")));
  });
}

}  // namespace
}  // namespace troupe::test
