#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/base/blocking.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/config/settings.hpp"

namespace troupe {

/// What rank 0 decides for all when a job starts: where it goes on, and how its own checkpoints are called.
struct CheckpointStart {
  std::string folder;  // of the checkpoint to go on from; empty: from the beginning
  CheckpointId id;
  std::uint32_t first_number = 1;  // of this run's checkpoints
  bool over = false;               // evaluate.patience has ended the run that it goes on from
  std::string run;                 // this run's name among others whose checkpoints lie in the same folder
};

/// Rank 0's decision, by the settings: looks for the newest checkpoint that is whole, and clears away what a killed job
/// left half written. `note` is told what people should know. Throws Error{invalid} when a path that was given is no
/// checkpoint, or when auto leaves a doubt: a run that did not go on from the others in the folder has the newest
/// checkpoint, and one of the others is further. Error{environment} when the folder cannot be used.
CheckpointStart decide_start(Blocking& blocking, const Settings& settings,
                             const std::function<void(const std::string&)>& note);

}  // namespace troupe
