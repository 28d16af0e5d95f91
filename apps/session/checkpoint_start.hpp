#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/base/blocking.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/config/settings.hpp"

namespace troupe {

/// What rank 0 decides for all ranks when a job starts: where training resumes, and how its own checkpoints are named.
struct CheckpointStart {
  std::string folder;  // of the checkpoint to resume from; empty: from the beginning
  CheckpointId id;
  std::uint32_t first_number = 1;  // of this run's checkpoints
  bool over = false;               // evaluate.patience has ended the run that it resumes
  std::string run;                 // this run's name; several runs may have checkpoints in the same folder
};

/// Rank 0's decision according to the settings: looks for the newest complete checkpoint, and removes files that a
/// killed job left incomplete. `note` is called with messages for people. Throws Error{invalid} if a given path is not
/// a checkpoint, or if auto is ambiguous: the newest checkpoint belongs to a run that did not resume from the others in
/// the folder, and one of the others is further. Throws Error{environment} if the folder cannot be used.
CheckpointStart decide_start(Blocking& blocking, const Settings& settings,
                             const std::function<void(const std::string&)>& note);

}  // namespace troupe
