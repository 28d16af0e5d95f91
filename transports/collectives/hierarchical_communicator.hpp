#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "runtime/compute/point_join.hpp"
#include "runtime/exchange/exchange_level.hpp"
#include "transports/collectives/arena_communicator.hpp"
#include "transports/collectives/counterparts.hpp"

namespace troupe {

/// What one rank of a node shows to the node's other ranks.
struct NodeMember {
  ArenaMember plain;    // for plain operations, with their own lines
  TimelineId handed;    // raised when a bucket's gradients can be read; signalled by the rank's own stream
  TimelineId measured;  // raised when `verdict` can be read
  Memory verdict;       // a StepSums: the rank's own, with what was measured, of a step with a verdict
};

/// The ranks of one node within a group that is exchanged on two levels; the same at all of them, except `rank` and the
/// last three.
struct NodeGroup {
  Rank rank;                        // this rank's index in `members`
  std::vector<NodeMember> members;  // in rank order
  std::vector<Rank> names;          // the members' numbers in the job
  std::vector<Bucket> buckets;      // by index
  TimelineId updated;               // the first of a line for each bucket, which all members raise
  ExchangeLevel between;            // the job's sets of counterparts
  Memory node_sums, found;          // a StepSums each: the node's, and the faults that this rank found
};

/// Collectives of ranks on several nodes. The ranks of a node reduce their gradients in place; each exchanges its share
/// of the sum with its counterparts on the other nodes, and the resulting parameters are in the node's one copy, which
/// all its ranks read. So each sum is sent between two nodes once, however many ranks they have. Values are added in
/// rank order within a node, and the nodes' sums in the order of nodes.
///
/// Passing a bucket to the exchange never waits: a separate stream waits for the node's other ranks, reduces, and
/// passes the sum on. Each bucket has a line on the node that every member raises when its share is done; the new
/// parameters are valid when all have.
class HierarchicalCommunicator final : public Communicator {
 public:
  /// The lines must be at 0. `node_stream` belongs to the device and is used only here; both this stream and those of
  /// the sets' communicators, and `space`, outlive it, and it outlives what it has enqueued. Throws Error{invalid} if
  /// the members do not match.
  HierarchicalCommunicator(AddressSpace& space, Stream& node_stream, NodeGroup group, std::vector<Counterparts> sets);
  ~HierarchicalCommunicator() override;

  CommunicatorTraits traits() const noexcept override;
  Rank rank() const noexcept override { return group_.names[group_.rank.value]; }
  std::uint32_t ranks() const noexcept override { return roles_.ranks(); }
  // Of any size, as in the arena's and the transport's communicators.
  void reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) override;
  void all_gather(Stream& stream, std::span<const OwnedPart> parts) override;
  void barrier(Stream& stream) override;
  Point reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) override;
  Point gather_gradients(Stream& stream, const BucketWork& work) override;
  Point agree(Stream& stream, const BucketWork& work) override;
  Point update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) override;
  void abort(const Status& why) noexcept override;

 private:
  struct BucketLine;
  const NodeMember& own() const noexcept { return group_.members[group_.rank.value]; }
  void end_node(const Status& why) noexcept;
  void wait_for_node(TimelineId NodeMember::*line, std::uint64_t value);
  void take_over(Stream& stream, const BucketWork& work);
  void sum_up_node(Memory NodeMember::*sums);
  std::span<const Memory> of_members(const Memory& part);
  Point joined(std::uint32_t bucket);
  Point done_with(std::uint32_t bucket);

  AddressSpace& space_;
  Stream& node_stream_;
  const NodeGroup group_;
  std::vector<Counterparts> sets_;
  const NodeRoles roles_;
  ArenaCommunicator plain_;
  PointJoin agreed_;              // of the sets, for each verdict
  std::deque<BucketLine> lines_;  // by bucket
  std::uint64_t handed_ = 0;
  std::uint64_t verdicts_ = 0;
  std::vector<Point> measured_;  // for the next verdict
  std::vector<Point> points_;    // of the present call
  std::vector<Memory> parts_;    // memory that is reused
};

}  // namespace troupe
