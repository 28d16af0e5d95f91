#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "runtime/compute/point_join.hpp"
#include "transports/collectives/counterparts.hpp"

namespace troupe {

/// A rank of several nodes whose ranks have a copy of the parameters each; the same at all of them, except `rank`,
/// `members` and what follows `between`.
struct NestedGroup {
  Rank rank;                  // this rank's number in the job
  std::vector<Rank> members;  // of its node: their numbers in the job, by their numbers within the node
  std::vector<Stripe> stripes;
  std::vector<Bucket> buckets;       // by index
  ExchangeLevel between;             // the job's sets of counterparts
  Memory parameters;                 // [group] f32, this rank's copy
  Memory half{};                     // [group] bf16 or f16; empty: there is no such image
  DType copy_type = DType::bf16;     // of it
  TimelineId updated;                // in this rank's arena, at 0, used for nothing else
  Memory node_sums, found, verdict;  // a StepSums each: the node's, the faults that this rank found, and its own with
                                     // them
};

/// Collectives of ranks on several nodes out of other ones: a communicator of the node's ranks, such as NCCL's, adds up
/// each member's share of a bucket there; the member exchanges the sum with its counterparts on the other nodes, which
/// update; the communicator of the node gives the new parameters to all its ranks. So each sum is sent between two
/// nodes once, however many ranks they have. Values are added in the order of the node's communicator, and the nodes'
/// sums in the order of nodes.
///
/// Passing a bucket to the exchange never waits: all of this is enqueued on a separate stream. There the parameters of
/// a bucket are given to the node's ranks only behind the sums of the next buckets, so that the exchange between nodes
/// always has some at work. A round passes each bucket of the group once; those that are still behind are given out
/// when the last one is passed, so a point may be reached only then.
class NestedCommunicator final : public Communicator {
 public:
  /// `within`: of the members, for plain operations and agree() alone. `node_stream` belongs to the device and is used
  /// only by communicators of this kind, whose calls have the same order at all ranks of the node. It, the streams of
  /// the other communicators and `space` outlive this object's last call; this object outlives the work on
  /// `node_stream`. Throws Error{invalid} if the parts do not match.
  NestedCommunicator(AddressSpace& space, Stream& node_stream, NestedGroup group, std::unique_ptr<Communicator> within,
                     std::vector<Counterparts> sets);
  ~NestedCommunicator() override;

  CommunicatorTraits traits() const noexcept override;
  Rank rank() const noexcept override { return group_.rank; }
  std::uint32_t ranks() const noexcept override { return roles_.ranks(); }
  void reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) override;
  void all_gather(Stream& stream, std::span<const OwnedPart> parts) override;
  void barrier(Stream& stream) override;
  Point reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) override;
  Point gather_gradients(Stream& stream, const BucketWork& work) override;
  Point agree(Stream& stream, const BucketWork& work) override;
  Point update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) override;
  void abort(const Status& why) noexcept override;

 private:
  struct Failure;
  /// A bucket whose new parameters the node's other ranks do not have yet.
  struct Behind {
    WorkLabel label;
    std::vector<Point> exchanged;
  };
  void end_node(const Status& why) noexcept;
  void take_over(Stream& stream, const BucketWork& work);
  void sum_up_node(const BucketWork& work, const Memory& sums);
  std::vector<OwnedPart> shares(std::uint32_t bucket, const Memory& of_bucket) const;
  Point joined(std::vector<Point> points);
  Point give_out_later(const BucketWork& work, std::vector<Point> exchanged);
  void give_out(const Behind& next);
  void give_out_all();
  template <class Operation>
  void on_node(Stream& stream, Operation&& operation);

  AddressSpace& space_;
  Stream& node_stream_;
  const NestedGroup group_;
  const std::unique_ptr<Communicator> within_;
  std::vector<Counterparts> sets_;
  const NodeRoles roles_;
  Timeline& updated_;
  PointJoin join_;
  const std::unique_ptr<Failure> failure_;
  std::vector<std::vector<Stripe>> shares_;  // by bucket: its parts; the owner is the index of a member
  std::deque<Behind> behind_;
  std::size_t passed_ = 0;  // buckets of the present round
  std::uint64_t calls_ = 0, given_out_ = 0;
  std::vector<Point> measured_;  // for the next verdict
};

}  // namespace troupe
