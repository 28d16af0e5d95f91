#include <caf/all.hpp>
#include <iostream>

#include "actors/group/group.hpp"

using namespace std::chrono_literals;
using troupe::Deadline;

int main() {
  caf::actor_system_config config;
  troupe::configure_group(config);
  caf::actor_system system(config);
  auto blocking = troupe::Blocking::on_thread("main");
  const auto group = troupe::Group::join(blocking, system);

  group->publish("adder", system.spawn([]() -> caf::behavior { return {[](int x, int y) { return x + y; }}; }));
  const troupe::Peer next{(group->self().value + 1) % group->size()};
  const caf::actor adder = group->lookup(blocking, next, "adder", Deadline::after(10s));
  caf::scoped_actor self(system);
  self->request(adder, 10s, 20, 22)
      .receive([&](int sum) { std::cout << "peer " << next.value << " says " << sum << std::endl; },
               [&](const caf::error& error) { std::cerr << system.render(error) << std::endl; });
  std::cout << group->stop(blocking, Deadline::after(60s)).text() << std::endl;
}
