#include <gmock/gmock.h>

#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>

#include "tests/actors/remote/asking.hpp"
#include "tests/support/child_process.hpp"

// Windows: a slow receiver slows its senders, and nobody's memory grows.
namespace troupe::test {
namespace {

using ::testing::HasSubstr;
using troupe::testing::eventually;

/// Handles one message, then nothing until it is let go on.
class Holder {
 public:
  caf::actor spawn(caf::actor_system& system) {
    actor_ = system.spawn(
        [](caf::event_based_actor*, Holder* holder) -> caf::behavior {
          return {[holder](std::uint64_t x) { holder->take(x); },
                  [holder](std::uint64_t x, const std::string&) { holder->take(x); }};
        },
        this);
    return actor_;
  }
  void end() {
    let_go();
    caf::anon_send_exit(std::exchange(actor_, {}), caf::exit_reason::user_shutdown);
  }
  void let_go() {
    if (!std::exchange(let_go_, true)) gate_.set_value();
  }
  std::vector<std::uint64_t> taken() {
    const std::scoped_lock hold(mutex_);
    return taken_;
  }

 private:
  void take(std::uint64_t x) {
    {
      const std::scoped_lock hold(mutex_);
      taken_.push_back(x);
    }
    opened_.wait_for(kLong);
  }

  caf::actor actor_;
  std::promise<void> gate_;
  const std::shared_future<void> opened_{gate_.get_future()};
  bool let_go_ = false;  // the test's thread's
  std::mutex mutex_;     // guards taken_
  std::vector<std::uint64_t> taken_;
};

/// Ends a holder before the worlds end, which wait until everything is sent.
struct EndBefore {
  Holder& holder;
  ~EndBefore() { holder.end(); }
};

std::vector<std::uint64_t> numbers_up_to(std::uint64_t end) {
  std::vector<std::uint64_t> numbers(end);
  for (std::uint64_t i = 0; i < end; ++i) numbers[i] = i;
  return numbers;
}

RemoteOptions with_window(std::uint32_t messages, std::uint64_t bytes = std::uint64_t{1} << 20) {
  return {.window = {messages, bytes}};
}

TEST(RemoteWindow, LetsNoMoreMessagesOutThanTheReceiverHolds) {
  Holder holder;
  LoopbackWorld world({}, {}, with_window(16));
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  for (std::uint64_t i = 0; i < 500; ++i) caf::anon_send(remote, i);
  // Half of the window is one actor's; beside it the requests for two names may still count.
  ASSERT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting == 492; }));
  EXPECT_LE(world.here->remote->counters(world.there->self).in_window, 10u);
  EXPECT_TRUE(eventually([&] { return world.there->remote->counters().delivered >= 8; }));
  EXPECT_LT(world.there->remote->counters().delivered, 16u);
  holder.let_go();
  EXPECT_TRUE(eventually([&] { return holder.taken() == numbers_up_to(500); }));
}

TEST(RemoteWindow, CountsBytes) {
  Holder holder;
  LoopbackWorld world({}, {}, with_window(1000, 256 << 10));
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  const std::string large(32 << 10, 'x');
  for (std::uint64_t i = 0; i < 100; ++i) caf::anon_send(remote, i, large);
  ASSERT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting >= 90; }));
  EXPECT_LE(world.here->remote->counters(world.there->self).in_window, 10u);
  holder.let_go();
  EXPECT_TRUE(eventually([&] { return holder.taken() == numbers_up_to(100); }));
}

TEST(RemoteWindow, OfOneSlowActorHoldsNobodyElseUp) {
  Holder holder;
  LoopbackWorld world({}, {}, with_window(16));
  const EndBefore world_ends{holder};
  const caf::actor slow = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  for (std::uint64_t i = 0; i < 200; ++i) caf::anon_send(slow, i);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto answer = ask<std::uint64_t>(world.here->system, world.server, Echo::value, i);
    ASSERT_TRUE(answer.ok()) << answer.why.text();
  }
  EXPECT_EQ(holder.taken().size(), 1u);
}

TEST(RemoteWindow, DoesNotHoldAnswersUp) {
  Holder holder;
  LoopbackWorld world({}, with_window(4));
  const EndBefore world_ends{holder};
  // `here` takes four messages and deals with none; answers to its requests come nevertheless.
  const caf::actor slow = at_other_end(*world.here, *world.there, holder.spawn(world.here->system));
  for (std::uint64_t i = 0; i < 50; ++i) caf::anon_send(slow, i);
  for (std::uint64_t i = 0; i < 50; ++i) {
    const auto answer = ask<std::uint64_t>(world.here->system, world.server, Echo::value, i);
    ASSERT_TRUE(answer.ok()) << answer.why.text();
  }
}

TEST(RemoteWindow, MakesTheSendersThreadWaitWhenTooMuchWaitsAlready) {
  Holder holder;
  LoopbackWorld world({}, {.max_waiting = 32}, with_window(16));
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  std::atomic<std::uint64_t> sent{0};
  std::thread sender([&] {
    for (std::uint64_t i = 0; i < 300; ++i, ++sent) caf::anon_send(remote, i);
  });
  EXPECT_TRUE(eventually([&] { return sent >= 32; }));
  EXPECT_LE(world.here->remote->counters(world.there->self).waiting, 40u);
  EXPECT_LT(sent, 100u);
  holder.let_go();
  sender.join();
  EXPECT_TRUE(eventually([&] { return holder.taken() == numbers_up_to(300); }));
}

TEST(RemoteWindow, TurnsAwayWhatTheSenderDoesNotWantToWaitFor) {
  Holder holder;
  LoopbackWorld world({}, {.max_waiting = 32}, with_window(16));
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  world.here->remote->when_full(remote, WhenFull::error);
  // Once the window is taken nothing leaves what waits.
  ASSERT_TRUE(eventually([&] {
    for (std::uint64_t i = 0; i < 50; ++i) caf::anon_send(remote, i);
    return world.there->remote->counters().delivered >= 8 &&
           world.here->remote->counters(world.there->self).waiting >= 32;
  }));
  for (std::uint64_t i = 0; i < 100; ++i) caf::anon_send(remote, i);
  EXPECT_TRUE(eventually([&] { return world.here->told_dropped > 0; }));
  const auto refused = ask<std::uint64_t>(world.here->system, remote, std::uint64_t{0});
  EXPECT_EQ(refused.why.code(), Code::out_of_memory);
  EXPECT_THAT(refused.why.text(), HasSubstr("takes none"));
  const auto told = world.here->told_dropped.load();
  world.here->remote->when_full(remote, WhenFull::drop);
  for (std::uint64_t i = 0; i < 50; ++i) caf::anon_send(remote, i);
  EXPECT_LE(world.here->told_dropped, told + 1);  // one may have been under way
}

TEST(RemoteWindow, AnswersWhatWaitsWhenThePeerIsLost) {
  Holder holder;
  LoopbackWorld world({}, {}, with_window(4));
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  for (std::uint64_t i = 0; i < 20; ++i) caf::anon_send(remote, i);
  auto request = std::async(std::launch::async,
                            [&] { return ask<std::uint64_t>(world.here->system, remote, std::uint64_t{1}).why; });
  ASSERT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting >= 19; }));
  world.here->remote->lost(world.there->self, {Code::peer_lost, "for this test"});
  EXPECT_EQ(request.get().code(), Code::peer_lost);
  EXPECT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting == 0; }));
}

TEST(RemoteWindow, LetsTheNewsOfAnEndWaitForWhatWasSentBefore) {
  Holder holder;
  LoopbackWorld world({}, {}, with_window(4));
  const EndBefore world_ends{holder};
  const caf::actor sink = holder.spawn(world.there->system);
  const caf::actor remote = at_other_end(*world.there, *world.here, sink);
  // An actor here that `there` monitors sends more than the window takes, and ends.
  const caf::actor source = world.here->system.spawn(
      [](caf::event_based_actor* self, const caf::actor& to) -> caf::behavior {
        return {[self, to](std::uint64_t count) {
          for (std::uint64_t i = 0; i < count; ++i) self->send(to, i);
          self->quit();
        }};
      },
      remote);
  const caf::actor known = at_other_end(*world.here, *world.there, source);
  std::promise<std::size_t> ended;
  caf::scoped_actor watch(world.there->system);
  watch->monitor(known);
  caf::anon_send(source, std::uint64_t{60});
  ASSERT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting >= 50; }));
  holder.let_go();
  std::string why;
  watch->receive(
      [&](const caf::down_msg& down) {
        why = from_caf(down.reason).text();
        ended.set_value(world.there->remote->counters().delivered);
      },
      caf::after(kLong) >> [&] { ended.set_value(0); });
  EXPECT_GE(ended.get_future().get(), 60u) << why;
  EXPECT_TRUE(eventually([&] { return holder.taken() == numbers_up_to(60); }));
}

TEST(RemoteBatch, CarriesManySmallMessagesInOrder) {
  Holder holder;
  LoopbackWorld world;
  const EndBefore world_ends{holder};
  holder.let_go();
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  for (std::uint64_t i = 0; i < 20000; ++i) caf::anon_send(remote, i);
  EXPECT_TRUE(eventually([&] { return holder.taken().size() == 20000; }));
  EXPECT_EQ(holder.taken(), numbers_up_to(20000));
  const PeerCounters counters = world.here->remote->counters(world.there->self);
  EXPECT_GT(counters.batches_sent, 0u);
  EXPECT_GT(counters.batched_sent, counters.batches_sent);
}

TEST(RemoteHeartbeats, FindAPeerThatFallsSilentAndNoOther) {
  const FailureDetectorOptions quick{.heartbeat = std::chrono::milliseconds(20),
                                     .suspect = std::chrono::milliseconds(100),
                                     .dead = std::chrono::milliseconds(400)};
  std::promise<Status> lost;
  std::atomic<int> suspected{0};
  LoopbackWorld world({},
                      {.heartbeats = quick,
                       .suspected = [&](Peer, bool suspect) { suspected += suspect ? 1 : 0; },
                       .lost = [&](Peer, const Status& why) { lost.set_value(why); }},
                      {.heartbeats = quick});
  EXPECT_TRUE((ask<std::uint64_t>(world.here->system, world.server, Echo::value, std::uint64_t{1})).ok());
  auto told = lost.get_future();
  EXPECT_EQ(told.wait_for(std::chrono::milliseconds(1200)), std::future_status::timeout) << "it was not silent";
  world.there->control->stop(Deadline::after(kLong));
  ASSERT_EQ(told.wait_for(kLong), std::future_status::ready);
  const Status why = told.get();
  EXPECT_EQ(why.code(), Code::peer_lost);
  EXPECT_THAT(why.text(), HasSubstr("silent for 400 ms"));
  EXPECT_GT(suspected, 0);
  EXPECT_EQ((ask<std::uint64_t>(world.here->system, world.server, Echo::value, std::uint64_t{1})).why.code(),
            Code::peer_lost);
}

TEST(RemoteInsight, TellsWhoIsKnownToPeersAndWhatWaits) {
  Holder holder;
  LoopbackWorld world({}, {}, with_window(16));
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  for (std::uint64_t i = 0; i < 100; ++i) caf::anon_send(remote, i);
  for (std::uint64_t i = 0; i < 64; ++i)
    ASSERT_TRUE((ask<std::uint64_t>(world.here->system, world.server, Echo::value, i)).ok());
  ASSERT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting == 92; }));
  auto blocking = Blocking::on_thread("test");
  const std::string here = world.here->remote->describe(blocking, Deadline::after(kLong));
  EXPECT_THAT(here, HasSubstr("of 16, waiting 92"));
  const std::string there = world.there->remote->describe(blocking, Deadline::after(kLong));
  EXPECT_THAT(there, HasSubstr(": 8 messages of peers in its mailbox"));
  const auto answers = world.here->remote->counters(world.there->self).answer_ns_log2;
  EXPECT_GT(std::accumulate(answers.begin(), answers.end(), std::uint64_t{0}), 0u);
}

}  // namespace
}  // namespace troupe::test
