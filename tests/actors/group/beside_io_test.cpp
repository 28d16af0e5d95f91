#include <gmock/gmock.h>

#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include "tests/actors/group/group_world.hpp"
#include "tests/transports/bootstrap_ranks.hpp"

namespace troupe::test {
namespace {

struct IoConfig final : GroupConfig {
  IoConfig() {
    load<caf::io::middleman>();
    set("middleman.workers", std::size_t{1});
  }
};

struct IoEnd {
  IoConfig config;
  caf::actor_system system{config};
  std::unique_ptr<Group> group;
};

/// Two processes' worth of actor systems with CAF's own networking that are in a group too.
class GroupBesideIo : public ::testing::Test {
 protected:
  GroupBesideIo() {
    const testing::Listener listener;
    testing::at_once(2, [&](std::size_t i) {
      const auto peer = static_cast<std::uint32_t>(i);
      auto joining = Blocking::on_thread("test");
      GroupOptions options;
      options.place = testing::rank_options(listener, peer, 2).place;
      options.make_transport = [this](const TransportContext& context) {
        return network.endpoint(context.self, context.space);
      };
      ends[i].group = Group::join(joining, ends[i].system, std::move(options));
    });
  }
  ~GroupBesideIo() override {
    testing::at_once(2, [&](std::size_t i) {
      auto stopping = Blocking::on_thread("test");
      EXPECT_TRUE(ends[i].group->stop(stopping, long_enough()).clean());
    });
  }
  std::uint64_t who(const caf::actor& whom) {
    caf::scoped_actor self(ends[0].system);
    std::uint64_t answer = ~std::uint64_t{0};
    self->request(whom, kLong, Who::value)
        .receive([&](std::uint64_t x) { answer = x; }, [](const caf::error& e) { ADD_FAILURE() << caf::to_string(e); });
    return answer;
  }

  LoopbackNetwork network;
  std::array<IoEnd, 2> ends;
  Blocking blocking = Blocking::on_thread("test");
};

TEST_F(GroupBesideIo, ReachesTheSameActorBothWays) {
  const caf::actor actor = ends[1].system.spawn(counter, std::uint64_t{6});
  ends[1].group->publish("six", actor);
  const auto port = ends[1].system.middleman().publish(actor, 0, "127.0.0.1");
  ASSERT_TRUE(port) << ends[1].system.render(port.error());
  const auto by_io = ends[0].system.middleman().remote_actor("127.0.0.1", *port);
  ASSERT_TRUE(by_io) << ends[0].system.render(by_io.error());
  const caf::actor by_group = ends[0].group->lookup(blocking, {1}, "six", long_enough());
  EXPECT_EQ(who(*by_io), 6u);
  EXPECT_EQ(who(by_group), 6u);
  EXPECT_EQ(*by_io, by_group);  // handles are equal when their actor is the same, whoever carries the messages

  caf::scoped_actor self(ends[0].system);
  self->monitor(by_group);
  caf::anon_send(*by_io, Go::value);
  bool down = false;
  self->receive([&](const caf::down_msg&) { down = true; }, caf::after(kLong) >> [] {});
  EXPECT_TRUE(down);
}

}  // namespace
}  // namespace troupe::test
