#include "actors/group/mesh.hpp"

#include <gmock/gmock.h>

#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include "actors/caf_error.hpp"
#include "tests/actors/group/group_world.hpp"
#include "tests/support/child_process.hpp"

namespace troupe::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using troupe::testing::eventually;

/// Counters 0, 1, ... in one system, in a mesh.
class LocalMesh : public ::testing::Test {
 protected:
  ~LocalMesh() override { mesh.send_all(caf::make_message(Go::value)); }
  std::vector<caf::actor> spawn_counters(std::uint64_t count) {
    std::vector<caf::actor> all;
    for (std::uint64_t i = 0; i < count; ++i) all.push_back(system.spawn(counter, i));
    return all;
  }
  std::vector<std::uint64_t> numbers(const Mesh& of) {
    return of.gather<std::uint64_t>(blocking, caf::make_message(Who::value), long_enough());
  }

  GroupConfig config;
  caf::actor_system system{config};
  Blocking blocking = Blocking::on_thread("test");
  Mesh mesh{{{"node", 2}, {"device", 4}}, spawn_counters(8)};
};

TEST_F(LocalMesh, FindsAMemberByItsPlace) {
  EXPECT_THAT(numbers(Mesh{{{"x", 1}}, {mesh.at({{"node", 1}, {"device", 3}})}}), ElementsAre(7));
  EXPECT_THAT(numbers(Mesh{{{"x", 1}}, {mesh.at({{"device", 2}, {"node", 0}})}}), ElementsAre(2));
}

TEST_F(LocalMesh, SlicesAlongAnyDimension) {
  const Mesh second_node = mesh.slice({{"node", 1}});
  EXPECT_THAT(second_node.dimensions(), ElementsAre(Mesh::Dimension{"device", 4}));
  EXPECT_THAT(numbers(second_node), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(numbers(mesh.slice({{"device", 2}})), ElementsAre(2, 6));
  const Mesh one = mesh.slice({{"node", 1}, {"device", 0}});
  EXPECT_TRUE(one.dimensions().empty());
  EXPECT_THAT(numbers(one), ElementsAre(4));
  EXPECT_EQ(mesh.slice({}).size(), 8u);
}

TEST_F(LocalMesh, SaysWhichDimensionsThereAre) {
  const auto refuses = [&](const std::vector<Mesh::Coordinate>& place, const std::string& what) {
    const Status status = error_of([&] { mesh.at(place); });
    EXPECT_EQ(status.code(), Code::invalid);
    EXPECT_THAT(text_of(status), HasSubstr(what));
  };
  refuses({{"rack", 0}, {"device", 0}}, "no dimension \"rack\", it is {node: 2, device: 4}");
  refuses({{"node", 0}, {"device", 4}}, "no device 4, the mesh is {node: 2, device: 4}");
  refuses({{"node", 0}, {"node", 1}}, "\"node\" is named twice");
  refuses({{"node", 0}}, "must say which device");
  EXPECT_EQ(error_of([&] { mesh.slice({{"rack", 0}}); }).code(), Code::invalid);
}

TEST_F(LocalMesh, RefusesMembersThatDoNotFillIt) {
  const auto refused = [&](std::vector<Mesh::Dimension> dimensions, std::vector<caf::actor> members) {
    return error_of([&] { Mesh(std::move(dimensions), std::move(members)); });
  };
  EXPECT_THAT(text_of(refused({{"node", 3}}, mesh.members())), AllOf(HasSubstr("{node: 3}"), HasSubstr("not 8")));
  EXPECT_EQ(refused({{"a", 2}, {"a", 4}}, mesh.members()).code(), Code::invalid);
  EXPECT_EQ(refused({{"", 8}}, mesh.members()).code(), Code::invalid);
  EXPECT_EQ(refused({{"a", 0}}, {}).code(), Code::invalid);
  EXPECT_THAT(text_of(refused({{"a", 2}}, {mesh.members()[0], {}})), HasSubstr("{a 1} is empty"));
}

TEST_F(LocalMesh, TellsEveryMember) {
  mesh.send_all(caf::make_message(Add::value, std::uint64_t{3}));
  mesh.broadcast(caf::make_message(Add::value, std::uint64_t{4}));  // outside of a group
  EXPECT_THAT(mesh.gather<std::uint64_t>(blocking, caf::make_message(Sum::value), long_enough()), Each(7));
}

TEST_F(LocalMesh, NamesWhoDidNotAnswer) {
  caf::anon_send(mesh.at({{"node", 1}, {"device", 2}}), Go::value);
  ASSERT_TRUE(eventually([&] {
    return error_of([&] { mesh.gather(blocking, caf::make_message(Who::value), long_enough()); }).code() ==
           Code::peer_lost;
  }));
  const Status lost = error_of([&] { mesh.gather(blocking, caf::make_message(Who::value), long_enough()); });
  EXPECT_THAT(text_of(lost), AllOf(HasSubstr("1 of 8 members"), HasSubstr("{node 1, device 2}: peer_lost")));
  const Mesh first = mesh.slice({{"node", 0}});
  const Status late = error_of(
      [&] { first.gather(blocking, caf::make_message(Hang::value), Deadline::after(std::chrono::milliseconds(50))); });
  EXPECT_EQ(late.code(), Code::timeout);
  EXPECT_THAT(text_of(late), AllOf(HasSubstr("4 of 4 members"), HasSubstr("{device 3}: timeout")));
}

TEST_F(LocalMesh, PassesOnTheErrorsOfItsMembers) {
  const Status status = error_of([&] { mesh.gather(blocking, caf::make_message(Sulk::value), long_enough()); });
  EXPECT_EQ(status.code(), Code::device_fault);
  EXPECT_THAT(text_of(status), HasSubstr("{node 0, device 0}: device_fault it sulks"));
}

TEST_F(LocalMesh, RefusesAnswersOfAnotherType) {
  const Status status =
      error_of([&] { mesh.gather<std::string>(blocking, caf::make_message(Who::value), long_enough()); });
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_THAT(text_of(status), HasSubstr("{node 0, device 0}"));
}

TEST_F(LocalMesh, TakesAnswersWithoutContent) {
  const auto answers = mesh.gather(blocking, caf::make_message(Add::value, std::uint64_t{1}), long_enough());
  ASSERT_EQ(answers.size(), 8u);
  EXPECT_TRUE(answers[7].empty());
}

TEST_F(LocalMesh, GathersForActors) {
  caf::scoped_actor self(system);
  std::vector<std::uint64_t> numbers;
  self->request(mesh.gathering(caf::make_message(Who::value), kLong), kLong, Mesh::Gather::value)
      .receive(
          [&](const std::vector<caf::message>& answers) {
            for (const caf::message& answer : answers) numbers.push_back(answer.get_as<std::uint64_t>(0));
          },
          [](const caf::error& error) { ADD_FAILURE() << caf::to_string(error); });
  EXPECT_THAT(numbers, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(LocalMesh, TellsActorsWhoDidNotAnswer) {
  caf::scoped_actor self(system);
  Status status;
  self->request(mesh.gathering(caf::make_message(Hang::value), std::chrono::milliseconds(50)), kLong,
                Mesh::Gather::value)
      .receive([](const std::vector<caf::message>&) {}, [&](const caf::error& error) { status = from_caf(error); });
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_THAT(text_of(status), HasSubstr("8 of 8 members"));
}

// ---- across processes
// ------------------------------------------------------------------------------------------------

std::vector<std::uint64_t> sums(GroupWorld& world, const Mesh& mesh) {
  return mesh.gather<std::uint64_t>(world.blocking, caf::make_message(Sum::value), long_enough());
}

/// A broadcast and single messages are not ordered, so the sums are requested until they are complete.
bool all_become(GroupWorld& world, const Mesh& mesh, std::uint64_t sum) {
  return eventually([&] { return sums(world, mesh) == std::vector<std::uint64_t>(mesh.size(), sum); });
}

TEST(MeshOfProcesses, GathersInItsOwnOrder) {
  GroupWorld world(3);
  const Mesh mesh = world.counters();
  const Mesh turned{{{"x", 3}}, {mesh.members()[2], mesh.members()[0], mesh.members()[1]}};
  EXPECT_THAT(turned.gather<std::uint64_t>(world.blocking, caf::make_message(Who::value), long_enough()),
              ElementsAre(2, 0, 1));
}

TEST(MeshOfProcesses, BroadcastsOverATreeOfBoundedFanOut) {
  GroupWorld world(7);
  const Mesh mesh = world.counters();
  const auto before = world.group(0).remote().counters().sent;
  mesh.broadcast(caf::make_message(Add::value, std::uint64_t{5}), 2);
  for (std::uint32_t peer = 0; peer < 7; ++peer) {  // looked at where they are, so that peer 0 need not send for it
    const Mesh one{{{"x", 1}}, {world.ends[peer]->counter}};
    EXPECT_TRUE(all_become(world, one, 5)) << peer;
  }
  EXPECT_EQ(world.group(0).remote().counters().sent - before, 2u);
}

TEST(MeshOfProcesses, BroadcastsTensors) {
  for (const std::uint64_t arena_bytes : {0, 1 << 20}) {  // by their bytes, by reference
    GroupWorld world(4, {arena_bytes});
    const Mesh mesh = world.counters();
    const auto arena = arena_bytes > 0 ? nullptr : Arena::create(arena_id({0}, 1), 1 << 20);
    if (arena) world.group(0).space().map(arena);
    const Memory memory = (arena ? *arena : world.group(0).arena()).allocate(4096);
    mesh.broadcast(caf::make_message(Add::value, Tensor(memory, {1024}, DType::f32, {}, nullptr)), 1);
    EXPECT_TRUE(all_become(world, mesh, 4096));
  }
}

TEST(MeshOfProcesses, BroadcastsInOrder) {
  GroupWorld world(3);
  const Mesh mesh = world.counters();
  std::string expected;
  for (std::uint64_t i = 0; i < 50; ++i) {
    mesh.broadcast(caf::make_message(Add::value, i), 1);
    expected += std::to_string(i) + " ";
  }
  EXPECT_TRUE(all_become(world, mesh, 49 * 50 / 2));
  EXPECT_THAT(mesh.gather<std::string>(world.blocking, caf::make_message(Trace::value), long_enough()), Each(expected));
}

TEST(MeshOfProcesses, BroadcastsPastAKilledProcess) {
  GroupWorld world(4);
  const Mesh mesh = world.counters();
  world.kill(1);
  mesh.broadcast(caf::make_message(Add::value, std::uint64_t{5}), 1);  // 0 to 1 to 2 to 3
  const Mesh living{{{"x", 3}}, {mesh.members()[0], mesh.members()[2], mesh.members()[3]}};
  EXPECT_TRUE(all_become(world, living, 5));
  EXPECT_TRUE(eventually([&] {
    const std::scoped_lock hold(world.ends[0]->mutex);
    for (const std::string& what : world.ends[0]->dropped) {
      if (what.find("did not reach 1 actors at peer 1") != std::string::npos) return true;
    }
    return false;
  }));
}

TEST(MeshOfProcesses, DeliverOnceWhatAKilledProcessHadPassedOn) {
  GroupWorld world(4);
  const Mesh mesh = world.counters();
  const std::vector<caf::actor> living{mesh.members()[0], mesh.members()[2], mesh.members()[3]};
  std::uint64_t sum = 0;
  for (std::uint64_t i = 1; i <= 200; ++i) {  // peer 1 dies somewhere among them
    mesh.broadcast(caf::make_message(Add::value, i), 1);
    if (i == 100) world.kill(1);
    sum += i;
  }
  EXPECT_TRUE(all_become(world, Mesh{{{"x", 3}}, living}, sum));
}

TEST(MeshOfProcesses, RefusesToBroadcastWhatCannotTravel) {
  GroupWorld world(2);
  const Mesh mesh = world.counters();
  EXPECT_EQ(error_of([&] { mesh.broadcast(caf::make_message(Unregistered{})); }).code(), Code::unsupported);
  EXPECT_EQ(error_of([&] { mesh.broadcast(caf::make_message(Sum::value), 0); }).code(), Code::invalid);
}

TEST(MeshOfProcesses, NamesTheMembersOfAProcessThatIsKilledWhileTheyAreAsked) {
  GroupWorld world(3);
  const Mesh mesh = world.counters();
  Status status;
  std::thread asking([&] {
    auto blocking = Blocking::on_thread("test");
    status = error_of([&] {
      mesh.slice({}).gather(blocking, caf::make_message(Hang::value), Deadline::after(std::chrono::seconds(2)));
    });
  });
  world.kill(2);
  asking.join();
  EXPECT_EQ(status.code(), Code::peer_lost) << status.text();
  EXPECT_THAT(text_of(status), AllOf(HasSubstr("{peer 2}: peer_lost"), HasSubstr("{peer 0}: timeout")));
}

}  // namespace
}  // namespace troupe::test
