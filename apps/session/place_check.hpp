#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "apps/session/own_place.hpp"
#include "runtime/memory/arena.hpp"
#include "runtime/topology/doctor.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe {

/// Compares where a rank is with where its plan wants it, by what the system says: the processors of every thread, the
/// NUMA nodes of pages, the devices that the transport has opened. Threads: any.
class PlaceCheck {
 public:
  /// `place` outlives it. `whole_process`: all threads are the rank's; otherwise neither those that are there now, nor
  /// those that the app starts once the rank was first looked at.
  PlaceCheck(const OwnPlace& place, bool whole_process);

  /// The rank `self` has joined those of `hellos`, and they have made `plan`.
  void joined(const Plan& plan, Rank self, std::span<const Hello> hellos, const Settings& settings);
  /// The devices that its transport has opened.
  void opened(std::vector<std::string> devices);

  /// What differs, in `shared` (null: memory is not looked at) and elsewhere, and was not among what an earlier call
  /// returned: a line for people each.
  std::vector<std::string> news(const Arena* shared);
  /// Where the rank is and what differs, some lines for people.
  std::string describe(const Arena* shared);
  /// The same as a value: a machine that has this rank and nothing else, for doctor's rules.
  topology::Machine look(const Arena* shared);

 private:
  topology::Placement placement(const Arena* shared);
  void add_threads(topology::Placement& to);

  const OwnPlace& place_;
  const bool whole_process_;
  std::set<std::int32_t> others_;  // threads
  std::mutex mutex_;               // guards what follows
  std::set<std::int32_t> own_;     // threads that were seen first; empty: nobody looked yet
  bool shares_process_ = false;    // with other ranks: nobody knows whose threads are whose
  std::string host_;
  std::uint32_t rank_ = 0;
  RankPlan planned_;
  bool threads_stay_ = false;  // as planned
  std::string planned_devices_;
  std::optional<std::vector<std::string>> open_devices_;  // absent: it has no transport of its own
  std::set<std::string> told_;
};

}  // namespace troupe
