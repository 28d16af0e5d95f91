// rttopo: shows, compares, examines and measures machines.

#include <unistd.h>

#include <exception>
#include <iostream>

#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"
#include "tools/rttopo/bench/bench.hpp"
#include "tools/rttopo/commands.hpp"
#include "tools/terminal/terminal.hpp"

namespace {

using namespace troupe;

int run(int argc, char** argv) {
  const auto parsed = rttopo::parse_command_line(argc, argv, std::cout, std::cerr);
  if (const auto* answered = std::get_if<rttopo::Answered>(&parsed)) return answered->exit_code;
  auto line = std::get<rttopo::CommandLine>(parsed);
  if (line.verb == rttopo::Verb::bench && line.bench_line < 0) return rttopo::bench(line, std::cout);
  Blocking blocking = Blocking::on_thread("main");
  if (line.verb == rttopo::Verb::bench) {
    rttopo::be_bench_member(blocking, line.bench_line);
    return 0;
  }
  if (!line.run.empty()) line.nodes = rttopo::nodes_of_run(blocking, line.run);
  return rttopo::run(line, std::cout, terminal::shows_color(STDOUT_FILENO));
}

}  // namespace

int main(int argc, char** argv) {
  terminal::open_standard_streams();
  const PrintableStream out{std::cout}, err{std::cerr};
  try {
    const int code = run(argc, argv);
    terminal::check_stdout();
    return code;
  } catch (const Error& error) {
    std::cerr << "rttopo: error: " << error.what() << '\n';
    return exit_code(error.code());
  } catch (const std::exception& error) {
    std::cerr << "rttopo: error: " << error.what() << '\n';
    return 1;
  }
}
