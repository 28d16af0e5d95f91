#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>
#include <caf/message.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "actors/caf_compatibility.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"

namespace troupe::group {

/// The reply of one actor; the status is ok exactly if it answered without an error.
struct Reply {
  caf::message what;
  Status status{Code::timeout, "has not answered"};
};

/// The replies of all, as a message to the actor for which they were asked.
struct Replied {
  std::shared_ptr<std::vector<Reply>> replies;
};

/// One question to many actors.
struct Questions {
  std::vector<caf::actor> whom;
  caf::message question;
  Clock::duration within;
  bool first_answer_ends = false;
};

/// Asks, and calls `done` once, on one of CAF's threads, with one reply for each actor, in the order of `whom`: when
/// all have replied, at the latest after `within`. Never blocks.
void ask_all(caf::actor_system& system, Questions questions, std::function<void(std::vector<Reply>)> done);
/// The same, but waits for the replies.
std::vector<Reply> ask_all(Blocking& blocking, caf::actor_system& system, Questions questions);

}  // namespace troupe::group

TROUPE_LOCAL_MESSAGE(troupe::group::Replied)
