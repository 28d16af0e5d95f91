// Message types of the program's own, in its own namespace: peer 0 keeps the point that is farthest from the origin.
// Start it with RANK=0 and 1, or by `rtrun app.toml -- ./example_measure`.
#include <caf/all.hpp>
#include <cmath>
#include <iostream>

#include "actors/group/group.hpp"
#include "actors/plain_messages.hpp"

using namespace std::chrono_literals;

namespace survey {

struct Point {  // plain bytes: sent without a serializer
  double x = 0, y = 0;
};
template <class Inspector>
auto inspect(Inspector& f, Point& p) {
  return f(caf::meta::type_name("survey.Point"), p.x, p.y);
}

struct Track {  // any other type that CAF can serialize
  std::string name;
  std::vector<Point> points;
};
template <class Inspector>
auto inspect(Inspector& f, Track& track) {
  return f(caf::meta::type_name("survey.Track"), track.name, track.points);
}

double distance(const Point& p) { return std::hypot(p.x, p.y); }

caf::behavior surveyor() {
  return {[](const Track& track) {
    Point farthest;
    for (const Point& p : track.points)
      if (distance(p) > distance(farthest)) farthest = p;
    return farthest;
  }};
}

}  // namespace survey

int main() {
  caf::actor_system_config config;
  troupe::configure_group(config);
  troupe::add_plain_messages(config, troupe::MessageName<survey::Point>{"survey.Point"});
  troupe::add_messages(config, troupe::MessageName<survey::Track>{"survey.Track"});
  caf::actor_system system(config);
  auto blocking = troupe::Blocking::on_thread("main");
  const auto group = troupe::Group::join(blocking, system);

  const troupe::Peer first{0};
  if (group->self() == first) group->publish("surveyor", system.spawn(survey::surveyor));
  const auto surveyor = group->lookup(blocking, first, "surveyor", troupe::Deadline::after(10s));
  caf::scoped_actor self(system);
  self->request(surveyor, 10s, survey::Track{"a walk", {{1, 1}, {3, 4}, {2, 0}}})
      .receive([&](const survey::Point& p) { std::cout << "farthest: " << p.x << ", " << p.y << std::endl; },
               [&](const caf::error& error) { std::cerr << system.render(error) << std::endl; });
  std::cout << group->stop(blocking, troupe::Deadline::after(60s)).text() << std::endl;
}
