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

/// Processes to be started on this machine to be measured; each finds in its environment the place of its rank in a job
/// of all of them.
struct CrewPlan {
  std::string name;                   // in errors: "the measured group"
  std::vector<nlohmann::json> roles;  // by rank: what the process is told first; "cpu": it runs there alone
  std::vector<Fd> lines{};            // by rank: a socket that it inherits as "line" of its role; empty: none
  Clock::duration patience{};         // how long anything but what is measured may take
  const Namespaces* nodes = nullptr;  // one for each process; null: all in this process's
};

/// The processes that are measured, this program executed again. They are killed when this ends, and die with this
/// process. What they print goes to stderr. Every call that waits throws Error{aborted} when a signal came first and
/// Error{device_fault} when a process failed. Threads: main alone.
class Crew {
 public:
  /// Starts them.
  Crew(const rtrun::Signals& signals, CrewPlan plan);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(members_.size()); }
  pid_t pid(std::uint32_t member) const;
  /// When the first was about to be started.
  Clock::time_point begun() const noexcept { return begun_; }

  void tell(std::uint32_t member, const nlohmann::json& order) const;
  /// Waits for the member's next word of that kind. Throws Error{timeout}.
  nlohmann::json await(Blocking& blocking, std::uint32_t member, const std::string& word, Deadline deadline);
  /// Of each member.
  std::vector<nlohmann::json> await_all(Blocking& blocking, const std::string& word);
  /// Tells one, or all, and waits for the answers.
  nlohmann::json ask(Blocking& blocking, std::uint32_t member, const nlohmann::json& order, const std::string& word);
  std::vector<nlohmann::json> ask_all(Blocking& blocking, const nlohmann::json& order, const std::string& word);
  /// The words of a kind that nobody awaited, of one member or of all.
  std::vector<nlohmann::json> said(std::uint32_t member, const std::string& word) const;
  std::size_t said_by_all(const std::string& word) const;

  /// Lets the time pass.
  void rest(Blocking& blocking, Clock::duration span);
  /// Sends a signal, and returns the moment just before. From SIGKILL on its end is no failure.
  Clock::time_point signal(std::uint32_t member, int number);
  /// Waits for a member's end: when its pidfd was seen to be readable. Throws Error{timeout}.
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
