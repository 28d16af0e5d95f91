#include "runtime/compute/recorded_stream.hpp"
#include "tests/support/child_process.hpp"
#include "tests/transports/loopback_ends.hpp"
#include "tests/transports/nccl_worlds.hpp"
#include "tests/transports/nested_worlds.hpp"

// Ranks with a GPU each, over the stand-ins for the driver and for NCCL.
namespace troupe::contracts {
namespace {

using troupe::testing::eventually;

CommunicatorCase nccl_case(bool rank_ordered) {
  const auto make = [rank_ordered](const GroupSpec& spec) { return std::make_unique<NcclWorld>(spec, rank_ordered); };
  return {rank_ordered ? "InRankOrder" : "InItsOwnOrder", make, 1};
}

CommunicatorCase by_bucket() {
  const auto make = [](const GroupSpec& spec) {
    return std::make_unique<NcclWorld>(spec, true, NcclOptions{}, std::vector<Rank>{}, /*by_bucket=*/true);
  };
  return {"WithRangesOfBuckets", make, 1};
}

INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorContract, ::testing::Values(nccl_case(true), nccl_case(false), by_bucket()),
                         communicator_name);

CommunicatorCase nested_case() {
  const auto make = [](const GroupSpec& spec) {
    return std::make_unique<NestedWorld>(spec,
                                         std::make_unique<LoopbackEnds>(LoopbackAdversity{spec.seed + 1, 30, 40}));
  };
  return {"AdverseNetwork", make, 1};
}

/// Within the nodes.
INSTANTIATE_TEST_SUITE_P(NcclNested, CommunicatorContract, ::testing::Values(nested_case()), communicator_name);

/// A group with one bucket.
GroupSpec plain_group(std::uint32_t ranks) {
  GroupSpec spec = random_group(ranks, 11);
  spec.buckets = {{GroupId{}, 0, 0, spec.elements}};
  spec.rule = {};
  spec.rule.kind = RuleKind::sgd;
  spec.half = false;
  return spec;
}

CommunicatorCase with(NcclOptions options, std::vector<Rank> names = {}) {
  return {"", [=](const GroupSpec& spec) { return std::make_unique<NcclWorld>(spec, true, options, names); }};
}

Status end_of(WorkingGroup& group, std::uint32_t rank) {
  const auto statuses = group.reach({{rank, group.world->rank(rank).stream->mark()}});
  return statuses ? statuses->front() : Status{Code::timeout, "the test has waited in vain"};
}

TEST(NcclCommunicator, ReplaysRecordedStepsWithItsCalls) {
  expect_bits_of_a_serial_run(plain_group(3), with({}), /*as_pieces=*/true);
}

/// A group with two buckets.
GroupSpec halved_group(std::uint32_t ranks) {
  GroupSpec spec = plain_group(ranks);
  const std::uint64_t half = spec.elements / Layout::kAlignElements / 2 * Layout::kAlignElements;
  spec.buckets = {{GroupId{}, 0, half, spec.elements - half}, {GroupId{}, 1, 0, half}};
  return spec;
}

/// By step and rank, the parameters after steps of a group within nodes, `as_pieces` or call by call.
std::vector<std::vector<float>> parameters_after_steps(std::uint64_t steps, bool as_pieces) {
  const GroupSpec spec = halved_group(4);
  std::vector<Programs> programs(spec.ranks), of_nodes(spec.ranks);
  WorkingGroup group{spec, nested_case()};
  auto& world = dynamic_cast<NestedWorld&>(*group.world);
  std::vector<std::pair<std::uint32_t, Memory>> seen;
  for (std::uint64_t step = 0; step < steps; ++step)
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      RankView& view = world.rank(r);
      const Memory found = WorkingGroup::put(view, SerialRun::gradients(spec, r, step));
      for (const Bucket& bucket : spec.buckets) group.enqueue_gradients(r, step, bucket, found);
      const std::vector<RecordedStream> both{{*view.stream, programs[r]}, {world.node_stream(r), of_nodes[r]}};
      enqueue_as_pieces(std::span{both}.first(as_pieces ? 2 : 0), [&] {
        std::vector<Point> updated;
        for (const Bucket& bucket : spec.buckets) {
          const StripeMemory mine = group.part_of(r, bucket);
          updated.push_back(view.communicator->reduce_update_gather(
              *view.stream, group.work_of(r, step, bucket, {&mine, 1}), rule_step(spec.rule, step + 1)));
        }
        for (const Point& point : updated) view.stream->wait(point);
      });
      seen.emplace_back(r, view.arena->allocate(spec.elements * sizeof(float)));
      view.stream->copy(seen.back().second, view.parameters);
    }
  EXPECT_TRUE(group.finish());
  std::vector<std::vector<float>> parameters;
  for (const auto& [r, memory] : seen) parameters.push_back(WorkingGroup::get<float>(world.rank(r), memory));
  for (std::uint32_t r = 0; r < spec.ranks && as_pieces; ++r) {
    EXPECT_GE(of_nodes[r].replayed(), steps / 2) << "rank " << r;
    EXPECT_TRUE(group.reach({{r, world.node_stream(r).mark()}}));
    of_nodes[r] = {};  // NCCL's graphs end before its communicators
  }
  return parameters;
}

TEST(NestedCommunicator, HasTheSameBitsWhereTheStreamOfTheNodeIsReplayed) {
  const auto wanted = parameters_after_steps(12, false);
  EXPECT_NE(wanted.front(), wanted.back());
  EXPECT_EQ(parameters_after_steps(12, true), wanted);
}

/// Steps whose backward pass tells when it has come behind its first bucket, and goes on when the test lets it.
class HeldSteps {
 public:
  explicit HeldSteps(WorkingGroup& group) : group_(group), programs_(group.spec.ranks) {
    for (std::uint32_t r = 0; r < group.spec.ranks; ++r) {
      gates_.push_back(view(r).arena->make_timeline());
      found_.push_back(view(r).arena->allocate(group.spec.elements * sizeof(float)));
      current_.push_back(view(r).arena->allocate(sizeof(std::uint64_t)));
      reached_.push_back(view(r).arena->allocate(sizeof(std::uint64_t)));
    }
  }
  ~HeldSteps() {
    for (std::uint32_t r = 0; r < gates_.size(); ++r) (void)end_of(group_, r);
  }
  RankView& view(std::uint32_t r) { return group_.world->rank(r); }
  /// All earlier steps are done. The same memory in each step, as replicas have it: so it can be replayed.
  void enqueue(std::uint32_t r, std::uint64_t step) {
    WorkingGroup::write(view(r), found_[r], SerialRun::gradients(group_.spec, r, step));
    WorkingGroup::write(view(r), current_[r], std::vector{step + 1});
    std::vector<StripeMemory> mine;
    for (const Bucket& bucket : group_.spec.buckets) mine.push_back(group_.part_of(r, bucket));
    view(r).stream->enqueue(programs_[r], [&] {
      exchange(r, step, 0, mine[0]);
      view(r).stream->copy(reached_[r], current_[r]);
      view(r).stream->wait({gates_[r], step + 1});
      exchange(r, step, 1, mine[1]);
      (void)view(r).stream->mark();
    });
  }
  /// Polls what a stream copies, without a point: one would wait for the exchange, too. For the thread sanitizer that
  /// is a race; nothing else depends on the word.
  __attribute__((no_sanitize("thread"))) bool is_behind_first_bucket(std::uint32_t r, std::uint64_t step) {
    const std::uint64_t* const word = view(r).space->address_of<std::uint64_t>(reached_[r]);
    return __atomic_load_n(word, __ATOMIC_RELAXED) == step + 1;
  }
  void let_go_on(std::uint64_t step) {
    for (std::uint32_t r = 0; r < gates_.size(); ++r) view(r).space->timeline(gates_[r]).signal(step + 1);
  }
  const Programs& programs(std::uint32_t r) const { return programs_[r]; }

 private:
  void exchange(std::uint32_t r, std::uint64_t step, std::size_t b, const StripeMemory& mine) {
    const Bucket& bucket = group_.spec.buckets[b];
    group_.enqueue_gradients(r, step, bucket, found_[r]);
    (void)view(r).communicator->reduce_update_gather(*view(r).stream, group_.work_of(r, step, bucket, {&mine, 1}),
                                                     rule_step(group_.spec.rule, step + 1));
  }

  WorkingGroup& group_;
  std::vector<TimelineId> gates_;
  std::vector<Memory> found_, current_, reached_;
  std::vector<Programs> programs_;
};

/// Neither waits for the other: the backward pass goes on while a bucket's exchange waits for a rank, and a bucket is
/// exchanged while the backward pass is held. When steps are enqueued call by call as well as when they are replayed.
TEST(NcclCommunicator, ExchangesABucketBesideTheRestOfTheBackwardPass) {
  constexpr std::uint64_t kSteps = 5, kCallsOfABucket = 2;
  const GroupSpec spec = halved_group(2);
  WorkingGroup group{spec, with({})};
  HeldSteps steps{group};
  SerialRun serial{spec};
  const auto& world = dynamic_cast<const NcclWorld&>(*group.world);
  const auto first = static_cast<std::ptrdiff_t>(spec.buckets[0].first);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    serial.take_step(step);
    steps.enqueue(0, step);
    EXPECT_TRUE(eventually([&] { return steps.is_behind_first_bucket(0, step); }))
        << "in step " << step << " the backward pass waits for the exchange, in which rank 1 takes no part yet";
    steps.enqueue(1, step);
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      const std::uint64_t calls = (2 * step + 1) * kCallsOfABucket;
      EXPECT_TRUE(eventually([&] { return world.calls_done(r) == calls; }))
          << "in step " << step << " the exchange of rank " << r << " waits for its backward pass to end";
      const std::vector<float> now = WorkingGroup::get<float>(steps.view(r), steps.view(r).parameters);
      EXPECT_TRUE(std::equal(now.begin() + first, now.end(), serial.parameters.begin() + first))
          << "step " << step << ", rank " << r << ": the bucket has other parameters";
    }
    steps.let_go_on(step);
    ASSERT_TRUE(group.finish());
  }
  for (std::uint32_t r = 0; r < spec.ranks; ++r) {
    EXPECT_EQ(WorkingGroup::get<float>(steps.view(r), steps.view(r).parameters), serial.parameters) << "rank " << r;
    EXPECT_GE(steps.programs(r).replayed(), kSteps - 2) << "rank " << r;
  }
}

TEST(NcclCommunicator, EndsACallThatTakesTooLongWithTheRankThatHasNotCome) {
  WorkingGroup group{plain_group(3),
                     with({.call_deadline = std::chrono::milliseconds{200}}, {Rank{4}, Rank{7}, Rank{9}})};
  for (const std::uint32_t r : {0U, 2U}) group.world->rank(r).communicator->barrier(*group.world->rank(r).stream);
  for (const std::uint32_t r : {0U, 2U}) {
    const Status status = end_of(group, r);
    EXPECT_EQ(status.code(), Code::timeout) << status.text();
    EXPECT_NE(status.text().find("rank 7 has not come to call 1"), std::string_view::npos) << status.text();
  }
}

TEST(NcclCommunicator, TellsARankWhoseStreamHasFailedFromOneThatTakesPart) {
  const GroupSpec spec = plain_group(2);
  WorkingGroup group{spec, with({}, {Rank{4}, Rank{7}})};
  RankView& failed = group.world->rank(1);
  const TimelineId line = failed.arena->make_timeline();
  failed.stream->wait({line, 1});
  std::vector<Memory> after;
  for (std::uint32_t r = 0; r < spec.ranks; ++r) (void)group.enqueue_step(r, 0);
  failed.space->timeline(line).poison({Code::device_fault, "the loader has failed"});
  EXPECT_EQ(end_of(group, 1).code(), Code::device_fault);
  const Status status = end_of(group, 0);
  EXPECT_EQ(status.code(), Code::peer_lost) << status.text();
  EXPECT_NE(status.text().find("rank 7"), std::string_view::npos) << status.text();
}

TEST(NcclCommunicator, NamesARankThatMakesAnotherCall) {
  GroupSpec spec = plain_group(2);
  const std::uint64_t half = spec.elements / Layout::kAlignElements / 2 * Layout::kAlignElements;
  ASSERT_GT(half, 0U);
  spec.stripes = {{GroupId{}, Rank{0}, 0, 2 * half}, {GroupId{}, Rank{1}, 2 * half, 0}};
  spec.elements = 2 * half;
  spec.buckets = {{GroupId{}, 0, half, half}, {GroupId{}, 1, 0, half}};
  WorkingGroup group{spec, with({})};
  for (std::uint32_t r = 0; r < spec.ranks; ++r) {
    RankView& view = group.world->rank(r);
    BucketWork work = group.work_of(r, 0, spec.buckets[r]);  // the same size, but not the same bucket
    work.first = true;
    const StripeMemory mine = group.part_of(r, spec.buckets[r]);
    work.mine = {&mine, 1};
    (void)view.communicator->reduce_update_gather(*view.stream, work, rule_step(spec.rule, 1));
  }
  for (std::uint32_t r = 0; r < spec.ranks; ++r) {
    const Status status = end_of(group, r);
    EXPECT_EQ(status.code(), Code::invalid) << status.text();
    EXPECT_NE(status.text().find(text("rank ", 1 - r, " makes another exchange")), std::string_view::npos)
        << status.text();
  }
}

TEST(NcclCommunicator, AbortOfOneRankEndsItsPeersWithTheReason) {
  WorkingGroup group{plain_group(3), with({})};
  for (const std::uint32_t r : {0U, 1U}) group.world->rank(r).communicator->barrier(*group.world->rank(r).stream);
  group.world->rank(2).communicator->abort({Code::peer_lost, "rank 5 is dead"});
  for (const std::uint32_t r : {0U, 1U}) {
    const Status status = end_of(group, r);
    EXPECT_EQ(status.code(), Code::peer_lost);
    EXPECT_NE(status.text().find("rank 5 is dead"), std::string_view::npos) << status.text();
  }
}

TEST(NcclCommunicator, SaysWhatIsMissing) {
  try {
    (void)make_nccl_id("libnccl-that-nobody-has.so");
    FAIL() << "there is no such library";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::environment);
    EXPECT_NE(std::string_view{error.what()}.find("libnccl-that-nobody-has.so"), std::string_view::npos)
        << error.what();
  }
}

TEST(NcclCommunicator, RefusesStreamsOfOtherDevices) {
  AddressSpace space;
  const auto arena = Arena::create(arena_id(Peer{0}, 1), 1 << 20);
  space.map(arena);
  const auto device = make_cuda_device(space, {.driver = TROUPE_CUDA_HOST, .products = "own", .convolutions = "own"});
  const Memory memory = device->allocate(arena_id(Peer{0}, 2), MemoryKind::device, 1 << 20);
  const auto other = make_reference_device(space);
  const auto stream = other->stream();
  NcclGroup group{.rank = Rank{0},
                  .id = {},
                  .members = {{arena->make_timeline(), arena->make_timeline()}, {}},
                  .stripes = {{}, {}},
                  .parameters = memory,
                  .staging = memory,
                  .room = 64};
  try {
    const NcclCommunicator made{space, *stream, group, {.library = TROUPE_NCCL_HOST}};
    FAIL() << "NCCL knows no other streams";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported) << error.what();
  }
}

}  // namespace
}  // namespace troupe::contracts
