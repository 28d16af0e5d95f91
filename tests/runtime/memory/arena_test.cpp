#include "runtime/memory/arena.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/base/thread_affinity.hpp"
#include "runtime/memory/memory_binding.hpp"
#include "tests/support/child_process.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;

constexpr ArenaId kId = arena_id(Peer{0}, 1);

/// The error of a call; ok if there is none.
Status error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.status();
  }
  return {};
}

/// A file with an arena's size and first page, and the seals asked for.
class Imitation {
 public:
  Imitation(const Arena& arena, int seals) : fd_(memfd_create("imitation", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(arena.size_bytes())), 0);
    EXPECT_EQ(pwrite(fd_, arena.base(), Arena::kPageBytes, 0), static_cast<ssize_t>(Arena::kPageBytes));
    EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, seals), 0);
  }
  ~Imitation() { close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

TEST(Arena, GivesZeroedAlignedMemoryThatDoesNotOverlap) {
  const auto arena = Arena::create(kId, 1 << 16);
  const Memory a = arena->allocate(100);
  const Memory b = arena->allocate(1, 4096);
  const Memory c = arena->allocate(64);
  EXPECT_EQ(a.offset % 64, 0u);
  EXPECT_EQ(b.offset % 4096, 0u);
  EXPECT_GE(a.offset, Arena::kPageBytes);
  EXPECT_GE(b.offset, a.offset + a.size_bytes);
  EXPECT_GE(c.offset, b.offset + b.size_bytes);
  for (std::uint64_t i = 0; i < a.size_bytes; ++i) EXPECT_EQ(arena->base()[a.offset + i], std::byte{0});
}

/// Records its calls, and how many pages existed at each.
class Recorder final : public MemoryBinding {
 public:
  const std::vector<std::uint32_t>& nodes() const noexcept override { return nodes_; }
  void bind(std::byte* base, std::uint64_t size_bytes) noexcept override {
    std::vector<unsigned char> there(size_bytes / Arena::kPageBytes);
    EXPECT_EQ(mincore(base, size_bytes, there.data()), 0);
    pages_before += static_cast<std::uint64_t>(
        std::count_if(there.begin(), there.end(), [](unsigned char page) { return (page & 1) != 0; }));
    bytes.push_back(size_bytes);
  }
  void bind_thread(bool) noexcept override {}
  void release_thread() noexcept override {}
  std::map<std::uint32_t, std::uint64_t> locate(const std::byte*, std::uint64_t, std::size_t) const noexcept override {
    return {};
  }
  std::string refusal() const override { return {}; }

  std::vector<std::uint64_t> bytes;
  std::uint64_t pages_before = 0;

 private:
  std::vector<std::uint32_t> nodes_;
};

TEST(Arena, IsBoundBeforeItsFirstPageIsThere) {
  Recorder binding;
  const auto arena = Arena::create(kId, 1 << 16, &binding);
  EXPECT_THAT(binding.bytes, ::testing::ElementsAre(arena->size_bytes()));
  EXPECT_EQ(binding.pages_before, 0u);
}

TEST(Arena, OfAnAddressSpaceIsBoundAsTheSpaceSays) {
  Recorder binding;
  AddressSpace space;
  space.place(&binding, {});
  const auto arena = space.make_arena(kId, 1 << 16);
  EXPECT_THAT(binding.bytes, ::testing::ElementsAre(arena->size_bytes()));
  EXPECT_EQ(&space.arena(kId), arena.get());
}

struct Nobody final : Waker {
  void reached(Point, Status) noexcept override {}
};

TEST(Arena, HasItsLinesWatchedOnTheCpusThatTheSpaceWasGiven) {
  const std::vector<std::uint32_t> usable = usable_cpus();
  if (usable.size() < 2) GTEST_SKIP() << "this process may use one CPU alone";
  AddressSpace space;
  space.place(nullptr, {usable.back()});
  Timeline& line = space.timeline(space.make_arena(kId, 1 << 16)->make_timeline());
  Nobody nobody;
  {
    const ThreadAffinity affinity(std::vector{usable.front()});  // as a lane's thread has one of its own
    line.wake(1, nobody);
  }
  const auto is_watched_there = [&] {  // once the thread has named and moved itself
    return std::ranges::any_of(threads_of_process(), [&](const ThreadOnCpus& thread) {
      return thread.name == "troupe-lines" && thread.cpus == std::vector{usable.back()};
    });
  };
  EXPECT_TRUE(testing::eventually(is_watched_there));
  line.signal(1);
}

TEST(Arena, HoldsAllThatWasAskedForBesideItsDirectory) {
  const auto arena = Arena::create(kId, 3 * 4096);
  EXPECT_EQ(arena->size_bytes(), 4 * 4096u);
  EXPECT_EQ(arena->allocate(3 * 4096).offset, Arena::kPageBytes);
}

TEST(Arena, SaysHowMuchIsLeftWhenItIsFull) {
  const auto arena = Arena::create(kId, 4096);
  arena->allocate(4000);
  const Status full = error_of([&] { arena->allocate(1000); });
  EXPECT_EQ(full.code(), Code::out_of_memory);
  EXPECT_THAT(std::string{full.text()}, HasSubstr("1000 bytes are wanted, 64 of 4096 are left"));
  EXPECT_EQ(error_of([&] { arena->allocate(~std::uint64_t{0}); }).code(), Code::out_of_memory);
}

TEST(Arena, RefusesAnAlignmentThatAMappingCannotKeep) {
  const auto arena = Arena::create(kId, 4096);
  EXPECT_EQ(error_of([&] { arena->allocate(64, 8192); }).code(), Code::invalid);
  EXPECT_EQ(error_of([&] { arena->allocate(64, 96); }).code(), Code::invalid);
}

TEST(Arena, RefusesMoreMemoryThanTheMachineHasAndNamesTheLimit) {
  const Status refused = error_of([] { Arena::create(kId, std::uint64_t{1} << 38); });
  EXPECT_EQ(refused.code(), Code::out_of_memory);
  EXPECT_THAT(std::string{refused.text()}, HasSubstr("bytes are left by"));
  EXPECT_EQ(error_of([] { Arena::create(kId, ~std::uint64_t{0}); }).code(), Code::out_of_memory);
}

TEST(Arena, IsFoundByNameInAnotherMapping) {
  const auto arena = Arena::create(kId, 1 << 16);
  const Memory part = arena->allocate(1000);
  const TimelineId line = arena->make_timeline();
  arena->publish("gradients", part);
  arena->publish("nineteen-characters", line);
  const auto peer = Arena::open(arena->ticket());
  EXPECT_EQ(peer->id(), kId);
  EXPECT_EQ(peer->find("gradients"), part);
  EXPECT_EQ(peer->find_timeline("nineteen-characters"), line);
  EXPECT_EQ(peer->find("parameters"), std::nullopt);
  std::memset(arena->base() + part.offset, 7, part.size_bytes);
  EXPECT_EQ(peer->base()[part.offset + 999], std::byte{7});
}

TEST(Arena, TellsItsTimelinesFromOtherBytes) {
  const auto arena = Arena::create(kId, 1 << 16);
  const Memory numbers = arena->allocate(8 * sizeof(TimelineWord), sizeof(TimelineWord));
  const TimelineId first = arena->make_timelines(2);
  const auto other = Arena::open(arena->ticket());
  std::fill_n(reinterpret_cast<float*>(arena->base() + numbers.offset), numbers.size_bytes / sizeof(float), 0.7F);
  const auto line = [&](std::uint64_t index) { return TimelineId{kId, static_cast<std::uint32_t>(index)}; };
  for (const auto& mapped : {arena, other}) {
    EXPECT_TRUE(mapped->has_timeline(first));
    EXPECT_TRUE(mapped->has_timeline(line(first.index + 1)));
    EXPECT_FALSE(mapped->has_timeline(line(first.index + 2)));
    EXPECT_FALSE(mapped->has_timeline(line(numbers.offset / sizeof(TimelineWord) + 3)));
    EXPECT_FALSE(mapped->has_timeline(line(0))) << "the directory";
    EXPECT_FALSE(mapped->has_timeline(line(arena->size_bytes() / sizeof(TimelineWord))));
    EXPECT_FALSE(mapped->has_timeline({ArenaId{0}, first.index}));
  }
}

TEST(Arena, NamesPartsOfItsCreatorsOtherMemoryToo) {
  const auto arena = Arena::create(arena_id(Peer{3}, 1), 1 << 16);
  const Memory elsewhere{arena_id(Peer{3}, 2), 640, 1000}, strangers{arena_id(Peer{4}, 2), 640, 1000};
  arena->publish("parameters", elsewhere);
  EXPECT_EQ(Arena::open(arena->ticket())->find("parameters"), elsewhere);
  EXPECT_EQ(error_of([&] { arena->publish("theirs", strangers); }).code(), Code::invalid);
  auto* const of = reinterpret_cast<std::uint32_t*>(arena->base() + 96 + 20);
  ASSERT_EQ(*of, elsewhere.arena.value);
  *of = strangers.arena.value;
  EXPECT_EQ(error_of([&] { arena->find("parameters"); }).code(), Code::corrupt);
  *of = 0;
  EXPECT_EQ(error_of([&] { arena->find("parameters"); }).code(), Code::corrupt);
}

TEST(Arena, RefusesNamesItCannotKeep) {
  const auto arena = Arena::create(kId, 1 << 16);
  const Memory part = arena->allocate(64);
  arena->publish("once", part);
  EXPECT_EQ(error_of([&] { arena->publish("once", part); }).code(), Code::invalid);
  EXPECT_EQ(error_of([&] { arena->publish("", part); }).code(), Code::invalid);
  EXPECT_EQ(error_of([&] { arena->publish("a name of 20 letters", part); }).code(), Code::invalid);
  EXPECT_EQ(error_of([&] { arena->publish("elsewhere", Memory{kId, 1 << 16, 8192}); }).code(), Code::invalid);
  for (std::size_t i = 1; i < Arena::kMaxNames; ++i) arena->publish(text("part ", i), part);
  EXPECT_EQ(error_of([&] { arena->publish("one too many", part); }).code(), Code::invalid);
  EXPECT_TRUE(arena->find("part 99").has_value());
}

TEST(Arena, OnlyItsCreatorGivesOutMemoryNamesAndTickets) {
  const auto arena = Arena::create(kId, 1 << 16);
  const auto peer = Arena::open(arena->ticket());
  EXPECT_EQ(error_of([&] { peer->allocate(64); }).code(), Code::invalid);
  EXPECT_EQ(error_of([&] { peer->make_timeline(); }).code(), Code::invalid);
  EXPECT_EQ(error_of([&] { peer->publish("x", Memory{kId, 4096, 64}); }).code(), Code::invalid);
  EXPECT_EQ(error_of([&] { peer->ticket(); }).code(), Code::invalid);
}

TEST(Arena, CannotBeGrownNorShrunk) {
  const auto arena = Arena::create(kId, 1 << 16);
  EXPECT_EQ(ftruncate(arena->ticket().fd, 4096), -1);
  EXPECT_EQ(ftruncate(arena->ticket().fd, 1 << 20), -1);
}

TEST(Arena, RefusesATicketWithAnotherNonce) {
  const auto arena = Arena::create(kId, 4096);
  ArenaTicket ticket = arena->ticket();
  ticket.nonce ^= 1;
  EXPECT_EQ(error_of([&] { Arena::open(ticket); }).code(), Code::corrupt);
}

TEST(Arena, RefusesATicketWithAnotherIdOrSize) {
  const auto arena = Arena::create(kId, 4096);
  ArenaTicket other_id = arena->ticket();
  other_id.id.value += 1;
  EXPECT_EQ(error_of([&] { Arena::open(other_id); }).code(), Code::corrupt);
  for (const std::uint64_t size : {std::uint64_t{4096}, std::uint64_t{3 * 4096}, ~std::uint64_t{0}}) {
    ArenaTicket ticket = arena->ticket();
    ticket.size_bytes = size;
    EXPECT_EQ(error_of([&] { Arena::open(ticket); }).code(), Code::corrupt) << size;
  }
}

TEST(Arena, RefusesAFileThatIsNotSealedAgainstChangeOfSize) {
  const auto arena = Arena::create(kId, 4096);
  const auto code_with = [&](int seals) {
    const Imitation file{*arena, seals};
    ArenaTicket ticket = arena->ticket();
    ticket.fd = file.fd();
    return error_of([&] { Arena::open(ticket); }).code();
  };
  EXPECT_EQ(code_with(F_SEAL_SHRINK | F_SEAL_SEAL), Code::corrupt);
  EXPECT_EQ(code_with(F_SEAL_GROW | F_SEAL_SEAL), Code::corrupt);
  EXPECT_EQ(code_with(F_SEAL_SHRINK | F_SEAL_GROW), Code::corrupt);
  EXPECT_EQ(code_with(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), Code::ok);  // nothing else was wrong with it
}

TEST(Arena, RefusesADescriptorThatIsSomethingElse) {
  const auto arena = Arena::create(kId, 4096);
  const auto other = Arena::create(kId, 4096);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  for (const int fd : {ends[0], ends[1], other->ticket().fd}) {
    ArenaTicket ticket = arena->ticket();
    ticket.fd = fd;
    EXPECT_EQ(error_of([&] { Arena::open(ticket); }).code(), Code::corrupt);
  }
  close(ends[0]);
  close(ends[1]);
}

TEST(Arena, CannotBeReachedFromAnotherHostOrPidNamespace) {
  const auto arena = Arena::create(kId, 4096);
  ArenaTicket host = arena->ticket();
  host.boot_id.fill('f');
  EXPECT_EQ(error_of([&] { Arena::open(host); }).code(), Code::environment);
  ArenaTicket space = arena->ticket();
  space.pid_namespace += 1;
  EXPECT_EQ(error_of([&] { Arena::open(space); }).code(), Code::environment);
}

TEST(Arena, OfAProcessThatEndedCannotBeReached) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ChildProcess child{[&] {
    const ArenaTicket ticket = Arena::create(kId, 4096)->ticket();
    return write(ends[1], &ticket, sizeof ticket) == sizeof ticket ? 0 : 1;
  }};
  ArenaTicket ticket;
  ASSERT_EQ(read(ends[0], &ticket, sizeof ticket), static_cast<ssize_t>(sizeof ticket));
  ASSERT_EQ(child.wait(), 0);
  EXPECT_EQ(error_of([&] { Arena::open(ticket); }).code(), Code::environment);
  close(ends[0]);
  close(ends[1]);
}

TEST(Arena, IsSharedWithAProcessThatOpensItsTicket) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ChildProcess child{[&] {
    ArenaTicket ticket;
    if (read(ends[0], &ticket, sizeof ticket) != sizeof ticket) return 1;
    AddressSpace space;
    space.map(Arena::open(ticket));
    const Arena& arena = space.arena(ticket.id);
    *space.address_of<std::uint64_t>(arena.find("answer").value()) = 42;
    space.timeline(arena.find_timeline("done").value()).signal(1);
    return 0;
  }};
  AddressSpace space;
  const auto arena = Arena::create(kId, 4096);  // after the fork: the child inherits nothing
  space.map(arena);
  const Memory answer = arena->allocate(8);
  const TimelineId done = arena->make_timeline();
  arena->publish("answer", answer);
  arena->publish("done", done);
  const ArenaTicket ticket = arena->ticket();
  ASSERT_EQ(write(ends[1], &ticket, sizeof ticket), static_cast<ssize_t>(sizeof ticket));
  Blocking blocking = Blocking::on_thread("test");
  const Status status = space.timeline(done).wait(blocking, 1, Deadline::after(std::chrono::seconds{10}), "the child");
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(*space.address_of<std::uint64_t>(answer), 42u);
  EXPECT_EQ(child.wait(), 0);
  close(ends[0]);
  close(ends[1]);
}

/// Writes what a peer should never write into a directory, and looks names up from another mapping.
TEST(Arena, BelievesNothingInADirectoryThatAPeerSpoiled) {
  const auto arena = Arena::create(kId, 4096);
  arena->publish("part", arena->allocate(64));
  const auto peer = Arena::open(arena->ticket());
  auto* const count = reinterpret_cast<std::uint32_t*>(arena->base() + 36);
  auto* const entry = reinterpret_cast<std::uint64_t*>(arena->base() + 96 + 24);  // offset, size
  ASSERT_EQ(*count, 1u);
  ASSERT_EQ(entry[1], 64u);
  entry[0] = arena->size_bytes();
  EXPECT_EQ(error_of([&] { peer->find("part"); }).code(), Code::corrupt);
  entry[0] = 4096;
  entry[1] = ~std::uint64_t{0};
  EXPECT_EQ(error_of([&] { peer->find("part"); }).code(), Code::corrupt);
  entry[1] = 64;
  EXPECT_TRUE(peer->find("part").has_value());
  EXPECT_EQ(error_of([&] { peer->find_timeline("part"); }).code(), Code::corrupt);
  *count = 101;
  EXPECT_EQ(error_of([&] { peer->find("part"); }).code(), Code::corrupt);
}

TEST(Arena, LeavesNoDescriptorBehind) {
  const int before = dup(0);
  close(before);
  { const auto peer = Arena::open(Arena::create(kId, 4096)->ticket()); }
  const int after = dup(0);
  close(after);
  EXPECT_EQ(before, after);
}

TEST(AddressSpace, ResolvesMemoryOfTheArenasItMapped) {
  AddressSpace space;
  const auto arena = Arena::create(kId, 4096);
  space.map(arena);
  const Memory part = arena->allocate(64);
  EXPECT_EQ(space.address(part), arena->base() + part.offset);
  EXPECT_EQ(&space.arena(kId), arena.get());
  EXPECT_EQ(error_of([&] { space.address(Memory{kId, 4096, 4097}); }).code(), Code::invalid);
  EXPECT_EQ(error_of([&] { space.address(Memory{kId, ~std::uint64_t{0}, 2}); }).code(), Code::invalid);
  EXPECT_EQ(error_of([&] { space.address(Memory{arena_id(Peer{1}, 1), 0, 1}); }).code(), Code::invalid);
}

TEST(AddressSpace, MapsManyArenasOnceEach) {
  AddressSpace space;
  std::vector<std::shared_ptr<Arena>> arenas;
  for (std::uint32_t peer = 0; peer < 20; ++peer) {
    for (std::uint32_t running = 0; running < 3; ++running) {
      arenas.push_back(Arena::create(arena_id(Peer{peer}, running), 4096));
      space.map(arenas.back());
    }
  }
  for (const auto& arena : arenas) EXPECT_EQ(&space.arena(arena->id()), arena.get());
  EXPECT_EQ(error_of([&] { space.map(arenas.front()); }).code(), Code::invalid);
}

TEST(AddressSpace, ResolvesMemoryThatWasBoundToAnIdAndKnowsItsKind) {
  AddressSpace space;
  std::array<std::byte, 256> bytes{};
  space.bind({ArenaId{9}, bytes.data(), bytes.size(), MemoryKind::pinned});
  EXPECT_EQ(space.address({ArenaId{9}, 64, 192}), bytes.data() + 64);
  EXPECT_EQ(space.kind(ArenaId{9}), MemoryKind::pinned);
  EXPECT_THROW(space.address({ArenaId{9}, 64, 193}), Error);
  EXPECT_THROW(space.arena(ArenaId{9}), Error) << "it has no directory";
  EXPECT_THROW(space.timeline({ArenaId{9}, 1}), Error) << "nor lines";
  EXPECT_THROW(space.bind({ArenaId{9}, bytes.data(), bytes.size()}), Error) << "the id is taken";
  EXPECT_THROW(space.bind({ArenaId{10}, nullptr, 64}), Error);
  EXPECT_THROW(space.kind(ArenaId{11}), Error);
}

/// Mappings of arenas in this process.
std::size_t count_mappings() {
  std::ifstream maps{"/proc/self/maps"};
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("/memfd:") != std::string::npos ? 1 : 0;
  return count;
}

TEST(AddressSpace, ForgetsAnArenaThatIsUnmappedWithItsMemoryAndItsLines) {
  Blocking blocking = Blocking::on_thread("test");
  AddressSpace space;
  const std::size_t before = count_mappings();
  TimelineId line;
  {
    const auto arena = Arena::create(kId, 4096);
    space.map(arena);
    line = arena->make_timeline();
    space.timeline(line).signal(3);
    EXPECT_GT(count_mappings(), before);
  }
  EXPECT_TRUE(space.unmap(blocking, kId));
  EXPECT_EQ(count_mappings(), before);
  EXPECT_EQ(error_of([&] { space.address(Memory{kId, 0, 1}); }).code(), Code::invalid);
  EXPECT_EQ(error_of([&] { space.timeline(line); }).code(), Code::invalid);
  EXPECT_FALSE(space.unmap(blocking, kId)) << "it is not there any more";
}

TEST(AddressSpace, TellsWakersOfAnUnmappedLineAndLeavesTheOthersAlone) {
  struct Noted final : Waker {
    void reached(Point, Status status) noexcept override { told = status.code(); }
    std::atomic<std::optional<Code>> told{};  // by the thread that watches lines
  };
  Blocking blocking = Blocking::on_thread("test");
  Noted of_one, of_other;
  AddressSpace space;
  const auto one = Arena::create(arena_id(Peer{0}, 1), 4096);
  const auto other = Arena::create(arena_id(Peer{0}, 2), 4096);
  space.map(one);
  space.map(other);
  space.timeline(one->make_timeline()).wake(1, of_one);
  const TimelineId stays = other->make_timeline();
  space.timeline(stays).wake(1, of_other);
  EXPECT_TRUE(space.unmap(blocking, one->id()));
  EXPECT_EQ(of_one.told.load(), Code::aborted);
  EXPECT_EQ(of_other.told.load(), std::nullopt);
  AddressSpace theirs;
  theirs.map(Arena::open(other->ticket()));
  theirs.timeline(stays).signal(1);
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  EXPECT_TRUE(space.timeline(stays).wait(blocking, 1, deadline, "the signal").ok());
}

TEST(AddressSpace, MapsAndUnmapsAnyNumberOfArenasOneAfterTheOther) {
  Blocking blocking = Blocking::on_thread("test");
  AddressSpace space;
  const auto stays = Arena::create(arena_id(Peer{7}, 1), 4096);
  space.map(stays);
  for (int i = 0; i < 5000; ++i) {  // five times as many as there are places
    const ArenaId id = space.new_arena(Peer{3});
    space.bind({id, stays->base(), 4096, MemoryKind::pinned});
    ASSERT_EQ(space.address({id, 64, 8}), stays->base() + 64);
    ASSERT_EQ(&space.arena(stays->id()), stays.get());
    ASSERT_TRUE(space.unmap(blocking, id));
  }
}

TEST(AddressSpace, NamesNoArenaTwiceAndSaysWhenThereAreNoNamesLeft) {
  AddressSpace space;
  const std::uint32_t all = space.arenas_left();
  EXPECT_EQ(all, 65'280u);
  ArenaId last;
  for (std::uint32_t i = 0; i < all; ++i) {
    const ArenaId id = space.new_arena(Peer{3});
    ASSERT_GT(id, last);
    ASSERT_EQ(creator_of(id), Peer{3});
    last = id;
  }
  EXPECT_EQ(space.arenas_left(), 0u);
  EXPECT_EQ(error_of([&] { (void)space.new_arena(Peer{3}); }).code(), Code::unsupported);
}

TEST(AddressSpace, KeepsALineOfItsOwnUntilItsOwnerHasEndedAndItIsCleared) {
  AddressSpace space;
  TimelineId id;
  {
    const PrivateTimeline own{space};
    id = own.id();
    own.line().signal(2);
  }
  EXPECT_EQ(space.timeline(id).value(), 2u) << "somebody may still return from a wait";
  space.clear_ended();
  EXPECT_EQ(error_of([&] { space.timeline(id); }).code(), Code::invalid);
}

TEST(AddressSpace, GivesTheSameLineForOneIdAlways) {
  AddressSpace space;
  const auto arena = Arena::create(kId, 4096);
  space.map(arena);
  const TimelineId shared = arena->make_timeline();
  const TimelineId own = space.make_private_timeline();
  EXPECT_NE(own, space.make_private_timeline());
  EXPECT_EQ(&space.timeline(shared), &space.timeline(shared));
  EXPECT_EQ(&space.timeline(own), &space.timeline(own));
  EXPECT_EQ(space.timeline(shared).id(), shared);
}

TEST(AddressSpace, RefusesLinesItCannotReach) {
  AddressSpace space;
  const auto arena = Arena::create(kId, 4096);
  space.map(arena);
  EXPECT_EQ(error_of([&] { space.timeline({kId, 0}); }).code(), Code::invalid);  // the directory
  EXPECT_EQ(error_of([&] { space.timeline({kId, 64}); }).code(), Code::invalid);
  EXPECT_EQ(error_of([&] { space.timeline({ArenaId{9}, 40}); }).code(), Code::invalid);
  EXPECT_EQ(error_of([&] { space.timeline({ArenaId{0}, 0}); }).code(), Code::invalid);
}

TEST(AddressSpace, NamesALineThatWasBoundUntilItIsUnbound) {
  AddressSpace space;
  AddressSpace other;
  const TimelineId id = space.make_private_timeline();
  Timeline& line = other.timeline(other.make_private_timeline());
  ASSERT_EQ(line.id(), id);
  space.bind(line);
  EXPECT_EQ(&space.timeline(id), &line);
  EXPECT_EQ(error_of([&] { space.bind(line); }).code(), Code::invalid);
  space.unbind(id);
  EXPECT_NE(&space.timeline(id), &line);
}

}  // namespace
}  // namespace troupe::testing
