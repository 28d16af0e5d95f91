#pragma once

// The room membership: which processes a job has, where they run, and when one of them is lost: Membership as a state
// machine, the failure detector. It sends nothing and ends nothing: it says what is to be done.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

namespace troupe {

/// What Membership wants done after an event.
struct MembershipActions {
  bool begin = false;           // coordinator: tell every member that the view stands
  bool leave = false;           // coordinator: everyone has finished, tell every member to go
  std::optional<Status> abort;  // the view ends for this reason
};

/// Views and ranks as a pure state machine: events in, actions out. Every process has one; rank 0's is the
/// coordinator's, which alone hears joined() and the others' finished(). A loss ends the view (on_loss = "abort") until
/// left().
class Membership {
 public:
  /// `hosts`: the node's name of each rank, for messages.
  Membership(ViewId view, Rank self, std::vector<std::string> hosts);

  ViewId view() const noexcept { return view_; }
  bool coordinator() const noexcept { return self_.value == 0; }
  /// A member is ready for its first step.
  MembershipActions joined(Rank rank);
  /// The last committed step as this process knows it; named when somebody is lost.
  void committed(Step step) noexcept { committed_ = step.value + 1; }
  /// A member has done its part; everywhere told of the process's own.
  MembershipActions finished(Rank rank);
  /// A member's process is gone, for this reason. When this process has done its part, only the coordinator knows
  /// whether that is a loss: the member may have left with everybody, by a word that is still on its way here.
  MembershipActions lost(Rank rank, const Status& why);
  /// The coordinator's word that it has lost a member.
  MembershipActions told_lost(Rank rank, const Status& why);
  /// Something of this process failed; as lost() when that is for want of a peer.
  MembershipActions failed(const Status& why);
  /// The coordinator's word that all have finished: losses mean nothing any more.
  void left() noexcept { over_ = true; }
  /// Members that have not joined, for messages of an overdue start.
  std::vector<Rank> missing() const;
  /// Members that have not finished, for messages of an overdue end.
  std::vector<Rank> unfinished() const;

 private:
  enum class Member : std::uint8_t { expected, joined, finished };
  MembershipActions end(Status why);
  bool leaves_it_to_coordinator() const noexcept { return !coordinator() && members_[self_.value] == Member::finished; }
  ViewId view_;
  Rank self_;
  std::vector<std::string> hosts_;
  std::vector<Member> members_;
  std::uint64_t committed_ = 0;  // steps
  bool over_ = false;
};

}  // namespace troupe
