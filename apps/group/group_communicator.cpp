#include "apps/group/group_communicator.hpp"

#include <cstdint>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/memory/arena.hpp"
#include "runtime/model/layout.hpp"
#include "transports/collectives/arena_communicator.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe {
namespace {

/// How many f32 of all ranks together are summed at once; longer data take several rounds.
constexpr std::uint64_t kRoundElements = 256 << 10;

Memory host_memory(AddressSpace& space, Peer self, std::uint64_t size_bytes) {
  return space.make_arena(space.new_arena(self), size_bytes)->allocate(size_bytes);
}

/// Plain operations need no parameters; a group of ranks has some all the same.
std::unique_ptr<Communicator> over_transport(Group& group, const Device& device, Stream& exchange) {
  AddressSpace& space = group.space();
  const bool is_far = device.traits().memory == MemoryKind::device;
  DirectGroup ranks{.view = ViewId{group.next_number()},
                    .rank = Rank{group.self().value},
                    .peers = {},
                    .stripes = equal_stripes(GroupId{}, kRoundElements, group.size()),
                    .buckets = {Bucket{.group = GroupId{}, .count = kRoundElements}},
                    .parameters = host_memory(space, group.self(), kRoundElements * sizeof(float)),
                    .half = {},
                    .staging = {},
                    .chunk = kRoundElements,
                    .device_memory = is_far,
                    .sends_device_memory = is_far && group.transport().sends_from(MemoryKind::device)};
  for (std::uint32_t peer = 0; peer < group.size(); ++peer) ranks.peers.push_back({peer});
  ranks.staging = host_memory(space, group.self(), direct_staging_bytes(ranks));
  return std::make_unique<DirectCommunicator>(space, group.bulk(), exchange, std::move(ranks));
}

/// Of a process alone, whose group has no transport.
std::unique_ptr<Communicator> alone(Group& group) {
  constexpr std::uint64_t kScratchBytes = 64 << 10;
  AddressSpace& space = group.space();
  const auto arena = space.make_arena(space.new_arena(group.self()), kScratchBytes + Arena::kPageBytes);
  return std::make_unique<ArenaCommunicator>(space,
                                             ArenaGroup{.rank = {},
                                                        .members = {{.gradients = {},
                                                                     .sums = {},
                                                                     .ready = arena->make_timeline(),
                                                                     .published = arena->make_timeline(),
                                                                     .scratch = arena->allocate(kScratchBytes)}}});
}

}  // namespace

/// The lanes' threads use all of it.
struct GroupCommunicator::Parts {
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Stream> exchange;  // the bulk lane enqueues on it
  std::unique_ptr<Stream> stream;

  Parts(Group& group, std::unique_ptr<Device> given)
      : device(std::move(given)), exchange(device->stream()), stream(device->stream()) {
    communicator = group.size() == 1 ? alone(group) : over_transport(group, *device, *exchange);
  }
};

GroupCommunicator::GroupCommunicator(Blocking& blocking, Group& group, std::unique_ptr<Device> device,
                                     Deadline deadline)
    : group_(group),
      parts_(std::make_shared<Parts>(group, std::move(device))),
      losses_(group.listen([parts = parts_](Peer, const Status& why) { parts->communicator->abort(why); })) {
  group.keep(parts_);
  // No process may send before all can receive.
  group.all_gather(blocking, "a communicator for each process", {}, deadline);
}

GroupCommunicator::~GroupCommunicator() = default;

Communicator& GroupCommunicator::communicator() const noexcept { return *parts_->communicator; }

Stream& GroupCommunicator::stream() const noexcept { return *parts_->stream; }

Device& GroupCommunicator::device() const noexcept { return *parts_->device; }

void GroupCommunicator::finish(Blocking& blocking, Deadline deadline) {
  const Point done = parts_->stream->mark();
  const Status status =
      group_.space().timeline(done.line).wait(blocking, done.value, deadline, "collectives of a group");
  TROUPE_CHECK(status.ok(), status.code(), status.text());
}

}  // namespace troupe
