#include "apps/session/checkpoint_start.hpp"

#include <fmt/format.h>

#include <random>

namespace troupe {

CheckpointStart decide_start(Blocking& blocking, const Settings& settings,
                             const std::function<void(const std::string&)>& note) {
  CheckpointStart start;
  const std::string& resume = settings.checkpoint.resume;
  const CheckpointStore store(checkpoint_folder(settings));
  if (resume == "auto") {
    if (const auto newest = store.newest_whole(blocking, note)) {
      start.folder = store.folder();
      start.id = *newest;
    } else if (note) {
      note(text("no checkpoint in ", store.folder(), ": training starts from the beginning"));
    }
  } else if (resume != "never") {
    const CheckpointPlace place = find_checkpoint(blocking, resume);
    const Status found = place.store.verify(blocking, place.id);
    TROUPE_CHECK(found.ok(), Code::invalid, "checkpoint.resume = \"", resume, "\": ", found.text(),
                 found.code() == Code::unsupported ? "" : "; --resume auto goes on from the newest that is whole");
    start.folder = place.store.folder();
    start.id = place.id;
  }
  // Not before: what somebody wants to go on from is not cleared away, whatever is wrong with it.
  if (settings.checkpoint.every_steps != 0) {
    store.sweep();
    start.first_number = store.next_number();
    std::random_device dice;
    start.run = fmt::format("{:08x}{:08x}", dice(), dice());
  }
  return start;
}

}  // namespace troupe
