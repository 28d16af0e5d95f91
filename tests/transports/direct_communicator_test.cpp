#include "transports/collectives/direct_communicator.hpp"

#include <gtest/gtest.h>

#include "tests/transports/communicator_worlds.hpp"
#include "tests/transports/cpu_ranks.hpp"
#include "tests/transports/device_reading_ends.hpp"
#include "tests/transports/loopback_ends.hpp"
#include "transports/collectives/detail/direct_head.hpp"

namespace troupe::contracts {
namespace {

CommunicatorCase loopback_case(std::string name, std::function<MakeDevice(const GroupSpec&)> devices, bool adverse) {
  return {std::move(name), [=](const GroupSpec& spec) {
            const LoopbackAdversity adversity{spec.seed + 1, adverse ? 30u : 0u, adverse ? 40u : 0u};
            return std::make_unique<DirectWorld>(spec, devices(spec), std::make_unique<LoopbackEnds>(adversity));
          }};
}
MakeDevice fakes(const GroupSpec& spec) { return fake_devices(spec.seed); }
MakeDevice threads(const GroupSpec&) { return reference_devices(); }
MakeDevice far(const GroupSpec& spec) { return far_devices(spec.seed); }
MakeDevice drivers(const GroupSpec&) { return cpu_devices(); }

/// The transport sends from the devices' memory.
CommunicatorCase reading_case(std::string name, bool adverse) {
  return {std::move(name), [=](const GroupSpec& spec) {
            const LoopbackAdversity adversity{spec.seed + 1, adverse ? 30u : 0u, adverse ? 40u : 0u};
            return std::make_unique<DirectWorld>(spec, far(spec), std::make_unique<DeviceReadingEnds>(adversity));
          }};
}

INSTANTIATE_TEST_SUITE_P(Direct, CommunicatorContract,
                         ::testing::Values(loopback_case("LoopbackFake", fakes, false),
                                           loopback_case("LoopbackThreads", threads, false),
                                           loopback_case("AdverseLoopbackFake", fakes, true),
                                           loopback_case("AdverseLoopbackFarMemory", far, true),
                                           reading_case("LoopbackReadsFarMemory", false),
                                           reading_case("AdverseLoopbackReadsFarMemory", true),
                                           loopback_case("AdverseLoopbackThreads", threads, true)),
                         communicator_name);
INSTANTIATE_TEST_SUITE_P(DirectDrivenByStreams, CommunicatorContract,
                         ::testing::ValuesIn(if_cpu_device({loopback_case("Loopback", drivers, false),
                                                            loopback_case("AdverseLoopback", drivers, true)})),
                         communicator_name);

CommunicatorCase rounded(CommunicatorCase how, bool error_feedback) {
  how.name += error_feedback ? "WithFeedback" : "";
  how.compression = {Compression::bf16, error_feedback};
  return how;
}
INSTANTIATE_TEST_SUITE_P(DirectRoundedToBf16, CommunicatorContract,
                         ::testing::Values(rounded(loopback_case("LoopbackFake", fakes, false), false),
                                           rounded(loopback_case("LoopbackFake", fakes, false), true),
                                           rounded(loopback_case("AdverseLoopbackFarMemory", far, true), true),
                                           rounded(reading_case("AdverseLoopbackReadsFarMemory", true), true),
                                           rounded(loopback_case("AdverseLoopbackThreads", threads, true), true)),
                         communicator_name);
INSTANTIATE_TEST_SUITE_P(DirectRoundedToBf16ByStreams, CommunicatorContract,
                         ::testing::ValuesIn(if_cpu_device({rounded(loopback_case("Loopback", drivers, false), false),
                                                            rounded(loopback_case("Adverse", drivers, true), true)})),
                         communicator_name);

class DirectCommunicatorTest : public ::testing::Test {
 protected:
  static GroupSpec two_buckets(std::uint32_t ranks) {
    GroupSpec spec;
    spec.ranks = ranks;
    spec.elements = ranks * 1024;
    spec.stripes = equal_stripes(GroupId{}, spec.elements, ranks);
    spec.buckets = {{GroupId{}, 0, 512, spec.elements - 512}, {GroupId{}, 1, 0, 512}};
    return spec;
  }
  static WorkingGroup make(const GroupSpec& spec) { return {spec, loopback_case("", threads, false)}; }
  static LoopbackNetwork& network_of(WorkingGroup& group) {
    return dynamic_cast<LoopbackEnds&>(dynamic_cast<DirectWorld&>(*group.world).network()).network;
  }
  static Point enqueue(WorkingGroup& group, std::uint32_t r, std::uint64_t step) {
    group.enqueue_step(r, step);
    return group.world->rank(r).stream->mark();
  }
};

TEST_F(DirectCommunicatorTest, HandingBucketsOverDoesNotHoldTheStreamUp) {
  WorkingGroup group = make(two_buckets(2));
  RankView& view = group.world->rank(0);
  std::vector<Point> points;
  for (const Bucket& bucket : group.spec.buckets) {
    const StripeMemory mine = group.part_of(0, bucket);
    points.push_back(view.communicator->reduce_update_gather(*view.stream, group.work_of(0, 0, bucket, {&mine, 1}),
                                                             rule_step(group.spec.rule, 1)));
  }
  const auto handed_over = group.reach({{0, view.stream->mark()}});
  ASSERT_TRUE(handed_over) << "the stream waits for the other rank";
  EXPECT_TRUE(handed_over->front().ok());
  for (const Point& point : points) EXPECT_LT(view.space->timeline(point.line).value(), point.value);
  group.enqueue_step(1, 0);
  const auto statuses = group.reach({{0, points[0]}, {0, points[1]}});
  ASSERT_TRUE(statuses);
  for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.text();
}

/// All gradients and new parameters.
TEST_F(DirectCommunicatorTest, WhatATransportReadsInADevicesMemoryIsSentFromThere) {
  WorkingGroup group{two_buckets(2), reading_case("", false)};
  const auto statuses = group.reach({{0, enqueue(group, 0, 0)}, {1, enqueue(group, 1, 0)}});
  ASSERT_TRUE(statuses);
  for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.text();
  const auto& ends = dynamic_cast<const DeviceReadingEnds&>(dynamic_cast<DirectWorld&>(*group.world).network());
  EXPECT_GE(ends.sent(), 6U) << "two ranks with a part of one bucket each, and one of them with a whole one";
  EXPECT_EQ(ends.sent_from_devices(), ends.sent());
}

TEST_F(DirectCommunicatorTest, LosingAPeerEndsTheWaitsAndNamesItsRank) {
  WorkingGroup group = make(two_buckets(3));
  std::vector<std::pair<std::uint32_t, Point>> points;
  for (const std::uint32_t r : {0u, 2u}) points.emplace_back(r, enqueue(group, r, 0));
  network_of(group).kill(Peer{1});
  const auto statuses = group.reach(points);
  ASSERT_TRUE(statuses) << "somebody still waits";
  for (const Status& status : *statuses) {
    EXPECT_EQ(status.code(), Code::peer_lost);
    EXPECT_NE(status.text().find("rank 1"), std::string_view::npos) << status.text();
  }
}

TEST_F(DirectCommunicatorTest, RanksAtDifferentStepsGetAnErrorThatNamesBoth) {
  WorkingGroup group = make(two_buckets(2));
  const auto statuses = group.reach({{0, enqueue(group, 0, 4)}, {1, enqueue(group, 1, 6)}});
  ASSERT_TRUE(statuses) << "somebody still waits";
  for (const Status& status : *statuses) {
    EXPECT_EQ(status.code(), Code::invalid) << status.text();
    for (const char* part : {"step 4", "step 6", "rank 0", "rank 1", "bucket"}) {
      EXPECT_NE(status.text().find(part), std::string_view::npos) << status.text();
    }
  }
}

TEST_F(DirectCommunicatorTest, ARankThatReducesWhereAnotherUpdatesGetsAnError) {
  WorkingGroup group = make(two_buckets(2));
  RankView& other = group.world->rank(1);
  other.communicator->all_reduce(*other.stream, WorkingGroup::put(other, std::vector<float>(64)));
  const auto statuses = group.reach({{0, enqueue(group, 0, 0)}, {1, other.stream->mark()}});
  ASSERT_TRUE(statuses) << "somebody still waits";
  for (const Status& status : *statuses) EXPECT_EQ(status.code(), Code::invalid) << status.text();
}

TEST_F(DirectCommunicatorTest, AFailedStreamEndsTheExchangeWithItsReason) {
  WorkingGroup group = make(two_buckets(2));
  RankView& view = group.world->rank(0);
  Timeline& gate = view.space->timeline(view.arena->make_timeline());
  view.stream->wait({gate.id(), 1});
  const Point behind = enqueue(group, 0, 0);
  gate.poison({Code::device_fault, "the loader broke"});
  const auto statuses = group.reach({{0, behind}});
  ASSERT_TRUE(statuses);
  EXPECT_EQ(statuses->front().code(), Code::device_fault);
}

TEST_F(DirectCommunicatorTest, AFailedStreamIsHeardOfByTheOtherRanks) {
  WorkingGroup group = make(two_buckets(3));
  RankView& view = group.world->rank(1);
  Timeline& gate = view.space->timeline(view.arena->make_timeline());
  view.stream->wait({gate.id(), 1});
  group.enqueue_step(1, 0);
  const Point zero = enqueue(group, 0, 0);
  const Point two = enqueue(group, 2, 0);
  gate.poison({Code::device_fault, "the loader broke"});
  const auto statuses = group.reach({{0, zero}, {2, two}});
  ASSERT_TRUE(statuses) << "somebody still waits";
  for (const Status& status : *statuses) {
    EXPECT_EQ(status.code(), Code::device_fault);
    EXPECT_NE(status.text().find("rank 1: the loader broke"), std::string_view::npos) << status.text();
  }
}

TEST_F(DirectCommunicatorTest, RefusesWorkThatIsNotItsGroups) {
  WorkingGroup group = make(two_buckets(2));
  RankView& view = group.world->rank(0);
  const auto call = [&](BucketWork work, const StripeMemory& mine) {
    work.mine = {&mine, 1};
    return view.communicator->reduce_update_gather(*view.stream, work, rule_step(group.spec.rule, 1));
  };
  const BucketWork work = group.work_of(0, 0, group.spec.buckets[0]);
  const StripeMemory mine = group.part_of(0, group.spec.buckets[0]);
  BucketWork longer = work;
  longer.bucket.count += 16;
  EXPECT_THROW((void)call(longer, mine), Error);
  BucketWork other = work;
  other.bucket.index = 7;
  EXPECT_THROW((void)call(other, mine), Error);
  EXPECT_THROW((void)call(work, group.part_of(1, group.spec.buckets[0])), Error);
  StripeMemory elsewhere = mine;
  elsewhere.parameters = WorkingGroup::put(view, std::vector<float>(mine.stripe.count));
  EXPECT_THROW((void)call(work, elsewhere), Error);
}

/// A peer that is not a communicator: the test decides what it sends.
class Stranger {
 public:
  explicit Stranger(LoopbackNetwork& network) : transport_(network.endpoint(Peer{1}, space_)) { space_.map(arena_); }
  Transport& transport() { return *transport_; }
  void send(std::span<const std::byte> head, std::uint64_t size_bytes) {
    const Memory payload = slice(memory_, 0, size_bytes);
    const std::span<const Memory> pieces{&payload, size_bytes > 0 ? 1u : 0u};
    while (!transport_->send(Peer{0}, Lane::bulk, Class::gradient, Channel::exchange, head, pieces, done_)) {
      transport_->progress(Lane::bulk);
    }
    while (transport_->progress(Lane::bulk)) {
    }
  }

 private:
  struct Ignore final : SendDone {
    void sent(Status) noexcept override {}
  } done_;
  AddressSpace space_;
  std::shared_ptr<Arena> arena_ = Arena::create(arena_id(Peer{1}, 1), 1 << 16);
  Memory memory_ = arena_->allocate(1 << 15);
  std::unique_ptr<Transport> transport_;
};

class DirectCommunicatorAndAStranger : public ::testing::Test {
 protected:
  DirectCommunicatorAndAStranger() {
    space_.map(arena_);
    group_.peers = {Peer{0}, Peer{1}};
    group_.view = ViewId{3};
    group_.stripes = equal_stripes(GroupId{}, 2048, 2);
    group_.buckets = {{GroupId{}, 0, 0, 2048}};
    group_.parameters = arena_->allocate(2048 * sizeof(float));
    group_.chunk = 2048;
    group_.staging = arena_->allocate(direct_staging_bytes(group_));
    transport_ = network_.endpoint(Peer{0}, space_);
    loop_ = std::make_unique<LaneLoop>(*transport_, Lane::bulk, LaneOptions{}, "bulk");
    communicator_ = std::make_unique<DirectCommunicator>(space_, *loop_, *exchange_, group_);
    stranger_ = std::make_unique<Stranger>(network_);
    stranger_->transport().connect(Peer{0}, transport_->address());
    transport_->connect(Peer{1}, stranger_->transport().address());
    loop_->start();
  }
  ~DirectCommunicatorAndAStranger() override {
    communicator_->abort({Code::aborted, "the test is over"});
    stream_.reset();
    loop_->stop(Deadline::after(std::chrono::seconds{10}));
    exchange_.reset();
    loop_.reset();
    transport_.reset();
  }
  /// What a step ends with after the stranger has sent `head` and a payload.
  Status answer_to(std::span<const std::byte> head, std::uint64_t size_bytes) {
    stranger_->send(head, size_bytes);
    BucketWork work;
    work.bucket = group_.buckets[0];
    work.first = true;
    work.gradients = arena_->allocate(2048 * sizeof(float));
    work.sums = arena_->allocate(sizeof(StepSums));
    work.total = arena_->allocate(sizeof(StepSums));
    StripeMemory mine;
    mine.stripe = group_.stripes[0];
    mine.parameters = slice(group_.parameters, 0, 1024 * sizeof(float));
    work.mine = {&mine, 1};
    const Point behind = communicator_->reduce_update_gather(*stream_, work, rule_step({.kind = RuleKind::sgd}, 1));
    Blocking blocking = Blocking::on_thread("test");
    return space_.timeline(behind.line)
        .wait(blocking, behind.value, Deadline::after(std::chrono::seconds{20}), "the exchange");
  }
  collectives::DirectHead right_head() const {
    collectives::DirectHead head;
    head.view = 3;
    head.rank = 1;
    head.round = {.sequence = 1, .call = 1, .step = 0, .elements = 2048, .bucket = 0, .sums = true};
    return head;
  }

  LoopbackNetwork network_;
  AddressSpace space_;
  std::shared_ptr<Arena> arena_ = Arena::create(arena_id(Peer{0}, 1), 1 << 20);
  DirectGroup group_;
  std::unique_ptr<DirectCommunicator> communicator_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<LaneLoop> loop_;
  std::unique_ptr<Device> device_ = make_reference_device(space_);
  std::unique_ptr<Stream> stream_ = device_->stream();
  std::unique_ptr<Stream> exchange_ = device_->stream();
  std::unique_ptr<Stranger> stranger_;
};

TEST_F(DirectCommunicatorAndAStranger, NoiseEndsTheExchangeAsCorrupt) {
  std::vector<std::byte> noise(collectives::kDirectHeadBytes);
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<std::byte>(random_bits(5, i));
  EXPECT_EQ(answer_to(noise, 100).code(), Code::corrupt);
}

TEST_F(DirectCommunicatorAndAStranger, APayloadOfAnotherSizeEndsTheExchangeAsCorrupt) {
  EXPECT_EQ(answer_to(encode(right_head()), 1024 * sizeof(float) - 4).code(), Code::corrupt);
}

TEST_F(DirectCommunicatorAndAStranger, ARankThatThePeerIsNotEndsTheExchangeAsCorrupt) {
  collectives::DirectHead head = right_head();
  head.rank = 0;
  EXPECT_EQ(answer_to(encode(head), 1024 * sizeof(float)).code(), Code::corrupt);
}

TEST_F(DirectCommunicatorAndAStranger, ABucketThatDoesNotExistEndsTheExchangeAsInvalid) {
  collectives::DirectHead head = right_head();
  head.round.bucket = 5;
  EXPECT_EQ(answer_to(encode(head), 1024 * sizeof(float)).code(), Code::invalid);
}

TEST_F(DirectCommunicatorAndAStranger, WhatIsLeftOverFromAnEarlierViewIsIgnored) {
  collectives::DirectHead head = right_head();
  head.view = 2;
  stranger_->send(encode(head), 1024 * sizeof(float));
  head.view = 3;
  head.rank = 0;
  const Status status = answer_to(encode(head), 1024 * sizeof(float));  // this one is not
  EXPECT_NE(status.text().find("view 3"), std::string_view::npos) << status.text();
}

/// Fields at random around the right ones: whatever comes, the exchange ends with a reason or goes on, and never writes
/// where it should not (the sanitizers look).
TEST(DirectCommunicatorFuzz, SurvivesHeadsThatAreAlmostRight) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    LoopbackNetwork network;
    AddressSpace space;
    const auto arena = Arena::create(arena_id(Peer{0}, 1), 1 << 16);
    space.map(arena);
    DirectGroup group{ViewId{3}, Rank{0}, {Peer{0}, Peer{1}}, equal_stripes(GroupId{}, 2048, 2), {}, {}, {}, {}};
    group.buckets = {{GroupId{}, 0, 512, 1536}, {GroupId{}, 1, 0, 512}};
    group.parameters = arena->allocate(2048 * sizeof(float));
    group.chunk = 1024;
    group.staging = arena->allocate(direct_staging_bytes(group));
    const auto device = make_reference_device(space);
    const auto exchange = device->stream();
    std::unique_ptr<DirectCommunicator> communicator;  // outlives transport and loop
    const auto transport = network.endpoint(Peer{0}, space);
    LaneLoop loop{*transport, Lane::bulk, {}, "bulk"};  // never started: the test drives the lane
    communicator = std::make_unique<DirectCommunicator>(space, loop, *exchange, group);
    Stranger stranger{network};
    stranger.transport().connect(Peer{0}, transport->address());
    for (std::uint64_t message = 0; message < 6; ++message) {
      auto pick = [&, draw = std::uint64_t{0}](std::initializer_list<std::uint64_t> of) mutable {
        return *(of.begin() + random_below(sub_key(seed, message), draw++, of.size()));
      };
      collectives::DirectHead head;
      head.payload_kind = static_cast<collectives::PayloadKind>(pick({1, 1, 2, 3}));
      head.view = static_cast<std::uint32_t>(pick({3, 3, 3, 2, 4}));
      head.rank = static_cast<std::uint32_t>(pick({1, 1, 1, 0, 2, ~0u}));
      head.round.sequence = pick({1, 1, 2, 0, 3, ~0ull});
      head.round.call = pick({1, 1, 2, 0, 3, ~0ull});
      head.round.chunk = static_cast<std::uint32_t>(pick({0, 0, 0, 1, ~0u}));
      head.round.elements = pick({1024, 1024, 512, 0, 32, 4096, ~0ull});
      head.round.bucket = static_cast<std::uint32_t>(pick({0, 0, 1, 2, ~0u}));
      head.round.plain = static_cast<collectives::PlainOperation>(pick({0, 0, 1, 2, 3, 4}));
      head.round.sums = pick({0, 1}) == 1;
      stranger.send(encode(head), pick({0, 512 * 4, 1024 * 4, 16 * 4, 64, 256 * 2, 4096}));
      while (transport->progress(Lane::bulk)) {
      }
    }
  }
}

}  // namespace
}  // namespace troupe::contracts
