#pragma once

#include <string>

#include <caf/actor.hpp>

#include "actors/group/group.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"

namespace troupe {

/// Tells other processes of the group what machine this one is on. It looks when it is asked, on a thread of its own,
/// which takes some tens of milliseconds of a core. Ends with this object.
class MachineTeller {
 public:
  explicit MachineTeller(Group& group);
  ~MachineTeller();
  MachineTeller(const MachineTeller&) = delete;
  MachineTeller& operator=(const MachineTeller&) = delete;

  /// What `peer`'s says, as topology::to_json() on one line. Throws Error{timeout}, Error{peer_lost}, and
  /// Error{environment} when that process could not look.
  static std::string ask(Blocking& blocking, Group& group, Peer peer, Deadline deadline);

 private:
  caf::actor actor_;
};

}  // namespace troupe
