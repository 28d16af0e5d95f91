#include "runtime/base/error.hpp"
#include "tools/bench/group/measure.hpp"
#include "tools/bench/say.hpp"
#include "tools/crew/line.hpp"
#include "tools/crew/process_usage.hpp"

namespace troupe::bench {
namespace {

nlohmann::ordered_json mean_and_max(const Spread& spread) {
  return {{"mean", rounded(spread.mean())}, {"max", rounded(spread.max())}};
}

/// One crowd from start to end. Returns whether all ended cleanly.
bool live(const GroupRun& run, nlohmann::ordered_json& line) {
  GroupCrew crew(run);
  line["join_ms"] = rounded(milliseconds_since(crew.begun()));
  say(text("group: all ", crew.size(), " have joined"));

  for (const std::uint32_t number : {1, 2}) {  // the second time all are connected already
    const auto heard = crew.ask(run.blocking, 0, {{"do", "broadcast"}, {"number", number}}, "heard");
    line["lookup_ms"].push_back(rounded(heard.at("lookup_ms")));
    line["broadcast_gather_ms"].push_back(rounded(heard.at("ms")));
  }
  Spread resident;
  Spread own;
  for (const std::uint32_t member : crew.everyone()) {
    resident.add(memory_mb(crew.pid(member), "VmRSS"));
    own.add(memory_mb(crew.pid(member), "RssAnon") + memory_mb(crew.pid(member), "RssShmem"));
  }
  line["resident_mb"] = mean_and_max(resident);
  line["own_mb"] = mean_and_max(own);

  const auto leaving = Clock::now();
  const bool clean = crew.stop();
  line["leave_ms"] = rounded(milliseconds_since(leaving));
  for (const std::uint32_t member : crew.everyone()) crew.await_end(run.blocking, member, crew.patience());
  line["end_ms"] = rounded(milliseconds_since(leaving));
  line["clean"] = clean;
  return clean;
}

}  // namespace

bool measure_crowd(const GroupRun& run) {
  bool clean = true;
  for (std::uint32_t round = 0; round < run.what.rounds; ++round) {
    Findings found(run.what);
    clean = live(run, found.line) && clean;
  }
  return clean;
}

}  // namespace troupe::bench
