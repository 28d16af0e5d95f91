#include "runtime/compute/thread_trial.hpp"

#include <algorithm>
#include <iomanip>
#include <limits>

#include "runtime/base/error.hpp"
#include "runtime/base/text_stream.hpp"

namespace troupe {
namespace {

constexpr double kTurn = 0.010;
constexpr double kAllTurns = 0.5;
constexpr std::size_t kMostTurns = 9;
constexpr double kMuchSlower = 2;
constexpr double kHiccup = 0.050;  // by so much a step may be longer where other programs have its core for a while
constexpr double kAlike = 1.05;

struct Candidate {
  ThreadTrial::Tried tried;
  std::vector<double> turns{};  // mean seconds of a step
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Trial {
 public:
  Trial(const std::vector<std::uint32_t>& candidates, const TimedStep& step) : step_(step) {
    for (const std::uint32_t threads : candidates) candidates_.push_back({{.threads = threads}});
  }

  ThreadTrial run() {
    // Each one's first step touches its memory and starts its threads. It counts only where it is given up.
    for (Candidate& candidate : candidates_) {
      const double seconds = take_step(candidate);
      if (candidate.tried.abandoned) candidate.turns = {seconds};
    }
    double taken = 0;
    for (std::size_t turn = 0; turn < kMostTurns && (turn == 0 || taken < kAllTurns); ++turn)
      for (Candidate& candidate : candidates_) taken += take_turn(candidate);
    return result();
  }

 private:
  /// The seconds that it took, or after which it was given up.
  double take_step(Candidate& candidate) {
    const double limit_s = std::max(kMuchSlower * best_, best_ + kHiccup);
    const std::optional<double> seconds = step_(candidate.tried.threads, limit_s);
    candidate.tried.abandoned = !seconds;
    if (seconds) best_ = std::min(best_, *seconds);
    return seconds.value_or(limit_s);
  }

  /// The seconds that it took.
  double take_turn(Candidate& candidate) {
    double sum = 0;
    std::size_t steps = 0;
    for (; !candidate.tried.abandoned && sum < kTurn; ++steps) sum += take_step(candidate);
    if (steps > 0) candidate.turns.push_back(sum / static_cast<double>(steps));
    return sum;
  }

  ThreadTrial result() {
    ThreadTrial trial;
    double best = std::numeric_limits<double>::max();
    for (Candidate& candidate : candidates_) {
      candidate.tried.step_s = median(candidate.turns);
      best = std::min(best, candidate.tried.step_s);
      trial.tried.push_back(candidate.tried);
    }
    for (const ThreadTrial::Tried& tried : trial.tried)
      if (tried.step_s <= kAlike * best && (trial.chosen == 0 || tried.threads < trial.chosen))
        trial.chosen = tried.threads;
    return trial;
  }

  const TimedStep& step_;
  std::vector<Candidate> candidates_;
  double best_ = std::numeric_limits<double>::max();  // the shortest step so far
};

std::string counted(std::uint32_t threads) { return text(threads, threads == 1 ? " thread" : " threads"); }

/// Milliseconds with three digits.
std::string shown_ms(double seconds) {
  TextStream out;
  out << std::setprecision(3) << seconds * 1000;
  return out.str();
}

}  // namespace

std::vector<std::uint32_t> thread_candidates(std::uint32_t cores) {
  std::vector<std::uint32_t> candidates;
  for (const std::uint32_t threads : {cores, cores / 2, cores / 4, 1U})
    if (threads > 0 && (candidates.empty() || threads < candidates.back())) candidates.push_back(threads);
  return candidates;
}

ThreadTrial run_thread_trial(const std::vector<std::uint32_t>& candidates, const TimedStep& step) {
  TROUPE_CHECK(!candidates.empty(), Code::invalid, "a trial of threads needs at least one number of them");
  return Trial{candidates, step}.run();
}

std::string text_of(const ThreadTrial& trial) {
  std::string out;
  for (const ThreadTrial::Tried& tried : trial.tried)
    out += text(out.empty() ? "" : ", ", counted(tried.threads), tried.abandoned ? " over " : " ",
                shown_ms(tried.step_s), " ms");
  return text("steps of ", trial.rows, trial.rows == 1 ? " sample took on " : " samples took on ", out, "; ",
              counted(trial.chosen), " chosen in ", shown_ms(trial.taken_s), " ms");
}

}  // namespace troupe
