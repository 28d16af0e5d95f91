#include <gmock/gmock.h>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include "actors/remote/remote_actors.hpp"

namespace troupe {
namespace {

struct Config : caf::actor_system_config {
  Config() {
    load<caf::io::middleman>();
    configure_remote(*this);
    set("scheduler.max-threads", std::size_t{1});
    set("middleman.workers", std::size_t{1});
    set("logger.verbosity", caf::atom("quiet"));
  }
};

TEST(NetworkModule, LivesBesideCafsOwnMiddleman) {
  Config server_config, client_config;
  caf::actor_system serving(server_config);
  caf::actor_system asking(client_config);
  EXPECT_NE(serving.node(), asking.node());
  const caf::actor server = serving.spawn(
      [](std::uint64_t add) -> caf::behavior { return {[=](std::uint64_t x) { return x + add; }}; }, std::uint64_t{1});
  const auto port = serving.middleman().publish(server, 0, "127.0.0.1");
  ASSERT_TRUE(port) << serving.render(port.error());
  const auto remote = asking.middleman().remote_actor("127.0.0.1", *port);
  ASSERT_TRUE(remote) << asking.render(remote.error());
  EXPECT_EQ((*remote).node(), serving.node());
  std::uint64_t answer = 0;
  {
    caf::scoped_actor self(asking);
    self->request(*remote, std::chrono::seconds(20), std::uint64_t{41})
        .receive([&](std::uint64_t x) { answer = x; }, [](const caf::error&) {});
  }
  EXPECT_EQ(answer, 42u);
  caf::anon_send_exit(server, caf::exit_reason::user_shutdown);
}

}  // namespace
}  // namespace troupe
