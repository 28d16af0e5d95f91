#include "tools/bench/layers/command.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/models/models.hpp"
#include "devices/cpu/layer_times.hpp"
#include "runtime/model/layer_list.hpp"
#include "tools/bench/cases.hpp"
#include "tools/bench/options.hpp"
#include "tools/bench/say.hpp"
#include "tools/crew/statistics.hpp"

namespace troupe::bench {
namespace {

double least(const std::vector<double>& values) { return values.empty() ? 0 : *std::ranges::min_element(values); }

std::vector<double> to_tenths(std::vector<double> values) {
  for (double& value : values) value = std::round(value * 10) / 10;
  return values;
}

std::vector<double> gigaflops(const LayerTime& time) {
  std::vector<double> rates;
  for (const double us : time.us) rates.push_back(static_cast<double>(time.flops) / us / 1000);
  return to_tenths(std::move(rates));
}

const char* pass_of(const LayerTime& time) { return time.backward ? "backward" : "forward"; }

Graph graph_of(const Network& network, const LayersCase& what) {
  const Configuration configuration =
      parse_configuration(std::string(network.settings), "rtbench", {text("model.dtype=\"", what.dtype, '"')});
  return build_model(configuration.settings, network.draw().facts.fields);
}

std::uint32_t batch_of(const Network& network, const LayersCase& what) {
  return what.batch > 0 ? what.batch : network.batch;
}

void print(const LayersCase& what, const std::string& impl, const std::string& measured, const char* unit,
           const std::vector<double>& values) {
  const nlohmann::ordered_json line{{"bench", "layers"},       {"impl", impl}, {"case", what.network + ' ' + measured},
                                    {"threads", what.threads}, {"unit", unit}, {"v", to_tenths(values)}};
  std::cout << line.dump() << std::endl;
}

void print_lines(const LayersCase& what, const StepTimes& times, double sum) {
  const std::string ours = "ours-" + what.dtype;
  for (const LayerTime& time : times.layers) {
    const std::string measured = time.layer + ' ' + pass_of(time);
    print(what, ours, measured, "us", time.us);
    if (!time.best_us.empty()) print(what, "best-primitive-" + what.dtype, measured, "us", time.best_us);
  }
  if (times.us.empty()) return;
  print(what, ours, "step", "us", times.us);
  print(what, "sum-of-layers-" + what.dtype, "step", "us", {sum});
}

void print_table(const StepTimes& times, double sum) {
  std::vector<std::vector<std::string>> rows{{"layer", "pass", "us", "best us", "best/ours", "Gflop/s"}};
  const auto digits = [](double value) { return value > 0 ? digits_of(value) : std::string("-"); };
  for (const LayerTime& time : times.layers) {
    const double us = least(time.us), best = least(time.best_us);
    rows.push_back({time.layer + " (" + time.kind + ')', pass_of(time), digits(us), digits(best), digits(best / us),
                    digits(static_cast<double>(time.flops) / us / 1000)});
  }
  rows.push_back({"sum of the layers", "", digits_of(sum), "", "", ""});
  if (!times.us.empty())
    rows.push_back({"whole step", "", digits_of(least(times.us)), "", digits_of(least(times.us) / sum), ""});
  std::cout << table_of(rows, 44, 11) << '\n';
  if (!times.us.empty()) std::cout << "Of the whole step: its time divided by the sum.\n";
  std::cout << "The best primitives:\n";
  for (const LayerTime& time : times.layers)
    if (!time.best.empty()) std::cout << "  " << time.layer << ", " << pass_of(time) << ": " << time.best << '\n';
  std::cout << std::flush;
}

int run_layers(const LayersCase& what) {
  const Network& network = network_of(what.network);
  const StepTimes times =
      measure_layers(graph_of(network, what), batch_of(network, what), what.threads, what.rounds, what.layer);
  double sum = 0;
  for (const LayerTime& time : times.layers) sum += least(time.us);
  if (what.json)
    print_lines(what, times, sum);
  else
    print_table(times, sum);
  return 0;
}

/// One dense layer without an activation; its forward pass is a product of two matrices of `size` x `size`.
Graph square_product(std::uint64_t size, const LayersCase& what) {
  const auto units = static_cast<std::uint32_t>(size);
  LayerList net;
  net.add(Dense{units});
  return {"product", Shape{{units}}, what.dtype == "bf16" ? DType::bf16 : DType::f32, net.finish()};
}

void print_rate(const LayersCase& what, const std::string& measured, const std::vector<double>& rates) {
  const std::string name = text(what.dtype, ' ', measured, " threads=", what.threads);
  if (what.json) {
    const nlohmann::ordered_json line{
        {"bench", "gemm"}, {"impl", "ours"}, {"case", name}, {"unit", "GFLOP/s"}, {"v", rates}};
    std::cout << line.dump() << std::endl;
  } else {
    std::cout << name << ": " << digits_of(*std::ranges::max_element(rates)) << " Gflop/s" << std::endl;
  }
}

int run_gemm(const LayersCase& what) {
  if (what.network.empty()) {
    for (const std::uint64_t size : what.sizes) {
      const StepTimes times =
          measure_layers(square_product(size, what), static_cast<std::uint32_t>(size), what.threads, what.rounds);
      print_rate(what, text("n=", size), gigaflops(times.layers.front()));
    }
    return 0;
  }
  const Network& network = network_of(what.network);
  for (const LayerTime& time :
       measure_layers(graph_of(network, what), batch_of(network, what), what.threads, what.rounds).layers)
    if (time.flops > 0) print_rate(what, what.network + ' ' + time.layer + ' ' + pass_of(time), gigaflops(time));
  return 0;
}

void add_options(CLI::App& command, LayersCase& what) {
  Options options{command};
  options.choice("--dtype", what.dtype, "f32 or bf16", {"f32", "bf16"})->capture_default_str();
  options.number("--batch", what.batch, "Samples per step; 0: as many as rtbench train uses", 0, 1000000)
      ->capture_default_str();
  options.number("--rounds", what.rounds, "Rounds; each gives one figure", 1, 1000)->capture_default_str();
  options.number("--threads", what.threads, "Threads of the device", 1, 1024)->capture_default_str();
  command.add_flag("--json", what.json,
                   "Print JSON lines, in the format of the scripts that compare with other programs");
}

}  // namespace

LayersCommand::LayersCommand(CLI::App& app)
    : layers_(app.add_subcommand("layers",
                                 "Each layer of a network, forward and backward, compared with oneDNN's best "
                                 "primitives alone, and a step compared with the sum of its layers")),
      gemm_(app.add_subcommand("gemm", "Gflop/s of a network's products and convolutions, or of square products")) {
  layers_case_.network = "lenet";
  Options{*layers_}.choice("--case", layers_case_.network, "The network", names_of_networks())->capture_default_str();
  add_options(*layers_, layers_case_);
  layers_->add_option("--layer", layers_case_.layer,
                      "Measure only the layers whose names contain this, and no whole step");
  Options{*gemm_}.choice("--case", gemm_case_.network, "The network; default: square products", names_of_networks());
  Options{*gemm_}
      .list("--sizes", gemm_case_.sizes, "Rows and columns of square products, separated by commas")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  add_options(*gemm_, gemm_case_);
}

int LayersCommand::run() const { return layers_->parsed() ? run_layers(layers_case_) : run_gemm(gemm_case_); }

}  // namespace troupe::bench
