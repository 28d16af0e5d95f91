#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// On how many threads a device computes steps fastest, found by a few steps on each number of them.
struct ThreadTrial {
  struct Tried {
    std::uint32_t threads = 0;
    double step_s = 0;       // the median over its turns of the mean step of each
    bool abandoned = false;  // it was given up: its time may be longer
  };
  std::vector<Tried> tried;  // in the order of the candidates
  std::uint32_t chosen = 0;  // threads
  std::uint32_t rows = 0;    // of a step of the trial
  double taken_s = 0;        // by the trial
};

/// All cores, half and a quarter of them, and one; the most threads first.
std::vector<std::uint32_t> thread_candidates(std::uint32_t cores);

/// Computes a step on a number of threads, and gives the seconds that it took; nothing when it was given up since it
/// took more than `limit_s`.
using TimedStep = std::function<std::optional<double>(std::uint32_t threads, double limit_s)>;

/// Takes steps on each number of threads by turns. A turn is at least 10 ms of steps, so that waits for a core that
/// other programs use count; turns end after half a second in all. A candidate is given up when a step of it takes more
/// than twice as long as the shortest one so far and 50 ms longer. The fewest threads within 5 % of the shortest time
/// are chosen: they leave more of the machine to others. Throws Error{invalid} without candidates.
ThreadTrial run_thread_trial(const std::vector<std::uint32_t>& candidates, const TimedStep& step);

/// For people: "steps of 64 samples took on 2 threads 14.1 ms, 1 thread 9.3 ms; 1 thread chosen in 312 ms".
std::string text_of(const ThreadTrial& trial);

}  // namespace troupe
