#include "apps/session/checkpoint_start.hpp"

#include <fmt/format.h>

#include <optional>
#include <random>

namespace troupe {
namespace {

/// The furthest checkpoint in the store that does not belong to the chain of runs that ends with `newest`; nothing if
/// none of them is further than `newest`. Manifests that cannot be read do not count.
std::optional<CheckpointId> further_run(const CheckpointStore& store, CheckpointId newest) {
  const std::string lineage = store.read(newest).lineage();
  std::optional<CheckpointId> further;
  for (const CheckpointId id : store.list()) {
    if (id.number >= newest.number || id.steps <= (further ? further->steps : newest.steps)) continue;
    try {
      if (store.read(id).lineage() != lineage) further = id;
    } catch (const Error&) {  // a run could not resume from it
    }
  }
  return further;
}

/// For example, somebody made a short test run in the folder of a long run: then the newest checkpoint is not the right
/// one.
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
  // Only now are incomplete files removed: the checkpoint that the user named must not be removed, even if it is
  // damaged.
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
