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

/// A length of training: samples of all ranks, or epochs. Both 0: not given.
struct Stretch {
  std::uint64_t samples = 0;
  double epochs = 0;
  bool is_given() const noexcept { return samples != 0 || epochs != 0; }
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

/// The schedule of the learning rate, as written in the settings; the comment of a member names the shapes that read
/// it. Rule::rate is the learning rate at the start, or for one_cycle the highest one.
struct RateSettings {
  RateShape shape = RateShape::constant;
  Stretch every;                      // step, exponential: after each of these it is multiplied by `factor`
  std::vector<Stretch> at;            // multi_step: where it is multiplied by `factor`, ascending
  double factor = 0.1;                // step, multi_step, exponential
  Stretch over;                       // polynomial, cosine, one_cycle: length of the schedule; not given: the whole run
  double power = 1;                   // polynomial
  double end_factor = 0;              // polynomial, cosine, one_cycle: factor at the end and after it
  double start_factor = 0.04;         // one_cycle: factor at the start
  double rise = 0.3;                  // one_cycle: fraction of `over` in which the learning rate rises
  Stretch warmup;                     // all but one_cycle: the learning rate rises to the shape's value
  double warmup_from = 0;             // fraction of that value at the start; with `linear`, it starts unscaled
  bool linear = false;                // the learning rate is multiplied by samples of an update / reference_batch
  std::uint32_t reference_batch = 0;  // 0: a rank's batch, so that the learning rate grows with the ranks
  friend bool operator==(const RateSettings&, const RateSettings&) = default;
};
/// Canonical text with all members that the shape reads: "cosine over the run, warm-up 5 epochs".
std::string to_string(const RateSettings& settings);

/// The numbers of samples that epochs and "the whole run" stand for.
struct RunLength {
  std::uint64_t epoch_samples = 0;  // of the training set
  std::uint64_t run_samples = 0;    // of all ranks, from step 0 to the end
  std::uint32_t rank_batch = 0;     // samples of one rank in a step
};

/// The learning rate as a function of the samples that all ranks have taken: the same at every rank, for any number of
/// ranks, and after a resume.
/// Sources: linear scaling and warm-up, Goyal et al. 2017 (Accurate, large minibatch SGD), section 2; cosine,
/// Loshchilov and Hutter 2017 (SGDR), equation 5 without restarts; one_cycle, Smith and Topin 2018 (Super-convergence),
/// with cosine-shaped rise and fall.
class RateSchedule {
 public:
  /// A constant rate.
  explicit RateSchedule(double rate = 0.001) : base_(rate) {}
  /// Throws Error{invalid} if a length that the shape needs is missing or rounds to 0 samples.
  RateSchedule(double rate, const RateSettings& settings, const RunLength& run);

  /// The learning rate of an update in a step before which all ranks have taken `samples`. `update_samples`: the
  /// samples of all ranks in the update's mean gradient, which are those of the step times update.accumulate.
  double at(std::uint64_t samples, std::uint64_t update_samples) const noexcept;

 private:
  double shape_at(double samples) const noexcept;

  double base_;
  RateShape shape_ = RateShape::constant;
  double every_ = 1;  // this and the next members in samples
  std::vector<double> at_;
  double over_ = 1;
  double warmup_ = 0;
  double factor_ = 1, power_ = 1, start_factor_ = 1, end_factor_ = 1, rise_ = 0, warmup_from_ = 1;
  double reference_batch_ = 0;  // 0: not scaled
};

}  // namespace troupe
