#include "runtime/compute/point_join.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "runtime/base/blocking.hpp"

namespace troupe {
namespace {

class PointJoinTest : public ::testing::Test {
 protected:
  Timeline& line() { return space_.timeline(space_.make_private_timeline()); }
  Timeline& of(Point point) { return space_.timeline(point.line); }

  AddressSpace space_;
  PointJoin join_{space_};
};

TEST_F(PointJoinTest, IsReachedWhenTheLastOfItsPointsIs) {
  Timeline& one = line();
  Timeline& other = line();
  const Point joined = join_.join(std::array{Point{one.id(), 2}, Point{other.id(), 1}});
  one.signal(1);
  other.signal(1);
  EXPECT_LT(of(joined).value(), joined.value);
  one.signal(2);
  EXPECT_EQ(of(joined).value(), joined.value);
}

TEST_F(PointJoinTest, IsReachedAtOnceWhenItsPointsAre) {
  Timeline& one = line();
  one.signal(7);
  const Point joined = join_.join(std::array{Point{one.id(), 3}, Point{one.id(), 7}});
  EXPECT_EQ(of(joined).value(), joined.value);
}

TEST_F(PointJoinTest, IsNotReachedBeforeAnEarlierOne) {
  Timeline& slow = line();
  Timeline& fast = line();
  const Point first = join_.join(std::array{Point{slow.id(), 1}});
  const Point second = join_.join(std::array{Point{fast.id(), 1}});
  fast.signal(1);
  EXPECT_LT(of(first).value(), first.value);
  slow.signal(1);
  EXPECT_EQ(of(second).value(), second.value);
}

TEST_F(PointJoinTest, HasThePoisonOfAnyOfItsPoints) {
  Timeline& one = line();
  Timeline& other = line();
  const Point joined = join_.join(std::array{Point{one.id(), 1}, Point{other.id(), 1}});
  one.signal(1);
  other.poison({Code::peer_lost, "rank 3 is lost"});
  EXPECT_EQ(of(joined).status().code(), Code::peer_lost);
  EXPECT_EQ(of(joined).status().text(), "rank 3 is lost");
  EXPECT_EQ(of(joined).value(), 0U);
}

TEST_F(PointJoinTest, CountsInOrderWhenManyThreadsSignal) {
  constexpr std::uint64_t kSteps = 2000;
  std::array<Timeline*, 3> lines{&line(), &line(), &line()};
  std::vector<std::thread> threads;
  for (Timeline* const each : lines) {
    threads.emplace_back([each] {
      for (std::uint64_t step = 1; step <= kSteps; ++step) each->signal(step);
    });
  }
  Point joined;
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    joined =
        join_.join(std::array{Point{lines[0]->id(), step}, Point{lines[1]->id(), step}, Point{lines[2]->id(), step}});
    EXPECT_EQ(joined.value, step);
  }
  Blocking blocking = Blocking::on_thread("test");
  EXPECT_TRUE(of(joined).wait(blocking, joined.value, Deadline::after(std::chrono::seconds{30}), "the last step").ok());
  for (std::thread& thread : threads) thread.join();
  for (const Timeline* const each : lines) EXPECT_EQ(each->value(), kSteps);
}

}  // namespace
}  // namespace troupe
