#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

enum class RateShape : std::uint8_t { constant, step, multi_step, exponential, polynomial, cosine, one_cycle };
inline constexpr std::array<std::string_view, 7> kRateShapeNames{"constant",   "step",   "multi_step", "exponential",
                                                                 "polynomial", "cosine", "one_cycle"};
constexpr std::string_view name_of(RateShape shape) noexcept {
  return kRateShapeNames[static_cast<std::size_t>(shape)];
}

/// A stretch of training: samples of all ranks, or epochs. Both 0: not given.
struct Stretch {
  std::uint64_t samples = 0;
  double epochs = 0;
  bool is_given() const noexcept { return samples != 0 || epochs != 0; }
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

/// How the rate changes over a run, as it is written; a shape reads the members that its comment names. The rate it
/// starts from, or the highest of one_cycle, is Rule::rate.
struct RateSettings {
  RateShape shape = RateShape::constant;
  Stretch every;               // step, exponential: per which it is multiplied by `factor`
  std::vector<Stretch> at;     // multi_step: where it is multiplied by `factor`, growing
  double factor = 0.1;         // step, multi_step, exponential
  Stretch over;                // polynomial, cosine, one_cycle: where the end is reached; not given: the whole run
  double power = 1;            // polynomial
  double end_factor = 0;       // polynomial, cosine, one_cycle: times the rate, at the end and after it
  double start_factor = 0.04;  // one_cycle: times the rate, at the start
  double rise = 0.3;           // one_cycle: part of `over` in which the rate rises
  Stretch warmup;              // all but one_cycle: the rate grows to what the shape says
  double warmup_from = 0;      // from this times that; with `linear` from the rate before scaling
  bool linear = false;         // the rate is multiplied by samples of an update / reference_batch
  std::uint32_t reference_batch = 0;  // 0: a rank's batch, so that the rate grows with the ranks
  friend bool operator==(const RateSettings&, const RateSettings&) = default;
};
/// Canonical text with every member that the shape reads: "cosine over the run, warm-up 5 epochs".
std::string to_string(const RateSettings& settings);

/// What epochs and "the whole run" amount to.
struct RunLength {
  std::uint64_t epoch_samples = 0;  // of the training set
  std::uint64_t run_samples = 0;    // of all ranks, from the very beginning to the end
  std::uint32_t rank_batch = 0;     // samples of one rank in a step
};

/// The rate as a function of the samples that all ranks have taken: the same at every rank, at any number of ranks, and
/// after a resume.
/// Sources: linear scaling and warm-up, Goyal et al. 2017 (Accurate, large minibatch SGD), section 2; cosine,
/// Loshchilov and Hutter 2017 (SGDR), equation 5 without restarts; one_cycle, Smith and Topin 2018 (Super-convergence),
/// with cosine flanks.
class RateSchedule {
 public:
  /// A constant rate.
  explicit RateSchedule(double rate = 0.001) : base_(rate) {}
  /// Throws Error{invalid} when a stretch that the shape needs is missing or comes to no sample.
  RateSchedule(double rate, const RateSettings& settings, const RunLength& run);

  /// The rate of an update in a step before which all ranks have taken `samples`. `update_samples` are those of all
  /// ranks that the update's gradient is the mean over: those of the step, times update.accumulate.
  double at(std::uint64_t samples, std::uint64_t update_samples) const noexcept;

 private:
  double shape_at(double samples) const noexcept;

  double base_;
  RateShape shape_ = RateShape::constant;
  double every_ = 1;  // this and what follows in samples
  std::vector<double> at_;
  double over_ = 1;
  double warmup_ = 0;
  double factor_ = 1, power_ = 1, start_factor_ = 1, end_factor_ = 1, rise_ = 0, warmup_from_ = 1;
  double reference_batch_ = 0;  // 0: not scaled
};

}  // namespace troupe
