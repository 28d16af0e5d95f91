#include "devices/cpu/try_threads.hpp"

#include <algorithm>
#include <exception>
#include <map>

#include "devices/cpu/denormals.hpp"
#include "devices/cpu/measured_program.hpp"
#include "devices/cpu/onednn.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/thread.hpp"

namespace troupe {
namespace {

/// Of a step of a trial, about: a tenth of a second of one core with AVX2.
constexpr std::uint64_t kFlops = 4'000'000'000;

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

/// As many as the run has, or as make steps of kFlops, but at least one for each thread.
std::uint32_t rows_of_trial(const Graph& graph, std::uint32_t rows, std::uint32_t cores) {
  const std::uint64_t affordable = kFlops / std::max<std::uint64_t>(graph.training_flops(), 1);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(rows, std::max<std::uint64_t>(affordable, cores)));
}

ThreadTrial try_on_this_thread(const Graph& graph, std::uint32_t rows, std::uint32_t cores) {
  const auto begun = Clock::now();
  cpu::limit_onednn();
  cpu::flush_denormals();
  const cpu::DrawnBatch batch{graph, rows_of_trial(graph, rows, cores)};
  std::map<std::uint32_t, cpu::MeasuredProgram> programs;
  const auto step = [&](std::uint32_t threads, double limit_s) -> std::optional<double> {
    const cpu::ThreadsInScope run_on{threads};
    const auto [at, fresh] = programs.try_emplace(threads, graph, batch, cpu::ProgramOptions{.threads = threads});
    const auto step_begun = Clock::now();
    if (!at->second.step(limit_s)) return std::nullopt;
    return seconds_since(step_begun);
  };
  ThreadTrial trial = run_thread_trial(thread_candidates(cores), step);
  trial.rows = batch.batch().rows();
  trial.taken_s = seconds_since(begun);
  return trial;
}

}  // namespace

ThreadTrial try_threads(const Graph& graph, std::uint32_t rows, std::uint32_t cores) {
  ThreadTrial trial;
  std::exception_ptr failure;
  // OpenMP keeps threads for the thread that used them; they end with this one.
  std::thread thread = start_thread("thread-trial", [&] {
    try {
      trial = try_on_this_thread(graph, rows, cores);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  thread.join();
  if (failure) std::rethrow_exception(failure);
  return trial;
}

}  // namespace troupe
