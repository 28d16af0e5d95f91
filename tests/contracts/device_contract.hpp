#pragma once

#include <gtest/gtest.h>

#include "tests/contracts/device_world.hpp"

namespace troupe::contracts {

/// What every Device does. See device_world.hpp for how to run it on a device.
class DeviceContract : public DeviceWorld {};

TEST_P(DeviceContract, TellsWhatItIs) {
  const DeviceTraits& traits = device().traits();
  EXPECT_FALSE(traits.kind.empty());
  EXPECT_FALSE(traits.description.empty());
  EXPECT_GE(traits.cores, 1U);
}

TEST_P(DeviceContract, GivesEachStreamALineOfItsOwn) {
  const auto one = device().stream();
  const auto two = device().stream();
  EXPECT_NE(one->mark().line, two->mark().line);
}

TEST_P(DeviceContract, LetsAStreamGoOnWhileAnotherWaits) {
  const auto waiting = device().stream();
  const auto free = device().stream();
  Timeline& gate = make_line();
  const Memory from = put({1}), to = put({0});
  waiting->wait({gate.id(), 1});
  const Point behind = waiting->mark();
  free->copy(to, from);
  EXPECT_TRUE(reach(free->mark()).ok());
  EXPECT_EQ(get(to), std::vector<float>{1});
  EXPECT_LT(space().timeline(behind.line).value(), behind.value);
  gate.signal(1);
  EXPECT_TRUE(reach(behind).ok());
}

TEST_P(DeviceContract, KeepsTheFailureOfOneStreamFromTheOthers) {
  const auto failing = device().stream();
  const auto other = device().stream();
  Timeline& gate = make_line();
  gate.poison({Code::aborted, "the end"});
  failing->wait({gate.id(), 1});
  EXPECT_EQ(reach(failing->mark()).code(), Code::aborted);
  EXPECT_TRUE(reach(other->mark()).ok());
}

TEST_P(DeviceContract, GivesMemoryOfZerosThatItsStreamsReach) {
  const auto stream = device().stream();
  std::uint32_t running = 10;
  for (const MemoryKind kind : {MemoryKind::host, MemoryKind::pinned, device().traits().memory}) {
    SCOPED_TRACE(name_of(kind));
    const ArenaId id = arena_id(Peer{0}, ++running);
    const Memory memory = device().allocate(id, kind, 10000 * sizeof(float));
    EXPECT_EQ(memory.arena, id);
    EXPECT_EQ(memory.size_bytes, 10000 * sizeof(float));
    EXPECT_EQ(space().kind(id) == MemoryKind::device, kind == MemoryKind::device);
    EXPECT_EQ(get(memory), std::vector<float>(10000));
    const std::vector<float> values = random_floats(7, 10000);
    stream->copy(memory, put(values));
    finish(*stream);
    EXPECT_EQ(get(memory), values);
  }
}

TEST_P(DeviceContract, RefusesKindsOfMemoryThatItHasNotAndIdsThatAreTaken) {
  if (device().traits().memory != MemoryKind::device) {
    EXPECT_THROW(device().allocate(arena_id(Peer{0}, 20), MemoryKind::device, 64), Error);
  }
  (void)device().allocate(arena_id(Peer{0}, 21), MemoryKind::host, 64);
  EXPECT_THROW(device().allocate(arena_id(Peer{0}, 21), MemoryKind::host, 64), Error);
  EXPECT_THROW(device().ticket(arena_id(Peer{0}, 22)), Error);
}

TEST_P(DeviceContract, ImportsWhatAnotherDeviceOfItsKindHasAllocated) {
  AddressSpace elsewhere;
  const auto other = GetParam().make(elsewhere, std::chrono::seconds{20});
  const ArenaId id = arena_id(Peer{1}, 30);
  const Memory theirs = other->allocate(id, other->traits().memory, 5000 * sizeof(float));
  const Memory here = device().import(other->ticket(id));
  ASSERT_EQ(here.arena, id);
  ASSERT_GE(here.size_bytes, theirs.size_bytes);
  const std::vector<float> values = random_floats(8, 5000);
  write(theirs, values);  // the same plain data in both processes
  HostCopies copies(*other, elsewhere, arena_id(Peer{1}, 31), std::chrono::seconds{20});
  copies.read(theirs, [&](std::span<const std::byte> bytes) {
    const auto found = numbers<float>(bytes);
    EXPECT_EQ(std::vector<float>(found.begin(), found.end()), values);
  });
}

TEST_P(DeviceContract, GivesTheSameBitsInEveryRun) {
  const auto stream = device().stream();
  const Graph graph{"g", Shape{{9}}, DType::f32, {{"a", Dense{7}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  const BatchLayout batch_layout{5, graph.fields()};
  std::vector<float> parameters(layout.count_elements());
  fill_initial(graph, layout, 1, parameters);
  const Memory batch = arena()->allocate(batch_layout.size_bytes());
  write(slice(batch, 0, 45 * sizeof(float)), random_floats(3, 45));
  struct NoSink final : BucketSink {
    void ready(const Bucket&, Stream&) noexcept override {}
  };
  std::vector<std::vector<float>> found;
  for (int run = 0; run < 2; ++run) {
    const ReplicaMemory memory{put(parameters), {}, put(std::vector<float>(parameters.size()))};
    const auto replica =
        device().compile(graph, layout, batch_layout, make_buckets(GroupId{}, graph, layout, 0), memory);
    NoSink sink;
    replica->step(*stream, batch, batch_layout.rows(), put_sums(StepSums{}), sink);
    finish(*stream);
    found.push_back(get(memory.gradients));
  }
  EXPECT_EQ(found[0], found[1]);
}

}  // namespace troupe::contracts
