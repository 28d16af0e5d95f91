#include <future>

#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// Down messages, and functions that are attached to actors.
namespace troupe::test::semantics {
namespace {

class Monitors : public Semantics {};
INSTANTIATE_TEST_SUITE_P(Over, Monitors, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Monitors);

TEST_P(Monitors, AreToldEveryReason) {
  const std::vector<std::pair<caf::error, std::string>> reasons{
      {caf::error{}, "normal"},
      {caf::make_error(caf::exit_reason::user_shutdown), "exit user_shutdown"},
      {caf::make_error(caf::exit_reason::kill), "exit kill"},
      {caf::make_error(caf::exit_reason::unreachable), "exit unreachable"},
      {caf::make_error(caf::sec::bad_function_call), "system bad_function_call"},
      {own_error(77, "of our own"), "semantics 77"}};
  for (const auto& [reason, text] : reasons) {
    const auto mate = far("mate");
    (*self)->monitor(mate);
    (*self)->send(mate, Quit::value, reason);
    EXPECT_EQ(next_down(), text);
  }
}

TEST_P(Monitors, AreToldTheContextOfAnError) {
  const auto mate = far("mate");
  (*self)->monitor(mate);
  (*self)->send(mate, Quit::value, own_error(77, "of our own"));
  std::string text;
  (*self)->receive(
      [&](const caf::down_msg& down) {
        if (down.reason.context().match_elements<std::string>()) text = down.reason.context().get_as<std::string>(0);
      },
      caf::after(kLong) >> [] {});
  EXPECT_EQ(text, "of our own");
}

TEST_P(Monitors, AreToldWhoItWas) {
  const auto mate = far("mate");
  (*self)->monitor(mate);
  (*self)->send(mate, Quit::value, caf::error{});
  caf::actor_addr who;
  (*self)->receive([&](const caf::down_msg& down) { who = down.source; }, caf::after(kLong) >> [] {});
  EXPECT_EQ(who, mate.address());
}

TEST_P(Monitors, AreToldOfAnException) {
  const auto mate = far("mate");
  (*self)->monitor(mate);
  (*self)->send(mate, Throw::value);
  EXPECT_EQ(next_down(), "system runtime_error");
}

TEST_P(Monitors, AreToldOfExitMessagesThatEndedTheirActor) {
  const auto mate = far("mate");
  (*self)->monitor(mate);
  (*self)->send_exit(mate, caf::exit_reason::user_shutdown);
  EXPECT_EQ(next_down(), "exit user_shutdown");
}

TEST_P(Monitors, OfTheDeadAreToldAtOnceAndWhy) {
  const auto mate = far("mate");
  (*self)->monitor(mate);
  (*self)->send(mate, Quit::value, own_error(77, "of our own"));
  EXPECT_EQ(next_down(), "semantics 77");
  (*self)->monitor(mate);
  EXPECT_EQ(next_down(), "semantics 77");
}

TEST_P(Monitors, ThatAreTakenBackAreToldNothing) {
  const auto watching = near("mate");
  const auto watched = far("mate");
  EXPECT_EQ(order(watching, Watch::value, watched), "normal");
  EXPECT_EQ(order(watching, Unwatch::value, watched), "normal");
  const auto other = far("mate");
  EXPECT_EQ(order(watching, Watch::value, other), "normal");
  (*self)->send(watched, Quit::value, own_error(1, ""));
  EXPECT_EQ(end_of(watched), "semantics 1");
  (*self)->send(other, Quit::value, own_error(2, ""));
  EXPECT_TRUE(log_becomes(watching, "down:semantics 2 ")) << log_of(watching);
}

TEST_P(Monitors, OfTheOtherSideAreToldToo) {
  const auto watching = far("mate");
  const auto watched = near("mate");
  EXPECT_EQ(order(watching, Watch::value, watched), "normal");
  (*self)->send(watched, Quit::value, own_error(3, ""));
  EXPECT_TRUE(log_becomes(watching, "down:semantics 3 ")) << log_of(watching);
}

TEST_P(Monitors, OfTheOtherSideThatAreTakenBackAreToldNothing) {
  const auto watching = far("mate");
  const auto watched = near("mate");
  EXPECT_EQ(order(watching, Watch::value, watched), "normal");
  EXPECT_EQ(order(watching, Unwatch::value, watched), "normal");
  const auto other = near("mate");
  EXPECT_EQ(order(watching, Watch::value, other), "normal");
  (*self)->send(watched, Quit::value, own_error(1, ""));
  EXPECT_EQ(end_of(watched), "semantics 1");
  (*self)->send(other, Quit::value, own_error(2, ""));
  EXPECT_TRUE(log_becomes(watching, "down:semantics 2 ")) << log_of(watching);
}

TEST_P(Monitors, OfOneActorAreAllTold) {
  const auto watched = far("mate");
  std::vector<caf::actor> watching;
  for (int i = 0; i < 30; ++i) {
    watching.push_back(i % 2 == 0 ? near("mate") : far("mate"));
    EXPECT_EQ(order(watching.back(), Watch::value, watched), "normal");
  }
  (*self)->send(watched, Quit::value, own_error(4, ""));
  for (const auto& one : watching) EXPECT_TRUE(log_becomes(one, "down:semantics 4 ")) << log_of(one);
}

TEST_P(Monitors, AreToldAsOftenAsTheyWereSet) {
  const auto watched = far("mate");
  (*self)->monitor(watched);
  (*self)->monitor(watched);
  (*self)->send(watched, Quit::value, own_error(5, ""));
  EXPECT_EQ(next_down(), "semantics 5");
  EXPECT_EQ(next_down(), "semantics 5");
}

TEST_P(Monitors, OfManyActorsAreToldOfEach) {
  std::vector<caf::actor> watched;
  for (int i = 0; i < 50; ++i) {
    watched.push_back(far("mate"));
    (*self)->monitor(watched.back());
  }
  for (const auto& one : watched) (*self)->send(one, Quit::value, own_error(6, ""));
  for (std::size_t i = 0; i < watched.size(); ++i) EXPECT_EQ(next_down(), "semantics 6");
}

TEST_P(Monitors, AreToldWhenTheirHandleCameThroughTheOtherSide) {
  const auto watched = near("mate");
  const auto watching = near("mate");
  const auto between = far("mate");
  // The far side holds the handle before it is sent back to the near one.
  EXPECT_EQ(order(between, Watch::value, watched), "normal");
  EXPECT_EQ(order(watching, Watch::value, watched), "normal");
  (*self)->send(watched, Quit::value, own_error(8, ""));
  EXPECT_TRUE(log_becomes(watching, "down:semantics 8 "));
  EXPECT_TRUE(log_becomes(between, "down:semantics 8 "));
}

TEST_P(Monitors, AndFunctionsThatAreAttachedAreCalled) {
  const auto mate = far("mate");
  auto told = std::make_shared<std::promise<std::string>>();
  mate->attach_functor([told](const caf::error& reason) { told->set_value(brief(reason)); });
  (*self)->send(mate, Quit::value, own_error(9, ""));
  auto end = told->get_future();
  ASSERT_EQ(end.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(end.get(), "semantics 9");
}

TEST_P(Monitors, AndFunctionsThatAreAttachedToTheDeadAreCalledAtOnce) {
  const auto mate = far("mate");
  (*self)->send(mate, Quit::value, own_error(9, ""));
  EXPECT_EQ(end_of(mate), "semantics 9");
  auto told = std::make_shared<std::promise<std::string>>();
  mate->attach_functor([told](const caf::error& reason) { told->set_value(brief(reason)); });
  auto end = told->get_future();
  ASSERT_EQ(end.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(end.get(), "semantics 9");
}

TEST_P(Monitors, AndWeakHandlesKeepNobodyAlive) {
  auto mate = far("mate");
  const caf::actor_addr address = mate.address();
  EXPECT_EQ(caf::actor_cast<caf::actor>(address), mate);
  (*self)->monitor(address);
  (*self)->send(caf::actor_cast<caf::actor>(address), Quit::value, own_error(10, ""));
  EXPECT_EQ(next_down(), "semantics 10");
}

}  // namespace
}  // namespace troupe::test::semantics
