#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <caf/actor.hpp>

#include "actors/group/group.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/topology/machine.hpp"

namespace troupe {

/// How far another process's clock is ahead of this one's, and the largest error of that.
struct ClockSeen {
  double ahead_ms = 0;
  double within_ms = 0;
};

/// Describes this process, its machine and its clock to other processes of the group. It examines process and machine
/// when asked, on its own thread, which uses a core for some tens of milliseconds. Ends with this object.
class MachineReporter {
 public:
  /// `look`: a machine with only the rank of this process; called on the reporter's thread, until this object ends.
  MachineReporter(Group& group, std::function<topology::Machine()> look);
  ~MachineReporter();
  MachineReporter(const MachineReporter&) = delete;
  MachineReporter& operator=(const MachineReporter&) = delete;

  /// The machines of `peers`, in their order; all examine them at once. Throws Error{timeout}, Error{peer_lost}, and
  /// Error{environment} if a process could not examine its machine.
  static std::vector<topology::Machine> ask(Blocking& blocking, Group& group, std::span<const Peer> peers,
                                            Deadline deadline);
  /// The same of the processes alone: each machine has the place of that rank and nothing else.
  static std::vector<topology::Machine> ask_places(Blocking& blocking, Group& group, std::span<const Peer> peers,
                                                   Deadline deadline);
  /// Their clocks, each read a few times. The error is half of the shortest round trip.
  static std::vector<ClockSeen> ask_clocks(Blocking& blocking, Group& group, std::span<const Peer> peers,
                                           Deadline deadline);

 private:
  caf::actor actor_;
};

}  // namespace troupe
