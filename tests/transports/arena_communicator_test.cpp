#include "transports/collectives/arena_communicator.hpp"

#include <gtest/gtest.h>

#include "tests/transports/communicator_worlds.hpp"

namespace troupe::contracts {
namespace {

CommunicatorCase arena_case(std::string name, std::function<MakeDevice(const GroupSpec&)> devices,
                            std::uint64_t seeds) {
  return {std::move(name),
          [devices](const GroupSpec& spec) { return std::make_unique<ArenaWorld>(spec, devices(spec)); }, seeds};
}
INSTANTIATE_TEST_SUITE_P(
    Arena, CommunicatorContract,
    ::testing::Values(arena_case(
                          "Fake", [](const GroupSpec& spec) { return fake_devices(spec.seed); }, 40),
                      arena_case(
                          "SimulatedDeviceMemory", [](const GroupSpec& spec) { return far_devices(spec.seed); }, 20),
                      arena_case(
                          "Threads", [](const GroupSpec&) { return reference_devices(); }, 5)),
    communicator_name);

/// One bucket, stripes of several blocks.
GroupSpec three_blocks_each(std::uint32_t ranks) {
  GroupSpec spec;
  spec.ranks = ranks;
  spec.elements = ranks * 2500 / 16 * 16;
  spec.stripes = equal_stripes(GroupId{}, spec.elements, ranks);
  spec.buckets = {{GroupId{}, 0, 0, spec.elements}};
  spec.half = true;
  return spec;
}

class ArenaCommunicatorTest : public ::testing::Test {
 protected:
  static WorkingGroup make(const GroupSpec& spec) {
    return {spec, arena_case(
                      "", [](const GroupSpec& s) { return fake_devices(s.seed); }, 0)};
  }
  static ArenaWorld& world_of(WorkingGroup& group) { return dynamic_cast<ArenaWorld&>(*group.world); }
};

TEST_F(ArenaCommunicatorTest, ASurvivorFinishesTheStripeOfARankThatDiedAtAnyMomentOfItsPass) {
  const GroupSpec spec = three_blocks_each(3);
  SerialRun serial{spec};
  for (std::uint64_t step = 0; step < 2; ++step) serial.take_step(step);
  for (const PassMoment moment : {PassMoment::undo_copied, PassMoment::progress_published,
                                  PassMoment::half_of_block_computed, PassMoment::block_done}) {
    for (std::uint64_t block = 0; block < 3; ++block) {
      SCOPED_TRACE(text("moment ", static_cast<int>(moment), " of block ", block));
      WorkingGroup group = make(spec);
      for (std::uint32_t r = 0; r < 3; ++r) group.enqueue_step(r, 0);
      ASSERT_TRUE(group.finish());
      for (std::uint32_t r = 0; r < 3; ++r) group.enqueue_step(r, 1);
      world_of(group).fake_stream(1).die_in_update(moment, block);
      for (int i = 0; i < 10000; ++i) group.world->drive();

      // Rank 0 has heard of the death: its own stream ends, another one finishes what rank 1 left.
      RankView& survivor = group.world->rank(0);
      survivor.communicator->abort({Code::peer_lost, "rank 1 died"});
      *survivor.space->address_of<StepSums>(
          group.work_of(0, 1, spec.buckets[0]).total) = {};  // it need not be there yet
      const auto stream = world_of(group).device(0).stream();
      const Bucket& bucket = spec.buckets[0];
      finish_stripe(*stream, world_of(group).group(0), group.work_of(0, 1, bucket), rule_step(spec.rule, 2),
                    group.part_of(1, bucket));
      const auto statuses = group.reach({{0, stream->mark()}});
      ASSERT_TRUE(statuses && statuses->front().ok());
      EXPECT_EQ(WorkingGroup::get<float>(survivor, survivor.parameters), serial.parameters);
      EXPECT_EQ(WorkingGroup::get<std::uint16_t>(survivor, survivor.half), serial.half());
    }
  }
}

TEST_F(ArenaCommunicatorTest, FinishingAPassThatWasCompleteChangesNothing) {
  const GroupSpec spec = three_blocks_each(2);
  WorkingGroup group = make(spec);
  for (std::uint32_t r = 0; r < 2; ++r) group.enqueue_step(r, 0);
  ASSERT_TRUE(group.finish());
  RankView& survivor = group.world->rank(0);
  const auto before = WorkingGroup::get<float>(survivor, survivor.parameters);
  finish_stripe(*survivor.stream, world_of(group).group(0), group.work_of(0, 0, spec.buckets[0]),
                rule_step(spec.rule, 1), group.part_of(1, spec.buckets[0]));
  ASSERT_TRUE(group.finish());
  EXPECT_EQ(WorkingGroup::get<float>(survivor, survivor.parameters), before);
}

TEST_F(ArenaCommunicatorTest, AbortOfOneRankEndsTheWaitsOfTheOthers) {
  const GroupSpec spec = three_blocks_each(3);
  WorkingGroup group = make(spec);
  std::vector<std::pair<std::uint32_t, Point>> points;
  for (const std::uint32_t r : {0u, 2u}) {
    group.enqueue_step(r, 0);
    points.emplace_back(r, group.world->rank(r).stream->mark());
  }
  group.world->rank(0).communicator->abort({Code::peer_lost, "rank 1 died"});
  const auto statuses = group.reach(points);
  ASSERT_TRUE(statuses);
  for (const Status& status : *statuses) EXPECT_EQ(status.code(), Code::peer_lost);
}

TEST_F(ArenaCommunicatorTest, NoRankWritesParametersBeforeAllAreReady) {
  const GroupSpec spec = three_blocks_each(2);
  WorkingGroup group = make(spec);
  const auto before = WorkingGroup::get<float>(group.world->rank(0), group.world->rank(0).parameters);
  group.enqueue_step(0, 0);
  for (int i = 0; i < 1000; ++i) group.world->drive();
  EXPECT_EQ(WorkingGroup::get<float>(group.world->rank(0), group.world->rank(0).parameters), before);
}

TEST_F(ArenaCommunicatorTest, RefusesGradientsAndSumsThatItsNodeCannotSee) {
  const GroupSpec spec = three_blocks_each(2);
  WorkingGroup group = make(spec);
  RankView& view = group.world->rank(0);
  BucketWork work = group.work_of(0, 0, spec.buckets[0]);
  const auto call = [&] {
    const StripeMemory mine = group.part_of(0, spec.buckets[0]);
    work.mine = {&mine, 1};
    view.communicator->reduce_update_gather(*view.stream, work, rule_step(spec.rule, 1));
  };
  std::swap(work.gradients, view.parameters);
  EXPECT_THROW(call(), Error);
  work = group.work_of(0, 0, spec.buckets[0]);
  work.sums = view.totals;
  EXPECT_THROW(call(), Error);
}

TEST_F(ArenaCommunicatorTest, RefusesMembersThatDoNotFitTogether) {
  const GroupSpec spec = three_blocks_each(2);
  WorkingGroup group = make(spec);
  AddressSpace& space = *group.world->rank(0).space;
  ArenaGroup odd = world_of(group).group(0);
  odd.members[1].gradients.size_bytes -= 64;
  EXPECT_THROW((ArenaCommunicator{space, odd}), Error);
  odd = world_of(group).group(0);
  odd.rank = Rank{2};
  EXPECT_THROW((ArenaCommunicator{space, odd}), Error);
  odd = world_of(group).group(0);
  space.timeline(odd.members[0].ready).signal(1);
  EXPECT_THROW((ArenaCommunicator{space, odd}), Error) << "the line was used";
}

TEST_F(ArenaCommunicatorTest, NeedsScratchForAllReduceOnly) {
  const GroupSpec spec = three_blocks_each(2);
  WorkingGroup group = make(spec);
  ArenaGroup bare = world_of(group).group(0);
  for (ArenaMember& member : bare.members) member.scratch = {};
  RankView& view = group.world->rank(0);
  ArenaCommunicator communicator{*view.space, bare};
  EXPECT_THROW(communicator.all_reduce(*view.stream, view.parameters), Error);
}

}  // namespace
}  // namespace troupe::contracts
