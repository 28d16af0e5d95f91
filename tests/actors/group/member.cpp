#include "tests/actors/group/member.hpp"

#include <caf/scoped_actor.hpp>
#include <cstring>
#include <iostream>

#include "tools/crew/measured_process.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::test {

std::unique_ptr<GroupEnd> join_over_ucx(Blocking& blocking, LaunchPlace place, const std::string& means,
                                        Bootstrap::Lost lost, std::optional<std::chrono::milliseconds> dead) {
  auto end = std::make_unique<GroupEnd>();
  GroupOptions options;
  options.place = place;
  options.deadline = long_enough();
  options.hello.ucx_version = ucx_version();
  options.lost = std::move(lost);
  if (dead) options.remote.heartbeats = FailureDetectorOptions::with_dead(*dead);
  options.make_transport = [&](const TransportContext& context) {
    return crew::make_transport({.transport = means, .device = means == "tcp" ? "lo" : ""}, context.space,
                                context.self);
  };
  end->group = Group::join(blocking, end->system, std::move(options));
  end->counter = end->system.spawn(counter, std::uint64_t{place.rank});
  end->group->publish("counter", end->counter);
  return end;
}

std::optional<int> run_as_member(int argc, char** argv) {
  if (argc != 3 || std::strcmp(argv[1], "--member") != 0) return {};
  auto blocking = Blocking::on_thread("member");
  const auto say_lost = [](Peer peer, const Status& why) {
    std::cout << text("lost peer ", peer.value, ": ", why.text(), "\n") << std::flush;
  };
  const auto end = join_over_ucx(blocking, launch_place_from_environment().value(), argv[2], say_lost);
  caf::scoped_actor self(end->system);
  self->wait_for(end->counter);
  end->counter = {};
  const StopReport report = end->group->stop(blocking, long_enough());
  std::cout << report.text() << std::endl;
  return report.running.empty() ? 0 : 1;
}

}  // namespace troupe::test
