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

/// Messages flow for so long before anything is done, and somewhat longer in each next round.
inline constexpr std::chrono::milliseconds kBefore{300};
inline constexpr std::chrono::milliseconds kShift{7};

/// A measurement that was begun: with the network namespaces that it asks for, one for each process.
struct GroupRun {
  GroupRun(Blocking& thread, const rtrun::Signals& taken, const GroupCase& chosen);
  void say_round(std::uint32_t rounds) const;

  Blocking& blocking;
  const rtrun::Signals& signals;
  const GroupCase& what;
  std::unique_ptr<const Namespaces> nodes;  // null: none
};

/// The processes of a group; see run_member() for what they are told.
class GroupCrew final : public Crew {
 public:
  /// Starts them and waits until all have joined.
  explicit GroupCrew(const GroupRun& run);

  std::vector<std::uint32_t> everyone() const;
  /// These exchange messages with each other.
  void talk(const std::vector<std::uint32_t>& members);
  /// Ends that, and waits until no message is under way.
  void hush();
  void watch(std::uint32_t member, std::uint32_t peer);
  /// Of one.
  std::uint64_t messages_heard(std::uint32_t member);
  /// What `survivor`, told of the loss that was to be, has told of further ones.
  std::size_t further_losses(std::uint32_t survivor);
  /// Says on stderr who lost whom, and why, as far as nobody awaited it.
  void say_losses() const;
  /// All leave together, and end. Whether each of them says that it left clean; who does not is named on stderr.
  bool stop();

 private:
  Blocking& blocking_;
};

/// What a measurement finds: a JSON line on stdout at its end, also when a signal or an error ends it; where it is
/// asked for a table of the times on stderr, too.
class Findings {
 public:
  explicit Findings(const GroupCase& what);
  ~Findings();
  Findings(const Findings&) = delete;
  Findings& operator=(const Findings&) = delete;
  /// Printed as {"median", "p99", "max"} of its values; it stays where it is.
  Spread& spread(const std::string& name);
  nlohmann::ordered_json line;

 private:
  const GroupCase& what_;
  std::map<std::string, Spread> spreads_;
};

/// True: what must hold did (who was to be lost was, once, and nobody else). Throw as Crew.
using Measure = bool(const GroupRun& run);
/// A process is killed, falls silent, or its link is cut while messages flow: how long until the others' actors know?
Measure measure_loss;
/// One pauses again and again; or everyone computes, too.
Measure measure_pauses, measure_load;
/// Many processes on one machine: what it takes them to join, to hear of something, and to leave.
Measure measure_crowd;

}  // namespace troupe::bench
