#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "tools/crew/namespaces.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::crew {

/// Processes to start on this machine and measure. The environment of each names its rank in a job of all of them.
struct CrewPlan {
  std::string name;                   // in errors: "the measured group"
  std::vector<nlohmann::json> roles;  // by rank: the first value that the process gets; "cpu": its only CPU
  std::vector<Fd> lines{};            // by rank: a socket that it inherits as "line" of its role; empty: none
  Clock::duration patience{};         // how long everything may take that is not measured itself
  const Namespaces* nodes = nullptr;  // one for each process; null: all share this process's namespace
};

/// The measured processes: this program, executed again. They are killed when this object is destroyed, and die with
/// this process. Their output goes to stderr. Every call that waits throws Error{aborted} on a signal and
/// Error{device_fault} if a process failed. Threads: only main.
class Crew {
 public:
  /// Starts them.
  Crew(const rtrun::Signals& signals, CrewPlan plan);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(members_.size()); }
  pid_t pid(std::uint32_t member) const;
  /// The time just before the first process was started.
  Clock::time_point begun() const noexcept { return begun_; }

  void tell(std::uint32_t member, const nlohmann::json& order) const;
  /// Waits for the member's next message of kind `word`. Throws Error{timeout}.
  nlohmann::json await(Blocking& blocking, std::uint32_t member, const std::string& word, Deadline deadline);
  /// Waits for such a message of each member.
  std::vector<nlohmann::json> await_all(Blocking& blocking, const std::string& word);
  /// Sends an order to one member, or to all, and waits for the answers.
  nlohmann::json ask(Blocking& blocking, std::uint32_t member, const nlohmann::json& order, const std::string& word);
  std::vector<nlohmann::json> ask_all(Blocking& blocking, const nlohmann::json& order, const std::string& word);
  /// The messages of a kind, from one member or from all, that no call has waited for.
  std::vector<nlohmann::json> said(std::uint32_t member, const std::string& word) const;
  std::size_t said_by_all(const std::string& word) const;

  /// Waits for `span`, receiving messages.
  void rest(Blocking& blocking, Clock::duration span);
  /// Sends a signal, and returns the time just before. After SIGKILL the member's end is not a failure.
  Clock::time_point signal(std::uint32_t member, int number);
  /// Waits for a member's end; returns the time at which its pidfd was seen to be readable. Throws Error{timeout}.
  Clock::time_point await_end(Blocking& blocking, std::uint32_t member, Deadline deadline);
  Deadline patience() const { return Deadline::after(plan_.patience); }

 private:
  class Process;
  void look_until(Deadline deadline);
  const rtrun::Signals& signals_;
  CrewPlan plan_;
  const Clock::time_point begun_;
  std::vector<std::unique_ptr<Process>> members_;
};

}  // namespace troupe::crew
