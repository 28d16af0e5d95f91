#include "runtime/compute/rules/rate_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

double samples_of(const Stretch& stretch, const RunLength& run) noexcept {
  return stretch.samples != 0 ? static_cast<double>(stretch.samples)
                              : stretch.epochs * static_cast<double>(run.epoch_samples);
}

double needed(const Stretch& stretch, const RunLength& run, std::string_view what) {
  const double samples = samples_of(stretch, run);
  TROUPE_CHECK(samples >= 1, Code::invalid, "optimizer.rate: ", what, " comes to ", samples, " samples, of ",
               run.epoch_samples, " in an epoch; at least one is needed");
  return samples;
}

std::string text_of(const Stretch& stretch) {
  return stretch.samples != 0 ? fmt::format("{} samples", stretch.samples) : fmt::format("{} epochs", stretch.epochs);
}

/// Rises from 0 at `t` = 0 to 1 at `t` = 1, flat at both ends.
double half_cosine(double t) noexcept { return (1 - std::cos(std::numbers::pi * t)) / 2; }

bool multiplies(RateShape shape) noexcept {
  return shape == RateShape::step || shape == RateShape::multi_step || shape == RateShape::exponential;
}
bool has_an_end(RateShape shape) noexcept {
  return shape == RateShape::polynomial || shape == RateShape::cosine || shape == RateShape::one_cycle;
}

}  // namespace

std::string to_string(const RateSettings& s) {
  std::string out{name_of(s.shape)};
  if (multiplies(s.shape)) out += fmt::format(" by {}", s.factor);
  if (s.shape == RateShape::step || s.shape == RateShape::exponential) out += " per " + text_of(s.every);
  for (std::size_t i = 0; s.shape == RateShape::multi_step && i < s.at.size(); ++i) {
    out += (i == 0 ? " at " : ", ") + text_of(s.at[i]);
  }
  if (has_an_end(s.shape)) out += " over " + (s.over.is_given() ? text_of(s.over) : "the run");
  if (s.shape == RateShape::polynomial) out += fmt::format(" to the power of {}", s.power);
  if (s.shape == RateShape::one_cycle) out += fmt::format(", rising from {} for {} of it", s.start_factor, s.rise);
  if (has_an_end(s.shape)) out += fmt::format(", down to {}", s.end_factor);
  if (s.linear) {
    out +=
        ", scaled by update samples / " + (s.reference_batch != 0 ? std::to_string(s.reference_batch) : "rank's batch");
  }
  if (s.warmup.is_given()) {
    out += ", warm-up " + text_of(s.warmup);
    if (!s.linear) out += fmt::format(" from {}", s.warmup_from);
  }
  return out;
}

RateSchedule::RateSchedule(double rate, const RateSettings& settings, const RunLength& run)
    : base_(rate),
      shape_(settings.shape),
      warmup_(samples_of(settings.warmup, run)),
      factor_(settings.factor),
      power_(settings.power),
      start_factor_(settings.start_factor),
      end_factor_(settings.end_factor),
      rise_(settings.rise),
      warmup_from_(settings.warmup_from) {
  if (shape_ == RateShape::step || shape_ == RateShape::exponential) every_ = needed(settings.every, run, "every");
  if (shape_ == RateShape::multi_step) {
    TROUPE_CHECK(!settings.at.empty(), Code::invalid, "optimizer.rate: multi_step needs the places of its steps");
    for (const Stretch& place : settings.at) at_.push_back(needed(place, run, "at"));
    TROUPE_CHECK(std::is_sorted(at_.begin(), at_.end()), Code::invalid,
                 "optimizer.rate: the places of multi_step must grow");
  }
  if (has_an_end(shape_)) {
    over_ = settings.over.is_given() ? needed(settings.over, run, "over")
                                     : needed({.samples = run.run_samples}, run, "the run");
  }
  if (!settings.linear) return;
  reference_batch_ = static_cast<double>(settings.reference_batch != 0 ? settings.reference_batch : run.rank_batch);
  TROUPE_CHECK(reference_batch_ > 0, Code::invalid, "optimizer.rate: scale = \"linear\" needs a reference batch");
}

double RateSchedule::shape_at(double samples) const noexcept {
  const double t = std::min(1.0, samples / over_);
  switch (shape_) {
    case RateShape::constant: return 1;
    case RateShape::step: return std::pow(factor_, std::floor(samples / every_));
    case RateShape::multi_step:
      return std::pow(factor_, static_cast<double>(std::upper_bound(at_.begin(), at_.end(), samples) - at_.begin()));
    case RateShape::exponential: return std::pow(factor_, samples / every_);
    case RateShape::polynomial: return end_factor_ + (1 - end_factor_) * std::pow(1 - t, power_);
    case RateShape::cosine: return 1 - (1 - end_factor_) * half_cosine(t);
    case RateShape::one_cycle:
      return t < rise_ ? start_factor_ + (1 - start_factor_) * half_cosine(t / rise_)
                       : 1 - (1 - end_factor_) * half_cosine(rise_ < 1 ? (t - rise_) / (1 - rise_) : 0);
  }
  return 1;
}

double RateSchedule::at(std::uint64_t samples, std::uint64_t update_samples) const noexcept {
  const auto taken = static_cast<double>(samples);
  const double scale = reference_batch_ > 0 ? static_cast<double>(update_samples) / reference_batch_ : 1;
  const double rate = base_ * scale * shape_at(taken);
  if (taken >= warmup_) return rate;
  const double from = reference_batch_ > 0 ? (scale > 1 ? 1 / scale : 1) : warmup_from_;
  return rate * (from + (1 - from) * taken / warmup_);
}

}  // namespace troupe
