#include <signal.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.hpp"
#include "tools/bench/group/measure.hpp"
#include "tools/bench/say.hpp"
#include "tools/crew/line.hpp"
#include "tools/crew/process_usage.hpp"

namespace troupe::bench {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPause{800};
/// How often all processes are asked for their state, and how often that is printed.
constexpr std::chrono::seconds kLookEvery{5};
constexpr std::uint32_t kLooksPerWord = 6;

/// A group in which no process may be lost, from its start to its end.
class Spared {
 public:
  Spared(const GroupRun& run, Findings& found) : crew(run), run_(run), line_(found.line) {
    crew.talk(crew.everyone());
    look();
  }

  /// Adds the present observations. `gap`: between two messages from one process to another.
  void look() {
    const auto counts = crew.ask_all(run_.blocking, {{"do", "count"}}, "count");
    std::uint64_t messages = 0;
    double gap = 0;
    for (const auto& count : counts) {
      messages += count.at("messages").get<std::uint64_t>();
      gap = std::max(gap, count.at("longest_gap_ms").get<double>());
    }
    for (const char* word : {"lost", "suspected", "recovered", "dropped"}) line_[word] = crew.said_by_all(word);
    line_["messages"] = messages;
    line_["longest_gap_ms"] = rounded(gap);
    line_["busy"] = rounded(busyness_.so_far());
    line_["clean"] = false;
  }
  /// Returns whether no process was lost and no message dropped.
  bool end() {
    crew.hush();
    line_["clean"] = crew.stop();
    line_["lost"] = crew.said_by_all("lost");
    crew.say_losses();
    return line_["lost"] == 0 && line_["dropped"] == 0 && line_["clean"] == true;
  }
  std::string text() const {
    return troupe::text("lost ", line_["lost"].dump(), ", suspected ", line_["suspected"].dump());
  }

  GroupCrew crew;

 private:
  const GroupRun& run_;
  nlohmann::ordered_json& line_;
  const Busyness busyness_;
};

}  // namespace

bool measure_pauses(const GroupRun& run) {
  Findings found(run.what);
  found.line["pause_ms"] = kPause.count();
  found.line["rounds"] = 0;
  Spared group(run, found);
  GroupCrew& crew = group.crew;
  const std::uint32_t victim = crew.size() - 1;
  crew.rest(run.blocking, kBefore);
  for (std::uint32_t round = 0; round < run.what.rounds; ++round) {
    crew.signal(victim, SIGSTOP);
    crew.rest(run.blocking, kPause);
    crew.signal(victim, SIGCONT);
    // Messages are exchanged again when it has received more than it had before it was stopped.
    const std::uint64_t before = crew.messages_heard(victim);
    const std::uint64_t enough = 4 * crew.size() * (run.what.each.numbers + run.what.each.blocks);
    for (const Deadline deadline = crew.patience(); crew.messages_heard(victim) < before + enough;) {
      TROUPE_CHECK(!deadline.passed(), Code::timeout, "messages do not go on after a pause");
      crew.rest(run.blocking, milliseconds(10));
    }
    crew.rest(run.blocking, kBefore + round * kShift);
    found.line["rounds"] = round + 1;
    group.look();
    say(text("group: round ", round + 1, " of ", run.what.rounds, ": ", group.text()));
  }
  return group.end();
}

bool measure_load(const GroupRun& run) {
  Findings found(run.what);
  Spared group(run, found);
  group.crew.ask_all(run.blocking, {{"do", "compute"}}, "computing");
  say(text("group: all ", group.crew.size(), " compute and talk"));
  const auto begun = Clock::now();
  found.line["seconds"] = 0;
  const Deadline end = Deadline::after(std::chrono::seconds(run.what.seconds));
  for (std::uint32_t looks = 1; !end.passed(); ++looks) {
    group.crew.rest(run.blocking, std::min<Clock::duration>(end.left(), kLookEvery));
    group.look();
    const double seconds = milliseconds_since(begun) / 1e3;
    found.line["seconds"] = rounded(seconds);
    if (looks % kLooksPerWord != 0 && !end.passed()) continue;
    say(text("group: ", std::lround(seconds), " s of ", run.what.seconds, ": ", group.text(), ", ",
             found.line["messages"].dump(), " messages, longest gap ", found.line["longest_gap_ms"].dump(), " ms"));
  }
  return group.end();
}

}  // namespace troupe::bench
