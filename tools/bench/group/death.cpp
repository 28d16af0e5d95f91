#include <signal.h>

#include <map>

#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"
#include "tools/bench/group/control_line.hpp"
#include "tools/bench/group/machine.hpp"
#include "tools/bench/group/measure.hpp"
#include "tools/bench/group/spread.hpp"
#include "tools/bench/messages/say.hpp"

// A process is killed while others exchange messages: how long until the others' actors know?
namespace troupe::bench {
namespace {

using std::chrono::milliseconds;

/// Messages flow for so long before the kill, and somewhat longer in each next round.
constexpr milliseconds kBefore{200};
constexpr std::uint32_t kShifts = 20;

/// What rounds found, times in ms since just before the kill.
struct Deaths {
  std::uint32_t rounds = 0;
  Spread pidfd;            // until whoever waits for the victim's pidfd runs
  Spread down;             // until the handler of each survivor's monitor
  Spread down_at_first;    // of those, in process 0
  Spread down_elsewhere;   // and in the others
  Spread down_past_pidfd;  // how much later than pidfd
  Spread resident_mb;
  Spread busy;
  std::map<std::string, std::uint32_t> because;  // how often a survivor was told why
  std::uint32_t strange = 0;                     // downs that came twice, with another error, or of somebody else
};

/// "its process ended" of "process 2 (host) is lost: its process ended"
std::string cause_in(const std::string& why) {
  constexpr std::string_view kBefore = "is lost: ";
  const auto at = why.find(kBefore);
  return at == std::string::npos ? why : why.substr(at + kBefore.size());
}

void run_round(Blocking& blocking, const rtrun::Signals& signals, const GroupCase& what, const CrewPlan& plan,
               Deaths& deaths) {
  Crew crew(signals, plan);
  crew.await_joined(blocking);
  const std::uint32_t victim = crew.size() - 1;
  for (std::uint32_t survivor = 0; survivor < victim; ++survivor)
    crew.ask(blocking, survivor, {{"do", "watch"}, {"peer", victim}}, "watching");
  std::vector<std::uint32_t> talkers{0, 1};
  if (what.victim_talks && victim > 1) talkers.push_back(victim);
  if (what.victim_mb > 0) crew.ask(blocking, victim, {{"do", "ballast"}, {"mb", what.victim_mb}}, "heavier");
  crew.talk(blocking, talkers);
  const Busyness busyness;
  crew.rest(blocking, kBefore + milliseconds(deaths.rounds % kShifts));
  const double busy = busyness.so_far();
  const double resident = resident_memory(crew.pid(victim)).all;

  const auto killed = crew.signal(victim, SIGKILL);
  const double pidfd = milliseconds_since(killed, nanoseconds_of(crew.await_end(blocking, victim, crew.patience())));
  for (std::uint32_t survivor = 0; survivor < victim; ++survivor) {
    const auto told = crew.await(blocking, survivor, "down", crew.patience());
    const double down = milliseconds_since(killed, told.at("at"));
    deaths.down.add(down);
    (survivor == 0 ? deaths.down_at_first : deaths.down_elsewhere).add(down);
    deaths.down_past_pidfd.add(down - pidfd);
    deaths.strange += told.at("code") != name_of(Code::peer_lost) || told.at("peer") != victim;
    ++deaths.because[cause_in(told.at("why"))];
  }
  // Whoever counts another process as lost tells that, too, and has done so before this answer.
  for (std::uint32_t survivor = 0; survivor < victim; ++survivor) {
    crew.await(blocking, survivor, "lost", crew.patience());
    crew.ask(blocking, survivor, {{"do", "count"}}, "count");
    deaths.strange += crew.said(survivor, "down") + crew.said(survivor, "lost");
  }
  deaths.pidfd.add(pidfd);
  deaths.resident_mb.add(resident);
  deaths.busy.add(busy);
  ++deaths.rounds;
}

void print_deaths(const GroupCase& what, const Deaths& deaths) {
  auto line = line_of(what);
  line["victim_talks"] = what.victim_talks || what.processes == 2;
  line["rounds"] = deaths.rounds;
  line["down_ms"] = deaths.down.json();
  line["down_at_0_ms"] = deaths.down_at_first.json();
  if (deaths.down_elsewhere.count() > 0) line["down_elsewhere_ms"] = deaths.down_elsewhere.json();
  line["pidfd_ms"] = deaths.pidfd.json();
  line["down_past_pidfd_ms"] = deaths.down_past_pidfd.json();
  line["resident_mb"] = deaths.resident_mb.json();
  line["busy"] = rounded(deaths.busy.mean());
  line["because"] = deaths.because;
  line["strange"] = deaths.strange;
  print(what, line);
}

}  // namespace

bool measure_death(Blocking& blocking, const rtrun::Signals& signals, const GroupCase& what) {
  const auto nodes = nodes_for(blocking, what);
  const CrewPlan plan = plan_of(what, nodes.get());
  Deaths deaths;
  try {
    while (deaths.rounds < what.rounds) {
      run_round(blocking, signals, what, plan, deaths);
      if (deaths.rounds % 10 == 0 || deaths.rounds == what.rounds)
        say(text("group: round ", deaths.rounds, " of ", what.rounds));
    }
  } catch (const Error&) {
    print_deaths(what, deaths);
    throw;
  }
  print_deaths(what, deaths);
  return deaths.strange == 0;
}

}  // namespace troupe::bench
