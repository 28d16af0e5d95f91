#pragma once

#include <span>
#include <string>
#include <vector>

#include <caf/actor.hpp>

#include "actors/group/group.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"

namespace troupe {

/// Describes this process's machine to other processes of the group. It examines the machine when asked, on its own
/// thread, which uses a core for some tens of milliseconds. Ends with this object.
class MachineReporter {
 public:
  explicit MachineReporter(Group& group);
  ~MachineReporter();
  MachineReporter(const MachineReporter&) = delete;
  MachineReporter& operator=(const MachineReporter&) = delete;

  /// The answers of `peers`, in their order, each as topology::to_json() on one line; all examine their machines at
  /// once. Throws Error{timeout}, Error{peer_lost}, and Error{environment} if a process could not examine its machine.
  static std::vector<std::string> ask(Blocking& blocking, Group& group, std::span<const Peer> peers, Deadline deadline);

 private:
  caf::actor actor_;
};

}  // namespace troupe
