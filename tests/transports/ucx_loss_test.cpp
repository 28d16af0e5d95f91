#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "tests/contracts/transport_node.hpp"
#include "tests/transports/ucx_means.hpp"

extern char** environ;

namespace troupe::testing {
namespace {

/// A transport_victim, and the addresses' way to it. Started with exec: a process that only forked could not use UCX.
class Victim {
 public:
  Victim(std::uint32_t number, const std::string& means, std::uint32_t survivor) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) fail_errno(Code::environment, "pipe");
    to_ = in[1];
    from_ = out[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::string program = TRANSPORT_VICTIM;
    std::string self = std::to_string(number);
    std::string how = means;
    std::string peer = std::to_string(survivor);
    std::array<char*, 5> words{program.data(), self.data(), how.data(), peer.data(), nullptr};
    const int failed = posix_spawn(&pid_, program.c_str(), &actions, nullptr, words.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    TROUPE_CHECK(failed == 0, Code::environment, "cannot start ", program);
  }
  ~Victim() {
    end();
    close(to_);
    close(from_);
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  std::vector<std::byte> exchange_addresses(const std::vector<std::byte>& mine) const {
    const auto size = static_cast<std::uint32_t>(mine.size());
    std::uint32_t theirs = 0;
    EXPECT_EQ(write(to_, &size, sizeof size), ssize_t(sizeof size));
    EXPECT_EQ(write(to_, mine.data(), mine.size()), ssize_t(mine.size()));
    EXPECT_EQ(read(from_, &theirs, sizeof theirs), ssize_t(sizeof theirs));
    std::vector<std::byte> address(theirs);
    EXPECT_EQ(read(from_, address.data(), theirs), ssize_t(theirs));
    return address;
  }
  void signal(int number) const {
    ASSERT_GT(pid_, 0);  // -1 would be everybody
    kill(pid_, number);
  }
  /// Kills and reaps it.
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
};

constexpr std::chrono::seconds kSoon{20};

/// UCX 1.13 aborts now and then over a peer that dies (docs/gotchas.md), which nothing here prevents: such a test is
/// skipped. Another's abort goes on.
void skip_where_ucx_aborts(int) {
  std::array<void*, 32> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  for (int i = 0; i < count; ++i) {
    Dl_info where{};
    if (dladdr(frames[static_cast<std::size_t>(i)], &where) == 0 || where.dli_fname == nullptr) continue;
    const std::string_view library = where.dli_fname;
    if (library.find("libuct") == std::string_view::npos && library.find("libucp") == std::string_view::npos) continue;
    constexpr std::string_view kSaid = "[  SKIPPED ] UCX aborted over the lost peer, see docs/gotchas.md\n";
    [[maybe_unused]] const auto written = write(STDOUT_FILENO, kSaid.data(), kSaid.size());
    _exit(1);
  }
}

/// A survivor in this process, with large and small sends to a victim under way in both directions.
class UcxLoss : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr std::uint64_t kLarge = 4'800'000;

  UcxLoss() {
    struct sigaction action {};
    action.sa_handler = skip_where_ucx_aborts;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGABRT, &action, nullptr);
    const auto address = victim_.exchange_addresses(survivor_.transport->address());
    survivor_.transport->connect(kVictim, address);
  }
  template <class Condition>
  bool drive(Condition condition, Clock::duration span = kSoon) {
    const Deadline deadline = Deadline::after(span);
    while (!condition()) {
      if (deadline.passed()) return false;
      survivor_.progress();
      if (friend_) friend_->progress();
    }
    return true;
  }
  void send_much() {
    for (std::uint64_t i = 0; i < 4; ++i) {
      const Memory payload = survivor_.prepare(i, kLarge, i * kLarge);
      ASSERT_TRUE(survivor_.send(kVictim, Lane::bulk, i, payload, sends_.emplace_back()));
      ASSERT_TRUE(survivor_.send(kVictim, Lane::control, i, slice(payload, 0, 0), sends_.emplace_back()));
    }
  }
  /// Until a large message of the victim's is on its way in, after `messages` arrived whole.
  bool in_mid_transfer(std::size_t messages) {
    return drive([&] { return survivor_.count() >= messages && receiver().landings_open() > 0; });
  }
  bool all_told() const {
    return std::all_of(sends_.begin(), sends_.end(), [](const NotedSend& each) { return each.times() > 0; });
  }
  void fence() {
    for (const Lane lane : kLanes) survivor_.transport->fence(kVictim, lane, {Code::peer_lost, "fenced"});
  }
  /// Whatever arrived whole is as it was sent.
  void expect_intact() {
    for (const Got& got : receiver().got()) EXPECT_TRUE(got.intact);
  }
  void expect_told_once() const {
    for (const NotedSend& each : sends_) {
      EXPECT_EQ(each.times(), 1);
      EXPECT_TRUE(each.status().ok() || each.status().code() == Code::peer_lost) << each.status().text();
    }
  }
  /// This process goes on talking to others. Over shared memory it may need a new transport for that: all peers write
  /// into one queue of UCX's, and one that was killed between taking a place there and filling it stops the queue.
  void expect_alive() {
    const auto make = [](Peer self, AddressSpace& space) {
      return make_ucx_transport(space, ucx_options(self, GetParam()));
    };
    friend_ = std::make_unique<TransportNode>(Peer{5}, make);
    std::unique_ptr<TransportNode> fresh;
    if (GetParam() != "tcp") fresh = std::make_unique<TransportNode>(Peer{6}, make);
    TransportNode& own = fresh ? *fresh : survivor_;
    friend_->connect(own);
    const std::size_t before = own.count();
    for (const Lane lane : kLanes) {
      ASSERT_TRUE(own.send(Peer{5}, lane, 1, own.prepare(1, 3'000'000), sends_.emplace_back()));
      ASSERT_TRUE(friend_->send(own.self, lane, 2, {}, sends_.emplace_back()));
    }
    EXPECT_TRUE(drive([&] {
      own.progress();
      return friend_->count() == 2 && own.count() == before + 2 && all_told();
    }));
    for (const Got& got : friend_->at(Channel::actors).got()) EXPECT_TRUE(got.intact);
  }
  CheckingReceiver& receiver() { return survivor_.at(Channel::actors); }

  static constexpr Peer kVictim{7};
  std::deque<NotedSend> sends_;  // outlive the transports
  Victim victim_{kVictim.value, GetParam(), 0};
  TransportNode survivor_{
      Peer{0}, [](Peer self, AddressSpace& space) { return make_ucx_transport(space, ucx_options(self, GetParam())); }};
  std::unique_ptr<TransportNode> friend_;
};

TEST_P(UcxLoss, APeerKilledInMidTransferEndsEverySend) {
  ASSERT_NO_FATAL_FAILURE(send_much());
  ASSERT_TRUE(in_mid_transfer(0));
  victim_.end();
  (void)drive([&] { return all_told(); }, std::chrono::milliseconds{300});
  fence();
  EXPECT_TRUE(drive([&] { return all_told(); }));
  expect_told_once();
  expect_intact();
  expect_alive();
}

TEST_P(UcxLoss, APeerKilledAmongManyTransfersEndsEverySend) {
  ASSERT_TRUE(in_mid_transfer(10));
  ASSERT_NO_FATAL_FAILURE(send_much());
  ASSERT_TRUE(in_mid_transfer(survivor_.count() + 1));
  victim_.end();
  fence();
  EXPECT_TRUE(drive([&] { return all_told(); }));
  expect_told_once();
  expect_intact();
  expect_alive();
}

TEST_P(UcxLoss, AStoppedPeerIsFencedOff) {
  ASSERT_TRUE(in_mid_transfer(3));
  victim_.signal(SIGSTOP);
  ASSERT_NO_FATAL_FAILURE(send_much());
  (void)drive([&] { return all_told(); }, std::chrono::milliseconds{50});
  fence();
  EXPECT_TRUE(drive([&] { return all_told(); }));
  expect_told_once();
  const std::size_t before = survivor_.count();
  victim_.signal(SIGCONT);
  (void)drive([&] { return survivor_.count() > before; }, std::chrono::milliseconds{100});
  EXPECT_EQ(survivor_.count(), before);
  expect_alive();
}

TEST_P(UcxLoss, EveryLandingEndsAtTheLatestWithTheTransport) {
  ASSERT_TRUE(in_mid_transfer(3));
  victim_.end();
  fence();
  (void)drive([&] { return receiver().landings_open() == 0; }, std::chrono::milliseconds{300});
  if (GetParam() != "shm") {  // there, UCX is not told to let go
    EXPECT_EQ(receiver().landings_open(), 0);
  }
  survivor_.transport.reset();
  EXPECT_EQ(receiver().landings_open(), 0);
}

TEST_P(UcxLoss, TcpTellsOfADeathByItself) {
  if (GetParam() != "tcp") GTEST_SKIP() << "shared memory is watched every 20 s only; the bootstrap's socket is faster";
  ASSERT_TRUE(in_mid_transfer(1));
  ASSERT_NO_FATAL_FAILURE(send_much());
  victim_.end();
  EXPECT_TRUE(drive([&] { return all_told() && receiver().times_lost(kVictim) == 2; }));
  expect_told_once();
  EXPECT_EQ(survivor_.at(Channel::exchange).times_lost(kVictim), 2u);
}

INSTANTIATE_TEST_SUITE_P(Ucx, UcxLoss, ::testing::Values("tcp", "shm", "shm-told"),
                         [](const auto& info) { return info.param == "shm-told" ? "shm_told" : info.param; });

}  // namespace
}  // namespace troupe::testing
