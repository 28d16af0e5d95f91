#include "runtime/base/error.hpp"
#include "tools/bench/messages/stage.hpp"

namespace troupe::bench {
namespace {

struct Config final : caf::actor_system_config {
  Config() { configure_one_worker(*this); }
};

}  // namespace

Figures run_local(Blocking& blocking, const EndCase& what, Line& line) {
  if (!what.client) return {};  // both actors are at the other end
  Config config;
  caf::actor_system system(config);
  const Stage stage{system};
  const Ending far(spawn_far(stage, what));
  return measure_near(blocking, stage, what, far.get(), line.patience());
}

}  // namespace troupe::bench
