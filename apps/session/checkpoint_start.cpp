#include "apps/session/checkpoint_start.hpp"

#include <fmt/format.h>

#include <optional>
#include <random>

namespace troupe {
namespace {

/// The furthest checkpoint in the store that was not trained by the runs of which `newest` is the last; nothing when
/// none of them is further than `newest`. Manifests that cannot be read do not count.
std::optional<CheckpointId> further_run(const CheckpointStore& store, CheckpointId newest) {
  const std::string lineage = store.read(newest).lineage();
  std::optional<CheckpointId> further;
  for (const CheckpointId id : store.list()) {
    if (id.number >= newest.number || id.steps <= (further ? further->steps : newest.steps)) continue;
    try {
      if (store.read(id).lineage() != lineage) further = id;
    } catch (const Error&) {  // nobody could go on from it
    }
  }
  return further;
}

/// Somebody tried something in the folder of a long run, say: then the newest checkpoint is not the one that is meant.
void check_no_doubt(const CheckpointStore& store, CheckpointId newest) {
  const std::optional<CheckpointId> further = further_run(store, newest);
  if (!further) return;
  fail(Code::invalid,
       text("--resume auto (checkpoint.resume): ", store.folder(),
            " holds checkpoints of several runs; the newest has ", newest.steps, " steps, one of another run has ",
            further->steps, "; say which one to resume from: --resume ", store.folder_of(*further), ", or --resume ",
            store.folder_of(newest), "; and give runs folders of their own (report.dir)"));
}

}  // namespace

CheckpointStart decide_start(Blocking& blocking, const Settings& settings,
                             const std::function<void(const std::string&)>& note) {
  CheckpointStart start;
  const std::string& resume = settings.checkpoint.resume;
  const CheckpointStore store(checkpoint_folder(settings));
  if (resume == "auto") {
    if (const auto newest = store.newest_whole(blocking, note)) {
      check_no_doubt(store, *newest);
      start.folder = store.folder();
      start.id = *newest;
    } else if (note) {
      note(text("no checkpoint in ", store.folder(), ": training starts from the beginning"));
    }
  } else if (resume != "never") {
    const CheckpointPlace place = find_checkpoint(blocking, resume);
    const Status found = place.store.verify(blocking, place.id);
    TROUPE_CHECK(
        found.ok(), Code::invalid, "checkpoint.resume = \"", resume, "\": ", found.text(),
        found.code() == Code::unsupported ? "" : "; --resume auto resumes from the newest complete checkpoint");
    start.folder = place.store.folder();
    start.id = place.id;
  }
  // Not before: what somebody wants to go on from is not cleared away, whatever is wrong with it.
  if (settings.checkpoint.every_steps != 0) {
    if (const auto others = store.list(); resume == "never" && !others.empty() && note) {
      note(text(
          "warning: ", store.folder(), " holds checkpoints of an earlier run, the newest of step ",
          others.front().steps,
          "; this run starts from the beginning and saves into the same folder. To resume from them instead: --resume "
          "auto. To keep the runs apart: --set report.dir=FOLDER"));
    }
    store.sweep();
    start.first_number = store.next_number();
    std::random_device dice;
    start.run = fmt::format("{:08x}{:08x}", dice(), dice());
  }
  return start;
}

}  // namespace troupe
