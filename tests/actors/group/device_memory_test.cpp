#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <caf/scoped_actor.hpp>
#include <cstring>
#include <optional>

#include "actors/caf_error.hpp"
#include "runtime/compute/host_copies.hpp"
#include "tests/actors/group/group_world.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/process.hpp"
#include "tests/transports/bootstrap_ranks.hpp"
#include "tools/crew/side.hpp"
#include "transports/ucx/ucx_transport.hpp"

// Tensors in a GPU's memory as messages between two processes: what arrives is the sender's memory itself.
namespace troupe::test {
namespace {

using Read = caf::atom_constant<caf::atom("read")>;  // (Read, tensor): answered with the sum of its numbers
using Lend = caf::atom_constant<caf::atom("lend")>;  // answered with a tensor whose point is never reached

constexpr std::uint64_t kCount = 1000;
constexpr std::uint64_t kBytes = kCount * sizeof(float);
constexpr const char* kSum = "499500";  // of 0, 1, ...

/// A process of the group, with memory of a GPU, if it has one. Its parts end in the opposite order.
struct GpuEnd {
  AddressSpace space;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  GroupConfig config;
  caf::actor_system system{config};
  std::unique_ptr<Group> group;
  std::optional<HostCopies> copies;

  GpuEnd(Blocking& blocking, LaunchPlace place, std::optional<std::uint32_t> gpu) {
    if (gpu) device = make_cuda_device(space, {.ordinal = *gpu, .wait_deadline = kLong});
    GroupOptions options;
    options.place = place;
    options.deadline = long_enough();
    options.hello.ucx_version = ucx_version();
    options.space = &space;
    options.arena_bytes = 1 << 20;
    options.device = device.get();
    options.device_bytes = 2 * kBytes;
    options.make_transport = [](const TransportContext& context) {
      return crew::make_transport({.transport = "tcp", .device = "lo"}, context.space, context.self);
    };
    group = Group::join(blocking, system, std::move(options));
    if (!device) return;
    stream = device->stream();
    copies.emplace(*device, space, arena_id(group->self(), 1), kLong);
  }
  ~GpuEnd() { stream.reset(); }

  /// Numbers in a part of this process's memory; they may be read from `from` on.
  Tensor tensor(std::uint64_t part, Point from, std::shared_ptr<const void> owner = nullptr) {
    return {at(part), {kCount}, DType::f32, from, std::move(owner), MemoryKind::device};
  }
  Memory at(std::uint64_t part) { return slice(group->device_memory(), part * kBytes, kBytes); }
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
    add({end.space.address(tensor.memory()), kBytes});
    return {};
  }
  end.stream->wait(tensor.valid_from());
  end.stream->copy(end.at(1), tensor.memory());
  if (const Status status = end.reach(blocking, end.stream->mark()); !status.ok()) return status;
  end.copies->read(end.at(1), add);
  return {};
}

/// The other process: its main thread is an actor, which may block.
int serve(std::optional<std::uint32_t> gpu) {
  auto blocking = Blocking::on_thread("member");
  GpuEnd end(blocking, launch_place_from_environment().value(), gpu);
  const TimelineId line = end.group->arena().make_timeline();
  caf::scoped_actor self(end.system);
  end.group->publish("member", caf::actor(self));
  bool going = true;
  self->receive_while(going)(
      [&](Read, const Tensor& tensor) {
        double sum = 0;
        const Status status = read(blocking, end, tensor, sum);
        return status.ok() ? text(sum) : text(status.text());
      },
      [&](Lend) {
        return end.tensor(0, {line, 1});
      },
      [&](Go) { going = false; });
  return end.group->stop(blocking, long_enough()).clean() ? 0 : 1;
}

/// By the GPU of the other process; nothing: it has none.
class DeviceMemoryMessages : public ::testing::TestWithParam<std::optional<std::uint32_t>> {
 protected:
  void SetUp() override {
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX, over which processes talk";
    if (GetParam() && *GetParam() >= gpu::count()) GTEST_SKIP() << "the driver shows " << gpu::count() << " GPU";
    const testing::Listener listener;
    member.emplace(testing::ProgramStart{
        .arguments = {"/proc/self/exe", "--member", GetParam() ? std::to_string(*GetParam()) : "none"},
        .environment = {{"RANK", "1"},
                        {"WORLD_SIZE", "2"},
                        {"LOCAL_RANK", "1"},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", std::to_string(listener.port())}},
        .unset = {"TROUPE_SECRET_FILE", "TROUPE_LISTEN_FD"}});
    LaunchPlace place = testing::rank_options(listener, 0, 2).place;
    place.secret.clear();
    end.emplace(blocking, place, 0);
    other = end->group->lookup(blocking, Peer{1}, "member", long_enough());
  }

  void fill(const Memory& memory) {
    end->copies->write(memory, [](std::span<std::byte> bytes) {
      for (std::uint64_t i = 0; i < kCount; ++i) numbers<float>(bytes)[i] = static_cast<float>(i);
    });
  }
  static std::string answer(caf::scoped_actor& self) {
    std::string found = "no answer";
    self->receive([&](std::string& text) { found = std::move(text); },
                  [&](caf::error& error) { found = text_of(from_caf(error)); },
                  caf::after(std::chrono::milliseconds(kLong)) >> [] {});
    return found;
  }

  void stop_both() {
    caf::anon_send(other, Go::value);
    other = {};
    const StopReport report = end->group->stop(blocking, long_enough());
    EXPECT_TRUE(report.clean()) << report.text();
    EXPECT_EQ(member->wait(kLong), 0) << member->out() << member->err();
  }

  Blocking blocking = Blocking::on_thread("test");
  std::optional<testing::Program> member;
  std::optional<GpuEnd> end;
  caf::actor other;
};

TEST_P(DeviceMemoryMessages, AreReadWhereTheyLieFromTheirPointOnAndGivenBackAfterwards) {
  const TimelineId line = end->group->arena().make_timeline(), gate = end->group->arena().make_timeline();
  fill(end->at(1));
  end->stream->wait({gate, 1});
  end->stream->copy(end->at(0), end->at(1));
  end->stream->signal({line, 1});
  std::atomic<bool> is_back{false};
  std::shared_ptr<const void> owner(&is_back, [&](const void*) { is_back = true; });
  caf::scoped_actor self(end->system);
  self->send(other, Read::value, end->tensor(0, {line, 1}, std::move(owner)));
  EXPECT_FALSE(is_back);
  end->space.timeline(gate).signal(1);  // only now the numbers are written
  EXPECT_EQ(answer(self), kSum);
  EXPECT_TRUE(testing::becomes_true([&] { return is_back.load(); }, kLong));
  stop_both();
}

TEST_P(DeviceMemoryMessages, OfAKilledSenderEndTheWaitOfWhoReadsThem) {
  caf::scoped_actor self(end->system);
  Tensor lent;
  self->request(other, kLong, Lend::value)
      .receive([&](const Tensor& tensor) { lent = tensor; }, [](const caf::error&) { FAIL() << "no tensor"; });
  ASSERT_EQ(lent.kind(), MemoryKind::device);
  self->monitor(other);
  end->stream->wait(lent.valid_from());
  end->stream->copy(end->at(1), lent.memory());
  const Point behind = end->stream->mark();
  member->signal(SIGKILL);
  self->receive([](const caf::down_msg&) {}, caf::after(std::chrono::duration_cast<std::chrono::milliseconds>(kLong)) >>
                                                 [] { FAIL() << "it lives"; });
  end->space.timeline(lent.valid_from().line).poison({Code::peer_lost, "the sender is gone"});
  EXPECT_EQ(end->reach(blocking, behind).code(), Code::peer_lost);
  lent = {};
  other = {};
  const StopReport report = end->group->stop(blocking, long_enough());
  EXPECT_THAT(report.lost, ::testing::ElementsAre(Peer{1})) << report.text();
}

class DeviceMemoryMessagesToTheHost : public DeviceMemoryMessages {};

TEST_P(DeviceMemoryMessagesToTheHost, AreRefusedAndGoThroughPinnedMemoryInstead) {
  fill(end->at(0));
  caf::scoped_actor self(end->system);
  Status refusal;
  self->request(other, kLong, Read::value, end->tensor(0, {}))
      .receive([](const std::string& text) { FAIL() << text; },
               [&](const caf::error& error) { refusal = from_caf(error); });
  EXPECT_EQ(refusal.code(), Code::unsupported) << refusal.text();
  EXPECT_THAT(text_of(refusal), ::testing::HasSubstr("copy it to host memory first"));
  const Memory pinned = end->device->allocate(arena_id(Peer{0}, 2), MemoryKind::pinned, kBytes);
  end->stream->copy(pinned, end->at(0));
  self->send(other, Read::value,
             Tensor(pinned, {kCount}, DType::f32, end->stream->mark(), nullptr, end->space.kind(pinned.arena)));
  EXPECT_EQ(answer(self), kSum);
  stop_both();
}

INSTANTIATE_TEST_SUITE_P(OtherProcess, DeviceMemoryMessages, ::testing::Values(0u, 1u),
                         [](const auto& info) { return *info.param == 0 ? "OnTheSameGpu" : "OnAnotherGpu"; });
INSTANTIATE_TEST_SUITE_P(OtherProcess, DeviceMemoryMessagesToTheHost, ::testing::Values(std::nullopt),
                         [](const auto&) { return "WithoutAGpu"; });

}  // namespace
}  // namespace troupe::test

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--member") == 0)
    return troupe::test::serve(std::strcmp(argv[2], "none") == 0
                                   ? std::nullopt
                                   : std::optional(static_cast<std::uint32_t>(std::stoul(argv[2]))));
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
