#include "apps/session/log_writer.hpp"

#include <errno.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/checkpoint/store.hpp"

namespace troupe {

LogWriter::LogWriter(const Settings& settings, SessionListener* to)
    : PassingListener(to),
      folder_(settings.report.dir),
      checkpoints_(checkpoint_folder(settings)),
      log_(folder_ + "/log"),
      table_(folder_ + "/log.csv") {}

/// A run that resumes from a checkpoint in another folder does not continue the log in this one.
void LogWriter::resumed(const std::string& folder, std::uint64_t steps) {
  std::error_code unknown;
  if (std::filesystem::equivalent(folder, checkpoints_, unknown)) {
    log_.go_on_after(steps);
    table_.go_on_after(steps);
  }
  PassingListener::resumed(folder, steps);
}

/// The log comes after the listener, since a busy disk may delay it.
void LogWriter::epoch(const EpochReport& report) {
  PassingListener::epoch(report);
  std::error_code told_below;
  std::filesystem::create_directories(folder_, told_below);
  try {
    log_.add(report);
  } catch (const Error& error) {
    warn(error.what());
  }
  try {
    table_.add(report);
  } catch (const Error& error) {
    warn(error.what());
  }
}

void LogWriter::lock(Blocking& blocking) {
  std::error_code told_later;
  std::filesystem::create_directories(folder_, told_later);
  if (told_later || ::access(folder_.c_str(), W_OK | X_OK) != 0) return;
  folder_lock_ = lock_report(blocking, folder_, text("a session of ", program_invocation_short_name),
                             [this](const std::string& said) { note(said); });
}

/// Training is more important than its log: warn once and continue.
void LogWriter::warn(const std::string& what) {
  if (std::exchange(warned_, true)) return;
  const std::string warning = text("warning: ", what,
                                   "; training continues without the log: free some room there, or set report.dir to a "
                                   "folder that can be written");
  if (is_heard())
    note(warning);
  else
    std::cerr << printable(text("troupe: ", warning, "\n"));
}

}  // namespace troupe
