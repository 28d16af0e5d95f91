#include "transports/collectives/hierarchical_communicator.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/exchange/exchange.hpp"

namespace troupe {

/// A bucket's line on the node; raises it when this rank's share of a call is done.
struct HierarchicalCommunicator::BucketLine final : Waker {
  BucketLine(HierarchicalCommunicator& its_owner, TimelineId its_updated)
      : owner(its_owner), updated(owner.space_.timeline(its_updated)), join(owner.space_) {}
  void reached(Point, Status status) noexcept override {
    if (!status.ok()) return owner.end_node(status);
    updated.add(1);
  }

  HierarchicalCommunicator& owner;
  Timeline& updated;
  PointJoin join;
  std::uint64_t calls = 0;
};

namespace {

ArenaGroup plain_group(const NodeGroup& group) {
  ArenaGroup made{.rank = group.rank, .members = {}};
  for (const NodeMember& member : group.members) made.members.push_back(member.plain);
  return made;
}

}  // namespace

HierarchicalCommunicator::HierarchicalCommunicator(AddressSpace& space, Stream& node_stream, NodeGroup group,
                                                   std::vector<Counterparts> sets)
    : space_(space),
      node_stream_(node_stream),
      group_(std::move(group)),
      sets_(std::move(sets)),
      roles_(group_.between, group_.names, rank()),
      plain_(space, plain_group(group_)),
      agreed_(space) {
  TROUPE_CHECK(!sets_.empty() && group_.names.size() == group_.members.size(), Code::invalid, "rank ",
               group_.rank.value, " of a node has ", sets_.size(), " sets of counterparts, and ", group_.names.size(),
               " of ", group_.members.size(), " members have names");
  for (std::uint32_t b = 0; b < group_.buckets.size(); ++b)
    lines_.emplace_back(*this, TimelineId{group_.updated.arena, group_.updated.index + b});
}

HierarchicalCommunicator::~HierarchicalCommunicator() = default;

CommunicatorTraits HierarchicalCommunicator::traits() const noexcept {
  const auto takes_it = [](const Counterparts& set) { return set.communicator->traits().device_memory; };
  return {.rank_ordered = false, .in_place = true, .device_memory = std::all_of(sets_.begin(), sets_.end(), takes_it)};
}

/// Later work of the node's stream starts when every member's `line` has reached `value`.
void HierarchicalCommunicator::wait_for_node(TimelineId NodeMember::*line, std::uint64_t value) {
  for (std::uint32_t m = 0; m < group_.members.size(); ++m)
    if (Rank{m} != group_.rank) node_stream_.wait({group_.members[m].*line, value});
}

/// After this, the node's stream may read the bucket's gradients of all members.
void HierarchicalCommunicator::take_over(Stream& stream, const BucketWork& work) {
  TROUPE_CHECK(work.bucket.index < lines_.size() && work.bucket == group_.buckets[work.bucket.index], Code::invalid,
               "step ", work.step.value, ", bucket ", work.bucket.index, ": the group has no such bucket");
  node_stream_.about({work.step.value, work.bucket.index});
  // All members raise one line, so no member may be a call ahead of another.
  const BucketLine& line = lines_[work.bucket.index];
  node_stream_.wait({line.updated.id(), line.calls * group_.members.size()});
  stream.signal({own().handed, ++handed_});
  node_stream_.wait(stream.mark());
  wait_for_node(&NodeMember::handed, handed_);
}

/// The memory of all members that corresponds to `part` of this rank's gradients.
std::span<const Memory> HierarchicalCommunicator::of_members(const Memory& part) {
  const Memory& mine = own().plain.gradients;
  parts_.clear();
  for (const NodeMember& member : group_.members)
    parts_.push_back(slice(member.plain.gradients, part.offset - mine.offset, part.size_bytes));
  return parts_;
}

/// The point at which all parts of a call for the bucket are done; there may be none.
Point HierarchicalCommunicator::joined(std::uint32_t bucket) {
  if (points_.empty()) points_.push_back(node_stream_.mark());
  const Point all = lines_[bucket].join.join(points_);
  points_.clear();
  return all;
}

/// The point at which every member has done its share, so that the bucket's parameters are new.
Point HierarchicalCommunicator::done_with(std::uint32_t bucket) {
  BucketLine& line = lines_[bucket];
  const Point mine = joined(bucket);
  space_.timeline(mine.line).wake(mine.value, line);
  return {line.updated.id(), ++line.calls * group_.members.size()};
}

/// Adds up the members' sums; their counterparts' sums are added in the exchange between nodes.
void HierarchicalCommunicator::sum_up_node(Memory NodeMember::*sums) {
  parts_.clear();
  for (const NodeMember& member : group_.members) parts_.push_back(member.*sums);
  node_stream_.sum_up(group_.node_sums, parts_);
}

Point HierarchicalCommunicator::reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) {
  take_over(stream, work);
  if (work.first) {
    const Memory& shown = own().plain.sums;
    parts_.clear();
    for (const NodeMember& member : group_.members)
      parts_.push_back(slice(member.plain.sums, work.sums.offset - shown.offset, sizeof(StepSums)));
    node_stream_.sum_up(group_.node_sums, parts_);
  }
  for_each_range(sets_, work, rank(), [&](Counterparts& set, BucketWork& part) {
    part.sums = group_.node_sums;
    if (part.bucket.count > 0) node_stream_.reduce(part.gradients, of_members(part.gradients));
    points_.push_back(set.communicator->reduce_update_gather(node_stream_, part, rule));
  });
  return done_with(work.bucket.index);
}

/// Each rank's gradient is available only here, so here it is found whose gradient is not finite. Squares are added up
/// by the owners of the whole sum.
Point HierarchicalCommunicator::gather_gradients(Stream& stream, const BucketWork& work) {
  take_over(stream, work);
  if (work.first) node_stream_.clear(group_.found);
  for_each_range(sets_, work, rank(), [&](Counterparts& set, BucketWork& part) {
    if (part.bucket.count > 0)
      node_stream_.reduce(part.gradients, of_members(part.gradients),
                          {group_.found, part.bucket.first, group_.names, /*squares=*/false});
    points_.push_back(set.communicator->gather_gradients(node_stream_, part));
  });
  const Point all = joined(work.bucket.index);
  measured_.push_back(all);
  return all;
}

Point HierarchicalCommunicator::agree(Stream& stream, const BucketWork& work) {
  node_stream_.about({.step = work.step.value});
  node_stream_.wait(stream.mark());
  for (const Point& point : measured_) node_stream_.wait(point);
  measured_.clear();
  node_stream_.sum_up(own().verdict, std::array{work.sums, group_.found});
  node_stream_.signal({own().measured, ++verdicts_});
  wait_for_node(&NodeMember::measured, verdicts_);
  sum_up_node(&NodeMember::verdict);
  for (Counterparts& set : sets_) {
    BucketWork part = work;
    part.bucket = set.group.ranges_of(work.bucket.index).front();
    part.sums = group_.node_sums;
    points_.push_back(set.communicator->agree(node_stream_, part));
  }
  if (points_.empty()) points_.push_back(node_stream_.mark());
  const Point all = agreed_.join(points_);
  points_.clear();
  return all;
}

Point HierarchicalCommunicator::update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) {
  node_stream_.wait(stream.mark());
  for_each_range(sets_, work, rank(), [&](Counterparts& set, BucketWork& part) {
    points_.push_back(set.communicator->update_gather(node_stream_, part, rule));
  });
  return done_with(work.bucket.index);
}

void HierarchicalCommunicator::reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) {
  plain_.reduce_scatter(stream, roles_.within_node(parts));
  for (Counterparts& set : sets_) set.communicator->reduce_scatter(stream, roles_.between_nodes(set, parts));
}

void HierarchicalCommunicator::all_gather(Stream& stream, std::span<const OwnedPart> parts) {
  for (Counterparts& set : sets_) set.communicator->all_gather(stream, roles_.between_nodes(set, parts));
  plain_.all_gather(stream, roles_.within_node(parts));
}

void HierarchicalCommunicator::barrier(Stream& stream) {
  plain_.barrier(stream);
  for (Counterparts& set : sets_) set.communicator->barrier(stream);
  plain_.barrier(stream);
}

void HierarchicalCommunicator::abort(const Status& why) noexcept {
  for (const Counterparts& set : sets_) set.communicator->abort(why);
  end_node(why);
}

/// Poisons only the node's lines: may be called while a set's communicator reports its failure.
void HierarchicalCommunicator::end_node(const Status& why) noexcept {
  plain_.abort(why);
  for (const NodeMember& member : group_.members)
    for (const TimelineId line : {member.handed, member.measured}) space_.timeline(line).poison(why);
  for (const BucketLine& line : lines_) line.updated.poison(why);
}

}  // namespace troupe
