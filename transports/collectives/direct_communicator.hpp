#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/exchange/communicator.hpp"
#include "runtime/exchange/compression/compressor.hpp"
#include "runtime/exchange/exchange_level.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "runtime/lanes/transport.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {
namespace collectives {
class CallSubmitter;  // not public, nor is the next one
class DirectRounds;
enum class PlainOperation : std::uint8_t;
}  // namespace collectives

/// A group of ranks that exchange over a transport; the same at all of them, except `rank` and the memory. They may be
/// some of a job's ranks, with some ranges of a parameter group as their buckets: then they are numbered in the order
/// of `peers`, and `names` has their numbers in the job.
struct DirectGroup {
  ViewId view;
  Rank rank;                               // this rank
  std::vector<Peer> peers;                 // by rank
  std::vector<Stripe> stripes;             // each rank has at most one range of each bucket
  std::vector<Bucket> buckets;             // by index; a bucket may be empty
  Memory parameters;                       // [group] f32, this rank's copy
  Memory half;                             // [group] bf16, if every rank has such an image; otherwise empty
  Memory staging;                          // direct_staging_bytes() of host or pinned memory
  GroupId id{};                            // part of every message
  std::uint64_t chunk = 0;                 // the most elements that are sent at once: chunk_elements(), or fewer
  const Compressor* compressor = nullptr;  // for gradients that are sent, not for all_reduce; the same at every rank
  Memory residual{};          // [group] f32, what the compressor removes from what this rank sends; empty: it is lost
  std::vector<Rank> names{};  // the ranks' numbers in the job; empty: those of the group
  /// The rank to blame for a gradient that is not finite, by the rank that contributed it; empty: that rank. For a rank
  /// that contributes for others, too: one that is not lower than those.
  std::vector<Rank> blamed{};
  /// Parameters, gradients and sums are in the device's own memory, which no transport can access: the stream copies
  /// what is sent to `staging`, and what has arrived from there.
  bool device_memory = false;
  /// With `device_memory`: the transport sends from it (Transport::sends_from), so only what arrives is staged, and
  /// what a filter has packed.
  bool sends_device_memory = false;
  Trace* trace = nullptr;             // null: nothing is traced; outlives the group
  std::uint32_t ranges_a_bucket = 1;  // how many consecutive `buckets` a backward pass finishes at once
};

/// The exchange channel of a transport, shared by the communicators of several groups. It must outlive the transport,
/// or be closed.
class DirectChannel final : public Receiver {
 public:
  /// Messages of group `id` go to `rounds`, which outlive the transport, or close(). Before open().
  void add(GroupId id, collectives::DirectRounds& rounds);
  /// Becomes the receiver of the channel, before any rank sends to it.
  void open(Transport& transport);
  /// Whether all rounds of this rank are over, and the transport has sent their messages. Any thread.
  bool is_idle() const noexcept;
  /// From now on messages on the channel are dropped. If every rank's end of the channel was idle, and afterwards both
  /// lanes have run a task, the channel and its communicators may be destroyed before the transport.
  static void close(Transport& transport);

  Memory landing(Peer from, Lane lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept override;
  void arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept override;
  void dropped(Peer from, Lane lane, Memory payload, const Status& why) noexcept override;
  void lost(Peer peer, const Status& why) noexcept override;

 private:
  std::vector<collectives::DirectRounds*> by_group_;
};

/// A set of counterparts as a group of its own, in which this is rank `self`: everything except view, memory,
/// compressor, id and chunk. `nodes[n]` are the ranks of node n.
DirectGroup between_nodes(const CounterpartGroup& group, Rank self, std::span<const std::vector<Rank>> nodes);

/// The size of `group.staging`; reads rank, peers, stripes, buckets, chunk, compressor, device_memory and, if that is
/// set, sends_device_memory and whether there is a copy in half precision.
std::uint64_t direct_staging_bytes(const DirectGroup& group);

/// Collectives over any transport. Each payload is sent once and, in host memory, received where it is used. Buckets
/// are sent in chunks. Every rank sends its gradients over each part of a chunk to the part's owner. The owner adds
/// them up in rank order, updates, and sends the new parameters directly into the others' parameters. Passing a bucket
/// to the exchange never waits: chunks are processed as they become complete, on a separate stream. A head names view,
/// call, step, bucket and chunk: if ranks disagree, they get an error with both. If a peer is lost, the waits end with
/// peer_lost.
class DirectCommunicator final : public Communicator {
 public:
  /// `loop` drives the bulk lane: this object becomes the receiver of its exchange channel, or of its group in
  /// `channel`. `exchange` belongs to the device; only communicators of this lane enqueue on it, and it outlives the
  /// lane's last round. Peers may send at once, so no rank may send before this object exists, and the channel is open,
  /// at every rank. Outlives loop, transport and the stream's work, as does `space`. Throws Error{invalid} if the
  /// group's parts do not match.
  DirectCommunicator(AddressSpace& space, LaneLoop& loop, Stream& exchange, DirectGroup group,
                     DirectChannel* channel = nullptr);
  ~DirectCommunicator() override;

  CommunicatorTraits traits() const noexcept override;
  Rank rank() const noexcept override;
  std::uint32_t ranks() const noexcept override;
  // Of any size, in rounds of as much as the staging memory takes.
  void reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) override;
  void all_gather(Stream& stream, std::span<const OwnedPart> parts) override;
  void barrier(Stream& stream) override;
  void all_reduce(Stream& stream, Memory data) override;
  Point reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) override;
  Point gather_gradients(Stream& stream, const BucketWork& work) override;
  Point agree(Stream& stream, const BucketWork& work) override;
  Point update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) override;
  void abort(const Status& why) noexcept override;

 private:
  void plain(Stream& stream, collectives::PlainOperation operation, std::span<const OwnedPart> parts);
  void plain_round(Stream& stream, collectives::PlainOperation operation, std::span<const Memory> pieces);

  std::unique_ptr<collectives::DirectRounds> rounds_;
  std::unique_ptr<collectives::CallSubmitter> submitter_;
};

}  // namespace troupe
