#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "actors/device_actor.hpp"

namespace troupe::detail {

/// What rank 0's StepCoordinator has ordered of a device: to hold its steps, and what begins or ends at one step of all
/// ranks.
class DeviceOrders {
 public:
  void begin(const DeviceProgress& from) { switches_.assign(from.switches.begin(), from.switches.end()); }

  /// No step begins until the order of that number comes.
  void hold(std::uint32_t number) noexcept { held_by_ = number; }
  bool holds() const noexcept { return held_by_.has_value(); }
  bool is_held_by(std::uint32_t number) const noexcept { return held_by_ == number; }
  void let_go() noexcept { held_by_.reset(); }

  void expect_switch(Step at, std::string reason) { switches_.push_back({at, std::move(reason)}); }
  /// Why `step` has another policy than the one before it; empty: the policy's turn has come.
  std::string reason_of_switch(Step step);

  void expect_rebuild(Step from) noexcept { rebuild_from_ = from; }
  /// Whether `step` shall leave all ranks' weights alike for the view to end with it. Shards that host stripes can be
  /// met after any step; where gradients travel in rounds, the view lives until the round under way has ended by
  /// itself, so that the run is the same one with and without another view.
  bool wants_meeting(const DeviceParts& parts, Step step) const;
  /// Whether the view ends with `step`, which is enqueued and not the run's last. All ranks say the same.
  bool ends_view(const DeviceParts& parts, Step step) const;

  /// What of it the next view's device has to go on with.
  std::vector<OrderedSwitch> switches() const { return {switches_.begin(), switches_.end()}; }

 private:
  std::optional<std::uint32_t> held_by_;
  std::deque<OrderedSwitch> switches_;  // to come
  std::optional<Step> rebuild_from_;
};

}  // namespace troupe::detail
