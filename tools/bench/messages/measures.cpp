#include "tools/bench/messages/measures.hpp"

#include <algorithm>

namespace troupe::bench {
namespace {

constexpr std::size_t kFewestBatches = 9;
constexpr std::size_t kManyBatches = 1u << 16;
/// The first part of the span, on top of it: caches, endpoints and pools fill.
constexpr int kWarmUpPart = 5;

}  // namespace

RoundTrips::RoundTrips(Plan plan) : plan_(plan), left_(plan.batch) { one_way_us_.reserve(kManyBatches); }

void RoundTrips::begin() { begun_ = batch_begun_ = Clock::now(); }

bool RoundTrips::end_batch() {
  const auto now = Clock::now();
  if (warm_) {
    const std::chrono::duration<double, std::micro> took = now - batch_begun_;
    one_way_us_.push_back(took.count() / plan_.batch / 2);
    if (one_way_us_.size() >= kFewestBatches && now - begun_ >= plan_.span) return false;
  } else if (now - begun_ >= plan_.span / kWarmUpPart) {
    warm_ = true;
    begun_ = now;
  }
  left_ = plan_.batch;
  batch_begun_ = Clock::now();
  return true;
}

double RoundTrips::one_way_us(double quantile) const {
  TROUPE_CHECK(!one_way_us_.empty(), Code::invalid, "nothing was measured");
  std::vector<double> sorted = one_way_us_;
  std::sort(sorted.begin(), sorted.end());
  const auto place = static_cast<std::size_t>(quantile * static_cast<double>(sorted.size()));
  return sorted[std::min(place, sorted.size() - 1)];
}

RoundTrips::Plan latency_plan(const EndCase& what) {
  const bool copied = what.impl != "arena" && what.impl != "local";
  return {copied && what.bytes >= (64u << 10) ? 1u : 16u, what.span()};
}

Figures latency_figures(const RoundTrips& trips) { return {{"us", trips.one_way_us()}}; }

Figures spread_figures(const RoundTrips& trips) {
  return {{"us", trips.one_way_us()}, {"us_p99", trips.one_way_us(0.99)}};
}

LaneOptions control_lane(const EndCase& what) {
  LaneOptions options;
  if (what.spin_us > 0) options.spin = std::chrono::microseconds(what.spin_us);
  return options;
}

void Rate::begin() { begun_ = Clock::now(); }

bool Rate::again(std::uint64_t arrived) {
  const auto now = Clock::now();
  if (!warm_) {
    if (now - begun_ < span_ / kWarmUpPart) return true;
    warm_ = true;
    begun_ = now;
    before_ = arrived;
    return true;
  }
  arrived_ = arrived - before_;
  took_ = now - begun_;
  return took_ < span_;
}

double Rate::thousand_a_second() const {
  TROUPE_CHECK(arrived_ > 0 && took_.count() > 0, Code::invalid, "nothing was measured");
  return static_cast<double>(arrived_) / std::chrono::duration<double, std::milli>(took_).count();
}

}  // namespace troupe::bench
