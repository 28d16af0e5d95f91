// rttopo: shows, compares and examines machines.

#include <unistd.h>

#include <exception>
#include <iostream>

#include "runtime/base/error.hpp"
#include "tools/rttopo/commands.hpp"
#include "tools/terminal/terminal.hpp"

int main(int argc, char** argv) {
  using namespace troupe;
  const auto parsed = rttopo::parse_command_line(argc, argv, std::cout, std::cerr);
  if (const auto* answered = std::get_if<rttopo::Answered>(&parsed)) return answered->exit_code;
  try {
    const int code =
        rttopo::run(std::get<rttopo::CommandLine>(parsed), std::cout, terminal::shows_color(STDOUT_FILENO));
    return std::cout.flush() ? code : 3;
  } catch (const Error& error) {
    std::cerr << "rttopo: error: " << error.what() << '\n';
    return exit_code(error.code());
  } catch (const std::exception& error) {
    std::cerr << "rttopo: error: " << error.what() << '\n';
    return 1;
  }
}
