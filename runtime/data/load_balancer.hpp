#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/data/sample_ledger.hpp"
#include "runtime/data/schedule.hpp"

namespace troupe {

/// The parts of a step's time on a rank's device.
enum class StepPart : std::uint8_t { load, compute, update, copy, exchange };
inline constexpr std::size_t kStepParts = 5;
constexpr std::string_view name_of(StepPart part) noexcept {
  constexpr std::array<std::string_view, kStepParts> kNames{"load", "compute", "update", "copy", "exchange"};
  return kNames.at(static_cast<std::size_t>(part));
}

/// One rank's measurements of the steps from `first` on.
struct RankTimes {
  std::uint32_t rank = 0;
  std::uint64_t first = 0;                          // step
  std::uint64_t samples = 0;                        // its own, in all these steps
  std::array<std::int64_t, kStepParts> spent_ns{};  // in all these steps, by StepPart
  std::vector<std::uint32_t> waits_us;              // one per step: time spent in the exchange
};

/// One rank in a window of steps.
struct RankShare {
  std::uint32_t rows = 0;                    // per step, in the last of the steps
  double samples_per_s = 0;                  // while it loads, computes and updates; 0: it had nothing to compute
  std::array<double, kStepParts> step_ms{};  // mean per step, by StepPart
  std::uint64_t last = 0;                    // steps in which it clearly arrived last
  friend bool operator==(const RankShare&, const RankShare&) = default;
};

/// A rank that the others wait for in most steps, and the part that takes it longer than them.
struct Straggler {
  std::uint32_t rank = 0;
  StepPart because = StepPart::compute;
  friend bool operator==(const Straggler&, const Straggler&) = default;
};

/// New shares, and their reason.
struct ShareChange {
  LedgerSpan span;
  std::vector<std::uint32_t> before;
  double now_ms = 0;   // time in which the slowest rank loads, computes and updates in a step
  double then_ms = 0;  // the same with the new shares, by the ranks' rates
};

/// The measurements of all ranks in some steps.
struct ShareWindow {
  std::uint64_t first = 0;
  std::uint64_t steps = 0;
  std::vector<RankShare> ranks;
  double ratio = 1;  // the slowest rank's own time (see above), divided by the median
  std::optional<Straggler> straggler;
  std::optional<ShareChange> change;
};

/// The cost of a rank's step as a function of its rows: a straight line through the newest window and the last one with
/// clearly different rows. A fixed cost makes it flatter than the rate alone, a processor that is slowed down after a
/// burst makes it steeper. Windows with the same rows are averaged, with more weight on newer ones.
struct StepCost {
  double rows = 0;  // of the newest window; 0: not known
  double ms = 0;
  double slope = 0;  // ms per row

  void learn(double rows_now, double ms_now) noexcept;
  double at(double other_rows) const noexcept { return ms + slope * (other_rows - rows); }
};

/// Divides a mean of `rows` per rank such that the costliest rank costs as little as multiples of quantum_of(rows) and
/// `range` allow; no rank gets more than twice the rows for which its cost is known.
std::vector<std::uint32_t> share_out(std::uint32_t rows, const std::vector<StepCost>& costs, const SplitRange& range);

/// One sentence each, for people.
std::string to_string(const ShareChange& change, const ShareWindow& window);
std::string to_string(const Straggler& straggler, const ShareWindow& window);

struct LoadBalancerOptions {
  bool adapts = false;                // split = "measured"; otherwise there are only windows
  SplitRange range{};                 // limits of a rank's share
  std::vector<std::uint32_t> rows{};  // by rank, for the first steps; empty: equal shares
  std::uint64_t ahead = 0;            // steps that a rank may have loaded or enqueued after the last committed one
  double least_gain = 0.05;           // smallest gain of a change, in the time of the slowest rank
  std::uint32_t windows = 2;          // windows in a row that must promise that gain
  std::chrono::nanoseconds window = std::chrono::milliseconds(400);  // in the slowest rank's own time
};

/// The horizon of a ledger whose ranks run `ahead` steps ahead; a new one is sent when half of it is used.
constexpr std::uint64_t horizon_steps(std::uint64_t ahead) noexcept { return 2 * (ahead + 4); }

/// The ledger's coordinator: reports of all ranks in; windows, shares and horizons out. The rows of a step over all
/// ranks stay those of the schedule. A rank's rate is its samples divided by the time in which it loads, computes and
/// updates its stripe, without waits for others. Shares follow the rates, and change when several windows in a row
/// promise enough gain. If a rank's step also has a fixed cost, its share is not the best at once, but gets closer with
/// every change. Threads: one.
class LoadBalancer {
 public:
  LoadBalancer(const Schedule& schedule, LoadBalancerOptions options);

  /// Returns a window if `report` completes one. Reports of steps under an earlier split are ignored.
  std::optional<ShareWindow> take(const RankTimes& report);
  /// Some rank has committed `step`. Returns whether the horizon moves; then span() must be sent to all.
  bool committed(Step step);
  /// The newest span, and the first unknown step.
  const LedgerSpan& span() const noexcept { return span_; }
  Step until() const noexcept { return until_; }

 private:
  /// Reports of the same steps, by rank.
  using Together = std::map<std::uint32_t, RankTimes>;

  void add(const Together& reports);
  ShareWindow close();
  std::optional<Straggler> straggler_of(const ShareWindow& window) const;
  std::optional<ShareChange> change_after(const ShareWindow& window);

  const Schedule schedule_;
  const LoadBalancerOptions options_;
  LedgerSpan span_;
  Step until_;
  std::map<std::uint64_t, Together> waiting_;  // by first step
  std::vector<RankTimes> sums_;                // of the present window, by rank
  std::vector<std::uint64_t> last_;            // likewise
  std::uint64_t steps_ = 0;                    // number of its steps
  std::vector<StepCost> costs_;                // by rank, if known
  std::uint32_t promising_ = 0;                // number of windows in a row that promise a gain
};

}  // namespace troupe
