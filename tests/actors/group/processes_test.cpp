#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <caf/send.hpp>
#include <deque>
#include <thread>

#include "tests/actors/group/member.hpp"
#include "tests/support/process.hpp"
#include "tests/transports/bootstrap_ranks.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kNoUcx = "this build has no UCX, over which processes exchange messages";

/// This process is peer 0, the others are processes of their own, over UCX.
class GroupOfProcesses : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr std::uint32_t kSize = 3;
  static constexpr std::chrono::milliseconds kDead{1000};

  void SetUp() override {
    if (!ucx_available()) GTEST_SKIP() << kNoUcx;
    const testing::Listener listener;
    for (std::uint32_t rank = 1; rank < kSize; ++rank) {
      members.emplace_back(testing::ProgramStart{.arguments = {"/proc/self/exe", "--member", GetParam()},
                                                 .environment = {{"RANK", std::to_string(rank)},
                                                                 {"WORLD_SIZE", std::to_string(kSize)},
                                                                 {"LOCAL_RANK", std::to_string(rank)},
                                                                 {"MASTER_ADDR", "127.0.0.1"},
                                                                 {"MASTER_PORT", std::to_string(listener.port())}},
                                                 .unset = {"TROUPE_SECRET_FILE", "TROUPE_LISTEN_FD"}});
    }
    LaunchPlace place = testing::rank_options(listener, 0, kSize).place;
    place.secret.clear();
    end = join_over_ucx(
        blocking, place, GetParam(),
        [this](Peer peer, const Status&) {
          ++times_lost;
          lost.store(peer.value);
        },
        kDead);
  }
  void TearDown() override {
    if (!end) return;
    caf::anon_send_exit(end->counter, caf::exit_reason::user_shutdown);
    end->counter = {};
  }
  Group& group() { return *end->group; }
  Mesh counters() { return group().lookup_all(blocking, "counter", long_enough()); }
  /// Ends these actors, and with them their processes, and stops.
  StopReport stop(const Mesh& whom, Clock::duration within = kLong) {
    whom.send_all(caf::make_message(Go::value));
    return group().stop(blocking, Deadline::after(within));
  }
  bool all_become(const Mesh& mesh, std::uint64_t sum) {
    return testing::becomes_true(
        [&] {
          return mesh.gather<std::uint64_t>(blocking, caf::make_message(Sum::value), long_enough()) ==
                 std::vector<std::uint64_t>(mesh.size(), sum);
        },
        kLong);
  }

  Blocking blocking = Blocking::on_thread("test");
  std::deque<testing::Program> members;  // peers 1, 2
  std::unique_ptr<GroupEnd> end;
  std::atomic<std::uint32_t> lost{0};
  std::atomic<int> times_lost{0};
};

INSTANTIATE_TEST_SUITE_P(Transports, GroupOfProcesses, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(GroupOfProcesses, FindsSpawnsBroadcastsGathersAndStopsTogether) {
  const Mesh mesh = counters();
  EXPECT_THAT(mesh.gather<std::uint64_t>(blocking, caf::make_message(Who::value), long_enough()), ElementsAre(0, 1, 2));
  const caf::actor spawned = group().spawn_at(blocking, {2}, "counter", long_enough(), std::uint64_t{9});
  EXPECT_THAT(
      (Mesh{{{"x", 1}}, {spawned}}.gather<std::uint64_t>(blocking, caf::make_message(Who::value), long_enough())),
      ElementsAre(9));
  mesh.broadcast(caf::make_message(Add::value, std::uint64_t{5}), 1);
  EXPECT_TRUE(all_become(mesh, 5));
  const StopReport report = stop(mesh);
  EXPECT_TRUE(report.clean()) << report.text();
  EXPECT_EQ(times_lost.load(), 0);
  for (auto& member : members) {
    EXPECT_EQ(member.wait(kLong), 0) << member.out() << member.err();
    EXPECT_EQ(member.out(), "everything finished\n");
  }
}

TEST_P(GroupOfProcesses, NamesAMemberThatIsKilledWhileItIsAskedAndGoesOnWithoutIt) {
  if (GetParam() == "shm") GTEST_SKIP() << "a kill may stop UCX's shared memory for all its users";
  const caf::actor hanger = group().spawn_at(blocking, {1}, "hanger", long_enough());
  const Mesh all = counters();
  const Mesh asked{{{"x", 3}}, {all.members()[0], hanger, all.members()[2]}};
  Status status;
  std::thread asking([&] {
    auto there = Blocking::on_thread("test");
    try {
      asked.gather(there, caf::make_message(Who::value), long_enough());
    } catch (const Error& error) {
      status = error.status();
    }
  });
  members[0].signal(SIGKILL);
  asking.join();
  EXPECT_EQ(status.code(), Code::peer_lost) << status.text();
  EXPECT_THAT(std::string(status.text()), AllOf(HasSubstr("1 of 3 members"), HasSubstr("{x 1}: peer_lost")));
  EXPECT_TRUE(testing::becomes_true([&] { return lost.load() == 1; }, kLong));

  all.broadcast(caf::make_message(Add::value, std::uint64_t{5}), 1);  // 0 to 1 to 2
  const Mesh living{{{"x", 2}}, {all.members()[0], all.members()[2]}};
  EXPECT_TRUE(all_become(living, 5));
  EXPECT_THROW(group().lookup(blocking, {1}, "counter", long_enough()), Error);
  const StopReport report = stop(living);
  EXPECT_THAT(report.lost, ElementsAre(Peer{1})) << report.text();
  EXPECT_THAT(report.running, ElementsAre());
  EXPECT_EQ(members[1].wait(kLong), 0) << members[1].out() << members[1].err();
}

TEST_P(GroupOfProcesses, SaysWhichStoppedProcessDidNotFinish) {
  if (GetParam() == "shm") GTEST_SKIP() << "the same over either transport";
  const Mesh all = counters();
  members[1].signal(SIGSTOP);
  const auto begin = Clock::now();
  const StopReport report = stop(all, std::chrono::seconds(1));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(3));
  // Heartbeats may already have found it dead.
  EXPECT_THAT(report.running.empty() ? report.lost : report.running, ElementsAre(Peer{2})) << report.text();
  members[1].signal(SIGKILL);
  EXPECT_GE(members[0].wait(kLong), 0);
}

TEST_P(GroupOfProcesses, LosesAProcessThatIsStoppedAndTellsThoseWhoNeverSpokeToIt) {
  if (GetParam() == "shm") GTEST_SKIP() << "the same over either transport";
  const Mesh all = counters();
  members[1].signal(SIGSTOP);
  EXPECT_TRUE(testing::becomes_true([&] { return lost.load() == 2; }, 10 * kDead));
  EXPECT_TRUE(members[0].wait_until(
      [](const testing::Program& p) { return p.out().find("lost peer 2: ") != std::string::npos; }, 10 * kDead))
      << members[0].out() << members[0].err();
  const Mesh living{{{"x", 2}}, {all.members()[0], all.members()[1]}};
  const StopReport report = stop(living);
  EXPECT_EQ(report.text(), "lost before: peer 2");
  EXPECT_EQ(times_lost.load(), 1);
  EXPECT_EQ(members[0].wait(kLong), 0) << members[0].out() << members[0].err();
  members[1].signal(SIGKILL);
}

/// Two actor systems of one process are two processes to each other.
TEST(GroupOverUcx, MayHaveSeveralMembersInOneProcess) {
  if (!ucx_available()) GTEST_SKIP() << kNoUcx;
  const testing::Listener listener;
  std::vector<std::unique_ptr<GroupEnd>> ends(2);
  testing::at_once(2, [&](std::size_t i) {
    auto blocking = Blocking::on_thread("test");
    LaunchPlace place = testing::rank_options(listener, static_cast<std::uint32_t>(i), 2).place;
    ends[i] = join_over_ucx(blocking, place, "tcp");
    const Mesh mesh = ends[i]->group->lookup_all(blocking, "counter", long_enough());
    EXPECT_THAT(mesh.gather<std::uint64_t>(blocking, caf::make_message(Who::value), long_enough()), ElementsAre(0, 1));
    const StopReport report = ends[i]->group->stop(blocking, long_enough());
    EXPECT_TRUE(report.clean()) << report.text();
    caf::anon_send_exit(ends[i]->counter, caf::exit_reason::user_shutdown);
    ends[i]->counter = {};
  });
}

}  // namespace
}  // namespace troupe::test

int main(int argc, char** argv) {
  if (const auto code = troupe::test::run_as_member(argc, argv)) return *code;
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
