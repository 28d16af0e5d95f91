#include <signal.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"
#include "tools/bench/group/control_line.hpp"
#include "tools/bench/group/machine.hpp"
#include "tools/bench/group/measure.hpp"
#include "tools/bench/group/spread.hpp"
#include "tools/bench/messages/say.hpp"

// Processes that fall silent while messages flow, for good, for a while, or not at all.
namespace troupe::bench {
namespace {

using std::chrono::milliseconds;

/// Messages flow for so long before anything is done, and somewhat longer in each next round.
constexpr milliseconds kBefore{300};
constexpr milliseconds kShift{7};
constexpr milliseconds kPause{800};
/// How often everyone is asked how it goes, and how often that is told.
constexpr std::chrono::seconds kLook{5};
constexpr std::uint32_t kLooksPerWord = 6;

std::vector<std::uint32_t> everyone(const Crew& crew) {
  std::vector<std::uint32_t> all(crew.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::size_t said_by_all(const Crew& crew, const std::string& word) {
  std::size_t times = 0;
  for (const std::uint32_t member : everyone(crew)) times += crew.said(member, word);
  return times;
}

std::uint64_t messages_in(const std::vector<nlohmann::json>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}, [](std::uint64_t sum, const auto& count) {
    return sum + count.at("messages").template get<std::uint64_t>();
  });
}

/// What rounds found that end with a silence for good.
struct Silences {
  std::uint32_t rounds = 0;
  Spread down;  // ms from its begin to the handler of a monitor
  Spread busy;
  std::size_t suspected = 0;
  std::size_t strange = 0;  // downs with another error, and losses of those who were not silent
};

void note_down(Blocking& blocking, Crew& crew, std::uint32_t at, Clock::time_point begun, const GroupCase& what,
               Silences& silences) {
  const Deadline deadline = Deadline::after(milliseconds(10 * what.each.dead_ms));
  const auto told = crew.await(blocking, at, "down", deadline);
  silences.down.add(milliseconds_since(begun, told.at("at")));
  silences.strange += told.at("code") != name_of(Code::peer_lost);
}

/// The last process is stopped, or the link between two cut.
void run_round(Blocking& blocking, const rtrun::Signals& signals, const GroupCase& what, const CrewPlan& plan,
               Silences& silences) {
  Crew crew(signals, plan);
  crew.await_joined(blocking);
  const bool cut = what.how == "cut";
  const std::uint32_t victim = crew.size() - 1;
  for (std::uint32_t other = 0; other < victim; ++other) {
    crew.ask(blocking, other, {{"do", "watch"}, {"peer", victim}}, "watching");
    if (cut) crew.ask(blocking, victim, {{"do", "watch"}, {"peer", other}}, "watching");
  }
  crew.talk(blocking, everyone(crew));
  const Busyness busyness;
  crew.rest(blocking, kBefore + silences.rounds * kShift);
  silences.busy.add(busyness.so_far());

  const auto begun = Clock::now();
  cut ? plan.nodes->link(victim, false) : static_cast<void>(crew.signal(victim, SIGSTOP));
  for (std::uint32_t other = 0; other < victim; ++other) {
    note_down(blocking, crew, other, begun, what, silences);
    if (cut) note_down(blocking, crew, victim, begun, what, silences);
  }
  for (std::uint32_t other = 0; other < victim; ++other) {
    crew.await(blocking, other, "lost", crew.patience());
    crew.ask(blocking, other, {{"do", "count"}}, "count");
    silences.strange += crew.said(other, "down") + crew.said(other, "lost");
  }
  silences.suspected += said_by_all(crew, "suspected");
  ++silences.rounds;
}

void print_silences(const GroupCase& what, const Silences& silences) {
  auto line = line_of(what);
  line["rounds"] = silences.rounds;
  line["down_ms"] = silences.down.json();
  line["busy"] = rounded(silences.busy.mean());
  line["suspected"] = silences.suspected;
  line["strange"] = silences.strange;
  print(what, line);
}

bool measure_for_good(Blocking& blocking, const rtrun::Signals& signals, const GroupCase& what) {
  const auto nodes = nodes_for(blocking, what);
  const CrewPlan plan = plan_of(what, nodes.get());
  Silences silences;
  try {
    while (silences.rounds < what.rounds) {
      run_round(blocking, signals, what, plan, silences);
      if (what.how == "cut") nodes->link(what.processes - 1, true);
      say(text("group: round ", silences.rounds, " of ", what.rounds));
    }
  } catch (const Error&) {
    print_silences(what, silences);
    throw;
  }
  print_silences(what, silences);
  return silences.strange == 0;
}

/// What was seen of a group in which nobody may be lost.
struct Seen {
  std::uint32_t rounds = 0;
  double seconds = 0;
  std::size_t suspected = 0;
  std::size_t recovered = 0;
  std::size_t lost = 0;
  std::size_t dropped = 0;
  std::uint64_t messages = 0;
  double longest_gap_ms = 0;  // between two messages of one process that came to another
  double busy = 0;
  bool clean = false;

  void look(Blocking& blocking, Crew& crew, const Busyness& busyness) {
    const auto counts = crew.ask_all(blocking, {{"do", "count"}}, "count");
    messages = messages_in(counts);
    for (const auto& count : counts)
      longest_gap_ms = std::max(longest_gap_ms, count.at("longest_gap_ms").get<double>());
    suspected = said_by_all(crew, "suspected");
    recovered = said_by_all(crew, "recovered");
    lost = said_by_all(crew, "lost");
    dropped = said_by_all(crew, "dropped");
    busy = busyness.so_far();
  }
};

/// The last process pauses again and again.
void run_pauses(Blocking& blocking, Crew& crew, const GroupCase& what, Seen& seen) {
  const Busyness busyness;
  const std::uint32_t victim = crew.size() - 1;
  crew.rest(blocking, kBefore);
  while (seen.rounds < what.rounds) {
    crew.signal(victim, SIGSTOP);
    crew.rest(blocking, kPause);
    crew.signal(victim, SIGCONT);
    // Messages go on when it has received more than those that had come before it was stopped.
    const auto heard = [&] { return crew.ask(blocking, victim, {{"do", "count"}}, "count").at("messages"); };
    const std::uint64_t before = heard();
    const Deadline deadline = crew.patience();
    const std::uint64_t enough = 4 * crew.size() * (what.each.numbers + what.each.blocks);
    while (heard() < before + enough) {
      TROUPE_CHECK(!deadline.passed(), Code::timeout, "messages do not go on after a pause");
      crew.rest(blocking, milliseconds(10));
    }
    crew.rest(blocking, kBefore + seen.rounds * kShift);
    ++seen.rounds;
    seen.look(blocking, crew, busyness);
    say(text("group: round ", seen.rounds, " of ", what.rounds, ": lost ", seen.lost, ", suspected ", seen.suspected));
  }
}

/// Everyone computes, too.
void run_load(Blocking& blocking, Crew& crew, const GroupCase& what, Seen& seen) {
  crew.ask_all(blocking, {{"do", "compute"}}, "computing");
  say(text("group: all ", crew.size(), " compute and talk"));
  const Busyness busyness;
  const auto begun = Clock::now();
  const Deadline end = Deadline::after(std::chrono::seconds(what.seconds));
  for (std::uint32_t looks = 1; !end.passed(); ++looks) {
    crew.rest(blocking, std::min<Clock::duration>(end.left(), kLook));
    seen.look(blocking, crew, busyness);
    seen.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    if (looks % kLooksPerWord != 0 && !end.passed()) continue;
    say(text("group: ", std::lround(seen.seconds), " s of ", what.seconds, ": lost ", seen.lost, ", suspected ",
             seen.suspected, ", ", seen.messages, " messages, longest gap ", rounded(seen.longest_gap_ms), " ms"));
  }
}

void print_seen(const GroupCase& what, const Seen& seen) {
  auto line = line_of(what);
  if (what.how == "pause") {
    line["pause_ms"] = kPause.count();
    line["rounds"] = seen.rounds;
  } else {
    line["seconds"] = rounded(seen.seconds);
  }
  line["lost"] = seen.lost;
  line["suspected"] = seen.suspected;
  line["recovered"] = seen.recovered;
  line["dropped"] = seen.dropped;
  line["messages"] = seen.messages;
  line["longest_gap_ms"] = rounded(seen.longest_gap_ms);
  line["busy"] = rounded(seen.busy);
  line["clean"] = seen.clean;
  print(what, line);
}

bool measure_none(Blocking& blocking, const rtrun::Signals& signals, const GroupCase& what) {
  const auto nodes = nodes_for(blocking, what);
  Seen seen;
  try {
    Crew crew(signals, plan_of(what, nodes.get()));
    crew.await_joined(blocking);
    crew.talk(blocking, everyone(crew));
    what.how == "pause" ? run_pauses(blocking, crew, what, seen) : run_load(blocking, crew, what, seen);
    crew.hush(blocking);
    seen.clean = crew.stop(blocking);
    seen.lost = said_by_all(crew, "lost");
    crew.report_losses();
  } catch (const Error&) {
    print_seen(what, seen);
    throw;
  }
  print_seen(what, seen);
  return seen.lost == 0 && seen.dropped == 0 && seen.clean;
}

}  // namespace

bool measure_silence(Blocking& blocking, const rtrun::Signals& signals, const GroupCase& what) {
  const bool for_good = what.how == "stop" || what.how == "cut";
  return for_good ? measure_for_good(blocking, signals, what) : measure_none(blocking, signals, what);
}

}  // namespace troupe::bench
