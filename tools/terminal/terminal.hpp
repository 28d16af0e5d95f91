#pragma once

#include <cstddef>
#include <ostream>
#include <string>

namespace troupe::terminal {

/// True when `fd` is a terminal that understands the bar's two control sequences (TERM is set and not "dumb").
bool draws_bars(int fd);
/// The same, and nobody asked for no colours (NO_COLOR is unset or empty).
bool shows_color(int fd);
/// Columns of the terminal at `fd`, 80 when it does not say.
std::size_t columns_of(int fd);

/// One line that is drawn over and over at the bottom of a terminal. Threads: one at a time.
class ProgressBar {
 public:
  /// Draws on `out` when `active`; otherwise every call does nothing.
  ProgressBar(std::ostream& out, bool active, std::size_t columns) : out_(out), active_(active), columns_(columns) {}
  /// `label`, a bar, and `tail`; the bar takes what is left of the line.
  void draw(const std::string& label, double share, const std::string& tail);
  /// A line without a bar, for what nobody knows the length of.
  void say(const std::string& label);
  /// Takes the line away, so that other text can stand there.
  void clear();

 private:
  void show(std::string line);
  std::ostream& out_;
  bool active_;
  bool drawn_ = false;
  std::size_t columns_;
};

}  // namespace troupe::terminal
