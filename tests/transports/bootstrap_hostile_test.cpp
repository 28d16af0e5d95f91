// What strangers may do to rank 0's port, and to the ranks that look for it: nothing.

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <vector>

#include "tests/support/child_process.hpp"
#include "tests/transports/bootstrap_ranks.hpp"
#include "transports/bootstrap/detail/connection.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kMostGrowthKib = 1 << 30;  // a sanitizer keeps what was freed
#else
constexpr std::int64_t kMostGrowthKib = 16 << 10;
#endif

/// A line of /proc/self/status in KiB.
std::int64_t memory_kib(const std::string& line) {
  std::ifstream file{"/proc/self/status"};
  for (std::string word; file >> word;) {
    std::int64_t value = 0;
    if (word == line + ":" && file >> value) return value;
  }
  return -1;
}

/// Rank 0 in a process of its own, so that its memory can be told from that of those who attack it. Make it before the
/// test starts threads.
class RankZero {
 public:
  RankZero(const Listener& listener, std::uint32_t world_size, rlim_t descriptors = 1000)
      : process_([=, this, &listener] { return run(listener, world_size, descriptors); }) {
    close(report_[1]);
    close(listener.fd());  // only rank 0 holds it
  }
  ~RankZero() { close(report_[0]); }
  RankZero(const RankZero&) = delete;
  RankZero& operator=(const RankZero&) = delete;

  /// Waits until it has joined: by how much its memory grew at most, in KiB; -1: it failed.
  std::int64_t grown_kib() {
    std::int64_t grown = -1;
    pollfd entry{report_[0], POLLIN, 0};
    const bool said = poll(&entry, 1, 30'000) > 0 && read(report_[0], &grown, sizeof grown) == sizeof grown;
    return said ? grown : -1;
  }

 private:
  struct Pipe {
    int ends[2];
    Pipe() { EXPECT_EQ(pipe(ends), 0); }
    int operator[](int i) const { return ends[i]; }
  };
  int run(const Listener& listener, std::uint32_t world_size, rlim_t descriptors) const {
    const rlimit limit{descriptors, descriptors};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const std::int64_t before = memory_kib("VmRSS");
    const Attendance zero = join(rank_options(listener, 0, world_size));
    if (!zero.status.ok()) std::fprintf(stderr, "rank 0: %s\n", zero.error().c_str());
    const std::int64_t grown = zero.status.ok() ? memory_kib("VmHWM") - before : -1;
    return write(report_[1], &grown, sizeof grown) == sizeof grown ? 0 : 1;
  }

  const Pipe report_;
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
  bootstrap::Fd fd_;
};

/// How many connections this process can hold, at most `wanted`.
std::size_t affordable(std::size_t wanted) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return std::min<std::size_t>(wanted, limit.rlim_cur > 1000 ? limit.rlim_cur - 500 : 500);
}

/// Joins as ranks 1.. of `world_size`; how long it took.
Clock::duration join_the_others(const Listener& listener, std::uint32_t world_size) {
  std::vector<RankOptions> ranks;
  for (std::uint32_t rank = 1; rank < world_size; ++rank) ranks.push_back(rank_options(listener, rank, world_size));
  const auto began = Clock::now();
  for (const Attendance& one : join_all(ranks)) EXPECT_TRUE(one.status.ok()) << one.error();
  return Clock::now() - began;
}

void expect_modest(RankZero& zero) {
  const std::int64_t grown = zero.grown_kib();
  std::printf("rank 0 grew by %lld KiB\n", static_cast<long long>(grown));
  EXPECT_GE(grown, 0);
  EXPECT_LT(grown, kMostGrowthKib);
}

TEST(HostileStrangers, InAHalfOpenCrowdKeepNobodyOut) {
  const Listener listener;
  RankZero zero{listener, 3};
  const std::size_t count = affordable(10'000);
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (std::size_t i = 0; i < count; ++i) crowd.push_back(std::make_unique<RawClient>(listener.port()));
  const auto took = join_the_others(listener, 3);
  std::printf("%zu half-open connections; the ranks joined within %s\n", count,
              std::to_string(std::chrono::duration<double>(took).count()).c_str());
  EXPECT_LT(took, 10s);
  expect_modest(zero);
}

TEST(HostileStrangers, WhoKeepComingKeepNobodyOut) {
  const Listener listener;
  RankZero zero{listener, 3};
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
  RankZero zero{listener, 3, 64};
  std::vector<std::unique_ptr<Knock>> crowd;
  for (int i = 0; i < 300; ++i) crowd.push_back(std::make_unique<Knock>(listener.port()));
  EXPECT_LT(join_the_others(listener, 3), 8s);  // before the strangers' time is up
  expect_modest(zero);
}

/// The head of a frame with the largest length there is.
std::string head_of_4_gib(bootstrap::Kind kind) {
  bootstrap::Bytes bytes;
  for (const std::uint32_t word : {0x31505254U, static_cast<std::uint32_t>(kind), 0xffffffffU})
    bootstrap::put_u32(bytes, word);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(HostileStrangers, WhoAnnounceFourGibibytesCostNothing) {
  const Listener listener;
  RankZero zero{listener, 2};
  for (int i = 0; i < 200; ++i) {
    const RawClient client{listener.port()};
    client.send(head_of_4_gib(bootstrap::Kind::proof) + std::string(4096, 'x'));
    client.drain();  // it is dropped at once
  }
  join_the_others(listener, 2);
  expect_modest(zero);
}

/// One connection, blocking, with deadlines in the system's hands.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {
    const timeval patience{10, 0};
    for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) setsockopt(fd, SOL_SOCKET, option, &patience, sizeof patience);
  }
  static Line accept_from(const Listener& listener) { return Line{accept(listener.fd(), nullptr, nullptr)}; }
  static Line to(std::uint16_t port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return Line{fd};
  }
  int fd() const { return fd_.get(); }
  void send(const std::string& bytes) const { ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// What is there, at least a byte; nothing at the end.
  std::string receive() const {
    char bytes[4096];
    const ssize_t got = recv(fd(), bytes, sizeof bytes, 0);
    return {bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  }
  std::string receive_all() const {
    std::string all;
    for (std::string part = receive(); !part.empty(); part = receive()) all += part;
    return all;
  }

 private:
  bootstrap::Fd fd_;
};

/// What both sides of a join said.
struct Recording {
  std::string connector;
  std::string listener;
};

/// Records a good join of two ranks from between them.
Recording record_a_join() {
  Recording recording;
  const Listener real;
  const Listener between;
  std::thread wiretap{[&] {
    const Line from_one = Line::accept_from(between);
    const Line to_zero = Line::to(real.port());
    pollfd both[2] = {{from_one.fd(), POLLIN, 0}, {to_zero.fd(), POLLIN, 0}};
    while (poll(both, 2, 10'000) > 0) {
      const bool from_connector = both[0].revents != 0;
      const std::string said = (from_connector ? from_one : to_zero).receive();
      if (said.empty()) return;
      (from_connector ? recording.connector : recording.listener) += said;
      (from_connector ? to_zero : from_one).send(said);
    }
  }};
  at_once(2, [&](std::size_t rank) {
    const Attendance one = join(rank_options(rank == 0 ? real : between, static_cast<std::uint32_t>(rank), 2));
    EXPECT_TRUE(one.status.ok()) << one.error();
  });
  wiretap.join();
  close(between.fd());
  return recording;
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
