#include "devices/cpu/layer_times.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "devices/cpu/best_primitives.hpp"
#include "devices/cpu/denormals.hpp"
#include "devices/cpu/measured_program.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe {
namespace {

using cpu::MeasuredProgram;
using cpu::StepProgram;

/// Work that is shorter is repeated for this time in each round, so that the clock and the scheduler disturb it less.
constexpr std::chrono::microseconds kRound{2000};

template <class Work>
double once(Work&& work) {
  const auto begun = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - begun).count();
}

/// Something to measure; of the repetitions in a round, the fastest counts.
template <class Work>
double best_of_round(Work&& work) {
  const auto begun = Clock::now();
  double best = std::numeric_limits<double>::max();
  do best = std::min(best, once(work));
  while (Clock::now() - begun < kRound);
  return best;
}

/// Of the products of a pass.
std::uint64_t flops_of(const Graph& graph, std::uint32_t rows, const StepProgram::LayerPass& part) {
  const std::uint64_t forward = rows * graph.forward_flops(part.layer);
  if (!part.backward) return forward;
  return graph.is_trained(graph.inputs_of(part.layer).front()) ? 2 * forward : forward;
}

/// Measures the device and oneDNN's primitives alternately.
void measure_part(const MeasuredProgram& program, const StepProgram::LayerPass& part,
                  const std::vector<std::vector<cpu::OfferedPrimitive>>& offers, const dnnl::stream& stream,
                  std::uint32_t rounds, LayerTime& to) {
  std::vector<std::vector<std::vector<double>>> offered(offers.size());
  for (std::size_t work = 0; work < offers.size(); ++work) offered[work].resize(offers[work].size());
  program.run(part);
  for (std::uint32_t round = 0; round < rounds; ++round) {
    to.us.push_back(best_of_round([&] { program.run(part); }));
    for (std::size_t work = 0; work < offers.size(); ++work)
      for (std::size_t i = 0; i < offers[work].size(); ++i)
        offered[work][i].push_back(best_of_round([&] { offers[work][i].primitive.execute(stream); }));
  }
  if (!offers.empty()) to.best_us.resize(rounds);
  for (std::size_t work = 0; work < offers.size(); ++work) {
    const auto fastest =
        std::ranges::min_element(offered[work], {}, [](const auto& us) { return *std::ranges::min_element(us); });
    for (std::uint32_t round = 0; round < rounds; ++round) to.best_us[round] += (*fastest)[round];
    to.best += text(to.best.empty() ? "" : " + ",
                    offers[work][static_cast<std::size_t>(fastest - offered[work].begin())].implementation);
  }
}

}  // namespace

StepTimes measure_layers(const Graph& graph, std::uint32_t rows, std::uint32_t threads, std::uint32_t rounds) {
  cpu::limit_onednn();
  cpu::flush_denormals();
  const cpu::ThreadsInScope run_on{threads};
  cpu::DrawnBatch batch{graph, rows};
  // Apart, since a part that is run alone reads what a whole step has left for it.
  MeasuredProgram program{graph, batch, {.threads = threads, .shares = false}};
  const dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  const dnnl::stream stream{engine};
  StepTimes times;
  const auto step = [&] { program.step(std::numeric_limits<double>::max()); };
  step();
  for (std::uint32_t round = 0; round < rounds; ++round) times.us.push_back(once(step));
  for (const StepProgram::LayerPass& part : program.parts()) {
    const troupe::Layer& layer = graph.layers()[part.layer];
    LayerTime& to = times.layers.emplace_back();
    to.layer = layer.name;
    to.kind = kind_of(layer.operation).name;
    to.backward = part.backward;
    to.flops = flops_of(graph, rows, part);
    measure_part(program, part, cpu::offered_primitives(graph, rows, part, engine, stream), stream, rounds, to);
  }
  return times;
}

}  // namespace troupe
