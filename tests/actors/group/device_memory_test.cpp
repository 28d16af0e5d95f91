#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <caf/scoped_actor.hpp>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>

#include "actors/caf_error.hpp"
#include "runtime/compute/host_copies.hpp"
#include "tests/actors/group/group_world.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/process.hpp"
#include "tests/transports/bootstrap_ranks.hpp"
#include "tools/crew/measured_process.hpp"
#include "transports/ucx/ucx_transport.hpp"

// Tensors in a GPU's memory as messages between processes: what arrives is the sender's memory itself, or a copy of it
// in host memory where the receiver does not reach that.
namespace troupe::test {
namespace {

using Read = caf::atom_constant<caf::atom("read")>;  // (Read, tensor): answered with the sum of its numbers
using Lend = caf::atom_constant<caf::atom("lend")>;  // answered with a tensor whose point is never reached

using Give = caf::atom_constant<caf::atom("give")>;    // (Give, count): answered with a tensor of 0, 1, ...
using Note = caf::atom_constant<caf::atom("note")>;    // (Note, number [, tensor]): counted, order and content checked
using Noted = caf::atom_constant<caf::atom("noted")>;  // how many notes, and how many of them were wrong

constexpr std::uint64_t kCount = 1000;
constexpr std::uint64_t kBytes = kCount * sizeof(float);
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kSlotsBytes = 4 * kMiB;  // the least
constexpr std::uint64_t kApartBytes = 12 * kMiB;

/// The sum that read() finds for 0, 1, ..., as text.
std::string sum_of(std::uint64_t count) {
  double sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) sum += static_cast<float>(i);
  return std::to_string(sum);
}

/// Which memory of a GPU a process has, and whether others import it.
struct Gpu {
  std::optional<std::uint32_t> ordinal;  // nothing: none
  bool apart = false;                    // the group does not know of its memory: nobody imports it, or the others'
};

/// A process of the group, with memory of a GPU, if it has one. Its parts end in the opposite order.
struct GpuEnd {
  AddressSpace space;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  GroupConfig config;
  caf::actor_system system{config};
  std::unique_ptr<Group> group;
  std::optional<HostCopies> copies;
  Memory memory;

  GpuEnd(Blocking& blocking, LaunchPlace place, Gpu gpu) {
    if (gpu.ordinal)
      device = make_cuda_device(
          space, {.ordinal = *gpu.ordinal, .wait_deadline = kLong, .products = "own", .convolutions = "own"});
    const Peer self{place.rank};
    GroupOptions options;
    options.place = place;
    options.deadline = long_enough();
    options.hello.ucx_version = ucx_version();
    options.space = &space;
    options.arena_bytes = 1 << 20;
    options.remote.staging_bytes = kSlotsBytes;
    if (gpu.apart) {
      options.remote.device = device.get();
      memory = device->allocate(arena_id(self, 3), MemoryKind::device, kApartBytes);
    } else {
      options.device = device.get();
      options.device_bytes = 2 * kBytes;
    }
    options.make_transport = [](const TransportContext& context) {
      return crew::make_transport({.transport = "tcp", .device = "lo"}, context.space, context.self);
    };
    group = Group::join(blocking, system, std::move(options));
    if (!device) return;
    if (!gpu.apart) memory = group->device_memory();
    stream = device->stream();
    copies.emplace(*device, space, arena_id(group->self(), 1), kLong);
    // Once a stream waits, a driver may let a call that allocates or registers memory wait, too.
    device->prepare(std::array{group->arena().id()});
    copies->prepare();
  }
  ~GpuEnd() { stream.reset(); }

  /// Numbers in a part of this process's memory; they may be read from `from` on.
  Tensor tensor(std::uint64_t part, Point from, std::shared_ptr<const void> owner = nullptr) {
    return {at(part), {kCount}, DType::f32, from, std::move(owner), MemoryKind::device};
  }
  Memory at(std::uint64_t part) { return slice(memory, part * kBytes, kBytes); }
  /// The first `count` of 0, 1, ... in the memory that is apart.
  Tensor numbers_apart(std::uint64_t count, Point from = {}, std::shared_ptr<const void> owner = nullptr) {
    return {slice(memory, 0, count * sizeof(float)), {count}, DType::f32, from, std::move(owner), MemoryKind::device};
  }
  void fill(const Memory& with) {
    copies->write(with, [](std::span<std::byte> bytes) {
      const auto all = numbers<float>(bytes);
      std::iota(all.begin(), all.end(), 0.0F);
    });
  }
  Status reach(Blocking& blocking, Point point) {
    return space.timeline(point.line).wait(blocking, point.value, long_enough(), "a test's point");
  }
};

/// Waits in the GPU's stream for the numbers, and copies them. Without a GPU they have arrived in the host's memory.
Status read(Blocking& blocking, GpuEnd& end, const Tensor& tensor, double& sum) {
  const auto add = [&](std::span<const std::byte> bytes) {
    for (const float number : numbers<float>(bytes)) sum += number;
  };
  if (tensor.kind() == MemoryKind::host) {
    if (tensor.memory().size_bytes > 0) add({end.space.address(tensor.memory()), tensor.memory().size_bytes});
    return {};
  }
  end.stream->wait(tensor.valid_from());
  end.stream->copy(end.at(1), tensor.memory());
  if (const Status status = end.reach(blocking, end.stream->mark()); !status.ok()) return status;
  end.copies->read(end.at(1), add);
  return {};
}

/// The other process: its main thread is an actor, which may block.
int serve(Gpu gpu) {
  auto blocking = Blocking::on_thread("member");
  GpuEnd end(blocking, launch_place_from_environment().value(), gpu);
  const TimelineId line = end.group->arena().make_timeline();
  caf::scoped_actor self(end.system);
  end.group->publish("member", caf::actor(self));
  if (gpu.apart) end.fill(end.memory);
  std::uint64_t notes = 0, wrong = 0;
  bool going = true;
  self->receive_while(going)(
      [&](Read, const Tensor& tensor) {
        double sum = 0;
        const Status status = read(blocking, end, tensor, sum);
        return status.ok() ? std::to_string(sum) : text(status.text());
      },
      [&](Lend) {
        return end.tensor(0, {line, 1});
      },
      [&](Give, std::uint64_t count) { return end.numbers_apart(count); },
      [&](Note, std::uint64_t number) { wrong += number == notes++ ? 0 : 1; },
      [&](Note, std::uint64_t number, const Tensor& tensor) {
        double sum = 0;
        const bool right = number == notes++ && read(blocking, end, tensor, sum).ok();
        wrong += right && std::to_string(sum) == sum_of(tensor.extents()[0]) ? 0 : 1;
      },
      [&](Noted) { return caf::make_message(notes, wrong); }, [&](Go) { going = false; });
  return end.group->stop(blocking, long_enough()).clean() ? 0 : 1;
}

/// This process, peer 0, which has a GPU, and others that serve.
class DeviceMemory : public ::testing::Test {
 protected:
  void start(Gpu here, const std::vector<Gpu>& there, const std::vector<std::string>& run_by = {}) {
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX, over which processes exchange messages";
    const testing::Listener listener;
    const std::size_t size = there.size() + 1;
    for (std::size_t peer = 1; peer < size; ++peer) {
      const Gpu& gpu = there[peer - 1];
      if (gpu.ordinal && *gpu.ordinal >= gpu::count()) GTEST_SKIP() << "the driver shows " << gpu::count() << " GPU";
      testing::ProgramStart program{
          .arguments = {std::filesystem::read_symlink("/proc/self/exe"), "--member",
                        gpu.ordinal ? std::to_string(*gpu.ordinal) : "none", gpu.apart ? "apart" : "near"},
          .environment = {{"RANK", std::to_string(peer)},
                          {"WORLD_SIZE", std::to_string(size)},
                          {"LOCAL_RANK", std::to_string(peer)},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", std::to_string(listener.port())}},
          .unset = {"TROUPE_SECRET_FILE", "TROUPE_LISTEN_FD"}};
      if (!run_by.empty()) program.run_by(run_by);
      members.push_back(std::make_unique<testing::Program>(program));
    }
    LaunchPlace place = testing::rank_options(listener, 0, static_cast<std::uint32_t>(size)).place;
    place.secret.clear();
    end.emplace(blocking, place, here);
    for (std::uint32_t peer = 1; peer < size; ++peer)
      others.push_back(end->group->lookup(blocking, Peer{peer}, "member", long_enough()));
  }

  static std::string answer(caf::scoped_actor& self) {
    std::string found = "no answer";
    self->receive([&](std::string& text) { found = std::move(text); },
                  [&](caf::error& error) { found = text_of(from_caf(error)); },
                  caf::after(std::chrono::milliseconds(kLong)) >> [] {});
    return found;
  }
  void stop_all() {
    for (const caf::actor& other : others) caf::anon_send(other, Go::value);
    others.clear();
    const StopReport report = end->group->stop(blocking, long_enough());
    EXPECT_TRUE(report.clean()) << report.text();
    for (const auto& member : members) EXPECT_EQ(member->wait(kLong), 0) << member->out() << member->err();
  }
  void expect_down(const caf::actor& other) {
    caf::scoped_actor self(end->system);
    self->monitor(other);
    self->receive([](const caf::down_msg&) {},
                  caf::after(std::chrono::milliseconds(kLong)) >> [] { FAIL() << "it lives"; });
  }
  void expect_lost(Peer peer) {
    others.clear();
    const StopReport report = end->group->stop(blocking, long_enough());
    EXPECT_THAT(report.lost, ::testing::ElementsAre(peer)) << report.text();
  }

  Blocking blocking = Blocking::on_thread("test");
  std::vector<std::unique_ptr<testing::Program>> members;
  std::optional<GpuEnd> end;
  std::vector<caf::actor> others;
};

/// By the GPU of the other process.
class DeviceMemoryMessages : public DeviceMemory, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  void SetUp() override { start({0}, {{GetParam()}}); }
};

TEST_P(DeviceMemoryMessages, AreReadWhereTheyLieFromTheirPointOnAndGivenBackAfterwards) {
  const TimelineId line = end->group->arena().make_timeline(), gate = end->group->arena().make_timeline();
  end->fill(end->at(1));
  end->stream->wait({gate, 1});
  end->stream->copy(end->at(0), end->at(1));
  end->stream->signal({line, 1});
  std::atomic<bool> is_back{false};
  std::shared_ptr<const void> owner(&is_back, [&](const void*) { is_back = true; });
  caf::scoped_actor self(end->system);
  self->send(others[0], Read::value, end->tensor(0, {line, 1}, std::move(owner)));
  EXPECT_FALSE(is_back);
  end->space.timeline(gate).signal(1);  // only now the numbers are written
  EXPECT_EQ(answer(self), sum_of(kCount));
  EXPECT_TRUE(testing::becomes_true([&] { return is_back.load(); }, kLong));
  stop_all();
}

TEST_P(DeviceMemoryMessages, OfAKilledSenderEndTheWaitOfWhoReadsThem) {
  caf::scoped_actor self(end->system);
  Tensor lent;
  self->request(others[0], kLong, Lend::value)
      .receive([&](const Tensor& tensor) { lent = tensor; }, [](const caf::error&) { FAIL() << "no tensor"; });
  ASSERT_EQ(lent.kind(), MemoryKind::device);
  end->stream->wait(lent.valid_from());
  end->stream->copy(end->at(1), lent.memory());
  const Point behind = end->stream->mark();
  members[0]->signal(SIGKILL);
  expect_down(others[0]);
  end->space.timeline(lent.valid_from().line).poison({Code::peer_lost, "the sender is gone"});
  EXPECT_EQ(end->reach(blocking, behind).code(), Code::peer_lost);
  lent = {};
  expect_lost(Peer{1});
}

/// To a process that does not reach the sender's memory.
class DeviceMemoryCopies : public DeviceMemory, public ::testing::WithParamInterface<Gpu> {
 protected:
  void SetUp() override {
    start({0, true}, {GetParam()});
    if (end) end->fill(end->memory);
  }
  bool both_have_one() const { return GetParam().ordinal.has_value(); }
};

TEST_P(DeviceMemoryCopies, ArriveInTheHostsMemoryWhateverTheirSize) {
  caf::scoped_actor self(end->system);
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1001}, kMiB / 4, kMiB + 3}) {
    self->send(others[0], Read::value, end->numbers_apart(count));
    EXPECT_EQ(answer(self), sum_of(count)) << count;
  }
  stop_all();
}

TEST_P(DeviceMemoryCopies, AreMadeFromTheirPointOnAndThenGiveTheMemoryBack) {
  const TimelineId line = end->group->arena().make_timeline(), gate = end->group->arena().make_timeline();
  const std::uint64_t count = 3 * kMiB / 4;
  const Memory from = slice(end->memory, 0, 3 * kMiB), to = slice(end->memory, 6 * kMiB, 3 * kMiB);
  end->stream->wait({gate, 1});
  end->stream->copy(to, from);
  end->stream->signal({line, 1});
  std::atomic<bool> is_back{false};
  std::shared_ptr<const void> owner(&is_back, [&](const void*) { is_back = true; });
  caf::scoped_actor self(end->system);
  self->send(others[0], Read::value, Tensor(to, {count}, DType::f32, {line, 1}, std::move(owner), MemoryKind::device));
  EXPECT_FALSE(is_back);
  end->space.timeline(gate).signal(1);
  EXPECT_EQ(answer(self), sum_of(count));
  EXPECT_TRUE(testing::becomes_true([&] { return is_back.load(); }, kLong));
  end->stream->clear(to);  // nothing reads it any more
  EXPECT_TRUE(end->reach(blocking, end->stream->mark()).ok());
  stop_all();
}

TEST_P(DeviceMemoryCopies, GoBothWaysAtOnce) {
  const std::vector<std::uint64_t> counts{5, kMiB / 2 + 1, 3, kMiB, 300'000, 1};
  caf::scoped_actor self(end->system);
  for (const std::uint64_t count : counts) self->send(others[0], Read::value, end->numbers_apart(count));
  if (both_have_one()) {
    for (const std::uint64_t count : counts) self->send(others[0], Give::value, count);
  }
  for (const std::uint64_t count : counts) EXPECT_EQ(answer(self), sum_of(count));
  for (std::size_t i = 0; both_have_one() && i < counts.size(); ++i) {
    double sum = 0;
    self->receive([&](const Tensor& tensor) { EXPECT_TRUE(read(blocking, *end, tensor, sum).ok()); },
                  caf::after(std::chrono::milliseconds(kLong)) >> [] { FAIL() << "no tensor"; });
    EXPECT_EQ(std::to_string(sum), sum_of(counts[i]));
  }
  stop_all();
}

TEST_P(DeviceMemoryCopies, KeepTheirPlaceAmongOtherMessages) {
  constexpr std::uint64_t kNotes = 40;
  caf::scoped_actor self(end->system);
  for (std::uint64_t i = 0; i < kNotes; ++i) {
    if (i % 2 == 0)
      self->send(others[0], Note::value, i, end->numbers_apart(i % 8 == 0 ? kMiB / 2 + i : i));
    else
      self->send(others[0], Note::value, i);
  }
  self->request(others[0], kLong, Noted::value)
      .receive(
          [&](std::uint64_t notes, std::uint64_t wrong) {
            EXPECT_EQ(notes, kNotes);
            EXPECT_EQ(wrong, 0u);
          },
          [](const caf::error& error) { FAIL() << from_caf(error).text(); });
  stop_all();
}

TEST_P(DeviceMemoryCopies, ForAKilledReceiverEndAndGiveTheMemoryBack) {
  std::atomic<int> back{0};
  caf::scoped_actor self(end->system);
  self->send(others[0], Read::value, end->numbers_apart(1));
  EXPECT_EQ(answer(self), sum_of(1));
  for (int i = 0; i < 4; ++i) {
    self->send(others[0], Read::value, end->numbers_apart(2 * kMiB, {}, {&back, [&](const void*) { ++back; }}));
  }
  ASSERT_TRUE(
      testing::becomes_true([&] { return end->group->remote().counters(Peer{1}).bytes_sent > 4 * kMiB; }, kLong));
  members[0]->signal(SIGKILL);
  expect_down(others[0]);
  EXPECT_TRUE(testing::becomes_true([&] { return back == 4; }, kLong)) << back;
  expect_lost(Peer{1});
}

INSTANTIATE_TEST_SUITE_P(OtherProcess, DeviceMemoryMessages, ::testing::Values(0u, 1u),
                         [](const auto& info) { return info.param == 0 ? "OnTheSameGpu" : "OnAnotherGpu"; });
INSTANTIATE_TEST_SUITE_P(OtherProcess, DeviceMemoryCopies, ::testing::Values(Gpu{}, Gpu{0, true}),
                         [](const auto& info) { return info.param.ordinal ? "ApartOnTheSameGpu" : "WithoutAGpu"; });

class DeviceMemoryOfOthers : public DeviceMemory {};

TEST_F(DeviceMemoryOfOthers, IsCopiedBetweenPidNamespaces) {
  const std::vector<std::string> apart{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"};
  testing::ProgramStart probe{.arguments = {"true"}};
  probe.run_by(apart);
  if (testing::Program(probe).wait(kLong) != 0) GTEST_SKIP() << "no pid namespace may be made here";
  start({0}, {{0}}, apart);
  if (!end) return;
  end->fill(end->at(0));
  caf::scoped_actor self(end->system);
  self->send(others[0], Read::value, end->tensor(0, {}));
  EXPECT_EQ(answer(self), sum_of(kCount));
  stop_all();
}

TEST_F(DeviceMemoryOfOthers, OfAKilledSenderEndsWithIt) {
  start({0, true}, {{0, true}});
  if (!end) return;
  caf::scoped_actor self(end->system);
  for (int i = 0; i < 4; ++i) self->send(others[0], Give::value, 2 * kMiB);
  self->receive([](const Tensor& tensor) { EXPECT_EQ(tensor.kind(), MemoryKind::host); },
                caf::after(std::chrono::milliseconds(kLong)) >> [] { FAIL() << "no tensor"; });
  members[0]->signal(SIGKILL);
  expect_down(others[0]);
  expect_lost(Peer{1});
}

TEST_F(DeviceMemoryOfOthers, IsCopiedForManyOfWhomOneTakesNothingIn) {
  start({0, true}, std::vector<Gpu>(4));
  if (!end) return;
  end->fill(end->memory);
  caf::scoped_actor self(end->system);
  members[0]->signal(SIGSTOP);
  for (int i = 0; i < 3; ++i) {
    for (const caf::actor& other : others) self->send(other, Read::value, end->numbers_apart(2 * kMiB));
  }
  for (std::size_t i = 0; i < 3 * (others.size() - 1); ++i) EXPECT_EQ(answer(self), sum_of(2 * kMiB));
  members[0]->signal(SIGCONT);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(answer(self), sum_of(2 * kMiB));
  stop_all();
}

}  // namespace
}  // namespace troupe::test

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--member") == 0) {
    troupe::test::Gpu gpu{.apart = std::strcmp(argv[3], "apart") == 0};
    if (std::strcmp(argv[2], "none") != 0) gpu.ordinal = static_cast<std::uint32_t>(std::stoul(argv[2]));
    return troupe::test::serve(gpu);
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
