#include <fmt/format.h>

#include <iterator>

#include "runtime/planning/cost_model.hpp"

namespace troupe {
namespace {

constexpr double kMilli = 1e3;

/// "7.81 ms: load 0, compute 6.90, update 0.91, copy 0, exchange 0.00"
std::string parts_text(const PredictedStep& step) {
  std::string out = fmt::format("{:.3g} ms: ", step.total() * kMilli);
  for (std::size_t i = 0; i < kStepParts; ++i)
    out += fmt::format("{}{} {:.3g}", i == 0 ? "" : ", ", name_of(static_cast<StepPart>(i)), step.seconds[i] * kMilli);
  return out;
}

std::string ratio_text(double predicted, double measured) {
  return measured > 0 && predicted > 0 ? fmt::format("{:.2f}", predicted / measured) : "-";
}

}  // namespace

std::string describe(const Prediction& prediction) {
  std::string out = fmt::format("step     predicted {}\n         {:.4g} samples/s of all ranks\n",
                                parts_text(prediction.mean), prediction.samples_per_second);
  if (prediction.phases.size() > 1)
    for (const PredictedPhase& phase : prediction.phases)
      out += fmt::format("         {} steps from step {} on, {}: {}\n", phase.steps, phase.first, phase.policies,
                         parts_text(phase.step));
  for (const std::string& sentence : prediction.basis) out += "- " + sentence + "\n";
  return out;
}

std::string compare(const Prediction& prediction, const MeasuredSteps& measured) {
  std::string out =
      fmt::format("{:<10}{:>14}{:>14}{:>22}\n", "a step", "predicted ms", "measured ms", "predicted / measured");
  const auto row = [&](std::string_view name, double predicted, double seen) {
    out += fmt::format("{:<10}{:>14.3f}{:>14.3f}{:>22}\n", name, predicted * kMilli, seen * kMilli,
                       ratio_text(predicted, seen));
  };
  for (std::size_t i = 0; measured.has_parts && i < kStepParts; ++i)
    row(name_of(static_cast<StepPart>(i)), prediction.mean.seconds[i], measured.seconds[i]);
  row("all", prediction.mean.total(), measured.step_s);
  out += fmt::format("Means of {} steps; the parts are those of rank 0's device.\n", measured.steps);
  if (!measured.has_parts) out += "Its device does not measure its parts.\n";
  for (const std::string& sentence : prediction.basis) out += "- " + sentence + "\n";
  return out;
}

}  // namespace troupe
