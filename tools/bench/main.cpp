// rtbench: measurements of Troupe, one JSON line a result, in the form that the peers' harness reads.

#include <cstdint>

#include <CLI/CLI.hpp>

#include "runtime/base/error.hpp"
#include "tools/bench/group/command.hpp"
#include "tools/bench/messages/command.hpp"
#include "tools/bench/messages/say.hpp"
#include "tools/bench/products.hpp"
#include "tools/bench/train.hpp"
#include "tools/rtrun/signals.hpp"

namespace {

using namespace troupe;

void add_case(CLI::App& command, bench::TrainCase& what) {
  command.add_option("--case", what.name, "The model")->capture_default_str();
  command.add_option("--np", what.np, "Processes on this machine")->capture_default_str()->check(CLI::Range(1, 64));
  command.add_option("--dtype", what.dtype, "f32 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16"}));
  command.add_option("--seconds", what.seconds, "Measured time, after warm-up")
      ->capture_default_str()
      ->check(CLI::Range(0.5, 3600.0));
  command.add_option("--batch", what.batch, "Samples a process and step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures Troupe on this machine; prints one JSON line a result."};
  app.require_subcommand(1);
  bench::TrainCase what;
  std::uint32_t rounds = 7;
  auto* train = app.add_subcommand("train", "Training samples/s of all processes together, loading included");
  add_case(*train, what);
  train->add_option("--set", what.overrides, "A further setting, as in rtrun: section.key=value");
  train->add_flag("--bare", what.bare, "The same kernels and arenas from a plain loop: no actors, no messages");
  auto* products = app.add_subcommand("products", "The matrix products of a step alone, in all processes at once");
  add_case(*products, what);
  auto* step = app.add_subcommand("step", "A step against its matrix products, by turns");
  add_case(*step, what);
  step->add_option("--rounds", rounds, "Turns")->capture_default_str()->check(CLI::Range(1, 1000));
  bench::MessagesCommand messages{app};
  bench::GroupCommand group{app};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // CLI11 has codes of its own
  }
  if (messages.is_end()) return messages.run_as_end();
  if (group.is_member()) return group.run_as_member();
  try {
    if (step->parsed()) return bench::run_step(what, rounds);
    const rtrun::Signals signals;
    Blocking blocking = Blocking::on_thread("main");
    if (messages.parsed()) return messages.run(blocking, signals);
    if (group.parsed()) return group.run(blocking, signals);
    const auto run = train->parsed() ? bench::run_train : bench::run_products;
    return run(blocking, signals, what, {argv, argv + argc});
  } catch (const Error& error) {
    bench::say_error(error.what());
    return exit_code(error.code());
  }
}
