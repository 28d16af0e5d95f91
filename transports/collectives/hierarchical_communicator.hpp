#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "runtime/compute/point_join.hpp"
#include "runtime/exchange/exchange_level.hpp"
#include "transports/collectives/arena_communicator.hpp"

namespace troupe {

/// What one rank of a node shows to the node's others.
struct NodeMember {
  ArenaMember plain;    // what plain operations use, with lines of their own
  TimelineId handed;    // raised when a bucket's gradients can be read; the rank's own stream signals it
  TimelineId measured;  // raised when `verdict` can be read
  Memory verdict;       // a StepSums: the rank's, and what was measured, of a step with a verdict
};

/// The ranks of one node within a group that is exchanged on two levels; the same in every one of them but for `rank`
/// and the last three.
struct NodeGroup {
  Rank rank;                        // this one's place in `members`
  std::vector<NodeMember> members;  // in rank order
  std::vector<Rank> names;          // the members' ranks in the job
  std::vector<Bucket> buckets;      // by index
  TimelineId updated;               // the first of as many lines as there are buckets, which members count up
  ExchangeLevel between;            // the job's sets of counterparts
  Memory node_sums, found;          // a StepSums each: of the node, and what this rank's look for faults found
};

/// A set of counterparts to which this rank belongs.
struct Counterparts {
  std::size_t set = 0;  // its place in NodeGroup::between
  CounterpartGroup group;
  std::unique_ptr<Communicator> communicator;  // of its ranges and stripes
};

/// Collectives of ranks on several nodes: those of a node reduce where their gradients lie, each exchanges its share of
/// that with its counterparts on the other nodes, and the parameters that come of it lie in the node's one copy, which
/// all its ranks read. So each sum crosses between two nodes once, however many ranks they have. Sums are added up in
/// rank order within a node, and these in the order of nodes.
///
/// Handing a bucket over never waits: a stream of its own waits for the node's other ranks, reduces, and hands on. Each
/// bucket has a line on the node that every member counts up when its share is done; the new parameters are valid when
/// all have.
class HierarchicalCommunicator final : public Communicator {
 public:
  /// The lines are fresh. `node_stream` is of the device and nothing else's; both streams of the sets' communicators
  /// and this one, and `space`, outlive it, and it outlives what is enqueued. Throws Error{invalid} when the members do
  /// not fit together.
  HierarchicalCommunicator(AddressSpace& space, Stream& node_stream, NodeGroup group, std::vector<Counterparts> sets);
  ~HierarchicalCommunicator() override;

  CommunicatorTraits traits() const noexcept override;
  Rank rank() const noexcept override { return group_.names[group_.rank.value]; }
  std::uint32_t ranks() const noexcept override { return ranks_; }
  // Of any size, as the arena's and the transport's.
  void reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) override;
  void all_gather(Stream& stream, std::span<const OwnedPart> parts) override;
  void barrier(Stream& stream) override;
  Point reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                             std::span<const StripeMemory> mine) override;
  Point gather_gradients(Stream& stream, const BucketWork& work, std::span<const StripeMemory> mine) override;
  Point agree(Stream& stream, const BucketWork& work) override;
  Point update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule,
                      std::span<const StripeMemory> mine) override;
  void abort(const Status& why) noexcept override;

 private:
  struct BucketLine;
  const NodeMember& own() const noexcept { return group_.members[group_.rank.value]; }
  void end_node(const Status& why) noexcept;
  void wait_for_node(TimelineId NodeMember::*line, std::uint64_t value);
  void take_over(Stream& stream, const BucketWork& work);
  void sum_up_node(Memory NodeMember::*sums);
  std::span<const Memory> of_members(const Memory& part);
  template <class What>
  void for_each_range(const BucketWork& work, What&& what);
  Point joined(std::uint32_t bucket);
  Point done_with(std::uint32_t bucket);
  std::vector<OwnedPart> within_node(std::span<const OwnedPart> parts) const;
  std::vector<OwnedPart> between_nodes(const Counterparts& set, std::span<const OwnedPart> parts) const;

  AddressSpace& space_;
  Stream& node_stream_;
  const NodeGroup group_;
  std::vector<Counterparts> sets_;
  ArenaCommunicator plain_;
  PointJoin agreed_;  // of the sets, on each verdict
  std::uint32_t ranks_ = 0;
  std::vector<std::size_t> homes_;    // by rank of the job: its home set
  std::vector<std::uint32_t> hosts_;  // by set: who of this node belongs to it
  std::vector<std::uint32_t> nodes_;  // by rank of the job
  std::deque<BucketLine> lines_;      // by bucket
  std::uint64_t handed_ = 0;
  std::uint64_t verdicts_ = 0;
  std::vector<Point> measured_;  // of the verdict to come
  std::vector<Point> points_;    // of the call under way
  std::vector<Memory> parts_;    // reused
};

}  // namespace troupe
