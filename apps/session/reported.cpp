// Values that the app of a running session reports, and how they come into the lines of the log.

#include <caf/send.hpp>

#include "apps/session/run_log.hpp"
#include "apps/session/view.hpp"

namespace troupe {

void View::report(std::string_view name, double value) {
  TROUPE_CHECK(!values_.ended, Code::invalid, "\"", std::string{name},
               "\" was reported after the end: the run's last line has been written");
  TROUPE_CHECK(!is_log_key(std::string{name}), Code::invalid, "a value cannot be reported as \"", std::string{name},
               "\": the log uses that name for something else");
  values_.collected.add(name, value);
}

/// The app has reported everything that belongs to the first `steps` steps. Rank 0 is told only at steps where a line
/// ends, or when no values follow.
void View::hand_over_values(std::uint64_t steps, bool last) {
  if (values_.ended) return;
  bool ends_line = false;
  for (; values_.handed_over < steps; ++values_.handed_over)
    ends_line = ends_line || schedule_.reports({values_.handed_over});
  values_.ended = last;
  if (!values_.to || (!ends_line && !last)) return;
  const std::uint64_t step = steps == 0 ? 0 : steps - 1;
  caf::anon_send(
      values_.to,
      RankValues{.rank = joined_.self().value, .step = step, .last = last, .values = values_.collected.take()});
}

std::optional<BatchView> View::next(Blocking& blocking) {
  begin(blocking, true);
  hand_over_values(values_.taken, false);
  values_.asked = true;
  return loop_->next();
}

std::optional<StepSums> View::step(Blocking& blocking) {
  begin(blocking, true);
  auto total = loop_->step(blocking);
  if (total) ++values_.taken;
  return total;
}

/// Without next(), a call of exchange() ends a step: values reported before it belong to its step. Values reported
/// after the run's last step belong to that step, too.
std::optional<StepSums> View::exchange(Blocking& blocking, const StepSums& own) {
  begin(blocking, true);
  if (options_.own_samples != 0 && !values_.asked)
    hand_over_values(schedule_.is_last({values_.taken}) ? values_.taken : values_.taken + 1, false);
  auto total = loop_->exchange(blocking, own);
  if (total) {
    ++values_.taken;
    values_.asked = false;
  }
  return total;
}

}  // namespace troupe
