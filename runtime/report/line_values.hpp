#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/report/report.hpp"

namespace troupe {

/// The longest name of a value that an app reports, and the largest number of names.
inline constexpr std::size_t kMostValueName = 64;
inline constexpr std::size_t kMostValueNames = 256;

/// Whether `name` has 1 to kMostValueName characters from a-z, 0-9, '_', '.', '/' and '-'.
bool is_value_name(std::string_view name) noexcept;

/// The values that one rank reported under a name in some steps.
struct ValueSum {
  std::string name;
  double sum = 0;  // added in the order of the calls
  std::uint64_t count = 0;
  friend bool operator==(const ValueSum&, const ValueSum&) = default;
};

/// Collects one rank's values until a line takes them. Threads: one.
class ValueCollector {
 public:
  /// Throws Error{invalid} if `name` is not a valid name of a value, or if there are too many names.
  void add(std::string_view name, double value);
  /// The values added since the last call, by name.
  std::vector<ValueSum> take();

 private:
  std::map<std::string, ValueSum, std::less<>> sums_;  // a name stays after its values were taken
};

/// Collects all ranks' values on rank 0 until their lines take them. Each rank reports in order, and says with each
/// part up to which step it has reported everything.
class LineValues {
 public:
  explicit LineValues(std::uint32_t ranks = 0) : ranks_(ranks) {}
  /// `values` belong to steps of the rank up to `step`, for which it has now reported everything; `last`: it will
  /// report no more. An unknown rank is ignored.
  void add(Rank rank, Step step, bool last, std::vector<ValueSum> values);
  /// Whether all ranks have reported everything for the steps up to `step`.
  bool has_all_until(Step step) const noexcept;
  /// Whether no rank will report any more.
  bool has_all() const noexcept;
  /// The mean of the values reported for steps up to `step` and not taken yet, by name: the sum over all calls of all
  /// ranks, added in rank order, divided by the number of calls.
  std::vector<ReportedValue> take(Step step);

 private:
  struct Part {
    Step step;
    std::vector<ValueSum> values;
  };
  struct OfRank {
    std::deque<Part> parts;
    std::uint64_t reported_steps = 0;  // number of steps
    bool last = false;
  };
  std::vector<OfRank> ranks_;
};

}  // namespace troupe
