// Attacks by strangers on rank 0's port, and on the ranks that connect to it: they have no effect.

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <vector>

#include "tests/support/child_process.hpp"
#include "tests/transports/bootstrap_hostile.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;

struct Pipe {
  int ends[2];
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    for (int i = 0; i < 2; ++i) end(i);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int operator[](int i) const { return ends[i]; }
  void end(int i) {
    if (ends[i] >= 0) close(std::exchange(ends[i], -1));
  }
};

/// A number that another process writes; -1: it did not.
std::int64_t number_from(const Pipe& pipe) {
  std::int64_t number = -1;
  pollfd entry{pipe[0], POLLIN, 0};
  const bool said = poll(&entry, 1, 30'000) > 0 && read(pipe[0], &number, sizeof number) == sizeof number;
  return said ? number : -1;
}

/// Rank 0 in a process of its own, so that its memory can be told from that of those who attack it. Make it before the
/// test starts threads.
class RankZero {
 public:
  RankZero(const Listener& listener, std::uint32_t world_size, rlim_t descriptors = 1000)
      : process_([=, this, &listener] { return run(listener, world_size, descriptors); }) {
    report_.end(1);
    close(listener.fd());  // only rank 0 holds it
  }

  /// Waits until it has joined: by how much its memory grew at most, in KiB; -1: it failed.
  std::int64_t grown_kib() const { return number_from(report_); }

 private:
  int run(const Listener& listener, std::uint32_t world_size, rlim_t descriptors) const {
    const rlimit limit{descriptors, descriptors};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const std::int64_t before = memory_kib("VmRSS");
    const Attendance zero = join(rank_options(listener, 0, world_size));
    if (!zero.status.ok()) std::fprintf(stderr, "rank 0: %s\n", zero.error().c_str());
    const std::int64_t grown = zero.status.ok() ? memory_kib("VmHWM") - before : -1;
    return write(report_[1], &grown, sizeof grown) == sizeof grown ? 0 : 1;
  }

  Pipe report_;
  ChildProcess process_;
};

/// A connection that says nothing, if there is still somebody to take it.
class Knock {
 public:
  explicit Knock(std::uint16_t port) : fd_(bootstrap::connect_to(address_of(port), Deadline::after(20s))) {}

 private:
  static bootstrap::Address address_of(std::uint16_t port) {
    return bootstrap::resolve("127.0.0.1", port, Deadline::after(20s)).front();
  }
  Fd fd_;
};

/// How many connections this process can hold, at most `wanted`.
std::size_t affordable(std::size_t wanted) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return std::min<std::size_t>(wanted, limit.rlim_cur > 1000 ? limit.rlim_cur - 500 : 500);
}

/// Connections that say nothing, held by processes of their own, since one may not have so many descriptors. Make it
/// before the test starts threads.
class HalfOpenCrowd {
 public:
  HalfOpenCrowd(std::uint16_t port, std::size_t wanted) {
    for (std::size_t i = 0; i < kProcesses; ++i) {
      const Pipe& report = *reports_.emplace_back(std::make_unique<Pipe>());
      processes_.emplace_back(
          [&report, port, share = wanted / kProcesses] { return stand_there(report, port, share); });
    }
    for (const auto& report : reports_)
      size_ += static_cast<std::size_t>(std::max<std::int64_t>(0, number_from(*report)));
  }
  /// Their number.
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kProcesses = 4;
  static int stand_there(const Pipe& report, std::uint16_t port, std::size_t share) {
    std::vector<std::unique_ptr<RawClient>> crowd;
    const std::size_t count = affordable(share);
    for (std::size_t i = 0; i < count; ++i) crowd.push_back(std::make_unique<RawClient>(port));
    const auto came = static_cast<std::int64_t>(::testing::Test::HasFailure() ? -1 : crowd.size());
    if (write(report[1], &came, sizeof came) != sizeof came) return 1;
    for (;;) pause();  // until it is killed
  }

  std::vector<std::unique_ptr<Pipe>> reports_;
  std::vector<ChildProcess> processes_;
  std::size_t size_ = 0;
};

/// Joins as ranks 1.. of `world_size`; how long it took.
Clock::duration join_the_others(const Listener& listener, std::uint32_t world_size) {
  std::vector<RankOptions> ranks;
  for (std::uint32_t rank = 1; rank < world_size; ++rank) ranks.push_back(rank_options(listener, rank, world_size));
  const auto began = Clock::now();
  for (const Attendance& one : join_all(ranks)) EXPECT_TRUE(one.status.ok()) << one.error();
  return Clock::now() - began;
}

void expect_modest(const RankZero& zero) {
  const std::int64_t grown = zero.grown_kib();
  std::printf("rank 0 grew by %lld KiB\n", static_cast<long long>(grown));
  EXPECT_GE(grown, 0);
  EXPECT_LT(grown, kMostGrowthKib);
}

TEST(HostileStrangers, InAHalfOpenCrowdKeepNobodyOut) {
  constexpr std::size_t kWanted = 10'000;
  const Listener listener;
  const RankZero zero{listener, 3};
  const HalfOpenCrowd crowd{listener.port(), kWanted};
  const auto took = join_the_others(listener, 3);
  std::printf("%zu half-open connections; the ranks joined within %s\n", crowd.size(),
              std::to_string(std::chrono::duration<double>(took).count()).c_str());
  EXPECT_LT(took, 10s);
  expect_modest(zero);
  EXPECT_GT(crowd.size(), 1000u);
  if (crowd.size() < kWanted)
    GTEST_SKIP() << "passed with " << crowd.size() << " connections: `ulimit -Hn` allows no " << kWanted;
}

TEST(HostileStrangers, WhoKeepComingKeepNobodyOut) {
  const Listener listener;
  const RankZero zero{listener, 3};
  std::atomic<bool> done{false};
  std::atomic<std::size_t> came{0};
  std::thread flood{[&] {
    std::vector<std::unique_ptr<Knock>> crowd(affordable(10'000) / 2);
    while (!done.load()) {
      crowd[came % crowd.size()] = std::make_unique<Knock>(listener.port());
      ++came;
    }
  }};
  EXPECT_TRUE(eventually([&] { return came.load() > 2000; }));
  const auto took = join_the_others(listener, 3);
  done.store(true);
  flood.join();
  std::printf("%zu connections; the ranks joined within %s\n", came.load(),
              std::to_string(std::chrono::duration<double>(took).count()).c_str());
  EXPECT_LT(took, 10s);
  expect_modest(zero);
}

TEST(HostileStrangers, WhoTakeEveryDescriptorKeepNobodyOut) {
  const Listener listener;
  const RankZero zero{listener, 3, 64};
  std::vector<std::unique_ptr<Knock>> crowd;
  for (int i = 0; i < 300; ++i) crowd.push_back(std::make_unique<Knock>(listener.port()));
  EXPECT_LT(join_the_others(listener, 3), 8s);  // before the strangers' time is up
  expect_modest(zero);
}

TEST(HostileStrangers, WhoAnnounceFourGibibytesCostNothing) {
  const Listener listener;
  const RankZero zero{listener, 2};
  for (int i = 0; i < 200; ++i) {
    const RawClient client{listener.port()};
    client.send(head_of_4_gib(bootstrap::Kind::proof) + std::string(4096, 'x'));
    client.drain();  // it is dropped at once
  }
  join_the_others(listener, 2);
  expect_modest(zero);
}

TEST(HostileStrangers, WhoReplayARanksJoinAreRefused) {
  const Recording recording = record_a_join();
  ASSERT_GT(recording.connector.size(), 100u);
  const Listener listener;
  auto ranks = whole_world(listener, 2);
  Attendance zero;
  std::thread host{[&] { zero = join(ranks[0]); }};
  for (int i = 0; i < 3; ++i) {
    const Line line = Line::to(listener.port());
    line.send(recording.connector);
    EXPECT_THAT(line.receive_all(), HasSubstr("the job's secret differs"));
  }
  const Attendance one = join(ranks[1]);
  host.join();
  EXPECT_TRUE(zero.status.ok()) << zero.error();
  EXPECT_TRUE(one.status.ok()) << one.error();
  EXPECT_TRUE(zero.heard("does not know the job's secret"));
}

TEST(HostileStrangers, WhoReplayRankZeroFoolNobody) {
  const Recording recording = record_a_join();
  ASSERT_GT(recording.listener.size(), 100u);
  const Listener listener;
  std::thread impostor{[&] {
    const Line line = Line::accept_from(listener);
    line.send(recording.listener);
    line.receive_all();
  }};
  const Attendance one = join(rank_options(listener, 1, 2));
  impostor.join();
  close(listener.fd());
  EXPECT_EQ(one.status.code(), Code::environment);
  EXPECT_THAT(one.error(), HasSubstr("it is not rank 0 of this job"));
}

TEST(HostileStrangers, WhoAnswerWithFourGibibytesCostARankNothing) {
  const Listener listener;
  std::atomic<bool> done{false};
  std::thread impostor{[&] {
    while (!done.load()) Line::accept_from(listener).send(head_of_4_gib(bootstrap::Kind::challenge));
  }};
  auto options = rank_options(listener, 1, 2);
  options.patience = 500ms;
  const std::int64_t before = memory_kib("VmHWM");
  const Attendance one = join(options);
  const std::int64_t grown = memory_kib("VmHWM") - before;
  done.store(true);
  Line::to(listener.port());  // wakes it
  impostor.join();
  close(listener.fd());
  EXPECT_EQ(one.status.code(), Code::environment);
  EXPECT_THAT(one.error(), HasSubstr("a frame of 4294967295 bytes"));
  EXPECT_LT(grown, kMostGrowthKib);
}

}  // namespace
}  // namespace troupe::testing
