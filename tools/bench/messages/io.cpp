#include <caf/io/middleman.hpp>
#include <cstring>

#include "runtime/base/error.hpp"
#include "tools/bench/messages/block.hpp"
#include "tools/bench/messages/stage.hpp"

namespace troupe::bench {
namespace {

struct Config final : caf::actor_system_config {
  Config() {
    load<caf::io::middleman>();
    configure_one_worker(*this);
    add_message_type<Block>(Block::name);
  }
};

std::uint16_t publish(caf::actor_system& system, const caf::actor& far) {
  const auto port = system.middleman().publish(far, 0, "127.0.0.1");
  TROUPE_CHECK(port, Code::environment, "CAF's io cannot publish an actor: ", system.render(port.error()));
  return *port;
}

caf::actor find(caf::actor_system& system, std::span<const std::byte> told) {
  std::uint16_t port = 0;
  TROUPE_CHECK(told.size() == sizeof port, Code::corrupt, "the other end told no port");
  std::memcpy(&port, told.data(), sizeof port);
  const auto far = system.middleman().remote_actor("127.0.0.1", port);
  TROUPE_CHECK(far, Code::environment, "CAF's io does not reach 127.0.0.1:", port, ": ", system.render(far.error()));
  return *far;
}

}  // namespace

bool io_available() noexcept { return true; }

Figures run_io(Blocking& blocking, const EndCase& what, Line& line) {
  Config config;
  caf::actor_system system(config);
  const Stage stage{system};
  Figures figures;
  if (what.client) {
    const caf::actor far = find(system, line.swap(blocking, {}));
    figures = what.what == "idle" ? idle_cores(blocking, what, line)
                                  : measure_near(blocking, stage, what, far, line.patience());
    line.meet(blocking);
  } else {
    const Ending far(spawn_far(stage, what));
    const std::uint16_t port = publish(system, far.get());
    line.swap(blocking, std::as_bytes(std::span(&port, 1)));
    if (what.what == "idle") idle_cores(blocking, what, line);
    line.meet(blocking);
  }
  return figures;
}

}  // namespace troupe::bench
