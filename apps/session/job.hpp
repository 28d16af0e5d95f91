#pragma once

#include <caf/actor_system.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "actors/group/group.hpp"
#include "apps/session/joined_job.hpp"
#include "apps/session/listener_thread.hpp"
#include "apps/session/log_writer.hpp"
#include "apps/session/machine_reporter.hpp"
#include "apps/session/placement_check.hpp"
#include "apps/session/process_placement.hpp"
#include "apps/session/session.hpp"
#include "apps/session/session_trace.hpp"
#include "apps/session/silence_notes.hpp"
#include "apps/session/system_config.hpp"
#include "runtime/base/folder_lock.hpp"
#include "runtime/data/load_balancer.hpp"

namespace troupe {

/// The part of a session that lives as long as this process takes part in a job: settings, data, plan, the group with
/// its lanes, and the listener. Views of the job begin and end in it, one after the other. Threads: any.
class Job {
 public:
  /// Joins the job, or uses the group of SessionOptions::group, and makes its plan. `log`: the listener in `options`,
  /// if the job has to own it. Throws Error.
  Job(Blocking& blocking, SessionOptions options, std::unique_ptr<LogWriter> log);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const SessionOptions& options() const noexcept { return options_; }
  const Settings& settings() const noexcept { return options_.configuration.settings; }
  const JoinedJob& joined() const noexcept { return joined_; }
  /// The place of this process.
  const ProcessPlacement& place() const noexcept { return place_; }
  PlacementCheck& placement_check() noexcept { return placement_check_; }
  /// Call it when all threads of the rank exist. The listener is told, on its own thread, what is not where the plan
  /// wants it and was not reported before.
  void look_again();
  /// The deadline of the start.
  Deadline deadline() const noexcept { return deadline_; }
  AddressSpace& space() const noexcept { return group_->space(); }
  caf::actor_system& system() const noexcept { return group_->system(); }
  Group& group() const noexcept { return *group_; }
  SessionTrace& trace() noexcept { return trace_; }
  /// Null: there is no listener.
  ListenerThread* listener() const noexcept { return listener_.get(); }
  void note(const std::string& what) const {
    if (listener_) listener_->note(what);
  }
  /// The run is over, so ranks that fall silent are not reported.
  void quiet(bool yes) noexcept { quiet_ = yes; }
  /// A deadline for the start of another view, from now on.
  Deadline new_deadline() const;
  /// As Session::machines(), with the steps of `window`, which may have no ranks.
  std::string machines(Blocking& blocking, const ShareWindow& window, Deadline deadline) const;
  /// Sets the folder in which checkpoints are looked for (checkpoint.resume).
  void resume_from(std::string folder) { options_.configuration.settings.checkpoint.resume = std::move(folder); }

  /// Rank 0's lock on the folder of checkpoints, while it may write there.
  std::shared_ptr<const FolderLock> checkpoints_lock;

  /// Ends the job's own group, if it has one, together with the other ranks, or alone if `given_up`; then writes the
  /// trace. Call it once.
  void leave(Blocking& blocking, Deadline deadline, bool given_up) noexcept;

 private:
  GroupOptions group_options();

  SessionOptions options_;
  std::shared_ptr<void> in_app_group_;  // Group::begin_session of SessionOptions::group, until the job has left
  const Deadline deadline_;
  std::unique_ptr<ListenerThread> listener_;  // outlives the data, which may still send notes
  JoinedJob joined_;
  ProcessPlacement place_;
  PlacementCheck placement_check_;
  SessionTrace trace_;  // outlives lanes and actors
  std::unique_ptr<LogWriter> log_;
  SilenceNotes silences_;  // called by the control lane
  std::atomic<bool> quiet_{false};
  // Used if the job has its own group.
  std::unique_ptr<AddressSpace> own_space_;
  std::unique_ptr<SystemConfig> own_config_;
  std::unique_ptr<caf::actor_system> own_system_;
  std::unique_ptr<Group> own_group_;
  std::unique_ptr<MachineReporter> machine_;
  Group* group_ = nullptr;
  bool left_ = false;
};

}  // namespace troupe
