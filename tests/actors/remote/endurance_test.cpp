#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/actors/remote/asking.hpp"
#include "tools/crew/endurance_load.hpp"

// What `rtbench messages --what endurance` does between two processes, over loopback: every message once, in order,
// with what it carries, while windows are full in both directions. TROUPE_ENDURANCE_MESSAGES and
// TROUPE_ENDURANCE_TENSORS (each way) make it long.
namespace troupe::test {
namespace {

using crew::EnduranceEnd;
using crew::EnduranceSchedule;

std::uint64_t count_from(const char* name, std::uint64_t usual) {
  const char* const set = std::getenv(name);
  return set == nullptr ? usual : std::strtoull(set, nullptr, 10);
}

EnduranceSchedule chosen_schedule() {
  return {count_from("TROUPE_ENDURANCE_MESSAGES", 20'000), count_from("TROUPE_ENDURANCE_TENSORS", 300)};
}

RemoteOptions patient() {
  RemoteOptions options;
  options.unhandled_bytes = 8u << 20;
  options.inline_limit = std::chrono::seconds(10);
  return options;
}

TEST(EnduranceSchedule, HasAsManyTensorsAsItWasGiven) {
  for (const std::uint64_t tensors : {0, 1, 2, 4, 5, 7, 99, 100}) {
    const EnduranceSchedule schedule(100, tensors);
    std::uint64_t sum = 0;
    for (std::uint64_t number = 0; number < schedule.messages(); ++number) sum += schedule.at(number).tensors;
    EXPECT_EQ(sum, tensors);
  }
  EXPECT_THROW(EnduranceSchedule(10, 11), Error);
}

class RemoteEndurance : public ::testing::TestWithParam<bool> {};

TEST_P(RemoteEndurance, CountsEachMessageOnceWithWindowsFullBothWays) {
  const bool run_inline = GetParam();
  const EnduranceSchedule schedule = chosen_schedule();
  auto blocking = Blocking::on_thread("test");
  LoopbackWorld world({}, patient(), patient());
  const auto end_at = [&](RemoteEnd& end, Arena& lent) {
    const crew::Stage stage{end.system, run_inline ? end.remote.get() : nullptr};
    auto made = std::make_unique<EnduranceEnd>(stage, end.space, *end.own, lent, schedule);
    end.remote->publish("sink", made->sink());
    return made;
  };
  // Both have mapped `common`, but only the process that made it allocates from it.
  const auto here = end_at(*world.here, *world.here->common);
  const auto there = end_at(*world.there, *world.there->own);
  here->go(world.here->remote->resolve(blocking, World::kThere, "sink", Deadline::after(kLong)), schedule.messages());
  there->go(world.there->remote->resolve(blocking, Peer{0}, "sink", Deadline::after(kLong)), schedule.messages());
  for (EnduranceEnd* const end : {here.get(), there.get()}) {
    EnduranceEnd::Done before = end->done();
    while (!end->wait(blocking, kLong)) {
      ASSERT_FALSE(end->done() == before) << "nothing moves any more, at message " << before.counted;
      before = end->done();
    }
  }
  for (const EnduranceEnd* const end : {here.get(), there.get()}) {
    EXPECT_EQ(end->done().received, schedule.messages());
    EXPECT_EQ(end->done().tensors_received, schedule.tensors());
  }
  EXPECT_EQ(world.here->told_dropped + world.there->told_dropped, 0u);
  EXPECT_EQ(world.here->remote->counters().dropped + world.there->remote->counters().dropped, 0u);
}

INSTANTIATE_TEST_SUITE_P(OverLoopback, RemoteEndurance, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "inline" : "scheduled"; });

}  // namespace
}  // namespace troupe::test
