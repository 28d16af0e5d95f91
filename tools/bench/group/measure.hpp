#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/bench/group/command.hpp"
#include "tools/crew/crew.hpp"
#include "tools/crew/statistics.hpp"

namespace troupe::bench {

/// Messages are exchanged for this time before the loss, and somewhat longer in each further round.
inline constexpr std::chrono::milliseconds kBefore{300};
inline constexpr std::chrono::milliseconds kShift{7};

/// A measurement in progress, with its network namespaces, one for each process, if it needs them.
struct GroupRun {
  GroupRun(Blocking& thread, const rtrun::Signals& taken, const GroupCase& chosen);
  void say_round(std::uint32_t rounds) const;

  Blocking& blocking;
  const rtrun::Signals& signals;
  const GroupCase& what;
  std::unique_ptr<const Namespaces> nodes;  // null: none
};

/// The processes of a group; run_member() describes their orders.
class GroupCrew final : public Crew {
 public:
  /// Starts them and waits until all have joined.
  explicit GroupCrew(const GroupRun& run);

  std::vector<std::uint32_t> everyone() const;
  /// Lets these members exchange messages with each other.
  void talk(const std::vector<std::uint32_t>& members);
  /// Stops the exchange, and waits until no message is in transit.
  void hush();
  void watch(std::uint32_t member, std::uint32_t peer);
  /// The number of messages that one member has received.
  std::uint64_t messages_heard(std::uint32_t member);
  /// How many losses, in addition to the intended one, `survivor` has reported.
  std::size_t further_losses(std::uint32_t survivor);
  /// Prints on stderr which process lost which, and why, for losses that nothing awaited.
  void say_losses() const;
  /// All processes leave together and end. Returns whether all report a clean end; the others are named on stderr.
  bool stop();

 private:
  Blocking& blocking_;
};

/// The results of a measurement: printed as a JSON line on stdout at its end, even if a signal or an error ends it; if
/// requested, a table of the times on stderr, too.
class Findings {
 public:
  explicit Findings(const GroupCase& what);
  ~Findings();
  Findings(const Findings&) = delete;
  Findings& operator=(const Findings&) = delete;
  /// Printed as {"median", "p99", "max"} of its values; the reference stays valid.
  Spread& spread(const std::string& name);
  nlohmann::ordered_json line;

 private:
  const GroupCase& what_;
  std::map<std::string, Spread> spreads_;
};

/// Returns true if what must hold did: exactly the intended process was lost, once. Throws as Crew.
using Measure = bool(const GroupRun& run);
/// A process is killed or stopped, or its link is cut, while messages are exchanged: how long until the others' actors
/// know?
Measure measure_loss;
/// One process pauses again and again; or all processes compute at the same time.
Measure measure_pauses, measure_load;
/// Many processes on one machine: how long they take to join, to receive a broadcast, and to leave.
Measure measure_crowd;

}  // namespace troupe::bench
