#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/report/report.hpp"

namespace troupe::rtrun {

/// Facts in such lines that no report contains.
struct LineFacts {
  std::uint32_t epochs = 0;  // of the run
  std::uint64_t test_samples = 0;
  std::uint64_t test_batches = 0;    // of all ranks
  std::uint64_t samples_before = 0;  // trained in this run before the epoch
  double train_s_before = 0;
};

/// How another program prints a run, for people and scripts that know its lines. Each text ends with a line end.
struct LineFormat {
  std::string_view name;  // in report.format
  std::string (*steps)(const StepsReport&);
  std::string (*epoch)(const EpochReport&, const LineFacts&);
};

/// MXNet and CNTK. Null: there is no format `name`.
///
/// mxnet: Module.fit and Speedometer, which count epochs from 0:
///   Epoch[0] Batch [100]<tab>Speed: 9138.20 samples/sec<tab>accuracy=0.861250
///   Epoch[0] Train-accuracy=0.931003
///   Epoch[0] Time cost=6.960
///   Epoch[0] Validation-accuracy=0.973500
/// cntk: ProgressPrinter with a tag "Training"; its metric is the fraction of wrong answers:
///    Minibatch[   1- 100]: loss = 2.302585 * 6400, metric = 90.00% * 6400;
///   Finished Epoch[1 of 300]: [Training] loss = 1.520000 * 50000, metric = 55.12% * 50000 12.345s (4050.2 samples/s);
///   Finished Evaluation [1]: Minibatch[1-79]: metric = 43.21% * 10000;
const LineFormat* find_line_format(std::string_view name) noexcept;

}  // namespace troupe::rtrun
