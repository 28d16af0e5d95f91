#pragma once

#include <memory>

#include "actors/group/group.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/compute/device.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/exchange/communicator.hpp"

namespace troupe {

/// Collectives of all processes of a group on buffers of their own, without a session. Ranks are the peers' numbers.
/// Numbers travel over the group's transport, also between processes of a host; sums are in rank order. Threads: one
/// caller at a time.
///   GroupCommunicator all(blocking, *group, make_cpu_device(group->space(), {}), Deadline::after(10s));
///   all.communicator().all_reduce(all.stream(), data);  // f32, in memory that group->space() knows
///   all.finish(blocking, Deadline::after(10s));         // now data are the sums, with the same bits everywhere
class GroupCommunicator {
 public:
  /// Collective: returns when every process of the group has called it. A group can have one, and no session beside it:
  /// a session that starts later takes the transport's channel for itself, and this object must not be used any more.
  /// `device` computes the sums; its address space is the group's. Throws Error{timeout} and Error{peer_lost} as
  /// Group::all_gather, Error{out_of_memory}.
  GroupCommunicator(Blocking& blocking, Group& group, std::unique_ptr<Device> device, Deadline deadline);
  /// Call finish() before. The group keeps what its lanes may still use, the device included, until it ends.
  ~GroupCommunicator();
  GroupCommunicator(const GroupCommunicator&) = delete;
  GroupCommunicator& operator=(const GroupCommunicator&) = delete;

  /// For its plain operations: reduce_scatter, all_gather, barrier, all_reduce and broadcast. Their memory is an
  /// arena's or a region's (AddressSpace::bind); of a GPU, in the host's or the device's.
  Communicator& communicator() const noexcept;
  /// The device's, to enqueue these operations on.
  Stream& stream() const noexcept;
  Device& device() const noexcept;
  /// Waits until everything that was enqueued on stream() is done. Throws Error with the code of what failed:
  /// peer_lost, with the peer, if a process was lost in the meantime; timeout.
  void finish(Blocking& blocking, Deadline deadline);

 private:
  struct Parts;

  Group& group_;
  const std::shared_ptr<Parts> parts_;
  const std::unique_ptr<Group::LossListener> losses_;
};

}  // namespace troupe
