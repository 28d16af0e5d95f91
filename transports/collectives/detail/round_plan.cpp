#include "transports/collectives/detail/round_plan.hpp"

#include <algorithm>
#include <utility>

namespace troupe::collectives {
namespace {

DirectGroup with_names(DirectGroup group) {
  for (std::uint32_t r = 0; group.names.size() < group.peers.size(); ++r) group.names.push_back({r});
  if (group.blamed.empty()) group.blamed = group.names;
  return group;
}

}  // namespace

bool is_plain(const RoundShape& shape) noexcept { return shape.plain != PlainOperation::none; }

bool reduces(const RoundShape& shape) noexcept {
  return shape.plain == PlainOperation::all_reduce || shape.plain == PlainOperation::reduce_scatter;
}

bool spreads(const RoundShape& shape) noexcept {
  return shape.plain == PlainOperation::all_reduce || shape.plain == PlainOperation::all_gather;
}

bool carries_gradients(const RoundShape& shape) noexcept {
  return shape.part == RoundPart::all || shape.part == RoundPart::gradients;
}

bool carries_parameters(const RoundShape& shape) noexcept {
  return shape.part == RoundPart::all || shape.part == RoundPart::parameters;
}

StagingNeeds staging_needs(const DirectGroup& group) noexcept {
  return {.packed_bytes = group.compressor != nullptr ? group.compressor->packed_bytes() : 0,
          .device_memory = group.device_memory,
          .sends_staged = group.device_memory && !group.sends_device_memory,
          .half = group.half.size_bytes > 0};
}

bool carries_sums(const RoundShape& shape) noexcept {
  return !is_plain(shape) && (shape.part == RoundPart::all || shape.part == RoundPart::sums);
}

RoundPlan::RoundPlan(AddressSpace& space, DirectGroup group)
    : group_(with_names(std::move(group))),
      self_(group_.rank.value),
      ownership_(group_.stripes, group_.buckets, static_cast<std::uint32_t>(group_.peers.size()), group_.chunk),
      staging_(ownership_, self_, staging_needs(group_)) {
  check(space);
  staging_.place(group_.staging);
}

void RoundPlan::check(AddressSpace& space) const {
  TROUPE_CHECK(self_ < ranks() && !group_.buckets.empty(), Code::invalid, "rank ", self_, " of ", ranks(), " with ",
               group_.buckets.size(), " buckets");
  TROUPE_CHECK(group_.id.value <= kLargestGroup, Code::unsupported, "group ", group_.id.value,
               " has a number that messages have no room for; the largest is ", kLargestGroup);
  std::uint64_t end = 0;
  for (const Bucket& bucket : group_.buckets) end = std::max(end, bucket.first + bucket.count);
  TROUPE_CHECK(group_.parameters.size_bytes >= end * sizeof(float) &&
                   (group_.half.size_bytes == 0 || group_.half.size_bytes * 2 == group_.parameters.size_bytes),
               Code::invalid, end, " elements are exchanged, the memory is of ", group_.parameters.size_bytes,
               " bytes of parameters and ", group_.half.size_bytes, " of their copy in half precision");
  TROUPE_CHECK(group_.residual.size_bytes == 0 ||
                   (group_.compressor != nullptr && group_.residual.size_bytes == group_.parameters.size_bytes),
               Code::invalid, "a residual of ", group_.residual.size_bytes, " bytes for ", group_.parameters.size_bytes,
               " of parameters, ", group_.compressor != nullptr ? "which are packed" : "of which nothing is packed");
  TROUPE_CHECK(group_.staging.size_bytes >= staging_.size_bytes(), Code::invalid, "the staging memory has ",
               group_.staging.size_bytes, " bytes, ", staging_.size_bytes(), " are needed");
  for (const Memory& memory : {group_.parameters, group_.half, group_.residual, group_.staging}) {
    if (memory.size_bytes == 0) continue;
    (void)space.address(memory);  // throws if it is not mapped here
    const bool passes = group_.device_memory && memory != group_.staging;
    TROUPE_CHECK(passes || space.kind(memory.arena) != MemoryKind::device, Code::invalid,
                 "a transport reaches no device memory: DirectGroup::device_memory must say that what travels is "
                 "staged, and the staging memory must be the host's");
  }
}

const Chunk& RoundPlan::chunk_of(const RoundShape& shape) const noexcept {
  return ownership_.chunks_of(shape.bucket)[shape.chunk];
}

ElementRange RoundPlan::part_of(const RoundShape& shape, std::uint32_t rank) const {
  if (shape.part == RoundPart::sums) return {};
  return ownership_.part_of(chunk_of(shape), rank);
}

bool RoundPlan::owns(const Round& round, std::uint32_t rank) const {
  if (is_plain(round.shape)) return round.call.parts[rank].size_bytes > 0;
  return part_of(round.shape, rank).count > 0;
}

bool RoundPlan::has_result(const Round& round, std::uint32_t rank) const {
  return (is_plain(round.shape) || carries_parameters(round.shape)) && owns(round, rank);
}

bool RoundPlan::contributes_to(const Round& round, std::uint32_t rank) const {
  return round.shape.plain == PlainOperation::barrier || round.shape.sums || owns(round, rank);
}

bool RoundPlan::is_compressed(const RoundShape& shape) const noexcept {
  return group_.compressor != nullptr && ranks() > 1 && !is_plain(shape) && carries_gradients(shape);
}

bool RoundPlan::is_staged(const RoundShape& shape) const noexcept {
  return ranks() > 1 && (group_.compressor != nullptr || stages_what_is_sent()) && !is_plain(shape) &&
         carries_gradients(shape);
}

bool RoundPlan::stages_what_is_sent() const noexcept { return group_.device_memory && !group_.sends_device_memory; }

Memory RoundPlan::own_sums(const CollectiveCall& call) const noexcept {
  if (!group_.device_memory) return call.work.sums;
  const Round& first = call.rounds.front();
  return staging_.sums(first.channel, first.shape.sequence, self_);
}

RoundWindow::Expected RoundPlan::expected(const Round& round) const {
  RoundWindow::Expected all;
  if (contributes_to(round, self_)) all.contributions = ranks() - 1;
  const bool plain = is_plain(round.shape);
  const std::uint32_t each = !plain && group_.half.size_bytes > 0 ? 2 : 1;
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    if (r != self_ && has_result(round, r)) all.results += each;
  }
  all.own_work = has_own_work(round);
  // The results of an update are in the parameters. Only the chunk's next update overwrites them, and it waits until
  // they are sent. The results of a plain operation belong to the caller as soon as the round is over.
  all.own_results_first = plain && has_result(round, self_);
  return all;
}

std::size_t RoundPlan::channel_of(const RoundShape& shape) const noexcept {
  if (is_plain(shape)) return staging_.channel_of_plain();
  if (shape.part == RoundPart::sums) return staging_.channel_of_sums();
  return ownership_.first_chunk(shape.bucket) + shape.chunk;
}

Memory RoundPlan::residual_of(const Bucket& bucket) const noexcept {
  if (group_.residual.size_bytes == 0) return {};
  return elements(group_.residual, bucket.first, bucket.count, sizeof(float));
}

Memory RoundPlan::packed(std::uint32_t bucket, std::uint32_t rank, const ElementRange& own) const noexcept {
  if (rank != self_) return staging_.contribution(bucket, rank, own);
  return group_.residual.size_bytes != 0 ? staging_.leaving(bucket, own) : Memory{};
}

WorkLabel RoundPlan::label_of(const RoundShape& shape) const noexcept {
  if (is_plain(shape)) return {};
  return {shape.step, shape.bucket / group_.ranges_a_bucket};
}

Memory RoundPlan::payload_of(const Delivery& delivery) const {
  const Flow& flow = delivery.flow;
  const RoundShape& shape = flow.round.shape;
  const CollectiveCall& call = flow.round.call;
  const std::uint32_t owner = flow.results ? self_ : delivery.to;
  if (is_plain(shape)) return (flow.results ? spreads(shape) : reduces(shape)) ? call.parts[owner] : Memory{};
  const ElementRange part = part_of(shape, owner);
  if (part.count == 0) return {};
  if (stages_what_is_sent() && flow.results) return delivery.half ? staging_.image(part) : staging_.results(part);
  if (delivery.half) return elements(group_.half, part.first, part.count, kHalfBytes);
  if (flow.results) return elements(group_.parameters, part.first, part.count, sizeof(float));
  if (!carries_gradients(shape)) return {};
  if (is_staged(shape)) return staging_.leaving(shape.bucket, part);
  return elements(call.data, part.first - group_.buckets[shape.bucket].first, part.count, sizeof(float));
}

bool RoundPlan::is_due(const Flow& flow, const Delivery& delivery) const {
  if (!flow.results) return contributes_to(flow.round, delivery.to);
  return !delivery.half || (!is_plain(flow.round.shape) && group_.half.size_bytes > 0);
}

bool RoundPlan::is_known(const RoundShape& shape) const {
  if (is_plain(shape)) return !shape.sums && shape.part == RoundPart::all;
  if (shape.bucket >= group_.buckets.size()) return false;
  if (shape.part == RoundPart::sums) return shape.sums && shape.chunk == 0 && shape.elements == 0;
  return shape.chunk < ownership_.chunks_of(shape.bucket).size() && shape.elements == chunk_of(shape).count &&
         (!shape.sums || shape.part == RoundPart::all);
}

bool RoundPlan::is_due(const DirectHead& head, const Round* own) const {
  const RoundShape& shape = head.round;
  const bool contributes = head.payload_kind == PayloadKind::contribution;
  if (is_plain(shape)) {
    if (own == nullptr) return head.payload_kind != PayloadKind::half_result;
    return contributes ? contributes_to(*own, self_)
                       : has_result(*own, head.rank) && head.payload_kind == PayloadKind::result;
  }
  if (contributes) return shape.sums || part_of(shape, self_).count > 0;
  const bool image = group_.half.size_bytes > 0;
  return carries_parameters(shape) && part_of(shape, head.rank).count > 0 &&
         (head.payload_kind == PayloadKind::result || image);
}

std::uint64_t RoundPlan::expected_bytes(const DirectHead& head, std::uint64_t found, const Round* own) const {
  const RoundShape& shape = head.round;
  const bool contributes = head.payload_kind == PayloadKind::contribution;
  if (is_plain(shape)) {
    if (!(contributes ? reduces(shape) : spreads(shape))) return 0;
    if (own == nullptr) return std::min(found / sizeof(float) * sizeof(float), most_reduced());
    return own->call.parts[contributes ? self_ : head.rank].size_bytes;
  }
  if (!contributes)
    return part_of(shape, head.rank).count *
           (head.payload_kind == PayloadKind::half_result ? kHalfBytes : sizeof(float));
  if (!carries_gradients(shape)) return 0;
  return part_of(shape, self_).count * (is_compressed(shape) ? group_.compressor->packed_bytes() : sizeof(float));
}

Memory RoundPlan::landing_of(const DirectHead& head, std::uint64_t size_bytes, const Round* own) const {
  const RoundShape& shape = head.round;
  if (is_plain(shape)) {
    if (head.payload_kind == PayloadKind::contribution) return staging_.reduced(head.rank, size_bytes);
    // In place: the owner has read this rank's contribution before it sends a result.
    return own->call.parts[head.rank];
  }
  if (head.payload_kind == PayloadKind::contribution) {
    const ElementRange own = part_of(shape, self_);
    return staging_.contribution(shape.bucket, head.rank, own);
  }
  const ElementRange part = part_of(shape, head.rank);
  if (group_.device_memory)
    return head.payload_kind == PayloadKind::half_result ? staging_.image(part) : staging_.results(part);
  if (head.payload_kind == PayloadKind::half_result) return elements(group_.half, part.first, part.count, kHalfBytes);
  return elements(group_.parameters, part.first, part.count, sizeof(float));
}

std::string RoundPlan::name_of(Peer peer) const {
  const auto place = std::find(group_.peers.begin(), group_.peers.end(), peer);
  return place == group_.peers.end()
             ? text("peer ", peer.value)
             : text("rank ", group_.names[static_cast<std::size_t>(place - group_.peers.begin())].value);
}

}  // namespace troupe::collectives
