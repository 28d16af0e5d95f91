#include <gmock/gmock.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/child_process.hpp"
#include "tests/support/end_marks.hpp"
#include "tests/transports/bootstrap_ranks.hpp"

namespace troupe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// Ranks as threads of this process, all watching.
class WatchingThreads {
 public:
  explicit WatchingThreads(std::uint32_t world_size) : losses_(world_size) {
    const Listener listener;
    joined_ = join_all(whole_world(listener, world_size));
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      EXPECT_TRUE(joined_[rank].status.ok()) << joined_[rank].error();
      joined_[rank].bootstrap->watch(losses_[rank].callback());
    }
  }
  Bootstrap& operator[](std::uint32_t rank) { return *joined_[rank].bootstrap; }
  void die(std::uint32_t rank) { joined_[rank].bootstrap.reset(); }
  const Losses& losses(std::uint32_t rank) const { return losses_[rank]; }
  bool told(std::uint32_t rank, std::size_t count = 1) const {
    return eventually([&] { return losses_[rank].peers().size() >= count; });
  }

 private:
  std::vector<Losses> losses_;
  std::vector<Attendance> joined_;
};

TEST(BootstrapWatch, ReportsADeadRankOnceToEveryRank) {
  WatchingThreads ranks{4};
  ranks.die(2);
  for (const std::uint32_t rank : {0, 1, 3}) {
    ASSERT_TRUE(ranks.told(rank));
    EXPECT_EQ(ranks.losses(rank).reason(0).code(), Code::peer_lost);
    EXPECT_THAT(std::string{ranks.losses(rank).reason(0).text()}, HasSubstr("rank 2"));
  }
  ranks.die(3);
  for (const std::uint32_t rank : {0, 1}) {
    ASSERT_TRUE(ranks.told(rank, 2));
    EXPECT_THAT(ranks.losses(rank).peers(), ElementsAre(2, 3));
  }
}

TEST(BootstrapWatch, TellsTheOthersWhenRankZeroDies) {
  WatchingThreads ranks{3};
  ranks.die(0);
  for (const std::uint32_t rank : {1, 2}) {
    ASSERT_TRUE(ranks.told(rank));
    EXPECT_THAT(ranks.losses(rank).peers(), ElementsAre(0));
  }
}

TEST(BootstrapWatch, DoesNotCountARankThatLeftAsLost) {
  WatchingThreads ranks{4};
  ranks[1].leave();
  ranks.die(1);
  ranks.die(2);  // something that shows how far the news has come
  for (const std::uint32_t rank : {0, 3}) {
    ASSERT_TRUE(ranks.told(rank));
    EXPECT_THAT(ranks.losses(rank).peers(), ElementsAre(2));
  }
}

TEST(BootstrapWatch, EndsQuietlyWhenEveryoneLeavesInWhateverOrder) {
  for (std::uint32_t first = 0; first < 3; ++first) {
    WatchingThreads ranks{3};
    for (std::uint32_t i = 0; i < 3; ++i) ranks[(first + i) % 3].leave();
    for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.losses(rank).peers(), IsEmpty());
  }
}

TEST(BootstrapWatch, EndsQuietlyWhenEveryoneLeavesAtOnce) {
  for (int round = 0; round < 20; ++round) {
    WatchingThreads ranks{4};
    at_once(4, [&](std::size_t rank) { ranks[static_cast<std::uint32_t>(rank)].leave(); });
    for (std::uint32_t rank = 0; rank < 4; ++rank) EXPECT_THAT(ranks.losses(rank).peers(), IsEmpty());
  }
}

TEST(BootstrapWatch, GetsNoReportsAfterItLeft) {
  WatchingThreads ranks{3};
  ranks[1].leave();
  ranks.die(2);
  ASSERT_TRUE(ranks.told(0));
  EXPECT_THAT(ranks.losses(1).peers(), IsEmpty());
}

TEST(BootstrapWatch, MayBeLeftFromItsCallback) {
  std::atomic<int> told{0};
  const Listener listener;
  auto joined = join_all(whole_world(listener, 3));
  joined[0].bootstrap->watch([&](Peer, const Status&) {
    joined[0].bootstrap->leave();
    told.fetch_add(1);
  });
  joined[1].bootstrap.reset();
  EXPECT_TRUE(eventually([&] { return told.load() == 1; }));
  joined[0].bootstrap.reset();
}

TEST(BootstrapWatch, ReportsADeathBetweenJoinAndWatch) {
  Losses zero;
  Losses two;
  const Listener listener;
  auto joined = join_all(whole_world(listener, 3));
  joined[1].bootstrap.reset();
  joined[0].bootstrap->watch(zero.callback());
  joined[2].bootstrap->watch(two.callback());
  for (const Losses* losses : {&zero, &two}) {
    ASSERT_TRUE(eventually([&] { return !losses->peers().empty(); }));
    EXPECT_THAT(losses->peers(), ElementsAre(1));
  }
}

TEST(BootstrapWatch, RefusesToGatherAfterwards) {
  WatchingThreads ranks{2};
  Blocking blocking = Blocking::on_thread("test");
  EXPECT_THROW(ranks[0].all_gather(blocking, "late", {}, Deadline::after(1s)), Error);
}

/// Ranks as processes: rank 0 is the test, or a child as well. Each child reports by a pipe that it watches, then whom
/// it lost.
class WatchingProcesses : public ::testing::Test {
 protected:
  static constexpr char kWatching = 'w';
  static constexpr char kLeft = 'l';

  WatchingProcesses() {
    EXPECT_EQ(pipe(reports_.data()), 0);
    EXPECT_EQ(pipe(orders_.data()), 0);
  }
  ~WatchingProcesses() override {
    for (const int end : {reports_[0], reports_[1], orders_[0], orders_[1]}) close(end);
  }

  RankOptions options(std::uint32_t rank, std::uint32_t world_size) const {
    RankOptions options = rank_options(listener_, rank, world_size);
    struct stat about {};
    EXPECT_EQ(stat("/proc/self/ns/pid", &about), 0);
    options.hello.pid = getpid();
    options.hello.pid_namespace = about.st_ino;
    return options;
  }

  /// A rank that watches, and reports each loss as its digit, until it is killed or told to leave by a byte of its
  /// orders.
  ChildProcess start(std::uint32_t rank, std::uint32_t world_size) {
    return ChildProcess{[this, rank, world_size] {
      close(orders_[1]);
      Attendance joined = join(options(rank, world_size));
      if (!joined.bootstrap) return 1;
      joined.bootstrap->watch([&](Peer peer, const Status&) { report(static_cast<char>('0' + peer.value)); });
      report(kWatching);
      char order = 0;
      if (read(orders_[0], &order, 1) != 1) return 1;
      joined.bootstrap->leave();
      report(kLeft);
      return 0;
    }};
  }
  void report(char what) const { EXPECT_EQ(write(reports_[1], &what, 1), 1); }
  void order_one_to_leave() const { EXPECT_EQ(write(orders_[1], "x", 1), 1); }
  /// Whether no child reports anything for so long.
  bool silent_for(std::chrono::milliseconds span) const {
    pollfd entry{.fd = reports_[0], .events = POLLIN, .revents = 0};
    return poll(&entry, 1, static_cast<int>(span.count())) == 0;
  }
  /// The next `count` reports of all children, in any order.
  std::string reports(std::size_t count) const {
    std::string all;
    for (char one = 0; all.size() < count && read(reports_[0], &one, 1) == 1;) all.push_back(one);
    return all;
  }

  const Listener listener_;
  std::array<int, 2> reports_{};
  std::array<int, 2> orders_{};
};

TEST_F(WatchingProcesses, NameARankThatIsKilled) {
  ChildProcess one = start(1, 3);
  ChildProcess two = start(2, 3);
  Losses losses;
  const Attendance zero = join(options(0, 3));
  ASSERT_TRUE(zero.status.ok()) << zero.error();
  zero.bootstrap->watch(losses.callback());
  ASSERT_EQ(reports(2), "ww");
  one.kill_hard();  // it stays a zombie: nobody has reaped it
  ASSERT_TRUE(eventually([&] { return !losses.peers().empty(); }, 5s));
  EXPECT_THAT(losses.peers(), ElementsAre(1));
  EXPECT_EQ(reports(1), "1");
  EXPECT_THAT(std::string{losses.reason(0).text()}, HasSubstr("pid " + std::to_string(one.pid())));
}

TEST_F(WatchingProcesses, NameRankZeroWhenItIsKilled) {
  ChildProcess zero = start(0, 3);
  close(listener_.fd());  // only rank 0 holds it
  ChildProcess two = start(2, 3);
  Losses losses;
  const Attendance one = join(options(1, 3));
  ASSERT_TRUE(one.status.ok()) << one.error();
  one.bootstrap->watch(losses.callback());
  ASSERT_EQ(reports(2), "ww");
  zero.kill_hard();
  ASSERT_TRUE(eventually([&] { return !losses.peers().empty(); }, 5s));
  EXPECT_THAT(losses.peers(), ElementsAre(0));
  EXPECT_EQ(reports(1), "0");
}

TEST_F(WatchingProcesses, NoticeADeathThemselvesWhenRankZeroIsStopped) {
  ChildProcess zero = start(0, 3);
  close(listener_.fd());
  ChildProcess two = start(2, 3);
  Losses losses;
  const Attendance one = join(options(1, 3));
  ASSERT_TRUE(one.status.ok()) << one.error();
  one.bootstrap->watch(losses.callback());
  ASSERT_EQ(reports(2), "ww");
  kill(zero.pid(), SIGSTOP);
  two.kill_hard();
  EXPECT_TRUE(eventually([&] { return !losses.peers().empty(); }, 5s));
  EXPECT_THAT(losses.peers(), ElementsAre(2));
}

/// Of rank 1 only the thread that holds its end mark ends. Its process lives and its sockets stay open, as while the
/// kernel takes back the memory of a process that was killed.
TEST_F(WatchingProcesses, NameARankByItsEndMarkAlone) {
  if (!end_marks_work()) GTEST_SKIP() << kNoEndMarks;
  ChildProcess one{[this] {
    close(orders_[1]);
    const Attendance joined = join(options(1, 3));
    if (!joined.bootstrap) return 1;
    joined.bootstrap->watch([](Peer, const Status&) { syscall(SYS_exit, 0); });
    report(kWatching);
    char order = 0;
    return read(orders_[0], &order, 1) == 1 ? 0 : 1;
  }};
  ChildProcess two = start(2, 3);
  Losses losses;
  const Attendance zero = join(options(0, 3));
  ASSERT_TRUE(zero.status.ok()) << zero.error();
  zero.bootstrap->watch(losses.callback());
  ASSERT_EQ(reports(2), "ww");
  two.kill_hard();  // rank 1 hears of it on that thread
  ASSERT_TRUE(eventually([&] { return losses.peers().size() == 2; }, 5s));
  EXPECT_THAT(losses.peers(), ElementsAre(2, 1));
  EXPECT_EQ(one.wait(0s), -1);  // it lives
}

TEST_F(WatchingProcesses, ThatLeaveAndEndAreNotLost) {
  ChildProcess one = start(1, 4);
  ChildProcess two = start(2, 4);
  ChildProcess three = start(3, 4);
  Losses losses;
  const Attendance zero = join(options(0, 4));
  ASSERT_TRUE(zero.status.ok()) << zero.error();
  zero.bootstrap->watch(losses.callback());
  ASSERT_EQ(reports(3), "www");
  order_one_to_leave();
  EXPECT_EQ(reports(1), "l");
  EXPECT_TRUE(silent_for(200ms));  // the others see its process end, and wait some 50 ms for what rank 0 says
  order_one_to_leave();
  order_one_to_leave();
  EXPECT_EQ(reports(2), "ll");
  for (ChildProcess* child : {&one, &two, &three}) EXPECT_EQ(child->wait(), 0);
  EXPECT_THAT(losses.peers(), IsEmpty());
}

}  // namespace
}  // namespace troupe::testing
