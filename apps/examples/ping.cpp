// An actor in the first process answers the requests of the last one. Use one terminal for each:
//   RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ./example_ping
//   RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ./example_ping
// Without these variables there is one process, which asks itself.
#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <iostream>

#include "actors/group/group.hpp"
#include "actors/plain_messages.hpp"

using namespace troupe;
using namespace std::chrono_literals;

struct Ping {
  std::uint64_t round = 0;
};
template <class Inspector>
auto inspect(Inspector& f, Ping& ping) {
  return f(caf::meta::type_name("ping.Ping"), ping.round);
}

caf::behavior pong(caf::event_based_actor*) {
  return {[](const Ping& ping) { return Ping{ping.round + 1}; }};
}

void play(caf::actor_system& system, const caf::actor& pong) {
  caf::scoped_actor self(system);
  std::vector<double> microseconds;
  for (std::uint64_t round = 0; round < 10'000; ++round) {
    const auto begin = Clock::now();
    self->request(pong, 10s, Ping{round})
        .receive(
            [&](const Ping& answer) {
              TROUPE_CHECK(answer.round == round + 1, Code::corrupt, "answered ", answer.round);
            },
            [&](const caf::error& error) { fail(Code::peer_lost, system.render(error)); });
    microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::nth_element(microseconds.begin(), microseconds.begin() + 5000, microseconds.end());
  std::cout << "10000 pings, " << microseconds[5000] << " us there and back (median)" << std::endl;
}

int main(int argc, char**) try {
  TROUPE_CHECK(argc == 1, Code::invalid,
               "usage: example_ping (no arguments; RANK, WORLD_SIZE, ... in the environment)");
  caf::actor_system_config config;
  configure_group(config);
  add_plain_messages(config, MessageName<Ping>{"ping.Ping"});
  caf::actor_system system(config);
  auto blocking = Blocking::on_thread("main");

  const auto group = Group::join(blocking, system);
  if (group->self() == Peer{0}) group->publish("pong", group->remote().spawn_inline(pong));
  if (group->self() == Peer{group->size() - 1})
    play(system, group->lookup(blocking, Peer{0}, "pong", Deadline::after(10s)));
  const StopReport report = group->stop(blocking, Deadline::after(60s));
  std::cout << report.text() << std::endl;
  return report.clean() ? 0 : exit_code(Code::peer_lost);
} catch (const Error& error) {
  std::cerr << "example_ping: " << error.what() << std::endl;
  return exit_code(error.code());
}
