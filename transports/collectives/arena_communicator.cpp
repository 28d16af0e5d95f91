#include "transports/collectives/arena_communicator.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

/// The part of `theirs` that corresponds to `own` in this rank's `whole`.
Memory counterpart(const Memory& own, const Memory& whole, const Memory& theirs) noexcept {
  return slice(theirs, own.offset - whole.offset, own.size_bytes);
}

bool inside(const Memory& part, const Memory& whole) noexcept {
  return part.arena == whole.arena && part.offset >= whole.offset &&
         part.offset + part.size_bytes <= whole.offset + whole.size_bytes;
}

void collect_sums(const ArenaGroup& group, const BucketWork& work, std::vector<Memory>& parts) {
  const Memory& own = group.members[group.rank.value].sums;
  TROUPE_CHECK(inside(work.sums, own), Code::invalid, "step ", work.step.value, ": the sums at ", work.sums.arena.value,
               ":", work.sums.offset, " are not in the memory that rank ", group.rank.value, " shows to its node");
  parts.clear();
  for (const ArenaMember& member : group.members) parts.push_back(counterpart(work.sums, own, member.sums));
}

/// Every rank's contributions to `stripe`, in rank order: at the same offset in its memory as this rank's.
void collect_gradients(const ArenaGroup& group, const BucketWork& work, const Stripe& stripe,
                       std::vector<Memory>& parts) {
  parts.clear();
  const Memory& own = group.members[group.rank.value].gradients;
  for (const ArenaMember& member : group.members) {
    parts.push_back(slice(counterpart(work.gradients, own, member.gradients),
                          (stripe.first - work.bucket.first) * sizeof(float), stripe.count * sizeof(float)));
  }
}

void check_work(const ArenaGroup& group, const BucketWork& work) {
  const Memory& own = group.members[group.rank.value].gradients;
  TROUPE_CHECK(inside(work.gradients, own) && work.gradients.size_bytes == work.bucket.count * sizeof(float),
               Code::invalid, "step ", work.step.value, ", bucket ", work.bucket.index, ": the gradients at ",
               work.gradients.arena.value, ":", work.gradients.offset, " are not where rank ", group.rank.value,
               " shows them to its node");
}

}  // namespace

ArenaCommunicator::ArenaCommunicator(AddressSpace& space, ArenaGroup group) : space_(space), group_(std::move(group)) {
  TROUPE_CHECK(group_.rank.value < group_.members.size(), Code::invalid, "rank ", group_.rank.value, " of a group of ",
               group_.members.size());
  const ArenaMember& own = group_.members[group_.rank.value];
  for (std::size_t r = 0; r < group_.members.size(); ++r) {
    const ArenaMember& member = group_.members[r];
    TROUPE_CHECK(
        member.gradients.size_bytes == own.gradients.size_bytes && member.sums.size_bytes == own.sums.size_bytes &&
            member.scratch.size_bytes == own.scratch.size_bytes,
        Code::invalid, "ranks ", r, " and ", group_.rank.value, " show different sizes: gradients ",
        member.gradients.size_bytes, " and ", own.gradients.size_bytes, ", sums ", member.sums.size_bytes, " and ",
        own.sums.size_bytes, ", scratch ", member.scratch.size_bytes, " and ", own.scratch.size_bytes);
    for (const Memory& memory : {member.gradients, member.sums, member.scratch}) {
      if (memory.size_bytes > 0) (void)space_.address(memory);  // throws if it is not mapped here
    }
    for (const TimelineId line : {member.ready, member.published}) {
      const std::uint64_t value = space_.timeline(line).value();  // a peer's line may have advanced already
      TROUPE_CHECK(r != group_.rank.value || value == 0, Code::invalid, "line ", line.index, " of rank ", r,
                   " stands at ", value, ": each view needs fresh lines");
    }
  }
  parts_.reserve(group_.members.size());
}

/// Raises this rank's `line` to `round_`, and waits until the lines of all others have reached it, except those in
/// `without`. A rank alone leaves its lines as they are: nobody waits for them, and on a GPU each signal is a kernel.
void ArenaCommunicator::signal_and_wait(Stream& stream, TimelineId ArenaMember::*line, std::span<const Rank> without) {
  if (group_.members.size() == 1) return;
  if (line == &ArenaMember::published) published_ = round_;
  stream.signal({group_.members[group_.rank.value].*line, round_});
  for (std::uint32_t r = 0; r < group_.members.size(); ++r) {
    if (Rank{r} == group_.rank || std::binary_search(without.begin(), without.end(), Rank{r})) continue;
    stream.wait({group_.members[r].*line, round_});
  }
}

Point ArenaCommunicator::reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) {
  check_work(group_, work);
  ++round_;
  signal_and_wait(stream, &ArenaMember::ready);
  if (work.first) {
    collect_sums(group_, work, parts_);
    stream.sum_up(work.total, parts_);
  }
  for (const StripeMemory& part : work.mine) {
    if (part.stripe.count == 0) continue;
    collect_gradients(group_, work, part.stripe, parts_);
    stream.update(rule, work.update, part, parts_, work.total);
  }
  signal_and_wait(stream, &ArenaMember::published, work.relieved);
  return {};
}

Point ArenaCommunicator::gather_gradients(Stream& stream, const BucketWork& work) {
  check_work(group_, work);
  ++round_;
  signal_and_wait(stream, &ArenaMember::ready);
  for (const StripeMemory& part : work.mine) {
    if (part.stripe.count == 0) continue;
    collect_gradients(group_, work, part.stripe, parts_);
    // No other rank reads this rank's gradients over the stripe that it updates itself.
    stream.reduce(parts_[group_.rank.value], parts_, {work.sums, part.stripe.first, {}, work.squares});
  }
  return {};
}

Point ArenaCommunicator::agree(Stream& stream, const BucketWork& work) {
  ++round_;
  signal_and_wait(stream, &ArenaMember::ready);
  collect_sums(group_, work, parts_);
  stream.sum_up(work.total, parts_);
  return {};
}

Point ArenaCommunicator::update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) {
  check_work(group_, work);
  ++round_;
  for (const StripeMemory& part : work.mine) {
    if (part.stripe.count == 0) continue;
    collect_gradients(group_, work, part.stripe, parts_);
    stream.update(rule, work.update, part, {&parts_[group_.rank.value], 1}, work.total);
  }
  signal_and_wait(stream, &ArenaMember::published, work.relieved);
  return {};
}

/// In bytes, a multiple of 64.
std::uint64_t ArenaCommunicator::half_of_scratch() const {
  const std::uint64_t half = group_.members[0].scratch.size_bytes / 2 / 64 * 64;
  TROUPE_CHECK(half >= 64 * group_.members.size(), Code::invalid, "collectives need scratch memory of at least ",
               128 * group_.members.size(), " bytes in every rank, there are ", group_.members[0].scratch.size_bytes);
  return half;
}

void ArenaCommunicator::all_reduce(Stream& stream, Memory data) {
  TROUPE_CHECK(data.size_bytes % sizeof(float) == 0, Code::invalid, data.size_bytes,
               " bytes are no whole number of f32");
  if (group_.members.size() == 1 || data.size_bytes == 0) return;
  const std::uint64_t half = half_of_scratch();
  for (std::uint64_t done = 0; done < data.size_bytes; done += half) {
    all_reduce_chunk(stream, slice(data, done, std::min(half, data.size_bytes - done)));
  }
  barrier(stream);
}

/// Each rank copies its data to its scratch, adds up its part of all ranks' data in place, and copies the other parts
/// back. The halves of the scratch alternate: a half is written again two rounds later. A rank that has raised `ready`
/// in the round between has finished reading it.
void ArenaCommunicator::all_reduce_chunk(Stream& stream, Memory data) {
  ++round_;
  const std::uint64_t ranks = group_.members.size();
  const std::uint64_t half = half_of_scratch();
  const std::uint64_t each = (data.size_bytes + 64 * ranks - 1) / (64 * ranks) * 64;
  const auto shown = [&](std::uint64_t rank, std::uint64_t part) {
    const std::uint64_t first = std::min(part * each, data.size_bytes);
    const std::uint64_t end = std::min(first + each, data.size_bytes);
    return slice(group_.members[rank].scratch, (round_ % 2) * half + first, end - first);
  };
  const std::uint64_t own = group_.rank.value;
  stream.copy(slice(group_.members[own].scratch, (round_ % 2) * half, data.size_bytes), data);
  signal_and_wait(stream, &ArenaMember::ready);
  const Memory mine = shown(own, own);
  if (mine.size_bytes > 0) {
    parts_.clear();
    for (std::uint64_t r = 0; r < ranks; ++r) parts_.push_back(shown(r, own));
    stream.reduce(mine, parts_);
  }
  signal_and_wait(stream, &ArenaMember::published);
  for (std::uint64_t r = 0; r < ranks; ++r) {
    const Memory part = shown(r, r);
    if (part.size_bytes > 0) stream.copy(slice(data, r * each, part.size_bytes), part);
  }
}

/// Calls `round(some, first, room)` until all of `parts` has been moved: `some` are as many parts as the scratch has
/// places, and bytes [first, first + room) of each are moved. Afterwards the scratch is free again.
template <class Round>
void ArenaCommunicator::in_rounds(std::span<const OwnedPart> parts, Round&& round) {
  std::uint64_t longest = 0;
  for (const OwnedPart& part : parts) longest = std::max(longest, part.data.size_bytes);
  if (group_.members.size() == 1 || longest == 0) return;
  const std::uint64_t half = half_of_scratch();
  for (std::size_t begin = 0; begin < parts.size();) {
    const std::size_t count = std::min<std::size_t>(parts.size() - begin, group_.members.size());
    const std::uint64_t room = half / count / 64 * 64;
    for (std::uint64_t first = 0; first < longest; first += room) round(parts.subspan(begin, count), first, room);
    begin += count;
  }
}

/// Place `slot` of a rank's scratch in this round.
Memory ArenaCommunicator::shown_by(std::uint32_t rank, std::size_t slot, std::uint64_t room,
                                   std::uint64_t size_bytes) const noexcept {
  const Memory& scratch = group_.members[rank].scratch;
  return slice(scratch, (round_ % 2) * (scratch.size_bytes / 2 / 64 * 64) + slot * room, size_bytes);
}

namespace {

Memory piece_of(const OwnedPart& part, std::uint64_t first, std::uint64_t room) noexcept {
  if (first >= part.data.size_bytes) return slice(part.data, 0, 0);
  return slice(part.data, first, std::min(room, part.data.size_bytes - first));
}

}  // namespace

void ArenaCommunicator::reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) {
  for (const OwnedPart& part : parts)
    TROUPE_CHECK(part.data.size_bytes % sizeof(float) == 0, Code::invalid, part.data.size_bytes,
                 " bytes are no whole number of f32");
  in_rounds(parts, [&](std::span<const OwnedPart> some, std::uint64_t first, std::uint64_t room) {
    ++round_;
    for (std::size_t i = 0; i < some.size(); ++i) {
      const Memory piece = piece_of(some[i], first, room);
      if (piece.size_bytes > 0) stream.copy(shown_by(group_.rank.value, i, room, piece.size_bytes), piece);
    }
    signal_and_wait(stream, &ArenaMember::ready);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const Memory piece = piece_of(some[i], first, room);
      if (some[i].owner != group_.rank || piece.size_bytes == 0) continue;
      parts_.clear();
      for (std::uint32_t r = 0; r < ranks(); ++r) parts_.push_back(shown_by(r, i, room, piece.size_bytes));
      stream.reduce(piece, parts_);
    }
  });
  barrier(stream);
}

void ArenaCommunicator::all_gather(Stream& stream, std::span<const OwnedPart> parts) {
  in_rounds(parts, [&](std::span<const OwnedPart> some, std::uint64_t first, std::uint64_t room) {
    ++round_;
    for (std::size_t i = 0; i < some.size(); ++i) {
      const Memory piece = piece_of(some[i], first, room);
      if (some[i].owner == group_.rank && piece.size_bytes > 0)
        stream.copy(shown_by(group_.rank.value, i, room, piece.size_bytes), piece);
    }
    signal_and_wait(stream, &ArenaMember::ready);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const Memory piece = piece_of(some[i], first, room);
      if (some[i].owner != group_.rank && piece.size_bytes > 0)
        stream.copy(piece, shown_by(some[i].owner.value, i, room, piece.size_bytes));
    }
  });
  barrier(stream);
}

void ArenaCommunicator::barrier(Stream& stream) {
  ++round_;
  signal_and_wait(stream, &ArenaMember::ready);
}

void ArenaCommunicator::barrier_with_relieved(Stream& stream) {
  for (const ArenaMember& member : group_.members) stream.wait({member.published, published_});
}

void ArenaCommunicator::abort(const Status& why) noexcept {
  for (const ArenaMember& member : group_.members) {
    for (const TimelineId line : {member.ready, member.published}) space_.timeline(line).poison(why);
  }
}

void finish_stripe(Stream& stream, const ArenaGroup& group, const BucketWork& work, const RuleStep& rule,
                   const StripeMemory& theirs) {
  check_work(group, work);
  std::vector<Memory> parts;
  collect_sums(group, work, parts);
  stream.sum_up(work.total, parts);
  if (theirs.stripe.count == 0) return;
  collect_gradients(group, work, theirs.stripe, parts);
  if (rule.judged || needs_tensor_norms(rule.kind)) parts = {parts[theirs.stripe.owner.value]};
  stream.update(rule, work.update, theirs, parts, work.total);
}

}  // namespace troupe
