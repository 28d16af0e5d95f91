#include <signal.h>

#include "runtime/base/error.hpp"
#include "tools/bench/group/measure.hpp"
#include "tools/crew/process_usage.hpp"

namespace troupe::bench {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kShifts = 20;

/// Returns "its process ended" for "process 2 (host) is lost: its process ended".
std::string cause_in(const std::string& why) {
  constexpr std::string_view kLost = "is lost: ";
  const auto at = why.find(kLost);
  return at == std::string::npos ? why : why.substr(at + kLost.size());
}

/// The rounds of one measurement; those of a death also measure how long the kernel took to report it.
class Losses {
 public:
  explicit Losses(const GroupRun& run)
      : run_(run), what_(run.what), found_(what_), dies_(what_.what == "death"), cut_(!dies_ && what_.how == "cut") {
    if (dies_) line_["victim_talks"] = what_.victim_talks || what_.processes == 2;
    line_["rounds"] = 0;
    if (!dies_) return;
    for (const char* name : {"down_at_0_ms", "pidfd_ms", "down_past_pidfd_ms", "resident_mb"}) found_.spread(name);
  }

  /// Returns whether exactly the expected processes were lost, and with the expected error.
  bool measure() {
    for (std::uint32_t round = 0; round < what_.rounds; ++round) {
      lose_one(round);
      line_["rounds"] = round + 1;
      line_["busy"] = rounded(busy_.mean());
      if (dies_)
        line_["because"] = because_;
      else
        line_["suspected"] = suspected_;
      line_["strange"] = strange_;
      if (!dies_ || (round + 1) % 10 == 0 || round + 1 == what_.rounds) run_.say_round(round + 1);
    }
    return strange_ == 0;
  }

 private:
  /// The lost process is the last one.
  void lose_one(std::uint32_t round) {
    GroupCrew crew(run_);
    const std::uint32_t victim = crew.size() - 1;
    for (std::uint32_t other = 0; other < victim; ++other) {
      crew.watch(other, victim);
      if (cut_) crew.watch(victim, other);
    }
    if (what_.victim_mb > 0) crew.ask(run_.blocking, victim, {{"do", "ballast"}, {"mb", what_.victim_mb}}, "heavier");
    crew.talk(talkers(crew));
    const Busyness busyness;
    crew.rest(run_.blocking, kBefore + round % kShifts * kShift);
    busy_.add(busyness.so_far());
    if (dies_) found_.spread("resident_mb").add(memory_mb(crew.pid(victim), "VmRSS"));

    begun_ = Clock::now();
    if (cut_)
      run_.nodes->link(victim, false);
    else
      begun_ = crew.signal(victim, dies_ ? SIGKILL : SIGSTOP);
    if (dies_) ended_ = crew.await_end(run_.blocking, victim, crew.patience());
    if (dies_) found_.spread("pidfd_ms").add(milliseconds_since(begun_, nanoseconds_of(ended_)));
    for (std::uint32_t other = 0; other < victim; ++other) {
      note_down(crew, other, victim);
      if (cut_) note_down(crew, victim, other);
    }
    for (std::uint32_t other = 0; other < victim; ++other) strange_ += crew.further_losses(other);
    suspected_ += crew.said_by_all("suspected");
    if (cut_) run_.nodes->link(victim, true);
  }

  std::vector<std::uint32_t> talkers(const GroupCrew& crew) const {
    std::vector<std::uint32_t> some{0, 1};
    if (what_.victim_talks && crew.size() > 2) some.push_back(crew.size() - 1);
    return dies_ ? some : crew.everyone();
  }

  void note_down(GroupCrew& crew, std::uint32_t at, std::uint32_t of) {
    const auto deadline = dies_ ? crew.patience() : Deadline::after(milliseconds(10 * what_.each.dead_ms));
    const auto told = crew.await(run_.blocking, at, "down", deadline);
    const double took = milliseconds_since(begun_, told.at("at"));
    down_.add(took);
    strange_ += told.at("code") != name_of(Code::peer_lost) || (!cut_ && told.at("peer") != of);
    if (!dies_) return;
    found_.spread(at == 0 ? "down_at_0_ms" : "down_elsewhere_ms").add(took);
    found_.spread("down_past_pidfd_ms").add(milliseconds_since(ended_, told.at("at")));
    ++because_[cause_in(told.at("why"))];
  }

  const GroupRun& run_;
  const GroupCase& what_;
  Findings found_;
  nlohmann::ordered_json& line_ = found_.line;
  const bool dies_;
  const bool cut_;
  Spread& down_ = found_.spread("down_ms");  // from just before the loss to the handler of each monitor
  Spread busy_;
  std::map<std::string, std::uint32_t> because_;  // how many survivors were told each cause
  std::size_t suspected_ = 0;
  std::size_t strange_ = 0;  // DOWN messages that came twice, with another error, or for another process
  Clock::time_point begun_;
  Clock::time_point ended_;  // when the thread that waited for the victim's pidfd ran
};

}  // namespace

bool measure_loss(const GroupRun& run) { return Losses(run).measure(); }

}  // namespace troupe::bench
