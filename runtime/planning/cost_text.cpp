#include <fmt/format.h>

#include <iterator>

#include "runtime/planning/cost_model.hpp"

namespace troupe {
namespace {

constexpr double kMilli = 1e3;

/// Before a number that rests on figures that were not measured.
const char* mark(bool is_modelled) { return is_modelled ? "~" : ""; }
constexpr const char* kMarkNote = "         ~: modelled, since figures that it needs were not measured\n";

/// "~7.81 ms: load 0, compute ~6.90, update 0.91, copy 0, exchange 0.00"
std::string parts_text(const PredictedStep& step) {
  std::string out = fmt::format("{}{:.3g} ms: ", mark(step.is_modelled()), step.total() * kMilli);
  for (std::size_t i = 0; i < kStepParts; ++i)
    out += fmt::format("{}{} {}{:.3g}", i == 0 ? "" : ", ", name_of(static_cast<StepPart>(i)), mark(step.modelled[i]),
                       step.seconds[i] * kMilli);
  return out;
}

/// A line for each figure of GPUs.
std::string figures_text(const Prediction& prediction) {
  std::string out;
  for (const UsedFigure& figure : prediction.figures)
    out += fmt::format("{:<9}{:<48}{:>10} {:<8} {}\n", out.empty() ? "figures" : "", figure.what,
                       fmt::format("{}{:.3g}", mark(figure.is_modelled), figure.value), figure.unit,
                       figure.is_modelled ? "modelled" : "measured");
  return out;
}

std::string basis_text(const Prediction& prediction) {
  std::string out = prediction.mean.is_modelled() ? kMarkNote : "";
  out += figures_text(prediction);
  for (const std::string& sentence : prediction.basis) out += "- " + sentence + "\n";
  return out;
}

std::string ratio_text(double predicted, double measured) {
  return measured > 0 && predicted > 0 ? fmt::format("{:.2f}", predicted / measured) : "-";
}

}  // namespace

std::string describe(const Prediction& prediction) {
  std::string out =
      fmt::format("step     predicted {}\n         {}{:.4g} samples/s of all ranks\n", parts_text(prediction.mean),
                  mark(prediction.mean.is_modelled()), prediction.samples_per_second);
  if (prediction.phases.size() > 1)
    for (const PredictedPhase& phase : prediction.phases)
      out += fmt::format("         {} steps from step {} on, {}: {}\n", phase.steps, phase.first, phase.policies,
                         parts_text(phase.step));
  return out + basis_text(prediction);
}

std::string compare(const Prediction& prediction, const MeasuredSteps& measured) {
  std::string out =
      fmt::format("{:<10}{:>14}{:>14}{:>22}\n", "a step", "predicted ms", "measured ms", "predicted / measured");
  const auto row = [&](std::string_view name, double predicted, bool is_modelled, double seen) {
    out += fmt::format("{:<10}{:>14}{:>14.3f}{:>22}\n", name,
                       fmt::format("{}{:.3f}", mark(is_modelled), predicted * kMilli), seen * kMilli,
                       ratio_text(predicted, seen));
  };
  for (std::size_t i = 0; measured.has_parts && i < kStepParts; ++i)
    row(name_of(static_cast<StepPart>(i)), prediction.mean.seconds[i], prediction.mean.modelled[i],
        measured.seconds[i]);
  row("all", prediction.mean.total(), prediction.mean.is_modelled(), measured.step_s);
  out += fmt::format("Means of {} steps; the parts are those of rank 0's device.\n", measured.steps);
  if (!measured.has_parts) out += "Its device does not measure its parts.\n";
  return out + basis_text(prediction);
}

}  // namespace troupe
