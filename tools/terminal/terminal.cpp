#include "tools/terminal/terminal.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"

namespace troupe::terminal {

void open_standard_streams() noexcept {
  // An open() gets the lowest number that is free: so this is the closed one.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd) return;
}

void check_stdout() {
  TROUPE_CHECK(std::cout.flush(), Code::environment,
               "stdout could not be written: its disk is full, or the program that read it has ended");
}

bool draws_bars(int fd) {
  const char* terminal = std::getenv("TERM");
  return ::isatty(fd) == 1 && terminal != nullptr && *terminal != '\0' && std::string_view{terminal} != "dumb";
}

bool shows_color(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  return draws_bars(fd) && (no_color == nullptr || *no_color == '\0');
}

std::size_t columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void ProgressBar::draw(const std::string& label, double share, const std::string& tail) {
  if (!active_) return;
  const std::size_t text = label.size() + tail.size() + 4;  // " [" and "] "
  std::string line = label;
  if (columns_ > text + 5) {
    const std::size_t cells = std::min<std::size_t>(40, columns_ - text - 1);
    const auto full = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(cells));
    line += " [" + std::string(full, '#') + std::string(cells - full, '.') + "] ";
  } else {
    line += ' ';
  }
  show(line + tail);
}

void ProgressBar::say(const std::string& label) {
  if (active_) show(label);
}

void ProgressBar::show(std::string line) {
  if (line.size() >= columns_) line.resize(columns_ - 1);  // a line that wraps could not be removed again
  out_ << control("\r") << line << control("\033[K") << std::flush;
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  out_ << control(kClearLine) << std::flush;
  drawn_ = false;
}

}  // namespace troupe::terminal
