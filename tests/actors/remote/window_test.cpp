#include <gmock/gmock.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <cstdlib>
#include <fstream>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>

#include "tests/actors/remote/asking.hpp"
#include "tests/support/child_process.hpp"

// How messages are handled that their receiver does not accept yet: a send never waits, memory is bounded, windows are
// optional.
namespace troupe::test {
namespace {

using ::testing::HasSubstr;
using troupe::testing::eventually;

/// Handles one message, then blocks until it is released.
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

/// Releases a blocked actor before the worlds end, which wait until everything is sent.
struct EndBefore {
  Holder& holder;
  ~EndBefore() { holder.end(); }
};

std::vector<std::uint64_t> numbers_up_to(std::uint64_t end) {
  std::vector<std::uint64_t> numbers(end);
  for (std::uint64_t i = 0; i < end; ++i) numbers[i] = i;
  return numbers;
}

std::uint64_t resident_bytes() {
  std::ifstream status("/proc/self/statm");
  std::uint64_t all_pages = 0;
  std::uint64_t resident_pages = 0;
  status >> all_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// It accepts 42 small messages of one process at a time, and half as many for one slow actor.
RemoteOptions with_little_room() { return {.unhandled_bytes = 16 << 10}; }

/// Skips numbers until the test tells it to continue, then handles all in their order.
caf::behavior stasher(caf::event_based_actor* self, std::vector<std::uint64_t>* taken, std::promise<void>* done) {
  self->set_default_handler(caf::skip);
  return {[self, taken, done](const std::string& go, std::uint64_t count) {
    if (go != "go") return;
    self->become([self, taken, done, count](std::uint64_t x) {
      taken->push_back(x);
      if (taken->size() == count) {
        done->set_value();
        self->quit();
      }
    });
  }};
}

TEST(RemoteBacklog, StaysWithTheSenderBeyondWhatTheReceiverTakes) {
  Holder holder;
  LoopbackWorld world({}, {}, with_little_room());
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  for (std::uint64_t i = 0; i < 500; ++i) caf::anon_send(remote, i);
  ASSERT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting >= 470; }));
  EXPECT_LE(world.here->remote->counters(world.there->self).unhandled, 30u);
  EXPECT_TRUE(eventually([&] { return world.there->remote->counters().delivered >= 20; }));
  EXPECT_LT(world.there->remote->counters().delivered, 35u);
  holder.let_go();
  EXPECT_TRUE(eventually([&] { return holder.taken() == numbers_up_to(500); }));
  EXPECT_EQ(world.here->told_dropped, 0u);
}

TEST(RemoteBacklog, CountsBytes) {
  Holder holder;
  LoopbackWorld world({}, {}, {.unhandled_bytes = 512 << 10});
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  const std::string large(32 << 10, 'x');
  for (std::uint64_t i = 0; i < 100; ++i) caf::anon_send(remote, i, large);
  ASSERT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting >= 90; }));
  holder.let_go();
  EXPECT_TRUE(eventually([&] { return holder.taken() == numbers_up_to(100); }));
}

TEST(RemoteBacklog, OfOneSlowActorHoldsNobodyElseUp) {
  Holder holder;
  LoopbackWorld world({}, {}, with_little_room());
  const EndBefore world_ends{holder};
  const caf::actor slow = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  for (std::uint64_t i = 0; i < 200; ++i) caf::anon_send(slow, i);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto answer = ask<std::uint64_t>(world.here->system, world.server, Echo::value, i);
    ASSERT_TRUE(answer.ok()) << answer.why.text();
  }
  EXPECT_EQ(holder.taken().size(), 1u);
}

TEST(RemoteBacklog, DoesNotHoldAnswersToOthersUp) {
  Holder holder;
  LoopbackWorld world({}, with_little_room());
  const EndBefore world_ends{holder};
  // `here` accepts a few messages and handles none; nevertheless answers to its requests arrive.
  const caf::actor slow = at_other_end(*world.here, *world.there, holder.spawn(world.here->system));
  for (std::uint64_t i = 0; i < 100; ++i) caf::anon_send(slow, i);
  for (std::uint64_t i = 0; i < 50; ++i) {
    const auto answer = ask<std::uint64_t>(world.here->system, world.server, Echo::value, i);
    ASSERT_TRUE(answer.ok()) << answer.why.text();
  }
}

TEST(RemoteBacklog, OfSkippedMessagesLetsTheOneComeThatReleasesThem) {
  LoopbackWorld world({}, {}, with_little_room());
  std::vector<std::uint64_t> taken;
  std::promise<void> done;
  const caf::actor remote = at_other_end(*world.there, *world.here, world.there->system.spawn(stasher, &taken, &done));
  for (std::uint64_t i = 0; i < 2000; ++i) caf::anon_send(remote, i);
  caf::anon_send(remote, std::string("go"), std::uint64_t{2000});
  // Looked for as seldom as where nothing is skipped, a hundred windows would take 20 s.
  ASSERT_EQ(done.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_EQ(taken, numbers_up_to(2000));
}

TEST(RemoteBacklog, KeepsAnswersAndExitsBehindWhatWasSentBefore) {
  Holder holder;
  LoopbackWorld world({}, {}, with_little_room());
  const EndBefore world_ends{holder};
  const caf::actor sink = holder.spawn(world.there->system);
  const caf::actor remote = at_other_end(*world.there, *world.here, sink);
  caf::scoped_actor watch(world.there->system);
  watch->monitor(sink);
  for (std::uint64_t i = 0; i < 3000; ++i) caf::anon_send(remote, i);
  caf::anon_send_exit(remote, caf::exit_reason::user_shutdown);
  holder.let_go();
  watch->receive([&](const caf::down_msg& down) { EXPECT_EQ(down.reason, caf::exit_reason::user_shutdown); },
                 caf::after(kLong) >> [&] { ADD_FAILURE() << "it did not end"; });
  EXPECT_EQ(holder.taken(), numbers_up_to(3000));
}

TEST(RemoteBacklog, IsOvertakenByUrgentMessages) {
  Holder holder;
  LoopbackWorld world({}, {}, with_little_room());
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  constexpr std::uint64_t kOrdinary = 500;
  constexpr std::uint64_t kUrgent = 100;
  const auto waiting = [&] { return world.here->remote->counters(world.there->self).waiting; };
  for (std::uint64_t i = 0; i < kOrdinary; ++i) caf::anon_send(remote, i);
  ASSERT_TRUE(eventually([&] { return waiting() >= 470; }));
  for (std::uint64_t i = 0; i < kUrgent; ++i) caf::anon_send<caf::message_priority::high>(remote, kOrdinary + i);
  EXPECT_TRUE(eventually([&] { return waiting() > 470 + kUrgent / 2; }));
  holder.let_go();
  ASSERT_TRUE(eventually([&] { return holder.taken().size() == kOrdinary + kUrgent; }));
  const auto taken = holder.taken();
  const auto place_of = [&](std::uint64_t x) { return std::ranges::find(taken, x) - taken.begin(); };
  EXPECT_LE(place_of(kOrdinary), 40);  // perhaps behind those that have left already
  EXPECT_LT(place_of(kOrdinary + kUrgent - 1), place_of(kOrdinary / 2));
  std::vector<std::uint64_t> urgent;
  std::vector<std::uint64_t> ordinary;
  for (const std::uint64_t x : taken) (x < kOrdinary ? ordinary : urgent).push_back(x);
  EXPECT_EQ(ordinary, numbers_up_to(kOrdinary));
  EXPECT_TRUE(std::ranges::is_sorted(urgent));
}

TEST(RemoteBacklog, BeyondTheMemoryIsAnsweredOrReportedAndGoesOnAfterwards) {
  Holder holder;
  LoopbackWorld world({}, {.memory_bytes = 1 << 20}, with_little_room());
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  constexpr std::uint64_t kMany = 10'000;
  for (std::uint64_t i = 0; i < kMany; ++i) caf::anon_send(remote, i);
  EXPECT_TRUE(eventually([&] { return world.here->told_dropped > 0; }));
  // A message that the lane has just taken is counted twice for a moment; afterwards there is some space again.
  Blocking blocking = Blocking::on_thread("main");
  const auto wait_for_lane = [&] { world.here->remote->describe(blocking, Deadline::after(kLong)); };
  const auto sends_refused = [&] { return world.here->remote->counters(world.there->self).sends_refused; };
  wait_for_lane();
  for (const std::uint64_t before = sends_refused(); sends_refused() == before; wait_for_lane())
    caf::anon_send(remote, kMany);
  const auto refused = ask<std::uint64_t>(world.here->system, remote, std::uint64_t{0});
  EXPECT_EQ(refused.why.code(), Code::out_of_memory);
  EXPECT_THAT(refused.why.text(), HasSubstr("memory_bytes"));
  EXPECT_LT(world.here->remote->counters(world.there->self).waiting, 2000u);
  holder.let_go();
  EXPECT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting == 0; }));
  const auto numbers = holder.taken();
  EXPECT_TRUE(std::ranges::is_sorted(numbers));
  const auto answer = ask<std::uint64_t>(world.here->system, world.server, Echo::value, std::uint64_t{7});
  EXPECT_TRUE(answer.ok()) << answer.why.text();
}

TEST(RemoteBacklog, GivesItsMemoryBackToTheSystemWhenItIsGone) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator keeps what is freed";
#endif
  constexpr std::uint64_t kMegabyte = 1'000'000;
  Holder holder;
  LoopbackWorld world;
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  constexpr std::uint64_t kMany = 40'000;
  ::malloc_trim(0);  // what other tests left
  const std::uint64_t before = resident_bytes();
  for (std::uint64_t i = 0; i < kMany; ++i) caf::anon_send(remote, i, std::string(400, 'x'));
  EXPECT_TRUE(eventually([&] { return world.there->remote->counters().delivered >= kMany; }));
  EXPECT_GT(resident_bytes(), before + 20 * kMegabyte);
  holder.let_go();
  EXPECT_TRUE(eventually([&] { return holder.taken().size() == kMany; }));
  EXPECT_TRUE(eventually([&] { return resident_bytes() < before + 10 * kMegabyte; }))
      << resident_bytes() / kMegabyte << " MB, before " << before / kMegabyte;
}

TEST(RemoteBacklog, OfSkippedMessagesThatTakeAllMemoryIsReportedToTheirSender) {
  LoopbackWorld world({}, {}, {.memory_bytes = 256 << 10, .unhandled_bytes = 32 << 10});
  std::vector<std::uint64_t> taken;
  std::promise<void> done;
  const caf::actor remote = at_other_end(*world.there, *world.here, world.there->system.spawn(stasher, &taken, &done));
  for (std::uint64_t i = 0; i < 2000; ++i) caf::anon_send(remote, i);
  EXPECT_TRUE(eventually([&] { return world.here->told_dropped > 0; }));
  caf::anon_send_exit(remote, caf::exit_reason::user_shutdown);
}

TEST(RemoteWindow, LetsAThreadWaitForSpace) {
  Holder holder;
  LoopbackWorld world;
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  world.here->remote->bound(remote, {.messages = 32});
  std::atomic<std::uint64_t> sent{0};
  std::thread sender([&] {
    auto blocking = Blocking::on_thread("sender");
    for (std::uint64_t i = 0; i < 300; ++i, ++sent) {
      world.here->remote->wait_for_space(blocking, remote, Deadline::after(kLong));
      caf::anon_send(remote, i);
    }
  });
  EXPECT_TRUE(eventually([&] { return sent >= 32; }));
  EXPECT_LT(sent, 34u);
  holder.let_go();
  sender.join();
  EXPECT_TRUE(eventually([&] { return holder.taken() == numbers_up_to(300); }));
}

TEST(RemoteWindow, ThatStaysFullEndsAWaitAtItsDeadline) {
  Holder holder;
  LoopbackWorld world;
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  auto blocking = Blocking::on_thread("test");
  const auto wait = [&] {
    world.here->remote->wait_for_space(blocking, remote, Deadline::after(std::chrono::milliseconds(50)));
  };
  wait();  // it has no window
  world.here->remote->bound(remote, {.messages = 16});
  for (std::uint64_t i = 0; i < 16; ++i) {
    wait();
    caf::anon_send(remote, i);
  }
  try {
    wait();
    FAIL() << "there is no room";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::timeout);
    EXPECT_THAT(error.what(), HasSubstr("16 messages"));
  }
  holder.let_go();
}

TEST(RemoteWindow, RefusesWhatTheSenderDoesNotWantToWaitFor) {
  Holder holder;
  LoopbackWorld world;
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  world.here->remote->bound(remote, {.messages = 32});
  for (std::uint64_t i = 0; i < 132; ++i) caf::anon_send(remote, i);
  EXPECT_TRUE(eventually([&] { return world.here->told_dropped > 0; }));
  const auto refused = ask<std::uint64_t>(world.here->system, remote, std::uint64_t{0});
  EXPECT_EQ(refused.why.code(), Code::out_of_memory);
  EXPECT_THAT(refused.why.text(), HasSubstr("window"));
  const auto told = world.here->told_dropped.load();
  world.here->remote->bound(remote, {.messages = 32}, WhenFull::drop);
  for (std::uint64_t i = 0; i < 50; ++i) caf::anon_send(remote, i);
  EXPECT_LE(world.here->told_dropped, told + 1);  // one may have been under way
  holder.let_go();
  EXPECT_TRUE(eventually([&] { return holder.taken() == numbers_up_to(32); }));
}

/// Sends `left` numbers to `to`, many in each turn, without waiting.
caf::behavior flooder(caf::event_based_actor* self, const caf::actor& to, std::uint64_t left) {
  using Go = caf::atom_constant<caf::atom("go")>;
  self->send(self, Go::value);
  return {[=](Go) mutable {
    for (int i = 0; i < 100 && left > 0; ++i, --left) self->send(to, left);
    if (left > 0) self->send(self, Go::value);
  }};
}

/// A sink at one end, and more senders to the other end's than that has workers, all with full windows.
class Flood {
 public:
  static constexpr std::uint64_t kFlooders = 4;

  explicit Flood(RemoteEnd& end) : end_(end) {
    sink_ = end.system.spawn(
        [came = came_](caf::event_based_actor*) -> caf::behavior { return {[came](std::uint64_t) { ++*came; }}; });
    end.remote->publish("sink", sink_);
  }
  ~Flood() { caf::anon_send_exit(sink_, caf::exit_reason::user_shutdown); }
  void begin(Peer other, std::uint64_t each) {
    auto blocking = Blocking::on_thread("test");
    const caf::actor to = end_.remote->resolve(blocking, other, "sink", Deadline::after(kLong));
    end_.remote->bound(to, {.messages = 64});
    for (std::uint64_t i = 0; i < kFlooders; ++i) end_.system.spawn(flooder, to, each);
  }
  std::uint64_t came() const { return *came_; }
  std::uint64_t told_dropped() const { return end_.remote->counters().dropped; }

 private:
  RemoteEnd& end_;
  const std::shared_ptr<std::atomic<std::uint64_t>> came_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  caf::actor sink_;
};

// TROUPE_FLOOD_MESSAGES, of each sender, makes it long.
TEST(RemoteWindow, FullBothWaysHoldsNoWorkerAndLosesNothingSilently) {
  const char* const set = std::getenv("TROUPE_FLOOD_MESSAGES");
  const std::uint64_t each = set != nullptr ? std::strtoull(set, nullptr, 10) : 20'000;
  LoopbackWorld world;
  Flood here{*world.here};
  Flood there{*world.there};
  here.begin(World::kThere, each);
  there.begin(Peer{0}, each);
  const std::uint64_t all = Flood::kFlooders * each;
  const auto done = [&] {
    return there.came() + here.told_dropped() == all && here.came() + there.told_dropped() == all;
  };
  std::uint64_t before = 0;
  while (!eventually(done)) {
    const std::uint64_t now = here.came() + there.came() + here.told_dropped() + there.told_dropped();
    ASSERT_GT(now, before) << "nothing moves any more";
    before = now;
  }
  EXPECT_GT(here.came(), 0u);
  EXPECT_GT(there.came(), 0u);
}

/// Always has a message to itself in its mailbox, until it is told to end.
caf::behavior busy(caf::event_based_actor* self) {
  using Go = caf::atom_constant<caf::atom("go")>;
  self->send(self, Go::value);
  return {[=](Go) { self->send(self, Go::value); }};
}

TEST(RemoteActors, FindANameThoughAllWorkersHaveActorsThatAreNeverIdle) {
  LoopbackWorld world;
  std::vector<caf::actor> all;
  for (std::size_t i = 0; i < 4 * world.there->system.scheduler().num_workers(); ++i)
    all.push_back(world.there->system.spawn(busy));
  auto blocking = Blocking::on_thread("test");
  EXPECT_NE(world.here->remote->resolve(blocking, World::kThere, "server", Deadline::after(kLong)), nullptr);
  for (const caf::actor& one : all) caf::anon_send_exit(one, caf::exit_reason::kill);
}

TEST(RemoteWindow, AnswersRequestersWhenThereIsSpaceAgain) {
  Holder holder;
  LoopbackWorld world;
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  const caf::actor window_watcher = world.here->remote->window_watcher();
  caf::scoped_actor self(world.here->system);
  const auto ask_for_room = [&](std::chrono::milliseconds within) {
    bool told = false;
    self->request(window_watcher, within, RemoteActors::WantSpace::value, remote)
        .receive([&] { told = true; }, [](const caf::error&) {});
    return told;
  };
  EXPECT_TRUE(ask_for_room(kLong)) << "it has no window";
  world.here->remote->bound(remote, {.messages = 16});
  EXPECT_TRUE(ask_for_room(kLong)) << "its window is empty";
  for (std::uint64_t i = 0; i < 16; ++i) caf::anon_send(remote, i);
  EXPECT_FALSE(ask_for_room(std::chrono::milliseconds(50)));
  auto request = std::async(std::launch::async, [&] {
    caf::scoped_actor other(world.here->system);
    bool told = false;
    other->request(window_watcher, kLong, RemoteActors::WantSpace::value, remote)
        .receive([&] { told = true; }, [](const caf::error&) {});
    return told;
  });
  holder.let_go();
  EXPECT_TRUE(request.get());
  EXPECT_TRUE(eventually([&] { return holder.taken() == numbers_up_to(16); }));
}

TEST(RemoteWindow, CountsSkippedMessagesAsHandled) {
  LoopbackWorld world;
  std::vector<std::uint64_t> taken;
  std::promise<void> done;
  const caf::actor remote = at_other_end(*world.there, *world.here, world.there->system.spawn(stasher, &taken, &done));
  world.here->remote->bound(remote, {.messages = 16});
  auto blocking = Blocking::on_thread("test");
  for (std::uint64_t i = 0; i < 100; ++i) {
    world.here->remote->wait_for_space(blocking, remote, Deadline::after(kLong));
    caf::anon_send(remote, i);
  }
  world.here->remote->wait_for_space(blocking, remote, Deadline::after(kLong));
  caf::anon_send(remote, std::string("go"), std::uint64_t{100});
  ASSERT_EQ(done.get_future().wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(taken, numbers_up_to(100));
}

TEST(RemoteBacklog, IsAnsweredWhenThePeerIsLost) {
  Holder holder;
  LoopbackWorld world({}, {}, with_little_room());
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  for (std::uint64_t i = 0; i < 100; ++i) caf::anon_send(remote, i);
  auto request = std::async(std::launch::async,
                            [&] { return ask<std::uint64_t>(world.here->system, remote, std::uint64_t{1}).why; });
  ASSERT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting >= 70; }));
  world.here->remote->lost(world.there->self, {Code::peer_lost, "for this test"});
  EXPECT_EQ(request.get().code(), Code::peer_lost);
  EXPECT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting == 0; }));
}

TEST(RemoteBacklog, IsNotOvertakenByTheNoticeOfItsSendersEnd) {
  Holder holder;
  LoopbackWorld world({}, {}, with_little_room());
  const EndBefore world_ends{holder};
  const caf::actor sink = holder.spawn(world.there->system);
  const caf::actor remote = at_other_end(*world.there, *world.here, sink);
  // An actor here that `there` monitors sends more messages than are accepted, and ends.
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
  caf::anon_send(source, std::uint64_t{100});
  ASSERT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting >= 70; }));
  holder.let_go();
  std::string why;
  watch->receive(
      [&](const caf::down_msg& down) {
        why = from_caf(down.reason).text();
        ended.set_value(world.there->remote->counters().delivered);
      },
      caf::after(kLong) >> [&] { ended.set_value(0); });
  EXPECT_GE(ended.get_future().get(), 100u) << why;
  EXPECT_TRUE(eventually([&] { return holder.taken() == numbers_up_to(100); }));
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

TEST(RemoteInsight, DoesNotCountRequestsThatCameHome) {
  LoopbackWorld world;
  caf::scoped_actor self(world.here->system);
  for (std::uint64_t i = 0; i < 10; ++i) {
    std::uint64_t answer = 0;
    self->request(world.server, kLong, Pass::value, world.here->server, i)
        .receive([&](std::uint64_t x) { answer = x; }, [](const caf::error& e) { ADD_FAILURE() << caf::to_string(e); });
    EXPECT_EQ(answer, i);
  }
  auto blocking = Blocking::on_thread("test");
  const std::string here = world.here->remote->describe(blocking, Deadline::after(kLong));
  EXPECT_THAT(here, ::testing::Not(HasSubstr("waits for an answer")));
}

TEST(RemoteInsight, TellsWhoIsKnownToPeersAndWhatWaits) {
  Holder holder;
  LoopbackWorld world({}, {}, with_little_room());
  const EndBefore world_ends{holder};
  const caf::actor remote = at_other_end(*world.there, *world.here, holder.spawn(world.there->system));
  for (std::uint64_t i = 0; i < 100; ++i) caf::anon_send(remote, i);
  for (std::uint64_t i = 0; i < 64; ++i)
    ASSERT_TRUE((ask<std::uint64_t>(world.here->system, world.server, Echo::value, i)).ok());
  ASSERT_TRUE(eventually([&] { return world.here->remote->counters(world.there->self).waiting >= 70; }));
  const std::uint64_t waiting = world.here->remote->counters(world.there->self).waiting;
  auto blocking = Blocking::on_thread("test");
  const std::string here = world.here->remote->describe(blocking, Deadline::after(kLong));
  EXPECT_THAT(here, HasSubstr("waiting here " + std::to_string(waiting)));
  const std::string there = world.there->remote->describe(blocking, Deadline::after(kLong));
  EXPECT_THAT(there, HasSubstr(": " + std::to_string(100 - waiting) + " messages of peers in its mailbox"));
  const auto answers = world.here->remote->counters(world.there->self).answer_ns_log2;
  EXPECT_GT(std::accumulate(answers.begin(), answers.end(), std::uint64_t{0}), 0u);
}

}  // namespace
}  // namespace troupe::test
