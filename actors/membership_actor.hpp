#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include <caf/actor.hpp>

#include "actors/messages.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/membership/membership.hpp"

namespace troupe {

struct MembershipParts;
/// Owns the view: every process has one, rank 0's is the coordinator. It waits for all members and begins the view. It
/// learns of deaths: of processes from the bootstrap's watch, heartbeats and the transport, of this process's actors
/// from CAF, of the coordinator from all of these, of other members also from the coordinator. It ends the view after a
/// death, and ends the run when all members have finished.
using MembershipActor =
    ActorOf<Takes<MembershipParts>, Takes<PeerLost>, Takes<Committed>, Takes<DeviceFinished>, Takes<Reported>,
            Takes<CheckpointsDone>, Takes<JoinView>, Takes<ViewBegins>, Takes<MemberFinished>, Takes<LeaveView>,
            Takes<MemberLost>, Takes<StartOverdue>, Takes<EndOverdue>, Takes<LocalFailure>>;
/// The messages between the Memberships of different processes.
using MembershipPeer =
    ActorOf<Takes<JoinView>, Takes<ViewBegins>, Takes<MemberFinished>, Takes<LeaveView>, Takes<MemberLost>>;
using BeginReceiver = ActorOf<Takes<Begin>>;

/// How a run ended at this process.
struct RunEnd {
  Status status;
  bool stopped = false;
  std::uint64_t steps = 0;        // number of committed steps
  std::uint64_t saved_steps = 0;  // of the newest checkpoint that the run saved; 0: none
  Status unsaved{};               // the error of the last save
  bool judged = false;            // the status is a verdict of all ranks on a step, the same at each
  bool retired = false;           // only the view has ended: the run continues in the next one
};

/// What Membership needs; sent to it once, as its first message.
struct MembershipParts {
  ViewId view;
  Rank self;
  std::vector<std::string> hosts;                 // by rank
  MembershipPeer coordinator;                     // rank 0's Membership; empty on rank 0
  std::vector<BeginReceiver> begin;               // told when the view begins
  std::vector<caf::actor> watched;                // actors of this process; if one fails, the run ends
  std::chrono::milliseconds start_within{60000};  // if the view has not begun by then, the run ends
  std::chrono::milliseconds end_within{30000};    // if others have not finished by then, the run ends
  bool waits_for_report = false;                  // at rank 0: the last line must be printed before the end
  bool waits_for_checkpoints = false;             // waits for CheckpointsDone
  std::function<void(const Status&)> abort_view;  // ends every wait of the view's exchange
  std::function<void(const RunEnd&)> ended;       // called exactly once
  std::function<void(Step)> committed;            // called for every step, in order; may be empty
  TraceRow* trace = nullptr;                      // null: nothing is traced
};

/// Spawns a membership actor. It joins the view when it gets its MembershipParts. It is spawned first, since the other
/// actors need its handle.
MembershipActor spawn_membership(caf::actor_system& system);

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::MembershipParts)
