#include "tools/bench/group/measure.hpp"

#include <iomanip>
#include <iostream>

#include <nlohmann/json.hpp>

namespace troupe::bench {

std::unique_ptr<Nodes> nodes_for(Blocking& blocking, const GroupCase& what) {
  return what.between == "namespaces" ? std::make_unique<Nodes>(blocking, what.processes) : nullptr;
}

CrewPlan plan_of(const GroupCase& what, const Nodes* nodes) {
  CrewPlan plan{what.processes, what.each, what.cpus, nodes};
  if (what.each.transport == "tcp") plan.each.device = nodes != nullptr ? Nodes::device() : "lo";
  return plan;
}

nlohmann::ordered_json line_of(const GroupCase& what) {
  nlohmann::ordered_json line{{"bench", "group"}, {"what", what.what}};
  if (what.what == "silence") line["how"] = what.how;
  line["between"] = what.between;
  line["transport"] = what.each.transport;
  line["processes"] = what.processes;
  if (what.what != "crowd") line["dead_ms"] = what.each.dead_ms;
  return line;
}

void print(const GroupCase& what, const nlohmann::ordered_json& line) {
  std::cout << line.dump() << std::endl;
  if (!what.table) return;
  constexpr int kName = 24;
  constexpr int kColumn = 10;
  std::cerr << std::left << std::setw(kName) << what.what << std::right;
  for (const char* column : {"median", "p99", "max"}) std::cerr << std::setw(kColumn) << column;
  std::cerr << '\n';
  for (const auto& [name, value] : line.items()) {
    if (!value.is_object() || !value.contains("median")) continue;
    std::cerr << std::left << std::setw(kName) << name << std::right;
    for (const char* column : {"median", "p99", "max"}) std::cerr << std::setw(kColumn) << value.at(column).dump();
    std::cerr << '\n';
  }
  std::cerr << std::flush;
}

}  // namespace troupe::bench
