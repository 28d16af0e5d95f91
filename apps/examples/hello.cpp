#include <caf/all.hpp>
#include <iostream>

#include "actors/group/group.hpp"
#include "transports/ucx/ucx_transport.hpp"

using namespace troupe;
using namespace std::chrono_literals;

int main() {
  caf::actor_system_config config;
  configure_group(config);
  caf::actor_system system(config);
  auto blocking = Blocking::on_thread("main");

  GroupOptions options{.place = launch_place_from_environment()};
  options.hello.ucx_version = ucx_version();
  options.make_transport = [](const TransportSite& at) { return make_ucx_transport(at.space, {.self = at.self}); };
  const auto group = Group::join(blocking, system, std::move(options));

  group->publish("adder", system.spawn([]() -> caf::behavior { return {[](int x, int y) { return x + y; }}; }));
  const Peer next{(group->self().value + 1) % group->size()};
  const caf::actor adder = group->lookup(blocking, next, "adder", Deadline::after(10s));
  caf::scoped_actor self(system);
  self->request(adder, 10s, 20, 22)
      .receive([&](int sum) { std::cout << "peer " << next.value << " says " << sum << std::endl; },
               [&](const caf::error& error) { std::cerr << system.render(error) << std::endl; });
  std::cout << group->stop(blocking, Deadline::after(60s)).text() << std::endl;
}
