#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"
#include "tools/bench/group/control_line.hpp"
#include "tools/bench/group/machine.hpp"
#include "tools/bench/group/measure.hpp"
#include "tools/bench/group/spread.hpp"
#include "tools/bench/messages/say.hpp"

// Many processes on one machine: what it takes them to join, to hear of something, and to leave.
namespace troupe::bench {
namespace {

nlohmann::ordered_json mean_and_max(const Spread& spread) {
  return {{"mean", rounded(spread.mean())}, {"max", rounded(spread.max())}};
}

double ms_since(Clock::time_point begin) { return milliseconds_since(begin, nanoseconds_of(Clock::now())); }

/// One crowd's life; what is known of it is in `line` at any time. Whether all ended clean.
bool live(Blocking& blocking, Crew& crew, nlohmann::ordered_json& line) {
  crew.await_joined(blocking);
  line["join_ms"] = rounded(ms_since(crew.begun()));
  say(text("group: all ", crew.size(), " have joined"));

  for (const std::uint32_t number : {1, 2}) {  // the second time everyone is connected
    const auto heard = crew.ask(blocking, 0, {{"do", "broadcast"}, {"number", number}}, "heard");
    line["lookup_ms"].push_back(rounded(heard.at("lookup_ms")));
    line["broadcast_gather_ms"].push_back(rounded(heard.at("ms")));
  }
  Spread resident;
  Spread own;
  for (std::uint32_t member = 0; member < crew.size(); ++member) {
    const ResidentMemory memory = resident_memory(crew.pid(member));
    resident.add(memory.all);
    own.add(memory.own);
  }
  line["resident_mb"] = mean_and_max(resident);
  line["own_mb"] = mean_and_max(own);

  const auto leaving = Clock::now();
  const bool clean = crew.stop(blocking);
  line["leave_ms"] = rounded(ms_since(leaving));
  for (std::uint32_t member = 0; member < crew.size(); ++member) crew.await_end(blocking, member, crew.patience());
  line["end_ms"] = rounded(ms_since(leaving));
  line["clean"] = clean;
  return clean;
}

}  // namespace

bool measure_crowd(Blocking& blocking, const rtrun::Signals& signals, const GroupCase& what) {
  const auto nodes = nodes_for(blocking, what);
  bool clean = true;
  for (std::uint32_t round = 0; round < what.rounds; ++round) {
    auto line = line_of(what);
    try {
      Crew crew(signals, plan_of(what, nodes.get()));
      clean = live(blocking, crew, line) && clean;
    } catch (const Error&) {
      print(what, line);
      throw;
    }
    print(what, line);
  }
  return clean;
}

}  // namespace troupe::bench
