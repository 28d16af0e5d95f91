#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include <caf/actor.hpp>

#include "actors/messages.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/membership/membership.hpp"

namespace troupe {

/// Owns the view: every process has one, rank 0's is the coordinator. It waits for all members, begins the view, hears
/// of deaths (of processes from the bootstrap's watch, heartbeats and the transport, of this process's actors from CAF,
/// of the coordinator from all of them, of other members from the coordinator too), ends the view when there is one,
/// and ends the run when all members have finished.
struct MembershipParts;
using MembershipActor =
    ActorOf<Takes<MembershipParts>, Takes<PeerLost>, Takes<Committed>, Takes<DeviceFinished>, Takes<Reported>,
            Takes<CheckpointsDone>, Takes<JoinView>, Takes<ViewStands>, Takes<MemberFinished>, Takes<LeaveView>,
            Takes<MemberLost>, Takes<StartOverdue>, Takes<EndOverdue>, Takes<LocalFailure>>;
/// What one Membership tells another's.
using MembershipPeer =
    ActorOf<Takes<JoinView>, Takes<ViewStands>, Takes<MemberFinished>, Takes<LeaveView>, Takes<MemberLost>>;
using BeginReceiver = ActorOf<Takes<Begin>>;

/// How a run ended at this process.
struct RunEnd {
  Status status;
  bool stopped = false;
  std::uint64_t steps = 0;        // committed
  std::uint64_t saved_steps = 0;  // of the newest checkpoint that the run saved; 0: none
  Status unsaved{};               // why the last save failed
  bool judged = false;            // the status is the verdict of all ranks on a step, the same at each
  bool retired = false;           // the view alone has ended: the run continues in the next one
};

/// What Membership works with; sent to it once, as its first message.
struct MembershipParts {
  ViewId view;
  Rank self;
  std::vector<std::string> hosts;                 // by rank
  MembershipPeer coordinator;                     // rank 0's Membership; on rank 0: none
  std::vector<BeginReceiver> begin;               // told when the view stands
  std::vector<caf::actor> watched;                // actors of this process whose failure ends the run
  std::chrono::milliseconds start_within{60000};  // the view stands by then, or the run ends
  std::chrono::milliseconds end_within{30000};  // of this device's last step all others have finished, or the run ends
  bool waits_for_report = false;                // rank 0: the last line comes before the end
  bool waits_for_checkpoints = false;           // CheckpointsDone does
  std::function<void(const Status&)> abort_view;  // ends every wait of the view's exchange
  std::function<void(const RunEnd&)> ended;       // exactly once
  std::function<void(Step)> committed;            // told of every step, in order; empty: nobody wants to know
  TraceRow* trace = nullptr;                      // null: nothing is noted
};

/// A membership actor; it joins the view when it gets its MembershipParts (the other actors are made with its handle,
/// so it comes first).
MembershipActor spawn_membership(caf::actor_system& system);

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::MembershipParts)
