#include <caf/event_based_actor.hpp>
#include <caf/response_promise.hpp>
#include <caf/scheduled_actor.hpp>
#include <caf/stateful_actor.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "actors/group/registration.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// Many messages at once: nothing is dropped, no actor is blocked by another, and the order is kept.
namespace troupe::test::semantics {
namespace {

using Release = caf::atom_constant<caf::atom("release")>;  // "stasher": from now on takes what it has skipped
using Total = caf::atom_constant<caf::atom("total")>;      // how many numbers came, if in order; else -1
using Burst = caf::atom_constant<caf::atom("burst")>;      // (Burst, actor, n): sends n from one handler
using Ask = caf::atom_constant<caf::atom("ask")>;          // (Ask, actor, n): n requests from one handler
using Duel = caf::atom_constant<caf::atom("duel")>;        // (Duel, actor, n): sends n, answers when n have come
using Block = caf::atom_constant<caf::atom("block")>;      // (Block, gate): blocks until it is open
using Open = caf::atom_constant<caf::atom("open")>;        // (Open, gate)
using Shut = caf::atom_constant<caf::atom("shut")>;        // (Shut, gate): whether somebody is blocked by it
using Gather = caf::atom_constant<caf::atom("gather")>;    // (Gather, n): keeps its thread until n messages wait for it
using Talk = caf::atom_constant<caf::atom("talk")>;        // (Talk, n): tells the sender n numbers, then answers
using Fail = caf::atom_constant<caf::atom("fail")>;        // (Fail, n): the same, then answers with an error
using Kick = caf::atom_constant<caf::atom("kick")>;        // (Kick, n): the same, then sends an exit message
using Leave = caf::atom_constant<caf::atom("leave")>;      // (Leave, n): the same, then ends
using Hear = caf::atom_constant<caf::atom("hear")>;        // (Hear, talker, n): lets it Talk; answers what came before
using HearFail = caf::atom_constant<caf::atom("hearfail")>;
using HearKick = caf::atom_constant<caf::atom("hearkick")>;
using HearEnd = caf::atom_constant<caf::atom("hearend")>;
using Pass = caf::atom_constant<caf::atom("pass")>;  // (Pass, actors, n): round them, until n is 0

/// Numbers 0, 1, 2, ... of one sender.
struct Counted {
  std::int32_t count = 0;
  bool in_order = true;
  void take(std::int32_t number) {
    in_order = in_order && number == count;
    ++count;
  }
  std::int32_t total() const { return in_order ? count : -1; }
};

/// Blocks the handlers of one process until it is opened.
class Gates {
 public:
  void block(const std::string& gate) {
    std::unique_lock hold(mutex_);
    ++blocked_[gate];
    opened_.wait_for(hold, 3 * kLong, [&] { return open_[gate]; });
    --blocked_[gate];
  }
  void open(const std::string& gate) {
    const std::scoped_lock hold(mutex_);
    open_[gate] = true;
    opened_.notify_all();
  }
  bool blocks(const std::string& gate) {
    const std::scoped_lock hold(mutex_);
    return blocked_[gate] > 0;
  }

 private:
  std::mutex mutex_;  // guards all of it
  std::condition_variable opened_;
  std::map<std::string, bool> open_;
  std::map<std::string, int> blocked_;
};

Gates& gates() {
  static Gates all;
  return all;
}

caf::behavior stasher(caf::stateful_actor<Counted>* self) {
  self->set_default_handler(caf::skip);
  return {[=](Release) {
    self->become([=](std::int32_t number) { self->state.take(number); }, [=](Total) { return self->state.total(); });
  }};
}

/// Answers each number with the same number.
caf::behavior answerer(caf::stateful_actor<Counted>* self) {
  return {[=](std::int32_t number) {
            self->state.take(number);
            return number;
          },
          [=](Total) { return self->state.total(); }};
}

struct BursterState {
  Counted came;
  std::int32_t expected = 0;
  caf::response_promise done;
};

caf::behavior burster(caf::stateful_actor<BursterState>* self) {
  auto& s = self->state;
  const auto look = [self] {
    auto& s = self->state;
    if (s.done.pending() && s.came.count >= s.expected) s.done.deliver(s.came.total());
  };
  const auto begin = [self](std::int32_t n) {
    self->state.expected = n;
    self->state.done = self->make_response_promise();
    return caf::delegated<std::int32_t>{};
  };
  return {[=](Burst, const caf::actor& other, std::int32_t n) -> caf::result<std::int32_t> {
            const auto later = begin(n);
            for (std::int32_t i = 0; i < n; ++i) self->send(other, i);
            return later;
          },
          [=](Ask, const caf::actor& other, std::int32_t n) -> caf::result<std::int32_t> {
            const auto later = begin(n);
            for (std::int32_t i = 0; i < n; ++i) {
              self->request(other, caf::infinite, i)
                  .then(
                      [=](std::int32_t number) {
                        self->state.came.take(number);
                        look();
                      },
                      [=](const caf::error& why) { self->state.done.deliver(why); });
            }
            return later;
          },
          [=](Duel, const caf::actor& other, std::int32_t n) -> caf::result<std::int32_t> {
            const auto later = begin(n);
            for (std::int32_t i = 0; i < n; ++i) self->send(other, i);
            look();
            return later;
          },
          [=, &s](std::int32_t number) {
            s.came.take(number);
            look();
          }};
}

struct BlockedState {
  Counted came;
  std::string log;
};

caf::behavior blocked(caf::stateful_actor<BlockedState>* self) {
  return {[=](Block, const std::string& gate) { gates().block(gate); },
          [=](Open, const std::string& gate) { gates().open(gate); },
          [=](Shut, const std::string& gate) { return gates().blocks(gate); },
          [=](Gather, std::uint64_t n) {
            const Deadline deadline = Deadline::after(kLong);
            do {
              self->mailbox().fetch_more();
              std::this_thread::yield();
            } while (self->mailbox().queue().total_task_size() < n && !deadline.passed());
          },
          [=](std::int32_t number) {
            self->state.came.take(number);
            return number;
          },
          [=](Note, const std::string& what) { self->state.log += what + " "; },
          [=](Log) { return self->state.log; },
          [=](Total) { return self->state.came.total(); }};
}

caf::behavior talker(caf::event_based_actor* self) {
  const auto talk = [self](std::int32_t n) {
    const auto to = caf::actor_cast<caf::actor>(self->current_sender());
    for (std::int32_t i = 0; i < n; ++i) self->send(to, i);
    return to;
  };
  return {[=](Talk, std::int32_t n) { talk(n); },
          [=](Fail, std::int32_t n) -> caf::result<void> {
            talk(n);
            return own_error(9, "after " + std::to_string(n));
          },
          [=](Kick, std::int32_t n) { self->send_exit(talk(n), caf::exit_reason::user_shutdown); },
          [=](Leave, std::int32_t n) {
            talk(n);
            self->quit(caf::exit_reason::user_shutdown);
          }};
}

/// Records how many numbers arrived before another message did.
caf::behavior listener(caf::stateful_actor<BursterState>* self) {
  const auto finish = [self] { self->state.done.deliver(self->state.came.total()); };
  const auto begin = [self] {
    self->state.done = self->make_response_promise();
    return caf::delegated<std::int32_t>{};
  };
  self->set_exit_handler([=](const caf::exit_msg&) { finish(); });
  self->set_down_handler([=](const caf::down_msg&) { finish(); });
  return {[=](std::int32_t number) { self->state.came.take(number); },
          [=](Hear, const caf::actor& other, std::int32_t n) -> caf::result<std::int32_t> {
            self->request(other, caf::infinite, Talk::value, n).then([=] { finish(); });
            return begin();
          },
          [=](HearFail, const caf::actor& other, std::int32_t n) -> caf::result<std::int32_t> {
            self->request(other, caf::infinite, Fail::value, n).then([] {}, [=](const caf::error&) { finish(); });
            return begin();
          },
          [=](HearKick, const caf::actor& other, std::int32_t n) -> caf::result<std::int32_t> {
            self->send(other, Kick::value, n);
            return begin();
          },
          [=](HearEnd, const caf::actor& other, std::int32_t n) -> caf::result<std::int32_t> {
            self->monitor(other);
            self->send(other, Leave::value, n);
            return begin();
          }};
}

/// One actor of a ring.
caf::behavior passer(caf::event_based_actor* self) {
  return {[=](Pass, const std::vector<caf::actor>& ring, std::int32_t n) -> caf::result<std::int32_t> {
    if (n == 0) return 0;
    self->delegate(ring[static_cast<std::size_t>(n) % ring.size()], Pass::value, ring, n - 1);
    return caf::delegated<std::int32_t>{};
  }};
}

class Floods : public Semantics {};
INSTANTIATE_TEST_SUITE_P(Over, Floods, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Floods);

TEST_P(Floods, OfSkippedMessagesWaitForTheOneThatReleasesThem) {
  const auto stash = far("stasher");
  for (std::int32_t i = 0; i < 2000; ++i) (*self)->send(stash, i);
  (*self)->send(stash, Release::value);
  EXPECT_EQ(ask<std::int32_t>(stash, Total::value), 2000);
}

TEST_P(Floods, OfSkippedMessagesLetAnotherActorThatSkipsHaveItsOwn) {
  const auto first = far("stasher");
  const auto second = far("stasher");
  const auto other = far("mate");
  for (std::int32_t i = 0; i < 2000; ++i) {
    (*self)->send(first, i);
    (*self)->send(second, i);
  }
  EXPECT_EQ(ask<std::int32_t>(other, Echo::value, 5), 5);
  (*self)->send(second, Release::value);
  EXPECT_EQ(ask<std::int32_t>(second, Total::value), 2000);
  (*self)->send(first, Release::value);
  EXPECT_EQ(ask<std::int32_t>(first, Total::value), 2000);
}

TEST_P(Floods, OfSkippedMessagesComeFromManySenders) {
  const auto stash = far("stasher");
  std::vector<caf::actor> bursters;
  for (int i = 0; i < 4; ++i) bursters.push_back(near("burster"));
  for (const auto& one : bursters) (*self)->send(one, Burst::value, stash, 1000);
  for (const auto& one : bursters) caf::anon_send_exit(one, caf::exit_reason::user_shutdown);
  for (const auto& one : bursters) EXPECT_EQ(end_of(one), "exit user_shutdown");
  (*self)->send(stash, Release::value);
  const auto total = ask<std::int32_t>(stash, Total::value);  // of all, out of order
  EXPECT_EQ(total, -1);
}

TEST_P(Floods, OfSendsFromOneHandlerAreAllAnswered) {
  EXPECT_EQ(ask<std::int32_t>(near("burster"), Burst::value, far("answerer"), 60'000), 60'000);
}

TEST_P(Floods, OfRequestsFromOneHandlerAreAllAnswered) {
  EXPECT_EQ(ask<std::int32_t>(near("burster"), Ask::value, far("answerer"), 20'000), 20'000);
}

TEST_P(Floods, FromTheOtherSideAreAllAnswered) {
  EXPECT_EQ(ask<std::int32_t>(far("burster"), Burst::value, near("answerer"), 60'000), 60'000);
}

TEST_P(Floods, FromBothSidesAtOnceArrive) {
  const auto here = near("burster");
  const auto there = far("burster");
  caf::scoped_actor other(system());
  auto of_here = (*self)->request(here, kLong, Duel::value, there, 40'000);
  auto of_there = other->request(there, kLong, Duel::value, here, 40'000);
  std::int32_t came_here = 0;
  std::int32_t came_there = 0;
  of_here.receive([&](std::int32_t n) { came_here = n; }, [](const caf::error& e) { ADD_FAILURE() << brief(e); });
  of_there.receive([&](std::int32_t n) { came_there = n; }, [](const caf::error& e) { ADD_FAILURE() << brief(e); });
  EXPECT_EQ(came_here, 40'000);
  EXPECT_EQ(came_there, 40'000);
}

TEST_P(Floods, ToABusyReceiverHoldNobodyElseUp) {
  const auto busy = far("blocked");
  const auto keeper = far("blocked");
  const auto other = far("mate");
  const std::string gate = "gate " + std::to_string(busy.id());
  (*self)->send(busy, Block::value, gate);
  const Deadline deadline = Deadline::after(kLong);
  bool shut = false;
  while (!shut && !deadline.passed()) shut = ask<bool>(keeper, Shut::value, gate) == true;
  ASSERT_TRUE(shut);
  for (std::int32_t i = 0; i < 40'000; ++i) {
    (*self)->send(busy, i);
    if (i % 4000 == 0) {
      EXPECT_EQ(ask<std::int32_t>(other, Echo::value, i), i);
    }
  }
  EXPECT_EQ(ask<bool>(keeper, Shut::value, gate), true);
  (*self)->send(keeper, Open::value, gate);
  EXPECT_EQ(ask<std::int32_t>(busy, Total::value), 40'000);
}

TEST_P(Floods, FromManyActorsToOneArriveInTheOrderOfEach) {
  const auto to = far("answerer");
  std::vector<caf::actor> bursters;
  for (int i = 0; i < 20; ++i) bursters.push_back(near("burster"));
  for (const auto& one : bursters) (*self)->send(one, Burst::value, to, 500);
  int answered = 0;  // each in its order
  for (std::size_t i = 0; i < bursters.size(); ++i) {
    (*self)->receive([&](std::int32_t total) { answered += total == 500; }, caf::after(kLong) >> [] {});
  }
  EXPECT_EQ(answered, 20);
}

TEST_P(Floods, FromOneToManyActorsArrive) {
  std::vector<caf::actor> many;
  for (int i = 0; i < 50; ++i) many.push_back(far("answerer"));
  for (std::int32_t i = 0; i < 100; ++i) {
    for (const auto& one : many) caf::anon_send(one, i);
  }
  for (const auto& one : many) EXPECT_EQ(ask<std::int32_t>(one, Total::value), 100);
}

TEST_P(Floods, ArriveBeforeTheAnswerThatFollowsThem) {
  EXPECT_EQ(ask<std::int32_t>(near("listener"), Hear::value, far("talker"), 3000), 3000);
}

TEST_P(Floods, ArriveBeforeTheErrorThatFollowsThem) {
  EXPECT_EQ(ask<std::int32_t>(near("listener"), HearFail::value, far("talker"), 3000), 3000);
}

TEST_P(Floods, ArriveBeforeTheExitMessageThatFollowsThem) {
  EXPECT_EQ(ask<std::int32_t>(near("listener"), HearKick::value, far("talker"), 3000), 3000);
}

TEST_P(Floods, ArriveBeforeTheEndOfTheirSenderIsTold) {
  EXPECT_EQ(ask<std::int32_t>(near("listener"), HearEnd::value, far("talker"), 3000), 3000);
}

TEST_P(Floods, ReachTheFarSideBeforeTheExitMessageThatFollowsThem) {
  const auto hearing = far("listener");
  auto told = (*self)->request(hearing, kLong, HearKick::value, near("talker"), 3000);
  std::int32_t before = 0;
  told.receive([&](std::int32_t n) { before = n; }, [](const caf::error& e) { ADD_FAILURE() << brief(e); });
  EXPECT_EQ(before, 3000);
}

TEST_P(Floods, OfUrgentMessagesOvertakeOrdinaryOnes) {
  const auto to = far("blocked");
  (*self)->send(to, Gather::value, std::uint64_t{21});
  for (int i = 0; i < 20; ++i) (*self)->send(to, Note::value, std::string("ordinary"));
  (*self)->send<caf::message_priority::high>(to, Note::value, std::string("urgent"));
  const auto log = ask<std::string>(to, Log::value);
  ASSERT_TRUE(log) << brief(log.error());
  // CAF finishes the round of ordinary messages that it is in, of three at most.
  EXPECT_LE(log->find("urgent "), 3 * 9u) << *log;
  EXPECT_EQ(log->size(), 20 * 9 + 7u);
}

TEST_P(Floods, PassThroughAChainOverBothSides) {
  std::vector<caf::actor> ring;
  for (int i = 0; i < 4; ++i) {
    ring.push_back(near("passer"));
    ring.push_back(far("passer"));
  }
  EXPECT_EQ(ask<std::int32_t>(ring[1], Pass::value, ring, 500), 0);
}

TEST_P(Floods, OfOneActorToItselfThroughTheHandleThatTheOtherSideHas) {
  const auto there = far("burster");
  EXPECT_EQ(ask<std::int32_t>(there, Duel::value, there, 5000), 5000);
}

}  // namespace

void add_flood_roles(caf::actor_system_config& config) {
  register_actor(config, "stasher", stasher);
  register_actor(config, "answerer", answerer);
  register_actor(config, "burster", burster);
  register_actor(config, "blocked", blocked);
  register_actor(config, "talker", talker);
  register_actor(config, "listener", listener);
  register_actor(config, "passer", passer);
}

}  // namespace troupe::test::semantics
