#include "actors/membership_actor.hpp"

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kLossGrace{200};

struct MembershipState {
  static constexpr const char* name = "membership";
  std::optional<Membership> machine;
  MembershipParts parts;
  std::vector<PeerLost> early;  // losses that came before the parts
  std::vector<std::pair<JoinView, MembershipPeer>> early_joins;
  bool begun = false;
  std::map<std::uint32_t, MembershipPeer> members;  // at the coordinator: the other ranks' Membership, by rank
  bool device_finished = false;
  bool stopped = false;
  bool retired = false;
  bool reported = false;
  bool saved = false;
  std::uint64_t saved_steps = 0;
  Status unsaved;
  std::uint64_t steps = 0;
  Status noticed;  // a loss that an actor of this process has met, of a rank that is not known yet; ok: none
  Status verdict;  // of all ranks on the run; ok: it ends as planned, or on request
  bool over = false;
};
using MembershipSelf = MembershipActor::stateful_pointer<MembershipState>;

std::chrono::milliseconds end_within(const MembershipState& s) {
  return s.machine->coordinator() ? s.parts.end_within : 2 * s.parts.end_within;
}

void end_run(MembershipSelf self, const Status& given) {
  MembershipState& s = self->state;
  if (s.over) return;
  s.over = true;
  const bool judged = given.ok() && !s.verdict.ok();
  const Status& status = judged ? s.verdict : given;
  s.parts.ended({status, s.stopped, s.steps, s.saved_steps, s.unsaved, judged, s.retired && status.ok()});
}

void begin_view(MembershipSelf self) {
  self->state.begun = true;
  for (const auto& receiver : self->state.parts.begin) self->send(receiver, Begin{self->state.machine->view()});
}

/// Executes the actions that the state machine returns.
void act(MembershipSelf self, const MembershipActions& actions) {
  MembershipState& s = self->state;
  if (actions.begin) {
    for (const auto& [rank, member] : s.members) self->send(member, ViewBegins{s.machine->view().value});
    begin_view(self);
  }
  if (actions.leave) {
    for (const auto& [rank, member] : s.members)
      self->send(member,
                 LeaveView{s.machine->view().value, s.saved_steps, s.unsaved.code(), std::string{s.unsaved.text()}});
    s.machine->left();
    end_run(self, {});
  }
  if (actions.abort) {
    s.parts.abort_view(*actions.abort);
    end_run(self, *actions.abort);
  }
}

/// Ends the view. The coordinator first tells the others which rank is lost, and another rank first tells the
/// coordinator; otherwise this process's own end would look like the loss to them.
void lose(MembershipSelf self, Rank rank, const Status& why) {
  MembershipState& s = self->state;
  const MembershipActions actions = s.machine->lost(rank, why);
  if (actions.abort && s.parts.coordinator && rank.value != 0)
    self->send(s.parts.coordinator, MemberLost{rank.value, std::string(why.text())});
  if (actions.abort)
    for (const auto& [number, member] : s.members)
      if (number != rank.value) self->send(member, MemberLost{rank.value, std::string(why.text())});
  act(self, actions);
}

/// The loss of a whole process has a reason. A membership actor that ended alone gives none: its rank had failed, and
/// may have said why to those that exchange with it.
Status loss_of_member(const MembershipState& s, const Status& why) {
  if (why.code() == Code::peer_lost) return why;
  const std::string before = s.noticed.ok() ? "" : text("; before that: ", s.noticed.text());
  return {Code::peer_lost, text("its membership actor ended: ", why.text(), before)};
}

/// This process has finished when its device has, its saves are on the disk, and at rank 0 the report is complete.
void finish_when_done(MembershipSelf self) {
  MembershipState& s = self->state;
  if (!s.device_finished || (s.parts.waits_for_report && !s.reported)) return;
  if (s.parts.waits_for_checkpoints && !s.saved) return;
  act(self, s.machine->finished(s.parts.self));
  if (!s.machine->coordinator()) self->send(s.parts.coordinator, MemberFinished{s.parts.self.value});
}

void on_down(MembershipSelf self, const caf::down_msg& down, std::chrono::milliseconds loss_grace) {
  MembershipState& s = self->state;
  if (!s.machine || s.over) return;
  const Status why = from_caf(down.reason);
  if (s.parts.coordinator && down.source == s.parts.coordinator.address())
    return lose(self, {0}, loss_of_member(s, why));
  for (const auto& [rank, member] : s.members)
    if (down.source == member.address()) return lose(self, {rank}, loss_of_member(s, why));
  if (why.ok()) return;
  // The exchange may notice a death before the lost rank is known; wait a moment for that.
  if (why.code() == Code::peer_lost) {
    s.noticed = why;
    return self->delayed_send(self, loss_grace, LocalFailure{why});
  }
  act(self, s.machine->failed(why));
}

/// The start took too long. The coordinator knows the missing ranks; the others only know that it has not answered.
void on_overdue(MembershipSelf self) {
  MembershipState& s = self->state;
  if (s.begun || s.over) return;
  std::string who = "rank 0 has not begun the view";
  if (s.machine->coordinator()) {
    who = "not ready:";
    for (const Rank rank : s.machine->missing())
      who += text(" rank ", rank.value, " on node ", s.parts.hosts[rank.value], ";");
  }
  act(self, s.machine->failed({Code::timeout, text("the job did not start within ", s.parts.start_within.count(),
                                                   " ms (faults.start_s): ", who)}));
}

/// This device has finished and others have not: names the ranks that may be stuck. Rank 0 may wait this long for
/// others before it reports them, so the other ranks wait twice as long for rank 0.
void on_end_overdue(MembershipSelf self) {
  MembershipState& s = self->state;
  if (s.over) return;
  std::string who = "rank 0 has not ended the run";
  if (s.machine->coordinator()) {
    who = "not finished:";
    for (const Rank rank : s.machine->unfinished())
      if (rank != s.parts.self) who += text(" rank ", rank.value, " on node ", s.parts.hosts[rank.value], ";");
    if (s.parts.waits_for_report && !s.reported) who += " the last line lacks their part of the test set";
    if (s.parts.waits_for_checkpoints && !s.saved) who += " the last checkpoint is not written";
  }
  act(self, s.machine->failed({Code::timeout, text("all steps are done, but the run did not end within ",
                                                   end_within(s).count(), " ms (faults.exchange_s): ", who)}));
}

void add_member(MembershipSelf self, const JoinView& join, MembershipPeer member) {
  MembershipState& s = self->state;
  if (!member || join.rank >= s.parts.hosts.size()) return;
  self->monitor(member);
  s.members[join.rank] = std::move(member);
  act(self, s.machine->joined({join.rank}));
}

void start(MembershipSelf self, MembershipParts& given) {
  MembershipState& s = self->state;
  s.parts = std::move(given);
  s.machine.emplace(s.parts.view, s.parts.self, s.parts.hosts);
  for (const auto& actor : s.parts.watched) self->monitor(actor);
  self->delayed_send(self, s.parts.start_within, StartOverdue{});
  for (auto& [join, member] : std::exchange(s.early_joins, {})) add_member(self, join, std::move(member));
  if (s.machine->coordinator()) {
    act(self, s.machine->joined(s.parts.self));
  } else {
    self->monitor(s.parts.coordinator);
    self->send(s.parts.coordinator, JoinView{s.parts.self.value});
  }
  for (const PeerLost& lost : s.early) lose(self, {lost.peer.value}, lost.why);
}

void on_join(MembershipSelf self, const JoinView& join) {
  auto member = caf::actor_cast<MembershipPeer>(self->current_sender());
  if (self->state.machine) return add_member(self, join, std::move(member));
  self->state.early_joins.emplace_back(join, std::move(member));
}

MembershipActor::behavior_type membership_actor(MembershipSelf self, std::chrono::milliseconds loss_grace) {
  end_with_own_errors(self);
  self->set_down_handler([=](caf::down_msg& down) { on_down(self, down, loss_grace); });
  return {[=](MembershipParts& parts) { start(self, parts); },
          [=](const PeerLost& lost) {
            if (!self->state.machine) return self->state.early.push_back(lost);
            lose(self, {lost.peer.value}, lost.why);
          },
          [=](const Committed& c) {
            const TraceSpan span(self->state.parts.trace, "count step", {.step = c.step.value});
            self->state.steps = c.step.value + 1;
            self->state.machine->committed(c.step);
            if (self->state.parts.committed) self->state.parts.committed(c.step);
          },
          [=](const DeviceFinished& end) {
            self->state.device_finished = true;
            self->state.stopped = end.stopped && end.verdict.ok();
            self->state.verdict = end.verdict;
            self->state.retired = end.retired;
            self->delayed_send(self, end_within(self->state), EndOverdue{});
            finish_when_done(self);
          },
          [=](const Reported&) {
            self->state.reported = true;
            finish_when_done(self);
          },
          [=](const CheckpointsDone& done) {
            self->state.saved = true;
            self->state.saved_steps = done.saved_steps;
            self->state.unsaved = done.last;
            finish_when_done(self);
          },
          [=](const JoinView& join) { on_join(self, join); },
          [=](const ViewBegins&) { begin_view(self); },
          [=](const MemberFinished& end) { act(self, self->state.machine->finished({end.rank})); },
          [=](const LeaveView& leave) {
            self->state.saved_steps = leave.saved_steps;
            if (leave.unsaved_code != Code::ok) self->state.unsaved = {leave.unsaved_code, leave.unsaved};
            self->state.machine->left();
            end_run(self, {});
          },
          [=](const MemberLost& lost) {
            if (!self->state.machine) return;
            const Status why{Code::peer_lost, lost.why};
            if (self->state.machine->coordinator()) return lose(self, {lost.rank}, why);
            act(self, self->state.machine->report_lost({lost.rank}, why));
          },
          [=](StartOverdue) { on_overdue(self); },
          [=](EndOverdue) { on_end_overdue(self); },
          [=](const LocalFailure& failure) { act(self, self->state.machine->failed(failure.why)); }};
}

}  // namespace

MembershipActor spawn_membership(caf::actor_system& system) {
  return system.spawn(membership_actor,
                      kLossGrace);  // CAF 0.17 reads a null pointer if a function has no arguments
}

}  // namespace troupe
