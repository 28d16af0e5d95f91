#include "actors/exchange/hosted_worker_actor.hpp"

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <optional>
#include <utility>

#include "actors/caf_error.hpp"
#include "runtime/exchange/policies/hosted_worker.hpp"

namespace troupe {
namespace {

/// Keys of the sinks for shards' answers; see hosted_shard.cpp for the opposite direction.
constexpr std::uint64_t kPullSinks = std::uint64_t{0x776f} << 48;

struct Part {
  std::uint64_t first = 0;  // first element of the stripe in the group
  std::uint64_t count = 0;
  std::uint64_t sink_there = 0;  // the shard's sink for the next push
  bool posted = false;           // the sink for this shard's answer
  PullReply pulled;              // of this round; its tensor is kept until the next one arrives
};

struct WorkerState {
  static constexpr const char* name = "hosted_worker";
  std::vector<Part> parts;
  std::size_t joined = 0;
  std::optional<HostingJoined> start;
  std::optional<HostedWorker> machine;
  std::uint64_t rounds = 0;  // number of contributions
  std::uint64_t raised = 0;  // the last value to which the line was, or will be, raised
  Memory total;              // of the round in progress; empty: not wanted
  bool leaving = false;
  bool looking = false;                // whether it checks for progress from time to time
  std::uint64_t raised_then = 0;       // at the last check
  std::vector<std::uint64_t> applied;  // likewise: each rank's contributions, at the shard that was asked
  std::unique_ptr<PointMessenger<LeaveShards, 1>> reached;  // reports that the reads in progress have ended
};
using Self = HostedWorkerActor::stateful_pointer<WorkerState>;

using Shards = std::vector<HostedShard>;

void end(Self self, const HostedWorkerParts& parts, const Status& why) {
  parts.space.timeline(parts.line).poison(why);
  self->quit(to_caf(why));
}

void end_at(Self self, const HostedWorkerParts& parts, std::size_t shard, const caf::error& error) {
  const Status why = from_caf(error);
  end(self, parts, {why.code(), text("shard ", shard, " of rank ", parts.self.value, "'s group: ", why.text())});
}

Memory stripe_of(const Memory& whole, const Part& part) {
  return slice(whole, part.first * sizeof(float), part.count * sizeof(float));
}

std::uint64_t sink_key(Self self, std::size_t shard) {
  return kPullSinks | (std::uint64_t{self->id()} << 16 & 0xffffffff0000) | shard;
}

/// The message that reads from a shard; posts the landing as its sink.
PullRequest read_of(Self self, const HostedWorkerParts& parts, std::size_t shard, const HostedRead& read) {
  PullRequest message{.worker = read.worker.value, .clock = read.clock, .barrier = read.barrier, .into = 0};
  Part& part = self->state.parts[shard];
  if (parts.remote == nullptr) return message;
  message.into = sink_key(self, shard);
  if (!part.posted) parts.remote->post_sink({message.into}, stripe_of(parts.landing, part));
  part.posted = true;
  return message;
}

void announce_leave(Self self, const Shards& shards, const HostedWorkerParts& parts) {
  for (const HostedShard& shard : shards) self->send(shard, LeaveHosting{parts.self.value});
  if (parts.remote)
    for (std::size_t s = 0; s < shards.size(); ++s) parts.remote->withdraw_sinks({sink_key(self, s)});
  self->quit();
}

/// Leaves when no read is in progress: a shard may change the memory of its answer as soon as no answer to this rank is
/// open.
void leave_when_read(Self self, const HostedWorkerParts& parts, const Shards& shards) {
  WorkerState& s = self->state;
  if (s.machine && s.machine->waiting()) return;  // finish_round calls this again
  if (s.raised > parts.space.timeline(parts.line).value())
    s.reached->send_at({parts.line, s.raised}, HostedWorkerActor{self}, LeaveShards{});
  else
    announce_leave(self, shards, parts);
}

/// All shards have answered: copies parameters that arrived by reference to the landing, then raises the line. If there
/// are copies, the stream raises it after them. Raises stay in order, since the next round is contributed only after
/// the device's stream has waited for this one. For the same reason Part::pulled may be replaced by the next answer:
/// the copies that read it are done by then.
void finish_round(Self self, const HostedWorkerParts& parts, const Shards& shards) {
  WorkerState& s = self->state;
  if (s.total.size_bytes > 0) *parts.space.address_of<StepSums>(s.total) = s.parts[0].pulled.total;
  std::size_t copies = 0;
  for (Part& part : s.parts) {
    const Tensor& values = part.pulled.values;
    const Memory place = stripe_of(parts.landing, part);
    if (values.memory() == place) {
      part.posted = false;
      continue;
    }
    TROUPE_CHECK(values.memory().size_bytes == place.size_bytes, Code::corrupt, "shard ", part.pulled.shard,
                 " answered rank ", parts.self.value, " with ", values.memory().size_bytes, " bytes of a stripe of ",
                 place.size_bytes);
    parts.side.wait(values.valid_from());
    parts.side.copy(place, values.memory());
    ++copies;
  }
  ++s.raised;
  if (copies > 0)
    parts.side.signal({parts.line, s.raised});
  else
    parts.space.timeline(parts.line).signal(s.raised);
  if (s.leaving) leave_when_read(self, parts, shards);
}

void take(Self self, const HostedWorkerParts& parts, const Shards& shards, std::size_t shard, std::uint64_t barrier,
          PullReply& pulled) {
  WorkerState& s = self->state;
  s.parts[shard].sink_there = pulled.sink;
  s.parts[shard].pulled = std::move(pulled);
  const PullReply& p = s.parts[shard].pulled;
  if (s.machine->answered(shard, {parts.self, p.clock, p.version, p.content, barrier}))
    finish_round(self, parts, shards);
}

/// No time limit: the answer depends on the other ranks. The check for progress notices if it takes too long.
template <class Message>
void ask(Self self, const HostedWorkerParts& parts, const Shards& shards, std::size_t shard, std::uint64_t barrier,
         Message message) {
  self->request(shards[shard], caf::infinite, std::move(message))
      .then([=, &parts, &shards](PullReply& pulled) { take(self, parts, shards, shard, barrier, pulled); },
            [=, &parts](const caf::error& error) { end_at(self, parts, shard, error); });
}

void end_without_progress(Self self, const HostedWorkerParts& parts, std::size_t shard,
                          const std::vector<std::uint64_t>& applied) {
  std::string behind;
  for (std::size_t r = 0; r < applied.size(); ++r) {
    if (applied[r] > *std::min_element(applied.begin(), applied.end())) continue;
    behind += text(behind.empty() ? "" : ", ", r);
  }
  end(self, parts,
      {Code::timeout, text("rank ", parts.self.value, " waited ", parts.deadline.count(), " ms for shard ", shard,
                           ", to which no rank has contributed meanwhile; furthest behind: rank ", behind)});
}

/// A read may wait for other ranks without limit, as long as these make progress.
void look_for_progress(Self self, const HostedWorkerParts& parts, const Shards& shards) {
  WorkerState& s = self->state;
  self->delayed_send(self, parts.deadline, CheckProgress{});
  const bool waits = s.machine && s.machine->waiting();
  if (!waits || std::exchange(s.raised_then, s.raised) != s.raised) return s.applied.clear();
  const std::size_t shard = s.machine->missing().front();
  self->request(shards[shard], parts.deadline, AskHosting{})
      .then(
          [=, &parts](const HostingReport& report) {
            WorkerState& state = self->state;
            if (state.raised != state.raised_then) return;
            if (!report.version_vector.empty() && report.version_vector == state.applied)
              return end_without_progress(self, parts, shard, state.applied);
            state.applied = report.version_vector;
          },
          [=, &parts](const caf::error& error) { end_at(self, parts, shard, error); });
}

void joined(Self self, const HostedWorkerParts& parts, const Shards& shards, std::size_t shard,
            const HostingJoined& answer) {
  WorkerState& s = self->state;
  const std::uint64_t end_bytes = (answer.first + answer.count) * sizeof(float);
  TROUPE_CHECK(end_bytes <= parts.landing.size_bytes, Code::invalid, "shard ", shard, " hosts elements up to ",
               answer.first + answer.count, " of a group of ", parts.landing.size_bytes / sizeof(float));
  s.parts[shard].first = answer.first;
  s.parts[shard].count = answer.count;
  if (!s.start) s.start = answer;
  TROUPE_CHECK(s.start->clock == answer.clock && s.start->sequence == answer.sequence, Code::invalid, "rank ",
               parts.self.value, " would start at clock ", s.start->clock, " at shard ", s.start->shard,
               " and at clock ", answer.clock, " at shard ", answer.shard,
               "; ranks can join a group only if its shards are at "
               "the same clock");
  if (++s.joined < shards.size()) return;
  s.machine.emplace(parts.self, shards.size(), answer.clock, answer.sequence);
  const HostedRead read = s.machine->begin();
  for (std::size_t i = 0; i < shards.size(); ++i)
    ask(self, parts, shards, i, read.barrier, read_of(self, parts, i, read));
}

void begin(Self self, const HostedWorkerParts& parts, const Shards& shards, const BeginHosting& begin) {
  WorkerState& s = self->state;
  if (!begin.status.ok()) return end(self, parts, begin.status);
  TROUPE_CHECK(!shards.empty(), Code::invalid, "rank ", parts.self.value, " has no shards to push to");
  s.joined = 0;
  s.start.reset();
  s.machine.reset();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    self->request(shards[i], parts.deadline, JoinHosting{parts.self.value, begin.phase})
        .then([=, &parts, &shards](const HostingJoined& answer) { joined(self, parts, shards, i, answer); },
              [=, &parts](const caf::error& error) { end_at(self, parts, i, error); });
  }
  if (!std::exchange(s.looking, true)) self->delayed_send(self, parts.deadline, CheckProgress{});
}

void contribute(Self self, const HostedWorkerParts& parts, const Shards& shards, const ContributionReady& ready) {
  WorkerState& s = self->state;
  if (!ready.status.ok()) return end(self, parts, ready.status);
  TROUPE_CHECK(ready.round == s.rounds && s.machine, Code::invalid, "rank ", parts.self.value, " contributes round ",
               ready.round, ", after ", s.rounds, " rounds");
  ++s.rounds;
  const Contribution& own = ready.contribution;
  s.total = own.total;
  if (own.values.size_bytes == 0) {
    const HostedRead read = s.machine->read_at_barrier();
    for (std::size_t i = 0; i < shards.size(); ++i)
      ask(self, parts, shards, i, read.barrier, read_of(self, parts, i, read));
    return;
  }
  const HostedWorker::Round round = s.machine->contribute(own.is_barrier);
  const StepSums sums = *parts.space.address_of<const StepSums>(own.sums);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const HostedPush& push = round.pushes[i];
    Part& part = s.parts[i];
    const Tensor values(stripe_of(own.values, part), {part.count}, DType::f32, {}, nullptr);
    ask(self, parts, shards, i, round.read.barrier,
        PushRequest{parts.self.value, push.sequence, push.clock, push.base_version, sums, own.taken, own.computed,
                    part.sink_there == 0 ? values : values.into({part.sink_there}),
                    read_of(self, parts, i, round.read)});
  }
}

HostedWorkerActor::behavior_type worker(Self self, const HostedWorkerParts& given) {
  self->set_exception_handler([self, given](std::exception_ptr& thrown) {
    const caf::error why = to_caf(thrown);
    given.space.timeline(given.line).poison(from_caf(why));
    return why;
  });
  self->state.reached = std::make_unique<PointMessenger<LeaveShards, 1>>(given.space);
  const auto parts = std::make_shared<const HostedWorkerParts>(given);
  const auto shards = std::make_shared<Shards>();
  return {[=](SetShards& known) {
            *shards = std::move(known.shards);
            self->state.parts.resize(shards->size());
          },
          [=](const BeginHosting& message) {
            const TraceSpan span(parts->trace, "join shards");
            begin(self, *parts, *shards, message);
          },
          [=](const ContributionReady& ready) {
            const TraceSpan span(parts->trace, "contribute");
            contribute(self, *parts, *shards, ready);
          },
          [=](const LeaveShards& leave) {
            if (!leave.status.ok()) return end(self, *parts, leave.status);
            self->state.leaving = true;
            leave_when_read(self, *parts, *shards);
          },
          [=](CheckProgress) { look_for_progress(self, *parts, *shards); }};
}

}  // namespace

HostedWorkerActor spawn_hosted_worker(caf::actor_system& system, HostedWorkerParts parts) {
  return system.spawn(worker, std::move(parts));
}

}  // namespace troupe
