#include "tools/rtrun/line_formats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace troupe::rtrun {
namespace {

double seconds_of(const EpochReport& report, const LineFacts& facts) { return report.train_s - facts.train_s_before; }

std::string mxnet_steps(const StepsReport& part) {
  return fmt::format("Epoch[{}] Batch [{}]\tSpeed: {:.2f} samples/sec\taccuracy={:.6f}\n", part.epoch - 1, part.last,
                     part.samples_per_s, part.accuracy);
}

std::string mxnet_epoch(const EpochReport& report, const LineFacts& facts) {
  const std::uint32_t epoch = report.epoch - 1;
  std::string lines = fmt::format("Epoch[{0}] Train-accuracy={1:.6f}\nEpoch[{0}] Time cost={2:.3f}\n", epoch,
                                  report.accuracy, seconds_of(report, facts));
  if (report.test_accuracy)
    lines += fmt::format("Epoch[{}] Validation-accuracy={:.6f}\n", epoch, *report.test_accuracy);
  return lines;
}

double wrong_percent(double accuracy) { return (1 - accuracy) * 100; }

std::string cntk_steps(const StepsReport& part) {
  return fmt::format(" Minibatch[{:4}-{:4}]: loss = {:.6f} * {}, metric = {:.2f}% * {};\n", part.first, part.last,
                     part.loss, part.samples, wrong_percent(part.accuracy), part.samples);
}

std::string cntk_epoch(const EpochReport& report, const LineFacts& facts) {
  const std::uint64_t samples = report.samples - facts.samples_before;
  const double spent_s = seconds_of(report, facts);
  std::string lines = fmt::format(
      "Finished Epoch[{} of {}]: [Training] loss = {:.6f} * {}, metric = {:.2f}% * {} {:.3f}s ({:5.1f} samples/s);\n",
      report.epoch, facts.epochs, report.loss, samples, wrong_percent(report.accuracy), samples, spent_s,
      spent_s > 0 ? static_cast<double>(samples) / spent_s : 0);
  if (report.test_accuracy) {
    lines += fmt::format("Finished Evaluation [{}]: Minibatch[1-{}]: metric = {:.2f}% * {};\n", report.epoch,
                         facts.test_batches, wrong_percent(*report.test_accuracy), facts.test_samples);
  }
  return lines;
}

constexpr std::array kLineFormats{LineFormat{"mxnet", mxnet_steps, mxnet_epoch},
                                  LineFormat{"cntk", cntk_steps, cntk_epoch}};

}  // namespace

const LineFormat* find_line_format(std::string_view name) noexcept {
  const auto* const at = std::ranges::find(kLineFormats, name, &LineFormat::name);
  return at == kLineFormats.end() ? nullptr : at;
}

}  // namespace troupe::rtrun
