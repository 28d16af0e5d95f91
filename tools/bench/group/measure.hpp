#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "tools/bench/group/crew.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::bench {

/// What `rtbench group` measures.
struct GroupCase {
  std::string what = "death";         // death, silence, crowd
  std::string how = "stop";           // of silence: stop, cut, pause, load
  std::string between = "processes";  // or namespaces
  std::uint32_t processes = 0;        // 0: as many as suit
  std::uint32_t rounds = 0;           // the same
  std::uint32_t seconds = 600;        // of load
  std::uint32_t victim_mb = 0;        // further memory of the one that is killed
  bool victim_talks = false;
  bool table = false;
  MemberCase each;
  std::vector<int> cpus;
};

/// Each prints one JSON line, also when a signal came first: of the rounds until then. True: what must hold did (who
/// was to be lost was, once, and nobody else). Throw as Crew.
bool measure_death(Blocking& blocking, const rtrun::Signals& signals, const GroupCase& what);
bool measure_silence(Blocking& blocking, const rtrun::Signals& signals, const GroupCase& what);
bool measure_crowd(Blocking& blocking, const rtrun::Signals& signals, const GroupCase& what);

/// The namespaces that the case asks for, one for each process; null: none.
std::unique_ptr<Nodes> nodes_for(Blocking& blocking, const GroupCase& what);
CrewPlan plan_of(const GroupCase& what, const Nodes* nodes);
/// What the lines of all measurements begin with.
nlohmann::ordered_json line_of(const GroupCase& what);
/// On stdout; as a table on stderr, too, if that is wanted.
void print(const GroupCase& what, const nlohmann::ordered_json& line);

}  // namespace troupe::bench
