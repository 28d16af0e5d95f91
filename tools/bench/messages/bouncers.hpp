#pragma once

#include <caf/actor.hpp>
#include <caf/actor_cast.hpp>
#include <caf/atom.hpp>
#include <caf/behavior.hpp>
#include <caf/event_based_actor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tools/bench/messages/measures.hpp"

// The actors that are measured; the same with every implementation.
namespace troupe::bench {

using Go = caf::atom_constant<caf::atom("go")>;
using Bytes = std::vector<char>;

/// Sends back what comes, or `own` instead.
template <class Payload>
caf::behavior echo(caf::event_based_actor*, const std::optional<Payload>& own) {
  if (own) return {[answer = *own](const Payload&) { return answer; }};
  return {[](Payload& x) { return std::move(x); }};
}

/// What a bouncer is told.
template <class Payload>
struct Bounce {
  caf::actor echo;
  Payload first;
  bool first_again = false;                  // instead of what came back
  std::function<bool()> again;               // after each round trip: whether there is to be another
  std::function<bool(const Payload&)> same;  // whether what came back is what was sent
  bool intact = true;
  Finish finish;
};

/// Sends to the echo what comes back from it.
template <class Payload>
caf::behavior bounce(caf::event_based_actor* self, const std::shared_ptr<Bounce<Payload>>& what) {
  return {[=](Go) { self->send(what->echo, what->first); },
          [=](Payload& x) {
            if (what->again()) {
              if (what->first_again) return self->send(what->echo, what->first);
              return self->send(what->echo, std::move(x));
            }
            what->intact = what->same(x);
            what->finish.tell();
          }};
}

/// Counts what comes, and acknowledges some of it.
inline caf::behavior counter(caf::event_based_actor* self) {
  return {[self, count = std::uint64_t{0}](std::uint64_t) mutable {
    if (++count % kCountedAtOnce == 0) self->send(caf::actor_cast<caf::actor>(self->current_sender()), count);
  }};
}

struct Count {
  caf::actor counter;
  Rate rate;
  std::uint64_t sent = 0;
  bool over = false;
  Finish finish;
};

/// Sends numbers as fast as they are acknowledged, until it was measured for long enough and all have arrived.
inline caf::behavior count(caf::event_based_actor* self, const std::shared_ptr<Count>& what) {
  const auto send_up_to = [=](std::uint64_t limit) {
    for (; what->sent < limit; ++what->sent) self->send(what->counter, what->sent);
  };
  return {[=](Go) { send_up_to(kCountedAhead); },
          [=](std::uint64_t counted) {
            what->over = what->over || !what->rate.again(counted);
            if (!what->over) return send_up_to(counted + kCountedAhead);
            if (counted == what->sent) what->finish.tell();
          }};
}

}  // namespace troupe::bench
