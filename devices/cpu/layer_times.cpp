#include "devices/cpu/layer_times.hpp"

#include <time.h>

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
/// Work that is longer is seldom run without an interruption on a busy machine. To ask for a thread's CPU time takes
/// a few microseconds.
constexpr std::chrono::microseconds kLong{200};

/// What a time is the difference of.
enum class TimeOf : std::uint8_t { clock, thread };

double now_us(TimeOf of) {
  if (of == TimeOf::clock) return std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count();
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e6 + static_cast<double>(used.tv_nsec) / 1e3;
}

template <class Work>
double once(TimeOf of, Work&& work) {
  const double begun = now_us(of);
  work();
  return now_us(of) - begun;
}

/// How to measure work of `threads` threads that took `spent` the first time. The CPU time of one of several threads is
/// not the time of their work.
TimeOf time_for(std::uint32_t threads, Clock::duration spent) {
  return threads == 1 && spent > kLong ? TimeOf::thread : TimeOf::clock;
}

/// Work that was repeated in one round, after one repetition that is not measured.
struct Repeated {
  double best = std::numeric_limits<double>::max();  // us
  std::size_t times = 0;
  Clock::duration took{};  // all of it
};

/// Repeats `work` while `more(the state so far)`, and at least once.
template <class Work, class More>
Repeated repeat(std::uint32_t threads, Work&& work, More&& more) {
  const auto begun = Clock::now();
  work();
  const TimeOf of = time_for(threads, Clock::now() - begun);
  Repeated made;
  do {
    made.best = std::min(made.best, once(of, work));
    ++made.times;
    made.took = Clock::now() - begun;
  } while (more(made));
  return made;
}

/// Whole steps are run between the layers and take about as long as these in all, so that both have the same
/// conditions.
class Steps {
 public:
  Steps(MeasuredProgram& program, std::uint32_t threads) : program_(program) {
    run();
    const auto begun = Clock::now();
    run();
    of_ = time_for(threads, Clock::now() - begun);
  }
  void run_if_behind() {
    if (in_steps_ < (Clock::now() - begun_) / 2) measure();
  }
  /// The fastest ones, one for each round.
  std::vector<double> fastest(std::uint32_t rounds) {
    while (us_.size() < rounds) measure();
    std::vector<double> found(us_.begin(), us_.begin() + rounds);
    for (std::size_t i = rounds; i < us_.size(); ++i) found[i % rounds] = std::min(found[i % rounds], us_[i]);
    return found;
  }

 private:
  void run() { program_.step(std::numeric_limits<double>::max()); }
  void measure() {
    const auto begun = Clock::now();
    us_.push_back(once(of_, [&] { run(); }));
    in_steps_ += Clock::now() - begun;
  }

  MeasuredProgram& program_;
  TimeOf of_ = TimeOf::clock;
  const Clock::time_point begun_ = Clock::now();
  Clock::duration in_steps_{};
  std::vector<double> us_;
};

/// Of the products of a pass.
std::uint64_t flops_of(const Graph& graph, std::uint32_t rows, const StepProgram::LayerPass& part) {
  const std::uint64_t forward = rows * graph.forward_flops(part.layer);
  if (!part.backward) return forward;
  return graph.is_trained(graph.inputs_of(part.layer).front()) ? 2 * forward : forward;
}

struct Repeats {
  std::uint32_t threads, rounds;
};

/// Everything that oneDNN offers for one piece of work of a pass.
struct Offered {
  const std::vector<cpu::OfferedPrimitive>& primitives;
  std::vector<double> us;  // of each primitive, the fastest one so far

  const cpu::OfferedPrimitive& fastest() const {
    return primitives[static_cast<std::size_t>(std::ranges::min_element(us) - us.begin())];
  }
};

/// First finds the fastest primitive for each piece of work: after the first round, those that were far behind the
/// fastest one are not measured again, since some take a hundred times as long. Then measures the device's pass and
/// these primitives alternately, one after another as the pass runs its pieces, and as often as the pass, since
/// repetitions make both faster.
void measure_part(const MeasuredProgram& program, const StepProgram::LayerPass& part,
                  const std::vector<std::vector<cpu::OfferedPrimitive>>& offers, const dnnl::stream& stream,
                  const Repeats& how, LayerTime& to) {
  constexpr double kFarBehind = 2;
  const auto for_a_round = [](const Repeated& so_far) { return so_far.took < kRound; };
  std::vector<Offered> works;
  for (const auto& primitives : offers)
    works.push_back({primitives, std::vector<double>(primitives.size(), std::numeric_limits<double>::max())});
  for (std::uint32_t round = 0; round < how.rounds; ++round) {
    for (Offered& work : works) {
      const double most = round == 0 ? std::numeric_limits<double>::max() : kFarBehind * std::ranges::min(work.us);
      for (std::size_t i = 0; i < work.us.size(); ++i) {
        if (work.us[i] > most) continue;
        const auto run = [&] { work.primitives[i].primitive.execute(stream); };
        work.us[i] = std::min(work.us[i], repeat(how.threads, run, for_a_round).best);
      }
    }
  }
  for (const Offered& work : works) to.best += text(to.best.empty() ? "" : " + ", work.fastest().implementation);
  for (std::uint32_t round = 0; round < how.rounds; ++round) {
    const Repeated ours = repeat(
        how.threads, [&] { program.run(part); }, for_a_round);
    to.us.push_back(ours.best);
    if (works.empty()) continue;
    const auto run_fastest = [&] {
      for (const Offered& work : works) work.fastest().primitive.execute(stream);
    };
    const auto as_often = [&](const Repeated& so_far) { return so_far.times < ours.times; };
    to.best_us.push_back(repeat(how.threads, run_fastest, as_often).best);
  }
}

}  // namespace

StepTimes measure_layers(const Graph& graph, std::uint32_t rows, std::uint32_t threads, std::uint32_t rounds,
                         std::string_view only) {
  cpu::limit_onednn();
  cpu::flush_denormals();
  const cpu::ThreadsInScope run_on{threads};
  cpu::DrawnBatch batch{graph, rows};
  // Apart, since a part that is run alone reads what a whole step has left for it.
  MeasuredProgram program{graph, batch, {.threads = threads, .shares = false}};
  const dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  const dnnl::stream stream{engine};
  StepTimes times;
  Steps steps{program, threads};
  for (const StepProgram::LayerPass& part : program.parts()) {
    const troupe::Layer& layer = graph.layers()[part.layer];
    if (layer.name.find(only) == std::string::npos) continue;
    LayerTime& to = times.layers.emplace_back();
    to.layer = layer.name;
    to.kind = kind_of(layer.operation).name;
    to.backward = part.backward;
    to.flops = flops_of(graph, rows, part);
    measure_part(program, part, cpu::offered_primitives(graph, rows, part, engine, stream), stream, {threads, rounds},
                 to);
    if (only.empty()) steps.run_if_behind();
  }
  if (only.empty()) times.us = steps.fastest(rounds);
  return times;
}

}  // namespace troupe
