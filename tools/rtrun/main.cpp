#include "tools/rtrun/main.hpp"

#include <signal.h>
#include <sys/prctl.h>

#include <exception>
#include <iostream>
#include <variant>

#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"
#include "tools/rtrun/console.hpp"
#include "tools/rtrun/early_signals.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/rtrun/prepare.hpp"
#include "tools/terminal/terminal.hpp"

namespace troupe::rtrun {
namespace {

/// Prints the error on stderr, and as the last line of JSON if that is wanted. Returns the exit code.
int failed(const std::string& why, int exit_code, bool json) {
  say_error(why);
  if (json && tells_the_end()) std::cout << failed_json(why, exit_code) << std::flush;
  return exit_code;
}

}  // namespace

int printed(int exit_code) {
  terminal::check_stdout();
  return exit_code;
}

int answer(int argc, char** argv) {
  const auto parsed = parse_command_line(argc, argv, std::cout, std::cerr);
  const auto* const answered = std::get_if<Answered>(&parsed);
  const CommandLine line = answered == nullptr ? std::get<CommandLine>(parsed) : CommandLine{};
  try {
    if (answered != nullptr) return printed(answered->exit_code);
    if (line.verb != Verb::train) release_early(SIGUSR1);
    return run(line, {argv, argv + argc});
  } catch (const Error& error) {
    return failed(error.what(), exit_code(error.code()), line.json);
  } catch (const std::exception& error) {
    return failed(error.what(), 1, line.json);
  }
}

}  // namespace troupe::rtrun

int main(int argc, char** argv) {
  using namespace troupe;
  rtrun::release_early(SIGHUP);
  terminal::open_standard_streams();
  const PrintableStream out{std::cout}, err{std::cerr};
  ::prctl(PR_SET_NAME, "rtrun");  // ranks too, whose program has another name
  return rtrun::answer(argc, argv);
}
