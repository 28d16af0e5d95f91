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
#include "runtime/data/ledger.hpp"
#include "runtime/data/schedule.hpp"

namespace troupe {

/// What the time of a rank's device goes to in a step.
enum class StepPart : std::uint8_t { load, compute, update, copy, exchange };
inline constexpr std::size_t kStepParts = 5;
constexpr std::string_view name_of(StepPart part) noexcept {
  constexpr std::array<std::string_view, kStepParts> kNames{"load", "compute", "update", "copy", "exchange"};
  return kNames.at(static_cast<std::size_t>(part));
}

/// What one rank did in the steps from `first` on, as its device measured it.
struct RankTimes {
  std::uint32_t rank = 0;
  std::uint64_t first = 0;                          // step
  std::uint64_t samples = 0;                        // its own, in all of them
  std::array<std::int64_t, kStepParts> spent_ns{};  // in all of them, by StepPart
  std::vector<std::uint32_t> waits_us;              // one a step: how much of it went to the exchange
};

/// One rank in a window of steps.
struct RankShare {
  std::uint32_t rows = 0;                    // a step, in the last of them
  double samples_per_s = 0;                  // while it loads, computes and updates; 0: it had nothing to compute
  std::array<double, kStepParts> step_ms{};  // mean of a step, by StepPart
  std::uint64_t last = 0;                    // steps in which it was clearly the last to arrive
  friend bool operator==(const RankShare&, const RankShare&) = default;
};

/// A rank that the others wait for in most steps, and what it spends more time on than they do.
struct Straggler {
  std::uint32_t rank = 0;
  StepPart because = StepPart::compute;
  friend bool operator==(const Straggler&, const Straggler&) = default;
};

/// New shares, and why.
struct ShareChange {
  LedgerSpan span;
  std::vector<std::uint32_t> before;
  double now_ms = 0;   // that the slowest rank loads, computes and updates in a step
  double then_ms = 0;  // the same with the new shares, by the ranks' rates
};

/// What all ranks did in some steps.
struct ShareWindow {
  std::uint64_t first = 0;
  std::uint64_t steps = 0;
  std::vector<RankShare> ranks;
  double ratio = 1;  // of the slowest rank's own time, as above, to the median's
  std::optional<Straggler> straggler;
  std::optional<ShareChange> change;
};

/// What a rank's step costs by its rows, as a straight line through the newest window and the one before with clearly
/// other rows: a fixed cost makes it flatter than its rate alone would say, a processor that is held back after a burst
/// steeper. Windows with the same rows are averaged, newer ones counting more.
struct StepCost {
  double rows = 0;  // of the newest window; 0: nothing is known
  double ms = 0;
  double slope = 0;  // ms a row

  void learn(double rows_now, double ms_now) noexcept;
  double at(double other_rows) const noexcept { return ms + slope * (other_rows - rows); }
};

/// Shares `rows` a rank on average out so that the costliest rank costs as little as multiples of quantum_of(rows) and
/// `range` allow; nobody gets more than twice what its cost is known for.
std::vector<std::uint32_t> share_out(std::uint32_t rows, const std::vector<StepCost>& costs, const SplitRange& range);

/// For people: a sentence each.
std::string to_string(const ShareChange& change, const ShareWindow& window);
std::string to_string(const Straggler& straggler, const ShareWindow& window);

struct SharesOptions {
  bool adapts = false;                // split = "measured"; otherwise nothing but windows comes out
  SplitRange range{};                 // of a rank's share
  std::vector<std::uint32_t> rows{};  // by rank, of the first steps; empty: equal parts
  std::uint64_t ahead = 0;            // steps that a rank may have loaded or enqueued beyond the last one committed
  double least_gain = 0.05;           // of a change, in the time of the slowest rank
  std::uint32_t windows = 2;          // in a row that promise so much
  std::chrono::nanoseconds window = std::chrono::milliseconds(400);  // of the slowest rank's own time
};

/// The horizon of a ledger whose ranks run `ahead` steps ahead: told anew when half of it is used.
constexpr std::uint64_t horizon_steps(std::uint64_t ahead) noexcept { return 2 * (ahead + 4); }

/// The ledger's coordinator: reports of all ranks in; windows, shares and horizons out. The rows of a step over all
/// ranks stay what the schedule says. A rank's rate is its samples over the time in which it loads, computes
/// and updates its stripe; waiting for others does not count. Shares follow the
/// rates, and change when that promises enough, several windows in a row: a rank whose step has a fixed cost too is not
/// at its best share at once, but comes nearer with every change. Threads: one.
class Shares {
 public:
  Shares(const Schedule& schedule, SharesOptions options);

  /// A window, when `report` completes one. Reports of steps that an earlier split was in force for are left out.
  std::optional<ShareWindow> take(const RankTimes& report);
  /// Some rank has committed `step`: whether the horizon moves, which is then to be told to all with span().
  bool committed(Step step);
  /// The newest span, and the first step for which nothing is known.
  const LedgerSpan& span() const noexcept { return span_; }
  Step until() const noexcept { return until_; }

 private:
  /// Reports of the same steps.
  using Together = std::map<std::uint32_t, RankTimes>;

  void add(const Together& reports);
  ShareWindow close();
  std::optional<Straggler> straggler_of(const ShareWindow& window) const;
  std::optional<ShareChange> change_after(const ShareWindow& window);

  const Schedule schedule_;
  const SharesOptions options_;
  LedgerSpan span_;
  Step until_;
  std::map<std::uint64_t, Together> waiting_;  // by first step
  std::vector<RankTimes> sums_;                // of the window under way, by rank
  std::vector<std::uint64_t> last_;            // the same
  std::uint64_t steps_ = 0;                    // of it
  std::vector<StepCost> costs_;                // by rank, as far as they are known
  std::uint32_t promising_ = 0;                // windows in a row
};

}  // namespace troupe
