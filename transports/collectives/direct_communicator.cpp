#include "transports/collectives/direct_communicator.hpp"

#include <algorithm>
#include <utility>

#include "transports/collectives/detail/call_submitter.hpp"
#include "transports/collectives/detail/direct_rounds.hpp"

namespace troupe {

DirectGroup between_nodes(const CounterpartGroup& group, Rank self, std::span<const std::vector<Rank>> nodes) {
  DirectGroup made;
  made.rank = self;
  made.stripes = group.stripes;
  made.buckets = group.ranges;
  made.names = group.ranks;
  made.ranges_a_bucket = group.ranges_a_bucket;
  for (const Rank rank : group.ranks) made.peers.push_back({rank.value});
  // A fault that no rank of the node has alone comes from their sum; the node's last rank stands for that.
  for (const std::vector<Rank>& node : nodes) made.blamed.push_back(node.back());
  return made;
}

std::uint64_t direct_staging_bytes(const DirectGroup& group) {
  const collectives::Ownership ownership(group.stripes, group.buckets, static_cast<std::uint32_t>(group.peers.size()),
                                         group.chunk);
  return collectives::Staging(ownership, group.rank.value, collectives::staging_needs(group)).size_bytes();
}

DirectCommunicator::DirectCommunicator(AddressSpace& space, LaneLoop& loop, Stream& exchange, DirectGroup group,
                                       DirectChannel* channel) {
  const GroupId id = group.id;
  rounds_ = std::make_unique<collectives::DirectRounds>(space, loop, exchange, std::move(group));
  submitter_ = std::make_unique<collectives::CallSubmitter>(space, rounds_->plan(), rounds_->calls());
  if (channel != nullptr) {
    channel->add(id, *rounds_);
  } else {
    loop.transport().receive(Channel::exchange, *rounds_);
  }
}

DirectCommunicator::~DirectCommunicator() = default;

CommunicatorTraits DirectCommunicator::traits() const noexcept {
  return {.device_memory = rounds_->plan().group().device_memory};
}

Rank DirectCommunicator::rank() const noexcept { return Rank{rounds_->plan().self()}; }

std::uint32_t DirectCommunicator::ranks() const noexcept { return rounds_->plan().ranks(); }

/// In as many rounds as necessary: one part of each rank at a time, and for reductions as much as the staging memory
/// takes.
void DirectCommunicator::plain(Stream& stream, collectives::PlainOperation operation,
                               std::span<const OwnedPart> parts) {
  if (rounds_->plan().ranks() == 1) return;
  const bool reduces = operation != collectives::PlainOperation::all_gather;
  std::vector<Memory> round(rounds_->plan().ranks());
  const auto enqueue = [&] {
    std::uint64_t longest = 0;
    for (const Memory& part : round) longest = std::max(longest, part.size_bytes);
    const std::uint64_t most =
        reduces || rounds_->plan().group().device_memory ? rounds_->plan().most_reduced() : longest;
    for (std::uint64_t first = 0; first < longest; first += most) {
      std::vector<Memory> pieces;
      for (const Memory& part : round) {
        const std::uint64_t begin = std::min(first, part.size_bytes);
        pieces.push_back(slice(part, begin, std::min(most, part.size_bytes - begin)));
      }
      plain_round(stream, operation, pieces);
    }
    std::fill(round.begin(), round.end(), Memory{});
  };
  for (const OwnedPart& part : parts) {
    TROUPE_CHECK(!reduces || part.data.size_bytes % sizeof(float) == 0, Code::invalid, part.data.size_bytes,
                 " bytes are no whole number of f32");
    Memory& place = round.at(part.owner.value);
    if (place.size_bytes != 0) enqueue();
    place = part.data;
  }
  enqueue();
}

/// One round; if memory is the device's, with copies of the pieces.
void DirectCommunicator::plain_round(Stream& stream, collectives::PlainOperation operation,
                                     std::span<const Memory> pieces) {
  if (!rounds_->plan().group().device_memory) return stream.wait(submitter_->plain(stream, operation, pieces));
  std::vector<Memory> copies;
  const bool gathers = operation == collectives::PlainOperation::all_gather;
  const bool scatters = operation == collectives::PlainOperation::reduce_scatter;
  for (std::uint32_t r = 0; r < pieces.size(); ++r) {
    copies.push_back(rounds_->plan().staging().plain(r, pieces[r].size_bytes));
    if (pieces[r].size_bytes > 0 && (!gathers || r == rounds_->plan().self())) stream.copy(copies[r], pieces[r]);
  }
  stream.wait(submitter_->plain(stream, operation, copies));
  for (std::uint32_t r = 0; r < pieces.size(); ++r) {
    if (pieces[r].size_bytes > 0 && (!scatters || r == rounds_->plan().self())) stream.copy(pieces[r], copies[r]);
  }
}

void DirectCommunicator::reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) {
  plain(stream, collectives::PlainOperation::reduce_scatter, parts);
}

void DirectCommunicator::all_gather(Stream& stream, std::span<const OwnedPart> parts) {
  plain(stream, collectives::PlainOperation::all_gather, parts);
}

void DirectCommunicator::all_reduce(Stream& stream, Memory data) {
  plain(stream, collectives::PlainOperation::all_reduce, equal_parts(data, rounds_->plan().ranks()));
}

void DirectCommunicator::barrier(Stream& stream) {
  if (rounds_->plan().ranks() == 1) return;
  const std::vector<Memory> nothing(rounds_->plan().ranks());
  stream.wait(submitter_->plain(stream, collectives::PlainOperation::barrier, nothing));
}

Point DirectCommunicator::reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) {
  return submitter_->update(stream, work, rule, work.only_part());
}

Point DirectCommunicator::gather_gradients(Stream& stream, const BucketWork& work) {
  return submitter_->gather(stream, work, work.only_part());
}

Point DirectCommunicator::agree(Stream& stream, const BucketWork& work) { return submitter_->agree(stream, work); }

Point DirectCommunicator::update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) {
  return submitter_->publish(stream, work, rule, work.only_part());
}

void DirectCommunicator::abort(const Status& why) noexcept { rounds_->failure().fail(why); }

}  // namespace troupe
