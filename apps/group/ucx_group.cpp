#include "apps/group/ucx_group.hpp"

#include "devices/discovery/discovery.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe {

GroupOptions ucx_group_options() {
  GroupOptions options{.place = launch_place_from_environment()};
  options.hello.ucx_version = ucx_version();
  options.hello.topology = discover();
  options.make_transport = [](const TransportContext& context) {
    return make_ucx_transport(context.space, {.self = context.self, .hosts = hosts_of(context.hellos)});
  };
  return options;
}

// The class Group depends on no vendor: a program chooses UCX by linking this file.
std::unique_ptr<Group> Group::join(Blocking& blocking, caf::actor_system& system) {
  return join(blocking, system, ucx_group_options());
}

}  // namespace troupe
