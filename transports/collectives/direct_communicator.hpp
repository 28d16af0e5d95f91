#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/exchange/communicator.hpp"
#include "runtime/exchange/exchange_level.hpp"
#include "runtime/exchange/filters/filter.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "runtime/lanes/transport.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {
namespace collectives {
class CallerSide;  // not public, as the next
class DirectRounds;
enum class PlainOperation : std::uint8_t;
}  // namespace collectives

/// A group of ranks that exchange over a transport; the same in every one of them but for `rank` and the memory. They
/// may be some of a job's, and their buckets some ranges of a parameter group: then they count in the order of `peers`,
/// and are called what `names` says.
struct DirectGroup {
  ViewId view;
  Rank rank;                       // this one
  std::vector<Peer> peers;         // by rank
  std::vector<Stripe> stripes;     // each rank has at most one range of each bucket
  std::vector<Bucket> buckets;     // by index; a bucket may be empty
  Memory parameters;               // [group] f32, this rank's copy
  Memory bf16;                     // [group] bf16, where every rank has such an image; else empty
  Memory staging;                  // direct_staging_bytes() of host or pinned memory
  GroupId id{};                    // stands in every message
  std::uint64_t chunk = 0;         // the most elements that travel at once: chunk_elements(), or fewer
  const Filter* filter = nullptr;  // of gradients on their way, not of all_reduce; the same in every rank; outlives it
  Memory residual{};               // [group] f32, what the filter takes away of what this rank sends; empty: it is lost
  std::vector<Rank> names{};       // of the ranks, in the job; empty: as they stand here
  /// Whom a gradient that is not finite is laid to, by the rank that contributed it; empty: to that one. Of ranks that
  /// contribute for others, too, one that is not below those.
  std::vector<Rank> blamed{};
  /// Parameters, gradients and sums are the device's own memory, which no transport reaches: the stream copies what
  /// leaves into `staging`, and what has arrived from there.
  bool device_memory = false;
  Trace* trace = nullptr;             // null: nothing is noted; outlives it
  std::uint32_t ranges_a_bucket = 1;  // how many of `buckets`, one after the other, a backward pass finishes at once
};

/// The exchange channel of a transport, shared by the communicators of several groups. Outlives the transport, or is
/// closed.
class DirectChannel final : public Receiver {
 public:
  /// Messages of group `id` go to `rounds`, which outlive the transport, or close(). Before open().
  void add(GroupId id, collectives::DirectRounds& rounds);
  /// Becomes the receiver of the channel, before anybody sends to it.
  void open(Transport& transport);
  /// Whether all rounds of this rank are over, and the transport is done with what it sent in them. Any thread.
  bool is_idle() const noexcept;
  /// Nobody is the receiver of the channel any more: what comes is thrown away. Once every rank's end of the channel
  /// was idle, and both lanes have come by after that, the channel and its communicators may end before the transport.
  static void close(Transport& transport);

  Memory landing(Peer from, Lane lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept override;
  void arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept override;
  void dropped(Peer from, Lane lane, Memory payload, const Status& why) noexcept override;
  void lost(Peer peer, const Status& why) noexcept override;

 private:
  std::vector<collectives::DirectRounds*> by_group_;
};

/// A set of counterparts as a group of their own, of which this is rank `self`: everything but view, memory, filter, id
/// and chunk. `nodes[n]` are node n's ranks.
DirectGroup between_nodes(const CounterpartGroup& group, Rank self, std::span<const std::vector<Rank>> nodes);

/// What `group.staging` takes; reads rank, peers, stripes, buckets, chunk, filter, device_memory and, where that is
/// set, whether there is a bf16 image.
std::uint64_t direct_staging_bytes(const DirectGroup& group);

/// Collectives over any transport, each payload sent once and, in host memory, landing where it is used. Buckets travel
/// in chunks. Every rank sends every chunk's tenants its gradients over their parts; a tenant adds them up in rank
/// order, updates, and sends the new parameters to the others, straight into theirs. Handing a bucket over never waits:
/// chunks are worked on as they become complete, on a stream of the exchange's own. A head names view, call, step,
/// bucket and chunk: ranks that disagree get an error with both names. Losing a peer ends the waits with peer_lost.
class DirectCommunicator final : public Communicator {
 public:
  /// `loop` drives the bulk lane: this object becomes its exchange channel's receiver, or `channel`'s for its group.
  /// `exchange` is of the device, and nothing else enqueues on it but other communicators of this lane; it outlives the
  /// lane's last round. Peers may send at once, so none does before it is made, and the channel open, in every rank.
  /// Outlives loop and transport and the stream's work, as does `space`. Throws Error{invalid} when the group does not
  /// fit together.
  DirectCommunicator(AddressSpace& space, LaneLoop& loop, Stream& exchange, DirectGroup group,
                     DirectChannel* channel = nullptr);
  ~DirectCommunicator() override;

  CommunicatorTraits traits() const noexcept override;
  Rank rank() const noexcept override;
  std::uint32_t ranks() const noexcept override;
  // Of any size, in rounds of as much as the staging takes.
  void reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) override;
  void all_gather(Stream& stream, std::span<const OwnedPart> parts) override;
  void barrier(Stream& stream) override;
  void all_reduce(Stream& stream, Memory data) override;
  Point reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                             std::span<const StripeMemory> mine) override;
  Point gather_gradients(Stream& stream, const BucketWork& work, std::span<const StripeMemory> mine) override;
  Point agree(Stream& stream, const BucketWork& work) override;
  Point update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                      std::span<const StripeMemory> mine) override;
  void abort(const Status& why) noexcept override;

 private:
  void plain(Stream& stream, collectives::PlainOperation operation, std::span<const OwnedPart> parts);
  void plain_round(Stream& stream, collectives::PlainOperation operation, std::span<const Memory> pieces);

  std::unique_ptr<collectives::DirectRounds> rounds_;
  std::unique_ptr<collectives::CallerSide> caller_;
};

}  // namespace troupe
