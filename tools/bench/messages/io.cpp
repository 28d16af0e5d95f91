#include <caf/io/middleman.hpp>

#include "runtime/base/error.hpp"
#include "tools/bench/messages/actors.hpp"

namespace troupe::bench {
namespace {

struct Config final : caf::actor_system_config {
  Config() {
    load<caf::io::middleman>();
    configure_workers(*this, 1);
    set("middleman.workers", std::size_t{1});
    add_message_type<Block>(Block::name);
  }
};

}  // namespace

bool io_available() noexcept { return true; }

Figures run_io(Blocking& blocking, const EndCase& what, Line& line) {
  Config config;
  caf::actor_system system(config);
  const Stage stage{system};
  constexpr const char* kHost = "127.0.0.1";
  Figures figures;
  if (what.client) {
    const auto port = line.await(blocking).get<std::uint16_t>();
    const auto far = system.middleman().remote_actor(kHost, port);
    TROUPE_CHECK(far, Code::environment, "CAF's io does not reach ", kHost, ":", port, ": ",
                 system.render(far.error()));
    figures = what.what == "idle" ? idle_cores(blocking, what, line)
                                  : measure_near(blocking, stage, what, *far, line.patience());
    line.barrier(blocking);
    return figures;
  }
  const Ending far(spawn_far(stage, what));
  const auto port = system.middleman().publish(far.get(), 0, kHost);
  TROUPE_CHECK(port, Code::environment, "CAF's io cannot publish an actor: ", system.render(port.error()));
  line.tell(*port);
  if (what.what == "idle") idle_cores(blocking, what, line);
  line.barrier(blocking);
  return figures;
}

}  // namespace troupe::bench
