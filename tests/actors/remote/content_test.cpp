#include <gtest/gtest.h>

#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <limits>

#include "tests/actors/remote/remote_end.hpp"

// Receivers that are made of other actors, and numbers that CAF's own networking changes.
namespace troupe::test {
namespace {

TEST(RemoteActors, ReachASpliceOfActors) {
  LoopbackWorld world;
  const auto part = [&] {
    return world.there->system.spawn([]() -> caf::behavior {
      return {[](double x) { return 2 * x; }, [](long double x) { return x; }};
    });
  };
  const caf::actor first = part();
  const caf::actor second = part();
  const caf::actor both = at_other_end(*world.there, *world.here, caf::splice(first, second));
  caf::scoped_actor self(world.here->system);
  double sum = 0;
  self->request(both, std::chrono::seconds(20), 21.0)
      .receive([&](double x, double y) { sum = x + y; },
               [](const caf::error& e) { ADD_FAILURE() << caf::to_string(e); });
  EXPECT_EQ(sum, 84);
  for (auto& a : {first, second}) self->send_exit(a, caf::exit_reason::kill);
}

TEST(RemoteActors, CarryLongDoublesOfEveryKind) {
  LoopbackWorld world;
  const caf::actor mirror =
      world.there->system.spawn([]() -> caf::behavior { return {[](long double x) { return x; }}; });
  const caf::actor remote = at_other_end(*world.there, *world.here, mirror);
  caf::scoped_actor self(world.here->system);
  using L = std::numeric_limits<long double>;
  for (long double x : {L::infinity(), -L::infinity(), L::max(), L::denorm_min(), 1.0L / 3, -0.0L}) {
    long double back = 1;
    self->request(remote, std::chrono::seconds(20), x)
        .receive([&](long double y) { back = y; }, [](const caf::error& e) { ADD_FAILURE() << caf::to_string(e); });
    EXPECT_EQ(back, x);
  }
  self->send_exit(remote, caf::exit_reason::kill);
}

}  // namespace
}  // namespace troupe::test
