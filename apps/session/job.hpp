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
#include "apps/session/machine_teller.hpp"
#include "apps/session/own_place.hpp"
#include "apps/session/place_check.hpp"
#include "apps/session/session.hpp"
#include "apps/session/session_trace.hpp"
#include "apps/session/silence_notes.hpp"
#include "apps/session/system_config.hpp"
#include "runtime/base/folder_lock.hpp"

namespace troupe {

/// What lives as long as this process takes part in a job: what was asked for, the data and the plan, the group with
/// its lanes, who listens. Views of the job begin and end in it, one after the other. Threads: any.
class Job {
 public:
  /// Joins the job, or takes part in that of SessionOptions::group, and makes its plan. `log`: the listener in
  /// `options`, where that is one which nobody else owns. Throws Error.
  Job(Blocking& blocking, SessionOptions options, std::unique_ptr<LogWriter> log);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const SessionOptions& options() const noexcept { return options_; }
  const Settings& settings() const noexcept { return options_.configuration.settings; }
  const JoinedJob& joined() const noexcept { return joined_; }
  /// This process's.
  const OwnPlace& place() const noexcept { return place_; }
  PlaceCheck& place_check() noexcept { return place_check_; }
  /// The rank's threads are all there: what is not where it should be, and was not told of yet, is told to the listener
  /// by its own thread.
  void look_again();
  /// Of the start.
  Deadline deadline() const noexcept { return deadline_; }
  AddressSpace& space() const noexcept { return group_->space(); }
  caf::actor_system& system() const noexcept { return group_->system(); }
  Group& group() const noexcept { return *group_; }
  SessionTrace& trace() noexcept { return trace_; }
  /// Null: nobody listens.
  ListenerThread* listener() const noexcept { return listener_.get(); }
  void note(const std::string& what) const {
    if (listener_) listener_->note(what);
  }
  /// The ranks fall silent because their run is over: nobody need be told.
  void quiet(bool yes) noexcept { quiet_ = yes; }
  /// Of the start of another view, from now on.
  Deadline new_deadline() const;
  /// As Session::machines().
  std::string machines(Blocking& blocking, Deadline deadline) const;
  /// Where checkpoints are looked for from now on (checkpoint.resume).
  void resume_from(std::string folder) { options_.configuration.settings.checkpoint.resume = std::move(folder); }

  /// Rank 0's on the checkpoints' folder, while it may write there.
  std::shared_ptr<const FolderLock> checkpoints_lock;

  /// Ends the group, if the job has one of its own, together with the others, or alone where `given_up`; then writes
  /// the trace. Once.
  void leave(Blocking& blocking, Deadline deadline, bool given_up) noexcept;

 private:
  GroupOptions group_options();

  SessionOptions options_;
  const Deadline deadline_;
  std::unique_ptr<ListenerThread> listener_;  // outlives the data, which may have notes
  JoinedJob joined_;
  OwnPlace place_;
  PlaceCheck place_check_;
  SessionTrace trace_;  // outlives lanes and actors
  std::unique_ptr<LogWriter> log_;
  SilenceNotes silences_;  // told by the control lane
  std::atomic<bool> quiet_{false};
  // Of a job that has a group of its own.
  std::unique_ptr<AddressSpace> own_space_;
  std::unique_ptr<SystemConfig> own_config_;
  std::unique_ptr<caf::actor_system> own_system_;
  std::unique_ptr<Group> own_group_;
  std::unique_ptr<MachineTeller> machine_;
  Group* group_ = nullptr;
  bool left_ = false;
};

}  // namespace troupe
