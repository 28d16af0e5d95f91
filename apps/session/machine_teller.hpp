#pragma once

#include <span>
#include <string>
#include <vector>

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

  /// What those of `peers` say, in their order, as topology::to_json() on one line each; all look at once. Throws
  /// Error{timeout}, Error{peer_lost}, and Error{environment} when a process could not look.
  static std::vector<std::string> ask(Blocking& blocking, Group& group, std::span<const Peer> peers, Deadline deadline);

 private:
  caf::actor actor_;
};

}  // namespace troupe
