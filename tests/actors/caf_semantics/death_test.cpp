#include <future>

#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// The far side is killed without warning: whoever is linked to its actors or monitors them is notified.
namespace troupe::test::semantics {
namespace {

constexpr const char* kUnreachable = "exit remote_link_unreachable";

class Deaths : public MortalSemantics {};
INSTANTIATE_TEST_SUITE_P(Over, Deaths, ::testing::ValuesIn(Sides::mortal_kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Deaths);

TEST_P(Deaths, EndActorsThatWereLinkedByEitherSide) {
  const auto there = far("mate");
  const auto linking = near("mate");
  const auto linked = near("mate");
  const auto beyond = near("mate");
  const auto alone = near("mate");
  EXPECT_EQ(order(linking, Tie::value, there), "normal");
  EXPECT_EQ(order(there, Tie::value, linked), "normal");
  EXPECT_EQ(order(beyond, Tie::value, linked), "normal");
  EXPECT_EQ(order(there, Tell::value, linked, std::string("after the link")), "normal");
  EXPECT_TRUE(lives(there));
  const Deadline deadline = Deadline::after(kLong);
  while (ask<std::string>(linked, Log::value) != std::string("after the link ") && !deadline.passed()) {
  }
  sides().kill_far();
  EXPECT_EQ(end_of(linking), kUnreachable);
  EXPECT_EQ(end_of(linked), kUnreachable);
  EXPECT_EQ(end_of(beyond), kUnreachable);
  EXPECT_TRUE(lives(alone));
}

TEST_P(Deaths, AreExitMessagesForActorsThatHandleThem) {
  const auto there = far("mate");
  const auto here = near("mate");
  EXPECT_EQ(order(here, Trap::value), "normal");
  EXPECT_EQ(order(here, Tie::value, there), "normal");
  EXPECT_TRUE(lives(there));
  sides().kill_far();
  const Deadline deadline = Deadline::after(kLong);
  std::string log;
  while (log.empty() && !deadline.passed()) log = *ask<std::string>(here, Log::value);
  EXPECT_EQ(log, "exit:" + std::string(kUnreachable) + " ");
}

TEST_P(Deaths, DoNotEndActorsThatHadRemovedTheirLink) {
  const auto there = far("mate");
  const auto by_here = near("mate");
  const auto by_there = near("mate");
  EXPECT_EQ(order(by_here, Tie::value, there), "normal");
  EXPECT_EQ(order(by_there, Tie::value, there), "normal");
  EXPECT_TRUE(lives(there));
  EXPECT_EQ(order(by_here, Untie::value, there), "normal");
  EXPECT_EQ(order(there, Untie::value, by_there), "normal");
  EXPECT_EQ(order(there, Tell::value, by_there, std::string("after")), "normal");
  const Deadline deadline = Deadline::after(kLong);
  while (ask<std::string>(by_there, Log::value) != std::string("after ") && !deadline.passed()) {
  }
  (*self)->monitor(there);
  sides().kill_far();
  EXPECT_EQ(next_down(), kUnreachable);
  EXPECT_TRUE(lives(by_here));
  EXPECT_TRUE(lives(by_there));
}

TEST_P(Deaths, AreReportedToMonitorsThatWereSetBeforeAndAfter) {
  const auto there = far("mate");
  (*self)->monitor(there);
  EXPECT_TRUE(lives(there));
  sides().kill_far();
  EXPECT_EQ(next_down(), kUnreachable);
  EXPECT_EQ(end_of(there), kUnreachable);
}

TEST_P(Deaths, FailRequestsThatWereSentBeforeAndAfter) {
  const auto there = far("mate");
  auto never = (*self)->request(there, kLong, Never::value);
  EXPECT_TRUE(lives(there));
  sides().kill_far();
  Code code = Code::ok;
  never.receive([](std::int32_t) {}, [&](const caf::error& why) { code = from_caf(why).code(); });
  EXPECT_EQ(code, Code::peer_lost);
  const auto later = ask<std::int32_t>(there, Echo::value, 5);
  ASSERT_FALSE(later);
  EXPECT_EQ(from_caf(later.error()).code(), Code::peer_lost);
}

TEST_P(Deaths, CallAttachedFunctions) {
  const auto there = far("mate");
  auto told = std::make_shared<std::promise<std::string>>();
  there->attach_functor([told](const caf::error& reason) { told->set_value(brief(reason)); });
  EXPECT_TRUE(lives(there));
  sides().kill_far();
  auto end = told->get_future();
  ASSERT_EQ(end.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(end.get(), kUnreachable);
}

TEST_P(Deaths, EndActorsThatLinkThemselvesAfterwards) {
  const auto there = far("mate");
  const auto here = near("mate");
  (*self)->monitor(there);
  EXPECT_TRUE(lives(there));
  sides().kill_far();
  EXPECT_EQ(next_down(), kUnreachable);
  (*self)->send(here, Tie::value, there);
  EXPECT_EQ(end_of(here), kUnreachable);
}

TEST_P(Deaths, MakeSendsToDeadActorsHaveNoEffect) {
  const auto there = far("mate");
  const auto here = near("mate");
  (*self)->monitor(there);
  EXPECT_TRUE(lives(there));
  sides().kill_far();
  for (int i = 0; i < 1000; ++i) (*self)->send(there, Note::value, std::string("nobody"));
  EXPECT_EQ(next_down(), kUnreachable);
  EXPECT_TRUE(lives(here));
}

}  // namespace
}  // namespace troupe::test::semantics
