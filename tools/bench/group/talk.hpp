#pragma once

#include <atomic>
#include <caf/actor.hpp>
#include <caf/atom.hpp>
#include <caf/behavior.hpp>
#include <caf/event_based_actor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"

// The actors of a process that is measured.
namespace troupe::bench {

/// What one process sends to each that it talks with, to be sent back and forth for ever.
struct Load {
  std::uint32_t numbers = 0;
  std::uint32_t blocks = 0;
  static constexpr std::size_t kBlockBytes = 1u << 20;
};

/// What its talker has heard.
struct Heard {
  std::atomic<std::uint64_t> messages{0};
  std::atomic<std::int64_t> longest_gap_ns{0};  // between two messages of one partner
};

using TalkWith = caf::atom_constant<caf::atom("talk with")>;
using Hush = caf::atom_constant<caf::atom("hush")>;
using News = caf::atom_constant<caf::atom("news")>;
using Answer = caf::atom_constant<caf::atom("answer")>;

/// Sends back what comes. (TalkWith{}, std::vector<caf::actor>) makes it begin with these, (Hush{}) keep
/// what comes from now on.
caf::behavior talker(caf::event_based_actor* self, Load load, const std::shared_ptr<Heard>& heard);

/// Hears (News{}, n), and answers (Answer{}, n) with n once it has heard that.
caf::behavior listener(caf::event_based_actor* self);

/// Tells of the end of another actor, as soon as its handler is called.
using Ended = std::function<void(Clock::time_point at, const Status& why)>;
caf::behavior watcher(caf::event_based_actor* self, const caf::actor& other, const Ended& ended);

}  // namespace troupe::bench
