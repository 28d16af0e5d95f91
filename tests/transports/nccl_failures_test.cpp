#include <gmock/gmock.h>

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "devices/cuda/cuda_device.hpp"
#include "runtime/memory/arena.hpp"
#include "tests/support/child_process.hpp"
#include "transports/nccl/nccl_communicator.hpp"

// Ranks in processes of their own, over the stand-ins for the driver and for NCCL: what becomes of the others when one
// is killed or NCCL fails. The test's own process never uses the stand-ins.
namespace troupe {
namespace {

using testing::ChildProcess;
using testing::eventually;
using ::testing::HasSubstr;

constexpr std::uint32_t kMostRanks = 3;
constexpr std::chrono::seconds kPatience{15};

/// What the processes of a test share: here in the place of the control lane.
struct Meeting {
  std::atomic<bool> has_id;
  NcclId id;
  std::array<std::atomic<bool>, kMostRanks> is_here;
  std::array<ArenaTicket, kMostRanks> tickets;
  std::array<NcclMember, kMostRanks> members;
  std::atomic<int> step;
};

class SharedMeeting {
 public:
  SharedMeeting()
      : at_(mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        meeting_(new (at_) Meeting{}) {}
  ~SharedMeeting() { munmap(at_, sizeof(Meeting)); }
  SharedMeeting(const SharedMeeting&) = delete;
  SharedMeeting& operator=(const SharedMeeting&) = delete;
  Meeting* operator->() const noexcept { return meeting_; }
  Meeting& operator*() const noexcept { return *meeting_; }

 private:
  void* const at_;
  Meeting* const meeting_;
};

/// One rank in its process.
class RankProcess {
 public:
  RankProcess(Meeting& meeting, std::uint32_t rank, std::uint32_t ranks, const char* faults = "",
              NcclOptions options = {})
      : meeting_(meeting) {
    ::setenv("TROUPE_CUDA_HOST_DEVICES", "3", 1);
    ::setenv("TROUPE_CUDA_HOST_FAULT", faults, 1);
    options.library = TROUPE_NCCL_HOST;
    arena = Arena::create(arena_id(Peer{rank}, 1), std::uint64_t{8} << 20);
    space.map(arena);
    meeting.tickets[rank] = arena->ticket();
    meeting.members[rank] = {arena->make_timeline(), arena->make_timeline()};
    meeting.is_here[rank] = true;
    NcclGroup group{.rank = Rank{rank},
                    .id = {},
                    .members = {},
                    .stripes = std::vector<Stripe>(ranks),
                    .parameters = {},
                    .staging = {}};
    for (std::uint32_t r = 0; r < ranks; ++r) {
      must(eventually([&] { return meeting.is_here[r].load(); }));
      if (r != rank) space.map(Arena::open(meeting.tickets[r]));
      group.members.push_back(meeting.members[r]);
    }
    device = make_cuda_device(space,
                              {.ordinal = rank, .driver = TROUPE_CUDA_HOST, .products = "own", .convolutions = "own"});
    if (rank == 0) {
      meeting.id = make_nccl_id(options.library);
      meeting.has_id = true;
    }
    must(eventually([&] { return meeting.has_id.load(); }));
    group.id = meeting.id;
    group.staging = device->allocate(arena_id(Peer{rank}, 2), MemoryKind::device, nccl_staging_bytes(group));
    group.parameters = group.staging;
    stream = device->stream();
    communicator = std::make_unique<NcclCommunicator>(space, *stream, group, options);
  }

  static void must(bool condition) {
    if (!condition) fail(Code::timeout, "the ranks of a test do not come together");
  }
  void connect(std::chrono::milliseconds span = kPatience) { communicator->connect(blocking, Deadline::after(span)); }
  /// How the stream's work so far ends.
  Status end() {
    const Point point = stream->mark();
    return space.timeline(point.line).wait(blocking, point.value, Deadline::after(kPatience), "a test's stream");
  }
  void come_to(int step) { meeting_.step = step; }
  void wait_for(int step) {
    must(eventually([&] { return meeting_.step.load() >= step; }));
  }
  Memory floats(std::vector<float> values) {
    const Memory memory = arena->allocate(values.size() * sizeof(float));
    std::copy(values.begin(), values.end(), reinterpret_cast<float*>(space.address(memory)));
    return memory;
  }

  Blocking blocking = Blocking::on_thread("test");
  AddressSpace space;
  std::shared_ptr<Arena> arena;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;  // ends before the communicator
  std::unique_ptr<NcclCommunicator> communicator;

 private:
  Meeting& meeting_;

 public:
  ~RankProcess() {
    communicator->abort({Code::aborted, "the test is over"});
    stream.reset();
    communicator.reset();
    device.reset();
  }
};

/// What a child says of itself: its exit code.
enum : int { kRight = 0, kWrongSum = 1, kWrongEnd = 2, kTooEarly = 3 };

/// A process in which the stand-ins look for leaks at the end, and end it with another code when they have found
/// mistakes.
class RankChild {
 public:
  explicit RankChild(const std::function<int()>& body)
      : child_([&]() -> int {
          const int code = body();
          if (code == kRight) std::exit(kRight);  // not _exit
          return code;
        }) {}
  int wait() { return child_.wait(); }
  void kill_hard() const noexcept { child_.kill_hard(); }

 private:
  ChildProcess child_;
};

int says(const Status& status, Code code, const std::string& words) {
  if (status.code() == code && status.text().find(words) != std::string_view::npos) return kRight;
  std::fprintf(stderr, "it ended with %s: %s\n", std::string{name_of(status.code())}.c_str(),
               std::string{status.text()}.c_str());
  return kWrongEnd;
}

int sum_with_others(RankProcess& self, float own, float expected) {
  const Memory data = self.floats(std::vector<float>(40000, own));
  self.communicator->all_reduce(*self.stream, data);
  if (!self.end().ok()) return kWrongEnd;
  const auto* const found = reinterpret_cast<const float*>(self.space.address(data));
  return std::all_of(found, found + 40000, [expected](float value) { return value == expected; }) ? kRight : kWrongSum;
}

TEST(NcclFailures, AKilledRankLeavesAHangThatAbortEnds) {
  const SharedMeeting meeting;
  const auto survivor = [&](std::uint32_t rank) {
    return [&meeting, rank]() -> int {
      RankProcess self{*meeting, rank, 3};
      self.connect();
      self.wait_for(2);
      self.communicator->broadcast(*self.stream, self.floats(std::vector<float>(1 << 18)), Rank{2});
      // All that the dead rank had sent has come, and nothing ends by itself.
      const Timeline& progress = self.space.timeline(meeting->members[rank].progress);
      if (!eventually([&] { return progress.value() % 2 == 1; })) return kWrongEnd;
      const std::uint64_t stands = progress.value();
      const Point point = self.stream->mark();
      const Status early = self.space.timeline(point.line)
                               .wait(self.blocking, point.value, Deadline::after(std::chrono::milliseconds{150}), "it");
      if (early.code() != Code::timeout || progress.value() != stands) return kTooEarly;
      ++meeting->step;
      self.wait_for(4);  // the other has seen the same
      self.communicator->abort({Code::peer_lost, "rank 2 was killed"});
      return says(self.end(), Code::peer_lost, "rank 2 was killed");
    };
  };
  RankChild first{survivor(0)}, second{survivor(1)};
  RankChild victim{[&meeting]() -> int {
    RankProcess self{*meeting, 2, 3};
    self.connect();
    self.communicator->broadcast(*self.stream, self.floats(std::vector<float>(1 << 18)), Rank{2});
    const Timeline& progress = self.space.timeline(meeting->members[2].progress);
    RankProcess::must(eventually([&] { return progress.value() == 1; }));
    self.come_to(1);
    return says(self.end(), Code::ok, "");
  }};
  ASSERT_TRUE(eventually([&] { return meeting->step == 1; }, kPatience));
  victim.kill_hard();
  EXPECT_EQ(victim.wait(), 128 + SIGKILL);
  meeting->step = 2;
  EXPECT_EQ(first.wait(), kRight);
  EXPECT_EQ(second.wait(), kRight);
}

TEST(NcclFailures, AnErrorThatNcclFindsInTheBackgroundEndsAllRanks) {
  const SharedMeeting meeting;
  const auto rank = [&](std::uint32_t number, const char* faults) {
    return [&meeting, number, faults]() -> int {
      RankProcess self{*meeting, number, 2, faults};
      self.connect();
      if (const int code = sum_with_others(self, 1.0F + static_cast<float>(number), 3.0F); code != kRight) return code;
      for (int i = 0; i < 40; ++i) self.communicator->barrier(*self.stream);
      return says(self.end(), Code::peer_lost, "remote process exited or there was a network error");
    };
  };
  RankChild healthy{rank(0, "")};
  RankChild failing{rank(1, "nccl_collective:30=nccl_remote_error")};
  EXPECT_EQ(failing.wait(), kRight);
  EXPECT_EQ(healthy.wait(), kRight);
}

TEST(NcclFailures, ARankEndsAtItsDeadlineWhereTheEndOfNcclNeverReturns) {
  const SharedMeeting meeting;
  RankChild rank{[&]() -> int {
    RankProcess self{
        *meeting, 0, 2, "ncclCommAbort=nccl_in_progress", {.call_deadline = std::chrono::milliseconds{200}}};
    self.connect();
    return sum_with_others(self, 1, 3);
  }};
  RankChild other{[&]() -> int {
    RankProcess self{*meeting, 1, 2};
    self.connect();
    return sum_with_others(self, 2, 3);
  }};
  EXPECT_EQ(rank.wait(), kRight);
  EXPECT_EQ(other.wait(), kRight);
}

TEST(NcclFailures, ACallThatNcclRefusesEndsTheStream) {
  const SharedMeeting meeting;
  const auto rank = [&](std::uint32_t number, const char* faults, const char* words) {
    return [&meeting, number, faults, words]() -> int {
      RankProcess self{*meeting, number, 2, faults};
      self.connect();
      for (int i = 0; i < 4; ++i) self.communicator->barrier(*self.stream);
      return says(self.end(), number == 0 ? Code::device_fault : Code::peer_lost, words);
    };
  };
  RankChild failing{rank(0, "ncclAllGather:3=nccl_internal_error", "a collective: internal error")};
  RankChild other{rank(1, "", "rank 0")};
  EXPECT_EQ(failing.wait(), kRight);
  EXPECT_EQ(other.wait(), kRight);
}

TEST(NcclFailures, ACallThatCannotBeRecordedEndsTheStream) {
  const SharedMeeting meeting;
  const auto rank = [&](std::uint32_t number, const char* faults) {
    return [&meeting, number, faults]() -> int {
      Programs programs;
      RankProcess self{*meeting, number, 2, faults};
      self.connect();
      // Enqueued as it is, then recorded; the next time the failing rank does not come.
      for (int i = 0; i < 2; ++i) self.stream->enqueue(programs, [&] { self.communicator->barrier(*self.stream); });
      const Status status = self.end();
      programs = {};
      return says(status, number == 0 ? Code::device_fault : Code::peer_lost,
                  number == 0 ? "internal error" : "rank 0");
    };
  };
  RankChild failing{rank(0, "ncclAllGather:2=nccl_internal_error")};
  RankChild other{rank(1, "")};
  EXPECT_EQ(failing.wait(), kRight);
  EXPECT_EQ(other.wait(), kRight);
}

TEST(NcclFailures, NcclThatCannotStartSaysWhy) {
  const SharedMeeting meeting;
  const auto rank = [&](std::uint32_t number) {
    return [&meeting, number]() -> int {
      Status status;
      try {
        const RankProcess self{*meeting, number, 2, "ncclCommInitRankConfig=nccl_system_error"};
      } catch (const Error& error) {
        status = error.status();
      }
      ++meeting->step;
      RankProcess::must(eventually([&] { return meeting->step == 2; }));
      return says(status, Code::environment, "NCCL, connecting: unhandled system error");
    };
  };
  RankChild first{rank(0)}, second{rank(1)};
  EXPECT_EQ(first.wait(), kRight);
  EXPECT_EQ(second.wait(), kRight);
}

TEST(NcclFailures, ARankThatNobodyJoinsSaysSoAtItsDeadline) {
  const SharedMeeting meeting;
  meeting->is_here[1] = false;
  RankChild absent{[&meeting]() -> int {
    const auto arena = Arena::create(arena_id(Peer{1}, 1), 1 << 16);
    meeting->tickets[1] = arena->ticket();
    meeting->members[1] = {arena->make_timeline(), arena->make_timeline()};
    meeting->is_here[1] = true;
    return eventually([&] { return meeting->step == 1; }, kPatience) ? kRight : kWrongEnd;
  }};
  RankChild alone{[&meeting]() -> int {
    RankProcess self{*meeting, 0, 2};
    Status status;
    try {
      self.connect(std::chrono::milliseconds{100});
    } catch (const Error& error) {
      status = error.status();
    }
    self.come_to(1);
    return says(status, Code::timeout, "rank 0 waited for NCCL to connect 2 ranks");
  }};
  EXPECT_EQ(alone.wait(), kRight);
  EXPECT_EQ(absent.wait(), kRight);
}

}  // namespace
}  // namespace troupe
