#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "runtime/report.hpp"

namespace troupe::rtrun {

/// True when `fd` is a terminal that understands the bar's two control sequences.
bool draws_bars(int fd);
/// Columns of the terminal at `fd`, 80 when it does not say.
std::size_t terminal_columns(int fd);

/// One line that is drawn over and over at the bottom of a terminal. Threads: one at a time.
class ProgressBar {
 public:
  /// Draws on `out` when `active`; otherwise every call does nothing.
  ProgressBar(std::ostream& out, bool active, std::size_t columns) : out_(out), active_(active), columns_(columns) {}
  /// `label`, a bar, and `tail`; the bar takes what is left of the line.
  void draw(const std::string& label, double share, const std::string& tail);
  /// Takes the line away, so that other text can stand there.
  void clear();

 private:
  std::ostream& out_;
  bool active_;
  bool drawn_ = false;
  std::size_t columns_;
};

/// The texts around the bar of a training run. `steps_per_epoch` may be 0 when unknown.
std::string progress_label(const RunProgress& progress, std::uint64_t steps_per_epoch, std::uint32_t epochs);
std::string progress_tail(const RunProgress& progress, std::uint64_t samples_per_step);

}  // namespace troupe::rtrun
