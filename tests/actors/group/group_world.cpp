#include "tests/actors/group/group_world.hpp"

#include <caf/send.hpp>
#include <stdexcept>

#include "actors/caf_error.hpp"
#include "tests/transports/bootstrap_ranks.hpp"

namespace troupe::test {
namespace {

caf::behavior count(caf::event_based_actor* self, std::uint64_t number) {
  const auto added = std::make_shared<std::vector<std::uint64_t>>();
  return {[=](Who) { return number; },
          [=](Add, std::uint64_t x) { added->push_back(x); },
          [=](Add, const Tensor& x) { added->push_back(x.memory().size_bytes); },
          [](Echo, const Tensor& x) { return x; },
          [=](Sum) {
            std::uint64_t sum = 0;
            for (const std::uint64_t x : *added) sum += x;
            return sum;
          },
          [=](Trace) {
            std::string all;
            for (const std::uint64_t x : *added) all += std::to_string(x) + " ";
            return all;
          },
          [](Hang) -> caf::result<std::uint64_t> { return caf::delegated<std::uint64_t>{}; },
          [](Sulk) -> caf::result<std::uint64_t> {
            return to_caf(Status{Code::device_fault, "it sulks"});
          },
          [=](Stay) { self->set_exit_handler([](caf::exit_msg&) {}); },
          [=](Go) { self->quit(); }};
}

}  // namespace

caf::behavior counter(caf::event_based_actor* self, std::uint64_t number) { return count(self, number); }

NamedCounter::NamedCounter(caf::actor_config& config, const std::string& name, std::uint64_t number)
    : event_based_actor(config), name_(name), number_(number) {
  if (name == "thorn") throw std::runtime_error("a thorn");
}

caf::behavior NamedCounter::make_behavior() { return count(this, number_ + name_.size()); }

GroupConfig::GroupConfig() {
  configure_group(*this);
  add_messages(*this, MessageName<Calculator>{"test.Calculator"});
  register_actor(*this, "counter", counter);
  register_actor<NamedCounter, std::string, std::uint64_t>(*this, "named counter");
  register_actor(*this, "idler",
                 [](caf::event_based_actor*) -> caf::behavior { return {[](Who) { return std::uint64_t{77}; }}; });
  register_actor(*this, "hanger", [](caf::event_based_actor*) -> caf::behavior {
    return {[](Who) -> caf::result<std::uint64_t> { return caf::delegated<std::uint64_t>{}; }};
  });
  set("scheduler.max-threads", std::size_t{1});
  set("logger.verbosity", caf::atom("quiet"));
}

GroupWorld::GroupWorld(std::uint32_t size, std::vector<std::uint64_t> arena_bytes) {
  arena_bytes.resize(size);
  const testing::Listener listener;
  for (std::uint32_t peer = 0; peer < size; ++peer) ends.push_back(std::make_unique<GroupEnd>());
  testing::at_once(size, [&](std::size_t i) {
    GroupEnd& end = *ends[i];
    const auto peer = static_cast<std::uint32_t>(i);
    auto joining = Blocking::on_thread("test");
    GroupOptions options;
    options.place = testing::rank_options(listener, peer, size).place;
    options.deadline = long_enough();
    options.remote = {.dropped =
                          [&end](std::string_view what) {
                            const std::scoped_lock hold(end.mutex);
                            end.dropped.emplace_back(what);
                          },
                      .landing_bytes = 4 << 20,
                      .sending_bytes = 4 << 20};
    options.arena_bytes = arena_bytes[i];
    options.lost = [&end](Peer lost, const Status&) {
      const std::scoped_lock hold(end.mutex);
      end.lost.push_back(lost);
    };
    options.make_transport = [this](const TransportContext& context) {
      return network.endpoint(context.self, context.space);
    };
    end.group = Group::join(joining, end.system, std::move(options));
    end.counter = end.system.spawn(counter, std::uint64_t{peer});
    end.group->publish("counter", end.counter);
  });
}

GroupWorld::~GroupWorld() {
  testing::at_once(ends.size(), [this](std::size_t i) {
    auto stopping = Blocking::on_thread("test");
    if (ends[i]->group) ends[i]->group->stop(stopping, Deadline::after(std::chrono::milliseconds(500)));
  });
  for (const auto& end : ends) {
    caf::anon_send_exit(end->counter, caf::exit_reason::user_shutdown);
    end->counter = {};
    end->group.reset();
  }
}

Mesh GroupWorld::counters() { return group(0).lookup_all(blocking, "counter", long_enough()); }

void GroupWorld::kill(std::uint32_t peer) { network.kill({peer}); }

}  // namespace troupe::test
