#include "runtime/lanes/lane_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "runtime/base/detail/spin_time.hpp"

namespace troupe {
namespace {

using detail::SpinTime;
using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::array<std::uint32_t, 4> kCpus{2, 3, 6, 7};

TEST(LaneOptions, BothLanesHaveACpuWhereTwoAreLeft) {
  const LanePair lanes = lane_options_for(kCpus, 2);
  EXPECT_THAT(lanes.control.cpus, ElementsAre(7));
  EXPECT_THAT(lanes.bulk.cpus, ElementsAre(6));
  EXPECT_GT(lanes.control.spin_most, lanes.control.spin);
  EXPECT_EQ(lanes.bulk.spin_most.count(), 0);
  EXPECT_EQ(lanes.bulk.spin.count(), 0);
}

TEST(LaneOptions, OneCpuThatIsLeftIsTheControlLanes) {
  const LanePair lanes = lane_options_for(kCpus, 3);
  EXPECT_THAT(lanes.control.cpus, ElementsAre(7));
  EXPECT_GT(lanes.control.spin_most.count(), 0);
  EXPECT_THAT(lanes.bulk.cpus, IsEmpty());
}

TEST(LaneOptions, WithoutSpareCpusLanesGoAnywhereAndSleepAtOnce) {
  for (const std::uint32_t threads : {4u, 5u, 400u}) {
    const LanePair lanes = lane_options_for(kCpus, threads);
    for (const LaneOptions& each : {lanes.control, lanes.bulk}) {
      EXPECT_THAT(each.cpus, IsEmpty());
      EXPECT_EQ(each.spin.count(), 0);
      EXPECT_EQ(each.spin_most.count(), 0);
    }
  }
  EXPECT_THAT(lane_options_for({}, 0).control.cpus, IsEmpty());
}

TEST(SpinTime, StaysWhereNoRangeIsGiven) {
  SpinTime spin{microseconds{30}, microseconds{0}};
  EXPECT_TRUE(spin.any());
  EXPECT_FALSE(spin.adapts());
  spin.came_after(microseconds{1});
  EXPECT_EQ(spin.span(), microseconds{30});
  spin.came_after(std::chrono::seconds{1});
  EXPECT_EQ(spin.span(), microseconds{30});
  EXPECT_FALSE(SpinTime(microseconds{0}, microseconds{0}).any());
}

TEST(SpinTime, DoublesUpToItsLimitWhileThingsComeSoon) {
  SpinTime spin{microseconds{5}, microseconds{200}};
  for (const int expected : {10, 20, 40, 80, 160, 200, 200}) {
    spin.came_after(microseconds{200});
    EXPECT_EQ(spin.span(), microseconds{expected});
  }
}

TEST(SpinTime, HalvesDownToItsLimitWhileTheyComeLate) {
  SpinTime spin{microseconds{5}, microseconds{200}};
  for (int i = 0; i < 10; ++i) spin.came_after(microseconds{1});
  for (const int expected : {100, 50, 25}) {
    spin.came_after(microseconds{201});
    EXPECT_EQ(spin.span(), microseconds{expected});
  }
  for (int i = 0; i < 10; ++i) spin.came_after(std::chrono::seconds{1});
  EXPECT_EQ(spin.span(), microseconds{5});
}

TEST(SpinTime, BeginsAgainAfterItHasComeDownToNothing) {
  SpinTime spin{microseconds{0}, microseconds{50}};
  EXPECT_TRUE(spin.any());
  EXPECT_EQ(spin.span().count(), 0);
  spin.came_after(microseconds{10});
  EXPECT_GT(spin.span().count(), 0);
}

}  // namespace
}  // namespace troupe
