#include "runtime/membership/membership.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::HasSubstr;

Membership coordinator() { return {ViewId{1}, Rank{0}, {"alpha", "beta", "gamma"}}; }

TEST(Membership, BeginsTheViewWhenTheLastMemberHasJoined) {
  Membership m = coordinator();
  EXPECT_FALSE(m.joined({0}).begin);
  EXPECT_FALSE(m.joined({2}).begin);
  EXPECT_EQ(m.missing(), std::vector<Rank>{Rank{1}});
  EXPECT_TRUE(m.joined({1}).begin);
}

TEST(Membership, BeginsOnceWhenAMemberJoinsTwice) {
  Membership m = coordinator();
  m.joined({0});
  m.joined({1});
  EXPECT_TRUE(m.joined({2}).begin);
  EXPECT_FALSE(m.joined({2}).begin);
}

TEST(Membership, EndsTheViewOfALossWithRankNodeAndStep) {
  Membership m = coordinator();
  m.committed({41});
  const auto actions = m.lost({1}, {Code::peer_lost, "killed by signal 9"});
  ASSERT_TRUE(actions.abort.has_value());
  EXPECT_EQ(actions.abort->code(), Code::peer_lost);
  EXPECT_THAT(std::string{actions.abort->text()}, HasSubstr("rank 1 on node beta"));
  EXPECT_THAT(std::string{actions.abort->text()}, HasSubstr("step 42"));
  EXPECT_THAT(std::string{actions.abort->text()}, HasSubstr("killed by signal 9"));
}

TEST(Membership, EndsAViewOnlyOnce) {
  Membership m = coordinator();
  EXPECT_TRUE(m.lost({1}, {Code::peer_lost, "a"}).abort.has_value());
  EXPECT_FALSE(m.lost({2}, {Code::peer_lost, "b"}).abort.has_value());
  EXPECT_FALSE(m.failed({Code::device_fault, "c"}).abort.has_value());
}

TEST(Membership, LeavesWhenEveryMemberHasFinished) {
  Membership m = coordinator();
  EXPECT_FALSE(m.finished({0}).leave);
  EXPECT_FALSE(m.finished({1}).leave);
  EXPECT_TRUE(m.finished({2}).leave);
}

TEST(Membership, TakesNoLossSeriouslyAfterTheEnd) {
  Membership m = coordinator();
  m.left();
  EXPECT_FALSE(m.lost({1}, {Code::peer_lost, "gone"}).abort.has_value());
}

TEST(Membership, LeavesItToTheCoordinatorWhatALossMeansOnceItsPartIsDone) {
  Membership m({1}, {1}, {"a", "b", "c"});
  EXPECT_FALSE(m.finished({1}).leave);
  const Status why{Code::peer_lost, "its endpoint was closed"};
  EXPECT_FALSE(m.lost({2}, why).abort) << "it may have left with everybody";
  EXPECT_FALSE(m.failed(why).abort);
  const auto told = m.report_lost({2}, why);
  ASSERT_TRUE(told.abort.has_value());
  EXPECT_EQ(told.abort->code(), Code::peer_lost);

  Membership without_coordinator({1}, {1}, {"a", "b", "c"});
  without_coordinator.finished({1});
  EXPECT_TRUE(without_coordinator.lost({0}, why).abort.has_value());
}

TEST(Membership, PassesOnWhatFailedInItsOwnProcess) {
  Membership m = coordinator();
  const auto actions = m.failed({Code::device_fault, "the device is on fire"});
  ASSERT_TRUE(actions.abort.has_value());
  EXPECT_EQ(actions.abort->code(), Code::device_fault);
}

}  // namespace
}  // namespace troupe
