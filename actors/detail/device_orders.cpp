#include "actors/detail/device_orders.hpp"

#include <algorithm>
#include <utility>

namespace troupe::detail {

std::string DeviceOrders::reason_of_switch(Step step) {
  std::string reason;
  for (; !switches_.empty() && switches_.front().at <= step; switches_.pop_front())
    reason = std::move(switches_.front().reason);
  return reason;
}

bool DeviceOrders::needs_equal_weights(const DeviceParts& parts, Step step) const {
  if (!rebuild_from_ || step < *rebuild_from_) return false;
  return std::ranges::any_of(parts.exchange.policies(), is_hosted, &PolicyProgress::kind);
}

bool DeviceOrders::ends_view(const DeviceParts& parts, Step step) const {
  return rebuild_from_ && step >= *rebuild_from_ && parts.exchange.is_consistent();
}

}  // namespace troupe::detail
