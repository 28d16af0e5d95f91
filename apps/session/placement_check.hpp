#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "apps/session/process_placement.hpp"
#include "runtime/memory/arena.hpp"
#include "runtime/topology/doctor.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe {

/// Compares where a rank is with where its plan wants it, according to the system: the CPUs of every thread, the NUMA
/// nodes of pages, the network devices that the transport has opened. Threads: any.
class PlacementCheck {
 public:
  /// `place` outlives it. `whole_process`: all threads are the rank's. Otherwise threads that exist now do not count,
  /// nor do threads that the app starts after the first check.
  PlacementCheck(const ProcessPlacement& place, bool whole_process);

  /// Rank `self` has joined the ranks of `hellos`, and they have made `plan`.
  void joined(const Plan& plan, Rank self, std::span<const Hello> hellos, const Settings& settings);
  /// The devices that its transport has opened.
  void opened(std::vector<std::string> devices);

  /// The differences that no earlier call returned, each as a line for people, in `shared` (null: memory is not
  /// checked) and elsewhere.
  std::vector<std::string> new_differences(const Arena* shared);
  /// Where the rank is, and what differs; some lines for people.
  std::string describe(const Arena* shared);
  /// The same as a value: a machine with this rank and nothing else, for doctor's rules.
  topology::Machine look(const Arena* shared);

 private:
  topology::Placement placement(const Arena* shared);
  void add_threads(topology::Placement& to);

  const ProcessPlacement& place_;
  const bool whole_process_;
  std::set<std::int32_t> others_;  // ids of threads
  std::mutex mutex_;               // guards the members below
  std::set<std::int32_t> own_;     // the rank's threads at the first check; empty: there was none yet
  bool shares_process_ = false;    // with other ranks: then it is unknown which threads belong to which rank
  std::string host_;
  std::uint32_t rank_ = 0;
  RankPlan planned_;
  bool threads_stay_ = false;  // according to the settings
  std::string planned_devices_;
  std::optional<std::vector<std::string>> open_devices_;  // absent: the rank has no transport of its own
  std::set<std::string> reported_;
};

}  // namespace troupe
