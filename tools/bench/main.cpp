// rtbench: measurements of Troupe. Each result is one JSON line, in the format that scripts for comparisons read.

#include <cstdint>

#include <CLI/CLI.hpp>

#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"
#include "tools/bench/cases.hpp"
#include "tools/bench/data/command.hpp"
#include "tools/bench/gpu/command.hpp"
#include "tools/bench/group/command.hpp"
#include "tools/bench/layers/command.hpp"
#include "tools/bench/messages/command.hpp"
#include "tools/bench/options.hpp"
#include "tools/bench/say.hpp"
#include "tools/bench/train.hpp"
#include "tools/crew/process_usage.hpp"
#include "tools/rtrun/signals.hpp"
#include "tools/terminal/terminal.hpp"

namespace {

using namespace troupe;

void add_case(CLI::App& command, bench::TrainCase& what) {
  bench::Options options{command};
  options.choice("--case", what.name, "The network", bench::names_of_networks())->capture_default_str();
  options.number("--np", what.np, "Processes on this machine", 1, 64)->capture_default_str();
  options.choice("--dtype", what.dtype, "f32 or bf16", {"f32", "bf16"})->capture_default_str();
  options.number("--seconds", what.seconds, "Measured time, after warm-up", 0.5, 3600.0)->capture_default_str();
  options
      .number("--batch", what.batch, "Samples per process and step; 0: the usual number for the network", 0, 1000000)
      ->capture_default_str();
}

/// A measured process, started by another run of this program, which first sends it its role.
void be_measured(int fd) {
  Blocking blocking = Blocking::on_thread("main");
  bench::Line line{Fd{fd}};
  const auto role = line.hear();
  if (!role) return;
  const int cpu = role->at("cpu");
  if (cpu >= 0) bench::pin_to(cpu);
  if (role->contains("impl"))
    bench::run_end(blocking, role->get<bench::EndCase>(), line);
  else
    bench::run_member(blocking, role->get<bench::MemberCase>(), line);
}

int run(int argc, char** argv) {
  CLI::App app{"Measures Troupe on this machine. Prints one JSON line for each result."};
  app.require_subcommand(1);
  bench::TrainCase what;
  std::uint32_t rounds = 7;
  auto* train = app.add_subcommand("train", "Training: samples/s of all processes together, loading included");
  add_case(*train, what);
  train->add_option("--set", what.overrides, "Another setting, as in rtrun: section.key=value");
  train->add_flag("--bare", what.bare, "Use the same kernels and arenas in a plain loop, without actors and messages");
  auto* products = app.add_subcommand("products", "The matrix products of a step alone, in all processes at once");
  add_case(*products, what);
  auto* step =
      app.add_subcommand("step", "The time of a step divided by that of its matrix products alone, measured by turns");
  add_case(*step, what);
  step->add_option("--rounds", rounds, "Rounds")->capture_default_str()->check(CLI::Range(1, 1000));
  bench::MessagesCommand messages{app};
  bench::GroupCommand group{app};
  bench::DataCommand data{app};
  bench::LayersCommand layers{app};
  bench::GpuCommand gpu{app};
  int line = -1;
  auto* member = app.add_subcommand("member")->group("");  // used only by this program
  member->add_option("--line", line)->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // CLI11's own exit codes are not used
  }
  if (step->parsed()) return bench::run_step(what, rounds);
  if (layers.parsed()) return layers.run();
  if (gpu.parsed()) {
    Blocking blocking = Blocking::on_thread("main");
    return gpu.run(blocking);
  }
  if (member->parsed()) {
    be_measured(line);
    return 0;
  }
  const rtrun::Signals signals;
  Blocking blocking = Blocking::on_thread("main");
  if (messages.parsed()) return messages.run(blocking, signals);
  if (data.parsed()) return data.run(blocking, signals);
  if (group.parsed()) return group.run(blocking, signals);
  what.products = products->parsed();
  return bench::run_train(blocking, signals, what, {argv, argv + argc});
}

}  // namespace

int main(int argc, char** argv) {
  terminal::open_standard_streams();
  const PrintableStream printed{std::cout}, told{std::cerr};
  try {
    const int code = run(argc, argv);
    terminal::check_stdout();
    return code;
  } catch (const Error& error) {
    bench::say_error(error.what());
    return exit_code(error.code());
  }
}
