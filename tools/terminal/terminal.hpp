#pragma once

#include <cstddef>
#include <ostream>
#include <string>

namespace troupe::terminal {

/// Goes back to the begin of the terminal's last line and clears it: a progress bar may be there.
inline constexpr const char* kClearLine = "\r\033[K";

/// For a program's begin: opens /dev/null as each of stdin, stdout and stderr that is closed. Otherwise a file that the
/// program opens would take its number, and what is printed would be written into that file.
void open_standard_streams() noexcept;

/// For a program's end: writes what stdout still holds. Throws Error{environment} if not all that was printed could be
/// written.
void check_stdout();

/// True if `fd` is a terminal that understands the bar's two control sequences (TERM is set and not "dumb").
bool draws_bars(int fd);
/// The same, unless the user does not want colours (NO_COLOR is set and not empty).
bool shows_color(int fd);
/// The number of columns of the terminal at `fd`, 80 if unknown.
std::size_t columns_of(int fd);

/// One line at the bottom of a terminal that is drawn repeatedly. Threads: one at a time.
class ProgressBar {
 public:
  /// Draws on `out` if `active`; otherwise every call does nothing.
  ProgressBar(std::ostream& out, bool active, std::size_t columns) : out_(out), active_(active), columns_(columns) {}
  /// Draws `label`, a bar, and `tail`; the bar fills the rest of the line.
  void draw(const std::string& label, double share, const std::string& tail);
  /// Draws a line without a bar, for work of unknown length.
  void say(const std::string& label);
  /// Removes the line, so that other text can be printed there.
  void clear();

 private:
  void show(std::string line);
  std::ostream& out_;
  bool active_;
  bool drawn_ = false;
  std::size_t columns_;
};

}  // namespace troupe::terminal
