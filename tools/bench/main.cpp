// rtbench: measurements of Troupe, one JSON line a result, in the form that the peers' harness reads.

#include <iostream>

#include <CLI/CLI.hpp>

#include "runtime/error.hpp"
#include "tools/bench/train.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/rtrun/signals.hpp"

int main(int argc, char** argv) {
  using namespace troupe;
  CLI::App app{"Measures Troupe on this machine; prints one JSON line a result."};
  app.require_subcommand(1);
  bench::TrainCase train;
  auto* command = app.add_subcommand("train", "Training samples/s of all processes together, loading included");
  command->add_option("--case", train.name, "The model")->capture_default_str();
  command->add_option("--np", train.np, "Processes on this machine")->capture_default_str()->check(CLI::Range(1, 64));
  command->add_option("--dtype", train.dtype, "f32 or bf16")->capture_default_str()->check(CLI::IsMember({"f32", "bf16"}));
  command->add_option("--seconds", train.seconds, "Measured time, after warm-up")->capture_default_str()->check(CLI::Range(0.5, 3600.0));
  command->add_option("--batch", train.batch, "Samples a process and step")->capture_default_str()->check(CLI::Range(1, 1000000));
  command->add_option("--set", train.overrides, "A further setting, as in rtrun: section.key=value");
  CLI11_PARSE(app, argc, argv);
  try {
    const rtrun::Signals signals;
    Blocking blocking = Blocking::on_thread("main");
    return bench::run_train(blocking, signals, train, {argv, argv + argc});
  } catch (const Error& error) {
    rtrun::say_error(error.what());
    return exit_code(error.code());
  }
}
