#include "actors/checkpointer_actor.hpp"

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "actors/caf_error.hpp"

namespace troupe {
namespace {

/// How many results of evaluations are kept for checkpoints that are not written yet.
constexpr std::size_t kAccuraciesKept = 16;

/// At rank 0: a checkpoint for which some ranks have not written their part yet.
struct Gathering {
  CheckpointManifest manifest;
  std::map<std::uint32_t, CheckpointFile> files;  // by rank
  std::uint32_t answered = 0;                     // number of ranks, including those that failed
  bool begun = false;                             // this rank has made the manifest
  Status wrong;
};

struct CheckpointerState {
  static constexpr const char* name = "checkpointer";
  CheckpointerReceivers receivers;
  EpochSoFar epoch;
  std::uint64_t committed = 0;  // steps, as reported; if sums are gathered, perhaps after the copy was made
  std::map<CheckpointId, Gathering> gatherings;
  std::map<std::uint64_t, double> accuracies;       // by the step that was evaluated; the newest ones
  std::map<CheckpointId, std::uint64_t> evaluated;  // the evaluated step count of each saved checkpoint
  std::map<CheckpointId, CheckpointManifest> publishing;
  std::set<CheckpointId> open;  // those of which this rank's part, or on rank 0 the whole, is not finished
  std::optional<std::pair<CheckpointId, CheckpointManifest>> last;  // the last one that was published
  std::pair<CheckpointId, Status> newest;                           // the last save that was tried, and its result
  std::size_t tasks_in_progress = 0;                                // tasks of the thread for files
  bool finished = false;
  bool done = false;
};
using CheckpointerSelf = CheckpointerActor::stateful_pointer<CheckpointerState>;

/// The parts, shared with the thread for files, which may use them longer than the actor lives.
using Shared = std::shared_ptr<const CheckpointerParts>;

/// An exception on that thread ends only the save.
template <class Work>
Status status_of(Work work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    return error.status();
  } catch (const std::exception& error) {
    return {Code::environment, error.what()};
  }
}

/// The accuracy of a checkpoint's weights, if it is known already.
std::optional<double> accuracy_of(const CheckpointerState& s, CheckpointId id) {
  const auto evaluated = s.evaluated.find(id);
  if (evaluated == s.evaluated.end()) return {};
  const auto known = s.accuracies.find(evaluated->second);
  return known == s.accuracies.end() ? std::nullopt : std::optional{known->second};
}

void report_when_done(CheckpointerSelf self) {
  CheckpointerState& s = self->state;
  if (!s.finished || s.done || s.tasks_in_progress > 0 || !s.gatherings.empty()) return;
  s.done = true;
  self->send(s.receivers.membership, CheckpointsDone{s.last ? s.last->first.steps : 0, s.newest.second});
}

void write(CheckpointerSelf self, const Shared& parts, CheckpointId id) {
  ++self->state.tasks_in_progress;
  parts->io.post([parts, id, to = CheckpointerActor{self}](Blocking& blocking) {
    const TraceSpan span(parts->io_trace, "write part", {.step = id.steps - 1});
    std::vector<PieceToWrite> pieces;
    FileWritten written{id, {}, {}};
    written.status = status_of([&] {
      for (const SnapshotPiece& each : parts->pieces) {
        const std::byte* const bytes = parts->space.address(each.copy);
        pieces.push_back({each.piece, each.extents, {bytes, each.copy.size_bytes}});
      }
      written.file = parts->store.write(blocking, id, parts->self.value, pieces);
    });
    caf::anon_send(to, std::move(written));
  });
}

/// All ranks have answered: publishes the checkpoint, or removes its files.
void conclude(CheckpointerSelf self, const Shared& parts, CheckpointId id, Gathering gathering) {
  CheckpointerState& s = self->state;
  ++s.tasks_in_progress;
  CheckpointManifest& manifest = gathering.manifest;
  for (auto& [rank, file] : gathering.files) manifest.files.push_back(std::move(file));
  manifest.test_accuracy = accuracy_of(s, id);
  s.publishing[id] = manifest;
  parts->io.post([parts, id, manifest = std::move(manifest), wrong = std::move(gathering.wrong),
                  to = CheckpointerActor{self}](Blocking& blocking) {
    const TraceSpan span(parts->io_trace, "publish checkpoint", {.step = id.steps - 1});
    CheckpointPublished published{id, {}};
    published.status = status_of([&] {
      if (!wrong.ok()) fail(wrong.code(), std::string{wrong.text()});
      parts->store.publish(blocking, id, manifest);
    });
    const Status cleared = status_of([&] {
      if (!published.status.ok()) parts->store.remove(id);
      parts->store.prune(manifest.run, parts->keep);
    });
    if (!cleared.ok() && parts->note)
      parts->note(text("old checkpoints cannot be cleared away: ", cleared.text(), "; remove them by hand"));
    caf::anon_send(to, std::move(published));
  });
}

/// A checkpoint needs three things, which come in any order: this rank's copy, which makes the manifest; the answers of
/// all ranks; and its committed step, which completes the manifest's sums of the epoch.
void conclude_when_complete(CheckpointerSelf self, const Shared& parts, CheckpointId id) {
  CheckpointerState& s = self->state;
  const auto found = s.gatherings.find(id);
  if (self->state.committed < id.steps || !found->second.begun || found->second.answered < parts->ranks) return;
  conclude(self, parts, id, std::move(s.gatherings.extract(found).mapped()));
}

void take_part(CheckpointerSelf self, const Shared& parts, const PartSaved& part) {
  const CheckpointId id{part.number, part.steps};
  Gathering& gathering = self->state.gatherings[id];
  ++gathering.answered;
  if (part.wrong.empty()) {
    gathering.files[part.rank] = parse_checkpoint_file(part.file);
  } else if (gathering.wrong.ok()) {
    gathering.wrong = {part.code, text("rank ", part.rank, ": ", part.wrong)};
  }
  conclude_when_complete(self, parts, id);
}

void on_snapshot(CheckpointerSelf self, const Shared& parts, const SnapshotTaken& taken) {
  const CheckpointId id{taken.number, taken.step.value + 1};
  if (parts->self.value == 0) {
    Gathering& gathering = self->state.gatherings[id];
    gathering.begun = true;
    gathering.manifest = parts->manifest;
    gathering.manifest.steps = id.steps;
    for (std::size_t g = 0; g < taken.updates.size(); ++g) gathering.manifest.groups.at(g).updates = taken.updates[g];
    for (std::size_t g = 0; g < taken.policies.size(); ++g) {
      gathering.manifest.groups.at(g).policy = name_of(taken.policies[g].kind);
      gathering.manifest.groups.at(g).policy_steps = taken.policies[g].steps;
    }
    gathering.manifest.samples = parts->schedule.samples_before(next(taken.step));
    gathering.manifest.epoch = self->state.epoch;
    gathering.manifest.loss_scale = taken.loss_scale;
    if (taken.evaluated) self->state.evaluated[id] = taken.evaluated->value + 1;
  }
  self->state.open.insert(id);
  self->delayed_send(self, parts->save_within, SaveOverdue{id});
  write(self, parts, id);
}

/// A disk, or another rank, has not answered in time, and it is unknown whether it ever will.
void on_overdue(CheckpointerSelf self, const Shared& parts, CheckpointId id) {
  if (!self->state.open.contains(id)) return;
  self->quit(to_caf(Status{Code::timeout,
                           text("the checkpoint of step ", id.steps, " is not saved after ", parts->save_within.count(),
                                " ms (checkpoint.save_s): is the disk stuck, or the network to it?")}));
}

void on_written(CheckpointerSelf self, const Shared& parts, const FileWritten& written) {
  CheckpointerState& s = self->state;
  --s.tasks_in_progress;
  // The copy may be overwritten as soon as this rank's file is written, or has failed: nothing reads it after that.
  self->send(s.receivers.device, SnapshotFree{});
  PartSaved part{parts->self.value, written.id.number, written.id.steps, {}, {}, {}};
  if (written.status.ok()) {
    part.file = format_checkpoint_file(written.file);
  } else {
    part.wrong = written.status.text();
    part.code = written.status.code();
  }
  if (parts->self.value == 0) {
    take_part(self, parts, part);
  } else {
    s.open.erase(written.id);
    self->send(s.receivers.coordinator, std::move(part));
  }
  report_when_done(self);
}

/// The accuracy of weights is known later than they are saved. Then the checkpoint's manifest is written again.
void note_accuracy(CheckpointerSelf self, const Shared& parts) {
  CheckpointerState& s = self->state;
  if (!s.last || s.last->second.test_accuracy) return;
  s.last->second.test_accuracy = accuracy_of(s, s.last->first);
  if (!s.last->second.test_accuracy) return;
  ++s.tasks_in_progress;
  parts->io.post([parts, last = *s.last, to = CheckpointerActor{self}](Blocking& blocking) {
    CheckpointPublished published{last.first, {}, /*again=*/true};
    published.status = status_of([&] { parts->store.publish(blocking, last.first, last.second); });
    caf::anon_send(to, std::move(published));
  });
}

void on_published(CheckpointerSelf self, const Shared& parts, const CheckpointPublished& published) {
  CheckpointerState& s = self->state;
  --s.tasks_in_progress;
  s.open.erase(published.id);
  if (!published.again && s.newest.first <= published.id) s.newest = {published.id, published.status};
  if (auto entry = s.publishing.extract(published.id); !entry.empty() && published.status.ok())
    s.last = {published.id, std::move(entry.mapped())};
  s.evaluated.erase(s.evaluated.begin(), s.evaluated.lower_bound(s.last ? s.last->first : published.id));
  if (!published.status.ok() && parts->note) {
    parts->note(text(
        "the checkpoint of step ", published.id.steps,
        published.again ? " was saved without its test accuracy: " : " was not saved: ", published.status.text(),
        published.status.code() == Code::environment
            ? "; training continues, and later saves are tried, too: free some space or repair this before the run ends"
        : published.status.code() == Code::corrupt
            ? "; the checkpoints before it stay: lower optimizer.rate or set optimizer.clip_norm"
            : "; later saves are tried, too"));
  }
  note_accuracy(self, parts);
  report_when_done(self);
}

void on_tested(CheckpointerSelf self, const Shared& parts, const TestResult& result) {
  CheckpointerState& s = self->state;
  if (result.sums.samples == 0) return;
  if (s.accuracies.size() == kAccuraciesKept) s.accuracies.erase(s.accuracies.begin());
  s.accuracies[result.step.value + 1] =
      static_cast<double>(result.sums.correct) / static_cast<double>(result.sums.samples);
  note_accuracy(self, parts);
}

void on_committed(CheckpointerSelf self, const Shared& parts, const Committed& committed) {
  CheckpointerState& s = self->state;
  s.epoch.loss += committed.total.loss;
  s.epoch.correct += committed.total.correct;
  s.epoch.samples += committed.total.samples;
  if (parts->schedule.ends_epoch(committed.step)) s.epoch = {};
  s.committed = committed.step.value + 1;
  std::vector<CheckpointId> waiting;
  for (auto& [id, gathering] : s.gatherings) {
    if (id.steps != s.committed) continue;
    gathering.manifest.epoch = s.epoch;
    waiting.push_back(id);
  }
  for (const CheckpointId id : waiting) conclude_when_complete(self, parts, id);
}

CheckpointerActor::behavior_type checkpointer(CheckpointerSelf self, Shared parts) {
  end_with_own_errors(self);
  self->state.epoch = parts->epoch;
  self->state.committed = parts->schedule.first_step;
  return {[=](CheckpointerReceivers& receivers) { self->state.receivers = std::move(receivers); },
          [=](const SaveOverdue& overdue) { on_overdue(self, parts, overdue.id); },
          [=](const Committed& committed) { on_committed(self, parts, committed); },
          [=](const SnapshotTaken& taken) {
            const TraceSpan span(parts->trace, "take copy", {.step = taken.step.value});
            on_snapshot(self, parts, taken);
          },
          [=](const FileWritten& written) {
            const TraceSpan span(parts->trace, "part written", {.step = written.id.steps - 1});
            on_written(self, parts, written);
          },
          [=](const PartSaved& part) {
            const TraceSpan span(parts->trace, "take part", {.step = part.steps - 1});
            take_part(self, parts, part);
          },
          [=](const CheckpointPublished& published) {
            const TraceSpan span(parts->trace, "published", {.step = published.id.steps - 1});
            on_published(self, parts, published);
          },
          [=](const TestResult& result) { on_tested(self, parts, result); },
          [=](const DeviceFinished& end) {
            self->state.finished = true;
            if (end.retired && parts->retired) parts->retired(self->state.epoch);
            report_when_done(self);
          }};
}

}  // namespace

CheckpointerActor spawn_checkpointer(caf::actor_system& system, CheckpointerParts parts) {
  return system.spawn(checkpointer, std::make_shared<const CheckpointerParts>(std::move(parts)));
}

}  // namespace troupe
