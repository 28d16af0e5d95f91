#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "tools/bench/group/member.hpp"
#include "tools/bench/group/nodes.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::bench {

/// A group to be started on this machine.
struct CrewPlan {
  std::uint32_t size = 2;
  MemberCase each;
  std::vector<int> cpus;         // of the processes, by turns; empty: wherever there is room
  const Nodes* nodes = nullptr;  // one for each process; null: all in this process's
};

/// The processes of a measured group, this program executed again. They are killed when this ends, and die with this
/// process. What they print goes to stderr. Every call that waits throws Error{aborted} when a signal came first and
/// Error{device_fault} when a process ended that was to live on. Threads: main alone.
class Crew {
 public:
  /// Starts them; they are joining then.
  Crew(const rtrun::Signals& signals, const CrewPlan& plan);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(members_.size()); }
  pid_t pid(std::uint32_t member) const;
  /// When the first was about to be started.
  Clock::time_point begun() const noexcept { return begun_; }
  /// Waits until all have joined.
  void await_joined(Blocking& blocking);

  void tell(std::uint32_t member, const nlohmann::json& order) const;
  /// Waits for the member's next word of that kind. Throws Error{timeout}.
  nlohmann::json await(Blocking& blocking, std::uint32_t member, const std::string& word, Deadline deadline);
  /// Tells one, or all, and waits for the answers.
  nlohmann::json ask(Blocking& blocking, std::uint32_t member, const nlohmann::json& order, const std::string& word);
  std::vector<nlohmann::json> ask_all(Blocking& blocking, const nlohmann::json& order, const std::string& word);
  /// All, or these, exchange messages with each other.
  void talk(Blocking& blocking, const std::vector<std::uint32_t>& members);
  /// Ends that, and waits until no message is under way.
  void hush(Blocking& blocking);
  /// How often a member has said a word that nobody awaited.
  std::size_t said(std::uint32_t member, const std::string& word) const;

  /// Says on stderr who lost whom, and why, as far as nobody awaited it.
  void report_losses() const;

  /// Lets the time pass.
  void rest(Blocking& blocking, Clock::duration span);
  /// Sends a signal, and returns the moment just before. From SIGKILL on its end is no failure.
  Clock::time_point signal(std::uint32_t member, int number);
  /// All leave together, and end. Whether each of them says that it left clean; who does not is named on stderr.
  bool stop(Blocking& blocking);
  /// Waits for a member's end, which is no failure: when its pidfd was seen to be readable. Throws Error{timeout}.
  Clock::time_point await_end(Blocking& blocking, std::uint32_t member, Deadline deadline);
  /// How long anything but what is measured may take.
  Deadline patience() const;

 private:
  class Process;
  void look_until(Deadline deadline);
  const rtrun::Signals& signals_;
  const Clock::duration patience_;
  const Clock::time_point begun_;
  std::vector<std::unique_ptr<Process>> members_;
};

}  // namespace troupe::bench
