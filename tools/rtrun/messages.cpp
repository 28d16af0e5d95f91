#include "tools/rtrun/messages.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "runtime/base/printable.hpp"
#include "tools/terminal/terminal.hpp"

namespace troupe::rtrun {
namespace {

void write_line(std::string line) {
  if (terminal::draws_bars(STDERR_FILENO)) line.insert(0, terminal::kClearLine);
  line += '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void say(std::string_view text, std::string_view program) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  const std::string prefix = printable(fmt::format("{}: ", program));
  std::string lines = prefix;
  for (const char letter : printable(text)) {
    lines += letter;
    if (letter == '\n') lines += prefix;
  }
  write_line(std::move(lines));
}

void say_error(std::string_view text, std::string_view program) {
  const bool color = terminal::shows_color(STDERR_FILENO);
  write_line(fmt::format("{}: {}error:{} {}", printable(program), color ? "\033[1;31m" : "", color ? "\033[0m" : "",
                         printable(text)));
}

}  // namespace troupe::rtrun
