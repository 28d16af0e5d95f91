#include <gmock/gmock.h>

#include <caf/actor_registry.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "actors/plain_messages.hpp"
#include "tests/actors/remote/asking.hpp"
#include "tests/support/child_process.hpp"

// Actors that run on the control lane's thread, and messages that travel as their bytes.
namespace troupe::test {

struct Pair {
  std::uint32_t first = 0;
  double second = 0;
  friend bool operator==(const Pair&, const Pair&) = default;
};
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Pair& x) {
  return f(caf::meta::type_name("test.Pair"), x.first, x.second);
}

namespace {

using ::testing::HasSubstr;
using troupe::testing::eventually;

/// The threads on which an actor ran, and the messages that it got.
struct Seen {
  std::mutex mutex;  // guards the rest
  std::set<std::thread::id> threads;
  std::vector<std::uint64_t> numbers;

  void note(std::uint64_t number) {
    const std::scoped_lock hold(mutex);
    threads.insert(std::this_thread::get_id());
    numbers.push_back(number);
  }
  std::size_t count() {
    const std::scoped_lock hold(mutex);
    return numbers.size();
  }
  void forget_threads() {
    const std::scoped_lock hold(mutex);
    threads.clear();
  }
  std::set<std::thread::id> all_threads() {
    const std::scoped_lock hold(mutex);
    return threads;
  }
};

caf::behavior echo(caf::event_based_actor*, Seen* seen) {
  return {[seen](std::uint64_t x) {
            seen->note(x);
            return x;
          },
          [](const Pair& x) { return x; }};
}

caf::behavior take(caf::event_based_actor*, Seen* seen) {
  return {[seen](std::uint64_t x) { seen->note(x); }};
}

/// Blocks a lane for much longer than it should.
caf::behavior slow_echo(caf::event_based_actor*, Seen* seen) {
  return {[seen](std::uint64_t x) {
    seen->note(x);
    const auto end = core_time() + std::chrono::milliseconds(1);
    while (core_time() < end) {
    }
    return x;
  }};
}

struct CountState {
  std::uint64_t sum = 0;
};
caf::behavior counting(caf::stateful_actor<CountState>* self) {
  return {[=](std::uint64_t x) { return self->state.sum += x; }};
}

std::thread::id control_thread(RemoteEnd& end) {
  std::promise<std::thread::id> told;
  struct Task final : LaneTask {
    explicit Task(std::promise<std::thread::id>& to) : told(to) {}
    void run() noexcept override { told.set_value(std::this_thread::get_id()); }
    std::promise<std::thread::id>& told;
  } task{told};
  EXPECT_TRUE(end.control->post(task));
  return told.get_future().get();
}

TEST(InlineActor, RunsOnTheControlLanesThreadWhoeverSends) {
  Seen seen;
  LoopbackWorld world({}, {}, {.inline_limit = kLong});
  const caf::actor actor = world.there->remote->spawn_inline(echo, &seen);
  const caf::actor remote = at_other_end(*world.there, *world.here, actor);
  for (std::uint64_t i = 0; i < 50; ++i) {
    const auto far = ask<std::uint64_t>(world.here->system, remote, i);
    ASSERT_TRUE(far.ok()) << far.why.text();
    EXPECT_EQ(far.get(), i);
    EXPECT_TRUE((ask<std::uint64_t>(world.there->system, actor, i)).ok());
  }
  EXPECT_THAT(seen.all_threads(), ::testing::ElementsAre(control_thread(*world.there)));
}

TEST(InlineActor, KeepsItsStateAndTheOrderOfWhatItSends) {
  Seen seen;
  LoopbackWorld world;
  const caf::actor sink = world.here->system.spawn(take, &seen);
  const caf::actor far_sink = at_other_end(*world.here, *world.there, sink);
  const caf::actor source =
      world.there->remote->spawn_inline([far_sink](caf::event_based_actor* self) -> caf::behavior {
        return {[=](std::uint64_t count) {
          for (std::uint64_t i = 0; i < count; ++i) self->send(far_sink, i);
        }};
      });
  caf::anon_send(source, std::uint64_t{300});
  ASSERT_TRUE(eventually([&] { return seen.count() == 300; }));
  EXPECT_TRUE(std::is_sorted(seen.numbers.begin(), seen.numbers.end()));

  const caf::actor counter = world.there->remote->spawn_inline(counting);
  EXPECT_EQ((ask<std::uint64_t>(world.there->system, counter, std::uint64_t{2})).get(), 2u);
  EXPECT_EQ((ask<std::uint64_t>(world.there->system, counter, std::uint64_t{3})).get(), 5u);
}

TEST(InlineActor, IsMovedToTheSchedulerWhenItBlocksTheLaneTooOften) {
  Seen seen;
  std::atomic<int> slow{0};
  std::atomic<int> moved{0};
  LoopbackWorld world({}, {}, {.slow = [&](caf::actor_id, Clock::duration took, bool is_moved) {
                        EXPECT_GT(took, std::chrono::microseconds(900));
                        ++slow;
                        moved += is_moved ? 1 : 0;
                      }});
  const caf::actor actor = world.there->remote->spawn_inline(slow_echo, &seen);
  for (std::uint64_t i = 0; i < 200 && moved == 0; ++i) {
    ASSERT_TRUE((ask<std::uint64_t>(world.there->system, actor, i)).ok());
  }
  EXPECT_EQ(moved, 1);
  EXPECT_EQ(slow, 3);
  const std::size_t before = seen.count();
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE((ask<std::uint64_t>(world.there->system, actor, i)).ok());
  EXPECT_EQ(seen.count(), before + 20);
  const auto threads = seen.all_threads();
  EXPECT_GT(threads.size(), 1u) << "it still runs on the lane alone";
  EXPECT_EQ(moved, 1);
}

/// Slow until the test tells it to be quick.
caf::behavior echo_slow_at_first(caf::event_based_actor*, Seen* seen, const std::atomic<bool>* slow) {
  return {[seen, slow](std::uint64_t x) {
    seen->note(x);
    const auto end = core_time() + std::chrono::milliseconds(12);
    while (*slow && core_time() < end) {
    }
    return x;
  }};
}

TEST(InlineActor, ComesBackAfterItWasMoved) {
  Seen seen;
  std::atomic<bool> slow{true};
  std::atomic<int> moved{0};
  // Long enough that a quick turn is never taken for a slow one, even on a machine whose processor time is stolen.
  LoopbackWorld world({}, {},
                      {.inline_limit = std::chrono::milliseconds(10),
                       .slow = [&](caf::actor_id, Clock::duration, bool is_moved) { moved += is_moved ? 1 : 0; }});
  const caf::actor actor = world.there->remote->spawn_inline(echo_slow_at_first, &seen, &slow);
  const caf::actor remote = at_other_end(*world.there, *world.here, actor);
  for (std::uint64_t i = 0; i < 200 && moved == 0; ++i)
    ASSERT_TRUE((ask<std::uint64_t>(world.here->system, remote, i)).ok());
  ASSERT_EQ(moved, 1);
  slow = false;
  // Other actors send to it all the time, so the scheduler is running it when it becomes inline again.
  std::atomic<bool> done{false};
  std::thread beside([&] {
    while (!done) ask<std::uint64_t>(world.there->system, actor, std::uint64_t{0});
  });
  EXPECT_TRUE(eventually([&] {
    seen.forget_threads();
    for (std::uint64_t i = 0; i < 20; ++i) {
      if (!(ask<std::uint64_t>(world.here->system, remote, i)).ok()) return false;
    }
    return seen.all_threads() == std::set{control_thread(*world.there)};
  }));
  done = true;
  beside.join();
}

TEST(InlineActor, GoesOnInTheSchedulerWhenTheRemoteActorsHaveStopped) {
  Seen seen;
  LoopbackWorld world({}, {}, {.inline_limit = kLong});
  const caf::actor actor = world.there->remote->spawn_inline(echo, &seen);
  EXPECT_TRUE((ask<std::uint64_t>(world.there->system, actor, std::uint64_t{1})).ok());
  const auto lane = control_thread(*world.there);
  ASSERT_TRUE(world.there->stop());
  EXPECT_TRUE((ask<std::uint64_t>(world.there->system, actor, std::uint64_t{2})).ok());
  EXPECT_EQ(seen.all_threads().count(lane), 1u);
  EXPECT_GT(seen.all_threads().size(), 1u);
}

/// Keeps a lane busy until it is released.
struct Block final : LaneTask {
  void run() noexcept override { let_go.get_future().wait_for(kLong); }
  std::promise<void> let_go;
};

TEST(RemoteMonitor, IsHeardBeforeAMessageThatIsSentLaterToAnotherActor) {
  LoopbackWorld world;
  auto& there = *world.there;
  const caf::actor victim =
      there.remote->spawn_inline([](caf::event_based_actor*) -> caf::behavior { return {[](std::uint64_t) {}}; });
  const caf::actor killer = there.remote->spawn_inline([victim](caf::event_based_actor* self) -> caf::behavior {
    return {[self, victim](std::uint64_t x) {
      if (x == 1) self->send_exit(victim, caf::exit_reason::user_shutdown);
    }};
  });
  there.system.registry().put(victim.id(), caf::actor_cast<caf::strong_actor_ptr>(victim));
  const caf::actor far_killer = at_other_end(there, *world.here, killer);
  Block block;
  ASSERT_TRUE(world.here->control->post(block));
  caf::anon_send(far_killer, std::uint64_t{0});  // its turn comes first; then it takes what follows along
  const caf::actor far_victim = world.here->remote->lookup(there.self, victim.id());
  caf::scoped_actor self(world.here->system);
  self->monitor(far_victim);
  caf::anon_send(far_killer, std::uint64_t{1});
  block.let_go.set_value();
  caf::error reason;
  self->receive([&](const caf::down_msg& down) { reason = down.reason; }, caf::after(kLong) >> [] {});
  EXPECT_EQ(reason, caf::exit_reason::user_shutdown) << caf::to_string(reason);
}

TEST(PlainMessage, ArrivesAsItWasSentInBothDirections) {
  Seen seen;
  LoopbackWorld world;
  add_plain_messages(world.here->config, MessageName<Pair>{"test.Pair"});
  const caf::actor actor = world.there->system.spawn(echo, &seen);
  const caf::actor remote = at_other_end(*world.there, *world.here, actor);
  const auto pair = ask<Pair>(world.here->system, remote, Pair{7, 0.5});
  ASSERT_TRUE(pair.ok()) << pair.why.text();
  EXPECT_EQ(pair.get(), (Pair{7, 0.5}));
}

TEST(PlainMessage, HasOneNameAndOneSize) {
  caf::actor_system_config config;
  add_plain_messages(config, MessageName<Pair>{"test.Pair"});
  EXPECT_NO_THROW(add_plain_messages(config, MessageName<Pair>{"test.Pair"}));
  try {
    add_plain_messages(config, MessageName<Pair>{"test.OtherPair"});
    FAIL() << "a second name was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("test.OtherPair"));
  }
}

}  // namespace
}  // namespace troupe::test
