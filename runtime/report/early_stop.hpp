#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// Decides when a run ends because its test loss no longer improves: after `patience` evaluations in a row, none of
/// which was lower by more than `min_change` than the best one before them. A loss that is not finite is not an
/// improvement. Threads: one.
class EarlyStop {
 public:
  /// `patience` is not 0.
  EarlyStop(std::uint32_t patience, double min_change) : patience_(patience), min_change_(min_change) {}
  /// The evaluation after `epoch` found a mean loss of `loss`; evaluations come in order. Returns is_due().
  bool add(std::uint32_t epoch, double loss);
  /// Whether the run should end.
  bool is_due() const noexcept { return since_best_ >= patience_; }
  /// For people, when it is due: "Stopped at epoch 7: the test loss has not improved for 3 evaluations; best 0.123 at
  /// epoch 4".
  std::string reason() const;

 private:
  const std::uint32_t patience_;
  const double min_change_;
  std::uint32_t epoch_ = 0;
  std::uint32_t best_epoch_ = 0;  // 0: no loss was finite so far
  double best_ = 0;
  std::uint32_t since_best_ = 0;  // number of evaluations
};

}  // namespace troupe
