#include "apps/session/lane_resources.hpp"

#include <utility>

#include "runtime/lanes/lane_fence.hpp"

namespace troupe {

void drain(Blocking& blocking, Group& group, const LaneResources& lane_resources, Deadline deadline) {
  if (!lane_resources.channel) return;
  // The actions that send a round's last message run on the bulk lane. Therefore the channel is checked again after the
  // lane has run all earlier tasks.
  for (bool idle = false; !idle;) {
    idle = lane_resources.channel->is_idle();
    TROUPE_CHECK(pass(blocking, group.bulk(), deadline), Code::timeout,
                 "messages of a view's last steps to other ranks were not sent in time (faults.exchange_s)");
  }
}

void give_back(Blocking& blocking, Group& group, ViewRemains remains, Deadline deadline) {
  std::shared_ptr<LaneResources> lane_resources = std::move(remains.lane_resources);
  lane_resources->device->end_imports();  // no stream works any more
  try {
    group.all_gather(blocking, text("view ", remains.view.value, ": retired"), {}, deadline);
    if (lane_resources->channel) {
      DirectChannel::close(group.transport());
      for (LaneLoop* const lane : {&group.control(), &group.bulk()})
        TROUPE_CHECK(pass(blocking, *lane, deadline), Code::timeout,
                     "a lane has not left the exchange of a retired view in time (faults.start_s)");
    }
  } catch (const Error&) {
    group.keep(std::move(lane_resources));
    throw;
  }
  lane_resources.reset();
  for (const ArenaId arena : remains.arenas) (void)group.space().unmap(blocking, arena);
  group.space().clear_ended();
}

}  // namespace troupe
