#include "transports/collectives/detail/round_sender.hpp"

#include <algorithm>

namespace troupe::collectives {

RoundSender::RoundSender(AddressSpace& space, LaneLoop& loop, const RoundPlan& plan, const GroupFailure& failure)
    : space_(space),
      loop_(loop),
      plan_(plan),
      failure_(failure),
      queue_(loop, plan.ranks(),
             [this](SendQueue::Message& message) { return try_send(static_cast<Delivery&>(message)); }) {
  Trace* const trace = plan.group().trace;
  for (std::uint32_t r = 0; trace != nullptr && r < plan.ranks(); ++r)
    links_.push_back({r != plan.self() ? &trace->row(text("to rank ", plan.name(r).value)) : nullptr, {}});
}

bool RoundSender::send(Flow& flow) {
  const auto is_due = [&](const Delivery& delivery) { return plan_.is_due(flow, delivery); };
  flow.left = static_cast<std::uint32_t>(std::count_if(flow.deliveries.begin(), flow.deliveries.end(), is_due));
  if (flow.left == 0) return false;
  for (Delivery& delivery : flow.deliveries) {
    if (!is_due(delivery)) continue;
    delivery.size_bytes = plan_.payload_of(delivery).size_bytes;
    queue_.add(delivery, urgency_of(flow));
  }
  return true;
}

/// The next step reads the buckets in the opposite order to that in which a backward pass finishes them.
Urgency RoundSender::urgency_of(const Flow& flow) const noexcept {
  const RoundShape& shape = flow.round.shape;
  return {.step = is_plain(shape) ? 0 : shape.step,
          .kind = flow.results ? 1U : 0U,
          .bucket = ~(shape.bucket / plan_.group().ranges_a_bucket)};
}

/// False: the transport has no space.
bool RoundSender::try_send(Delivery& delivery) {
  if (failure_.failed()) return true;  // no rank waits for it
  const DirectGroup& group = plan_.group();
  const Flow& flow = delivery.flow;
  DirectHead head;
  head.payload_kind = !flow.results   ? PayloadKind::contribution
                      : delivery.half ? PayloadKind::half_result
                                      : PayloadKind::result;
  head.view = group.view.value;
  head.rank = plan_.self();
  head.group = group.id;
  head.round = flow.round.shape;
  if (!flow.results && carries_sums(head.round))
    head.sums = *space_.address_of<const StepSums>(plan_.own_sums(flow.round.call));
  const Memory payload = plan_.payload_of(delivery);
  const std::span<const Memory> pieces{&payload, payload.size_bytes > 0 ? 1u : 0u};
  return loop_.transport().send(group.peers[delivery.to], Lane::bulk, Class::gradient, Channel::exchange, encode(head),
                                pieces, delivery);
}

bool RoundSender::sent(Delivery& delivery) {
  queue_.sent(delivery);
  if (!links_.empty()) note(delivery);
  return --delivery.flow.left == 0;
}

/// Messages to one rank are sent one after the other, so a message uses the link from the end of the previous one on.
void RoundSender::note(const Delivery& delivery) noexcept {
  Link& link = links_[delivery.to];
  const Clock::time_point begun = std::max(delivery.handed_over, link.sent);
  link.sent = Clock::now();
  const RoundShape& shape = delivery.flow.round.shape;
  const char* const phase = delivery.size_bytes == 0 ? "send sums"
                            : delivery.flow.results  ? "send parameters"
                                                     : "send gradients";
  link.row->span(is_plain(shape) ? "send" : phase, begun, link.sent, plan_.label_of(shape));
}

}  // namespace troupe::collectives
