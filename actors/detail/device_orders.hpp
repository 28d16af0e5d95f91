#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "actors/device_actor.hpp"

namespace troupe::detail {

/// The orders of rank 0's StepCoordinator to a device: to hold its steps, and what begins or ends at one step of all
/// ranks.
class DeviceOrders {
 public:
  void begin(const DeviceProgress& from) { switches_.assign(from.switches.begin(), from.switches.end()); }

  /// No step begins until the order with this number arrives.
  void hold(std::uint32_t number) noexcept { held_by_ = number; }
  bool holds() const noexcept { return held_by_.has_value(); }
  bool is_held_by(std::uint32_t number) const noexcept { return held_by_ == number; }
  void let_go() noexcept { held_by_.reset(); }

  void expect_switch(Step at, std::string reason) { switches_.push_back({at, std::move(reason)}); }
  /// Why `step` has another policy than the step before it; empty: by the plan.
  std::string reason_of_switch(Step step);

  void expect_rebuild(Step from) noexcept { rebuild_from_ = from; }
  /// Whether `step` must leave the same weights at all ranks, so that the view can end with it. Hosted policies can do
  /// that after any step. If gradients are exchanged in rounds, the view continues until the present round ends by
  /// itself, so that the results are the same with and without another view.
  bool needs_equal_weights(const DeviceParts& parts, Step step) const;
  /// Whether the view ends with `step`, which was enqueued and is not the run's last. The answer is the same at all
  /// ranks.
  bool ends_view(const DeviceParts& parts, Step step) const;

  /// The policies that the next view's device must still begin.
  std::vector<OrderedSwitch> switches() const { return {switches_.begin(), switches_.end()}; }

 private:
  std::optional<std::uint32_t> held_by_;
  std::deque<OrderedSwitch> switches_;  // in order of their steps
  std::optional<Step> rebuild_from_;
};

}  // namespace troupe::detail
