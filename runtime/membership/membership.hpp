#pragma once

// The room membership: which processes a job has, where they run, and when one of them is lost: Membership as a state
// machine, and the failure detector. It sends nothing and ends nothing: it only says what to do.
//
// Who notices that a process is lost: DeathWatch (transports/bootstrap/detail/death_watch.cpp) by its end mark, its
// socket and its pidfd, SilenceWatch (actors/remote/silence_watch.cpp) by missing heartbeats with the FailureDetector,
// and the transport when it cannot send (transports/ucx/ucx_lane.cpp). The membership actor is told, calls
// Membership::lost() and acts on its answer (lose() in actors/membership_actor.cpp).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

namespace troupe {

/// What to do after an event.
struct MembershipActions {
  bool begin = false;           // coordinator: tell every member that the view begins
  bool leave = false;           // coordinator: all have finished, tell every member to leave
  std::optional<Status> abort;  // the view ends, for this reason
};

/// Views and ranks as a pure state machine: events in, actions out. Every process has one; rank 0's is the coordinator,
/// and only it gets joined() and the finished() of others. A loss ends the view (on_loss = "abort"), until left() was
/// called.
class Membership {
 public:
  /// `hosts`: for each rank the name of its node, for messages.
  Membership(ViewId view, Rank self, std::vector<std::string> hosts);

  ViewId view() const noexcept { return view_; }
  bool coordinator() const noexcept { return self_.value == 0; }
  /// A member is ready for its first step.
  MembershipActions joined(Rank rank);
  /// The last committed step that this process knows of; messages about a loss name it.
  void committed(Step step) noexcept { committed_ = step.value + 1; }
  /// A member has finished its work; every process also reports its own.
  MembershipActions finished(Rank rank);
  /// A member's process is gone, for this reason. After this process has finished, only the coordinator can say whether
  /// it is a loss: the member may have left with all others, and the message about that may still be on its way.
  MembershipActions lost(Rank rank, const Status& why);
  /// The coordinator's message that it has lost a member.
  MembershipActions report_lost(Rank rank, const Status& why);
  /// An error in this process; handled like lost() if the reason is a lost peer.
  MembershipActions failed(const Status& why);
  /// The coordinator's message that all have finished: from now on a process that ends is not a loss.
  void left() noexcept { over_ = true; }
  /// Members that have not joined, for messages about an overdue start.
  std::vector<Rank> missing() const;
  /// Members that have not finished, for messages about an overdue end.
  std::vector<Rank> unfinished() const;

 private:
  enum class Member : std::uint8_t { expected, joined, finished };
  MembershipActions end(Status why);
  bool leaves_it_to_coordinator() const noexcept { return !coordinator() && members_[self_.value] == Member::finished; }
  ViewId view_;
  Rank self_;
  std::vector<std::string> hosts_;
  std::vector<Member> members_;
  std::uint64_t committed_ = 0;  // number of steps
  bool over_ = false;
};

}  // namespace troupe
