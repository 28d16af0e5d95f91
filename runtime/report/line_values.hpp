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

/// How long the name of a value that an app reports may be, and how many of them there may be.
inline constexpr std::size_t kMostValueName = 64;
inline constexpr std::size_t kMostValueNames = 256;

/// Whether `name` has 1 to kMostValueName characters, all of a-z, 0-9, '_', '.', '/' and '-'.
bool is_value_name(std::string_view name) noexcept;

/// What one rank reported under a name in some steps.
struct ValueSum {
  std::string name;
  double sum = 0;  // in the order of the calls
  std::uint64_t count = 0;
  friend bool operator==(const ValueSum&, const ValueSum&) = default;
};

/// One rank's values until a line takes them. Threads: one.
class ValueCollector {
 public:
  /// Throws Error{invalid} when `name` cannot be the name of a value, or is one too many.
  void add(std::string_view name, double value);
  /// What was added since the last call, by name.
  std::vector<ValueSum> take();

 private:
  std::map<std::string, ValueSum, std::less<>> sums_;  // a name stays when its value was taken
};

/// All ranks' values on rank 0, until the lines that they belong to take them. Each rank tells in order, and says with
/// each part up to which step it has told everything.
class LineValues {
 public:
  explicit LineValues(std::uint32_t ranks = 0) : ranks_(ranks) {}
  /// `values` belong to the steps up to `step` of the rank, after which it has told nothing else; `last`: nothing is to
  /// come at all. A rank that there is not is left out.
  void add(Rank rank, Step step, bool last, std::vector<ValueSum> values);
  /// Whether all ranks have told everything of the steps up to `step`.
  bool has_all_until(Step step) const noexcept;
  /// Whether nothing is to come from any rank.
  bool has_all() const noexcept;
  /// The mean of what was told for steps up to `step` and not taken yet, by name: the sum over all calls of all ranks,
  /// added in rank order, divided by the number of calls.
  std::vector<ReportedValue> take(Step step);

 private:
  struct Part {
    Step step;
    std::vector<ValueSum> values;
  };
  struct OfRank {
    std::deque<Part> parts;
    std::uint64_t told = 0;  // steps
    bool last = false;
  };
  std::vector<OfRank> ranks_;
};

}  // namespace troupe
