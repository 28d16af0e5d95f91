#include <algorithm>

#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// Handles that one side gives to another of an actor of the third, and what monitors and links do over all three.
namespace troupe::test::semantics {
namespace {

using Hand = caf::atom_constant<caf::atom("hand")>;  // as "servant" knows it
using Keep = caf::atom_constant<caf::atom("keep")>;
using Give = caf::atom_constant<caf::atom("give")>;
using Become = caf::atom_constant<caf::atom("become")>;  // as "changeling" knows it

class Thirds : public Semantics {
 protected:
  /// Of each side one.
  std::vector<caf::actor> mates() { return {near("mate"), far("mate"), third("mate")}; }
  void quit_by_exit(const caf::actor& who) {
    caf::anon_send_exit(who, caf::exit_reason::user_shutdown);
    EXPECT_EQ(end_of(who), "exit user_shutdown");
  }
  void quit(const caf::actor& who, std::uint8_t code) { (*self)->send(who, Quit::value, own_error(code, "")); }
};
INSTANTIATE_TEST_SUITE_P(Over, Thirds, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Thirds);

TEST_P(Thirds, GetMessagesByHandlesThatTheSecondGotFromTheFirst) {
  const auto beyond = third("mate");
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(order(far("mate"), Tell::value, beyond, std::to_string(i)), "normal");
  }
  const Deadline deadline = Deadline::after(kLong);
  std::string log;
  while (std::ranges::count(log = log_of(beyond), ' ') < 20 && !deadline.passed()) {
  }
  EXPECT_EQ(std::ranges::count(log, ' '), 20) << log;
}

TEST_P(Thirds, AnswerRequestsThatWerePassedOn) {
  for (std::int32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(ask<std::int32_t>(far("servant"), Hand::value, third("servant"), i), i);
    EXPECT_EQ(ask<std::int32_t>(near("servant"), Hand::value, third("servant"), i), i);
  }
}

TEST_P(Thirds, AnswerRequestsThatWerePassedOnToTheDead) {
  const auto dead = third("mate");
  quit(dead, 1);
  EXPECT_EQ(end_of(dead), "semantics 1");
  const auto answer = ask<std::int32_t>(far("servant"), Hand::value, dead, std::int32_t{5});
  EXPECT_EQ(brief(answer.error()), "system request_receiver_down");
}

TEST_P(Thirds, AnswerRequestsThatSomebodyPassedOnBeforeItsEnd) {
  const auto passing = far("servant");
  const auto skipping = third("changeling");
  auto passed = (*self)->request(passing, kLong, Hand::value, skipping, std::int32_t{5});
  EXPECT_EQ(ask<std::int32_t>(passing, Echo::value, std::int32_t{1}), 1);
  quit_by_exit(passing);
  (*self)->send(skipping, Become::value);
  std::string answer;
  passed.receive([&](std::int32_t x) { answer = std::to_string(x); }, [&](caf::error& e) { answer = brief(e); });
  EXPECT_EQ(answer, "5");
}

TEST_P(Thirds, ThatEndWithARequestThatWasPassedOnAnswerItWithAnError) {
  const auto skipping = third("changeling");
  const auto passing = far("servant");
  auto passed = (*self)->request(passing, kLong, Hand::value, skipping, std::int32_t{5});
  EXPECT_EQ(ask<std::int32_t>(passing, Echo::value, std::int32_t{1}), 1);
  quit_by_exit(skipping);
  std::string answer;
  passed.receive([&](std::int32_t x) { answer = std::to_string(x); }, [&](caf::error& e) { answer = brief(e); });
  EXPECT_EQ(answer, "system request_receiver_down");
}

TEST_P(Thirds, AreWatchedInACycle) {
  const auto all = mates();
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(order(all[i], Watch::value, all[(i + 1) % all.size()]), "normal");
  for (const auto& one : all) EXPECT_TRUE(lives(one));
  quit(all[2], 3);
  EXPECT_TRUE(log_becomes(all[1], "down:semantics 3 ")) << log_of(all[1]);
  quit(all[1], 2);
  EXPECT_TRUE(log_becomes(all[0], "down:semantics 2 ")) << log_of(all[0]);
}

TEST_P(Thirds, EndTogetherWhenTheyAreLinkedInACycle) {
  for (std::size_t first = 0; first < 3; ++first) {
    const auto all = mates();
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(order(all[i], Tie::value, all[(i + 1) % all.size()]), "normal");
    for (const auto& one : all) EXPECT_TRUE(lives(one));
    quit(all[first], 4);
    for (const auto& one : all) EXPECT_EQ(end_of(one), "semantics 4");
  }
}

TEST_P(Thirds, AreLinkedByWhoGotTheirHandle) {
  const auto between = far("mate");
  const auto beyond = third("mate");
  EXPECT_EQ(order(between, Tie::value, beyond), "normal");
  EXPECT_EQ(order(between, Tell::value, beyond, std::string("after")), "normal");
  EXPECT_TRUE(log_becomes(beyond, "after "));
  quit(between, 5);
  EXPECT_EQ(end_of(beyond), "semantics 5");
}

TEST_P(Thirds, KnowAHandleAgainThatWentAround) {
  const auto here = near("mate");
  // To the far side, from there to the third one, and from there home.
  EXPECT_EQ(order(far("servant"), Hand::value, here, std::int32_t{1}), "system unexpected_response");
  const auto mirror = far("mirror");
  const auto beyond = third("mirror");
  const auto once = ask<caf::actor>(mirror, here);
  ASSERT_TRUE(once) << brief(once.error());
  const auto twice = ask<std::vector<caf::actor>>(beyond, std::vector<caf::actor>{*once, mirror, beyond});
  ASSERT_TRUE(twice) << brief(twice.error());
  EXPECT_EQ(*twice, (std::vector<caf::actor>{here, mirror, beyond}));
}

class ThirdsAndDeaths : public MortalSemantics {
 protected:
  /// Of a request that `passing` has passed on to `skipping`, which never answers, when the far process is killed.
  Code answer_after_a_kill(const caf::actor& passing, const caf::actor& skipping) {
    auto passed = (*self)->request(passing, kLong, Hand::value, skipping, std::int32_t{5});
    EXPECT_EQ(ask<std::int32_t>(passing, Echo::value, std::int32_t{1}), 1);
    sides().kill_far();
    Code code = Code::ok;
    passed.receive([](std::int32_t) {}, [&](const caf::error& why) { code = from_caf(why).code(); });
    return code;
  }
};
INSTANTIATE_TEST_SUITE_P(Over, ThirdsAndDeaths, ::testing::ValuesIn(Sides::mortal_kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ThirdsAndDeaths);

constexpr const char* kUnreachable = "exit remote_link_unreachable";

TEST_P(ThirdsAndDeaths, EndAlongAChainOfLinksThroughAKilledProcess) {
  if (GetParam() == "shm") GTEST_SKIP() << "a kill may stop UCX's shared memory for all its users";
  const auto here = near("mate");
  const auto there = far("mate");
  const auto beyond = third("mate");
  const auto watching = third("mate");
  EXPECT_EQ(order(here, Tie::value, there), "normal");
  EXPECT_EQ(order(there, Tie::value, beyond), "normal");
  EXPECT_EQ(order(watching, Watch::value, there), "normal");
  EXPECT_EQ(order(there, Tell::value, beyond, std::string("after")), "normal");
  EXPECT_TRUE(log_becomes(beyond, "after "));
  sides().kill_far();
  EXPECT_EQ(end_of(here), kUnreachable);
  EXPECT_EQ(end_of(beyond), kUnreachable);
  EXPECT_TRUE(log_becomes(watching, "down:" + std::string(kUnreachable) + " ")) << log_of(watching);
}

TEST_P(ThirdsAndDeaths, HandlesOfAKilledProcessAreOfEndedActorsWhereverTheyGo) {
  if (GetParam() == "shm") GTEST_SKIP() << "a kill may stop UCX's shared memory for all its users";
  const auto there = far("mate");
  const auto beyond = third("mate");
  (*self)->monitor(there);
  sides().kill_far();
  EXPECT_EQ(next_down(), kUnreachable);
  EXPECT_EQ(order(beyond, Watch::value, there), "normal");
  EXPECT_TRUE(log_becomes(beyond, "down:" + std::string(kUnreachable) + " ")) << log_of(beyond);
  (*self)->send(beyond, Tie::value, there);
  EXPECT_EQ(end_of(beyond), kUnreachable);
}

TEST_P(ThirdsAndDeaths, FailRequestsThatWerePassedOnToAKilledProcess) {
  EXPECT_EQ(answer_after_a_kill(third("servant"), far("changeling")), Code::peer_lost);
}

TEST_P(ThirdsAndDeaths, FailRequestsThatAKilledProcessHasPassedOn) {
  EXPECT_EQ(answer_after_a_kill(far("servant"), third("changeling")), Code::peer_lost);
}

TEST_P(ThirdsAndDeaths, FailRequestsThatArePassedOnToAProcessThatWasKilledBefore) {
  if (GetParam() == "shm")
    GTEST_SKIP() << "UCX calls it an error of the environment that memory of a dead process cannot be attached";
  const auto dead = far("servant");
  const auto passing = third("servant");
  (*self)->monitor(dead);
  sides().kill_far();
  EXPECT_EQ(next_down(), kUnreachable);
  const auto answer = ask<std::int32_t>(passing, Hand::value, dead, std::int32_t{5});
  EXPECT_EQ(from_caf(answer.error()).code(), Code::peer_lost) << from_caf(answer.error()).text();
}

TEST_P(ThirdsAndDeaths, GoOnInTheMiddleOfAFlood) {
  if (GetParam() == "shm") GTEST_SKIP() << "a kill may stop UCX's shared memory for all its users";
  const auto there = far("mate");
  const auto beyond = third("mate");
  // UCX 1.13 may end a process in an assertion if its peer is killed while the two connect (docs/gotchas.md).
  EXPECT_EQ(order(there, Tell::value, beyond, std::string("first")), "normal");
  EXPECT_TRUE(log_becomes(beyond, "first "));
  std::vector<caf::actor> dying;
  for (int i = 0; i < 20; ++i) dying.push_back(far("mate"));
  for (std::int32_t i = 0; i < 5000; ++i) {
    (*self)->send(dying[static_cast<std::size_t>(i) % dying.size()], Tell::value, beyond, std::string("x"));
    if (i == 2500) sides().kill_far();
  }
  for (const auto& one : dying) EXPECT_EQ(end_of(one), kUnreachable);
  for (std::int32_t i = 0; i < 100; ++i) EXPECT_EQ(ask<std::int32_t>(beyond, Echo::value, i), i);
}

}  // namespace
}  // namespace troupe::test::semantics
