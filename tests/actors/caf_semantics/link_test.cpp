#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// Links, for each side that can make them and take them back.
namespace troupe::test::semantics {
namespace {

class Links : public Semantics {
 protected:
  bool log_gets(const caf::actor& mate, const std::string& what) {
    const Deadline deadline = Deadline::after(kLong);
    while (log_of(mate).find(what + " ") == std::string::npos) {
      if (deadline.passed()) return false;
    }
    return true;
  }
  void link(const caf::actor& who, const caf::actor& to) {
    EXPECT_EQ(order(who, Tie::value, to), "normal");
    settle(who, to);
  }
  void unlink(const caf::actor& who, const caf::actor& from) {
    EXPECT_EQ(order(who, Untie::value, from), "normal");
    settle(who, from);
  }
  /// When this returns, everything that the two sent each other before has arrived, since messages from one process to
  /// one actor keep their order.
  void settle(const caf::actor& one, const caf::actor& other) {
    const std::string mark = "mark" + std::to_string(++marks_);
    EXPECT_EQ(order(one, Tell::value, other, mark), "normal");
    EXPECT_TRUE(log_gets(other, mark)) << log_of(other);
    EXPECT_EQ(order(other, Tell::value, one, mark), "normal");
    EXPECT_TRUE(log_gets(one, mark)) << log_of(one);
  }
  void quit(const caf::actor& who, std::uint8_t code = 50) {
    (*self)->send(who, Quit::value, own_error(code, "asked to"));
    EXPECT_EQ(end_of(who), "semantics " + std::to_string(code));
  }
  /// Whether it is still alive after the other one has ended: its process has sent all notices by now.
  bool survives(const caf::actor& mate) {
    for (int i = 0; i < 5; ++i) {
      if (!lives(far_witness_) || !lives(near_witness_) || !lives(mate)) return false;
    }
    return true;
  }
  void SetUp() override {
    Semantics::SetUp();
    far_witness_ = far("mate");
    near_witness_ = near("mate");
    here = near("mate");
    there = far("mate");
  }
  void TearDown() override {
    for (caf::actor* const mate : {&far_witness_, &near_witness_, &here, &there}) *mate = {};
    Semantics::TearDown();
  }
  const caf::actor& other(const caf::actor& than) const { return than == here ? there : here; }
  /// The link that `maker` makes, and that `breaker` takes back, does nothing to the other one when `ended` ends.
  void expect_taken_back(const caf::actor& maker, const caf::actor& breaker, const caf::actor& ended) {
    link(maker, other(maker));
    unlink(breaker, other(breaker));
    quit(ended);
    EXPECT_TRUE(survives(other(ended)));
  }
  /// The link that `maker` makes ends the other one when `ended` ends.
  void expect_ends(const caf::actor& maker, const caf::actor& ended) {
    link(maker, other(maker));
    quit(ended);
    EXPECT_EQ(end_of(other(ended)), "semantics 50");
  }

  caf::actor here;  // two that are linked
  caf::actor there;

 private:
  caf::actor far_witness_;
  caf::actor near_witness_;
  int marks_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Over, Links, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Links);

TEST_P(Links, EndTheNearActorThatMadeThem) { expect_ends(here, there); }

TEST_P(Links, EndTheFarActorWhenTheNearOneThatMadeThemEnds) { expect_ends(here, here); }

TEST_P(Links, EndTheFarActorThatMadeThem) { expect_ends(there, here); }

TEST_P(Links, EndTheNearActorWhenTheFarOneThatMadeThemEnds) { expect_ends(there, there); }

TEST_P(Links, OfTheNearActorAreTakenBackByIt) { expect_taken_back(here, here, there); }

TEST_P(Links, OfTheNearActorThatItTookBackDoNotEndTheFarOne) { expect_taken_back(here, here, here); }

TEST_P(Links, OfTheNearActorAreTakenBackByTheFarOne) { expect_taken_back(here, there, there); }

TEST_P(Links, OfTheNearActorThatTheFarOneTookBackDoNotEndTheFarOne) { expect_taken_back(here, there, here); }

TEST_P(Links, OfTheFarActorAreTakenBackByTheNearOne) { expect_taken_back(there, here, there); }

TEST_P(Links, OfTheFarActorThatTheNearOneTookBackDoNotEndTheFarOne) { expect_taken_back(there, here, here); }

TEST_P(Links, OfTheFarActorAreTakenBackByIt) { expect_taken_back(there, there, here); }

TEST_P(Links, OfTheFarActorThatItTookBackDoNotEndTheNearOne) { expect_taken_back(there, there, there); }

TEST_P(Links, MadeTwiceAreTakenBackAtOnce) {
  link(here, there);
  link(there, here);
  expect_taken_back(here, here, there);
}

TEST_P(Links, CanBeMadeAgain) {
  link(here, there);
  unlink(there, here);
  link(here, there);
  quit(there);
  EXPECT_EQ(end_of(here), "semantics 50");
}

TEST_P(Links, ToTheDeadEndTheNearActor) {
  quit(there);
  (*self)->send(here, Tie::value, there);
  EXPECT_EQ(end_of(here), "semantics 50");
}

TEST_P(Links, LetActorsLiveWhenTheOtherEndsNormally) {
  link(here, there);
  (*self)->send(there, Quit::value, caf::error{});
  EXPECT_EQ(end_of(there), "normal");
  EXPECT_TRUE(survives(here));
}

TEST_P(Links, GiveExitMessagesToWhoHandlesThem) {
  EXPECT_EQ(order(here, Trap::value), "normal");
  link(here, there);
  quit(there);
  EXPECT_TRUE(log_gets(here, "exit:semantics 50")) << log_of(here);
}

TEST_P(Links, GiveExitMessagesToTheFarActorThatHandlesThem) {
  EXPECT_EQ(order(there, Trap::value), "normal");
  link(here, there);
  quit(here);
  EXPECT_TRUE(log_gets(there, "exit:semantics 50")) << log_of(there);
}

TEST_P(Links, TellOfNormalEndsToWhoHandlesExitMessages) {
  EXPECT_EQ(order(here, Trap::value), "normal");
  link(there, here);
  (*self)->send(there, Quit::value, caf::error{});
  EXPECT_TRUE(log_gets(here, "exit:normal")) << log_of(here);
}

TEST_P(Links, ByWhichAnActorIsKilledCannotBeTrapped) {
  EXPECT_EQ(order(here, Trap::value), "normal");
  link(here, there);
  (*self)->send_exit(there, caf::exit_reason::kill);
  EXPECT_EQ(end_of(here), "exit kill");
}

TEST_P(Links, AreNotNeededForAnExitMessage) {
  EXPECT_EQ(order(there, Trap::value), "normal");
  EXPECT_EQ(order(here, Expel::value, there, own_error(51, "")), "normal");
  EXPECT_TRUE(log_gets(there, "exit:semantics 51")) << log_of(there);
  EXPECT_EQ(order(there, Expel::value, here, own_error(52, "")), "normal");
  EXPECT_EQ(end_of(here), "semantics 52");
}

TEST_P(Links, AreTakenBackByTheExitMessageOfWhoIsLinked) {
  link(here, there);
  EXPECT_EQ(order(here, Expel::value, there, own_error(53, "")), "normal");
  EXPECT_EQ(end_of(there), "semantics 53");
  EXPECT_TRUE(survives(here));
}

TEST_P(Links, EndAChainOverBothSides) {
  std::vector<caf::actor> chain;
  for (int i = 0; i < 4; ++i) {
    chain.push_back(near("mate"));
    chain.push_back(far("mate"));
  }
  for (std::size_t i = 1; i < chain.size(); ++i) link(chain[i - 1], chain[i]);
  (*self)->send(chain.back(), Quit::value, own_error(54, ""));
  for (const auto& one : chain) EXPECT_EQ(end_of(one), "semantics 54");
}

TEST_P(Links, EndAGroupInWhichEachIsLinkedToEach) {
  std::vector<caf::actor> all;
  for (int i = 0; i < 3; ++i) {
    all.push_back(near("mate"));
    all.push_back(far("mate"));
  }
  for (const auto& one : all) {
    for (const auto& other : all) {
      if (one != other) {
        EXPECT_EQ(order(one, Tie::value, other), "normal");
      }
    }
  }
  (*self)->send(all[1], Quit::value, own_error(55, ""));
  for (const auto& one : all) EXPECT_EQ(end_of(one), "semantics 55");
}

TEST_P(Links, OfManyToOneAllEnd) {
  const auto there = far("mate");
  std::vector<caf::actor> here;
  for (int i = 0; i < 40; ++i) {
    here.push_back(near("mate"));
    EXPECT_EQ(order(i % 2 == 0 ? here.back() : there, Tie::value, i % 2 == 0 ? there : here.back()), "normal");
  }
  for (const auto& one : here) settle(there, one);
  (*self)->send(there, Quit::value, own_error(56, ""));
  for (const auto& one : here) EXPECT_EQ(end_of(one), "semantics 56");
}

}  // namespace
}  // namespace troupe::test::semantics
