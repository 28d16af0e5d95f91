#include "transports/nccl/nccl_communicator.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/exchange/exchange.hpp"
#include "transports/nccl/detail/link.hpp"

namespace troupe {

using nccl::Call;
using nccl::Type;

/// What a call is for: a part of its hash.
enum class NcclCommunicator::Kind : std::uint64_t { barrier, reduce, gather, sum, update, publish, measure, agree };

namespace {

constexpr std::uint64_t whole_lines(std::uint64_t size_bytes) noexcept { return (size_bytes + 63) / 64 * 64; }

/// Bytes of the largest part of a bucket that the rank owns.
std::uint64_t most_owned(const NcclGroup& group) {
  std::uint64_t most = 0;
  for (const Bucket& bucket : group.buckets)
    for (const Stripe& stripe : group.stripes)
      if (stripe.owner == group.rank) most = std::max(most, common_part(stripe, bucket).count * sizeof(float));
  return whole_lines(most);
}

/// By bucket, then by rank.
std::vector<std::vector<Stripe>> owned_parts(const NcclGroup& group) {
  std::vector<std::vector<Stripe>> parts(group.buckets.size(), std::vector<Stripe>(group.members.size()));
  for (std::size_t b = 0; b < parts.size(); ++b) {
    TROUPE_CHECK(group.buckets[b].index == b, Code::invalid, "bucket ", b, " has number ", group.buckets[b].index);
    for (const Stripe& stripe : group.stripes) {
      const Stripe part = common_part(stripe, group.buckets[b]);
      if (part.count == 0) continue;
      const std::uint32_t owner = stripe.owner.value;
      TROUPE_CHECK(owner < parts[b].size() && parts[b][owner].count == 0, Code::invalid, "rank ", owner, " of ",
                   parts[b].size(), " has no, or a second, range of bucket ", b);
      parts[b][owner] = part;
    }
  }
  return parts;
}

std::uint16_t hash_of(std::uint64_t kind, std::uint64_t about, std::span<const std::uint64_t> sizes) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, a word at a time
  const auto add = [&hash](std::uint64_t word) { hash = (hash ^ word) * 0x100000001b3 ^ hash >> 29; };
  add(kind);
  add(about);
  for (const std::uint64_t size : sizes) add(size);
  return static_cast<std::uint16_t>(hash >> 16 ^ hash >> 40);
}

std::vector<std::uint64_t> sizes_of(std::span<const Memory> parts) {
  std::vector<std::uint64_t> sizes;
  for (const Memory& part : parts) sizes.push_back(part.size_bytes);
  return sizes;
}

LibraryStream& library_stream(Stream& stream) {
  auto* const found = dynamic_cast<LibraryStream*>(&stream);
  TROUPE_CHECK(found != nullptr, Code::unsupported,
               "NCCL needs the streams of a cuda device (placement.device = \"cuda\")");
  return *found;
}

}  // namespace

/// Parts of the staging memory.
struct NcclCommunicator::Places {
  explicit Places(const NcclGroup& group) {
    const std::uint64_t ranks = group.members.size();
    const auto take = [&](std::uint64_t size_bytes) {
      const Memory part = slice(group.staging, used, size_bytes);
      used += whole_lines(size_bytes);
      return part;
    };
    heads = take(ranks * sizeof(std::uint64_t));
    sums = take(ranks * sizeof(StepSums));
    for (std::uint64_t r = 0; r < ranks; ++r) copies.push_back(take(group.room));
    for (std::uint64_t r = 0; r < ranks; ++r) found.push_back(take(group.room));
    const std::uint64_t each = most_owned(group);
    for (std::uint64_t r = 0; r < ranks; ++r) gradients.push_back(take(r == group.rank.value ? 0 : each));
  }

  std::uint64_t used = 0;
  Memory heads, sums;
  std::vector<Memory> copies;     // by owner: this rank's data of a plain operation, where it is not the device's
  std::vector<Memory> found;      // by rank: its data of a plain operation
  std::vector<Memory> gradients;  // by rank: its gradients over this rank's part of a bucket
};

std::uint64_t nccl_staging_bytes(const NcclGroup& group) {
  const std::uint64_t ranks = group.members.size();
  return whole_lines(ranks * sizeof(std::uint64_t)) + ranks * sizeof(StepSums) + 2 * ranks * whole_lines(group.room) +
         (ranks - 1) * most_owned(group);
}

NcclCommunicator::NcclCommunicator(AddressSpace& space, Stream& stream, NcclGroup group, NcclOptions options)
    : space_(space), group_(std::move(group)), owned_(owned_parts(group_)) {
  const std::size_t count = group_.members.size();
  TROUPE_CHECK(group_.rank.value < count, Code::invalid, "rank ", group_.rank.value, " of ", count, " ranks");
  TROUPE_CHECK(group_.names.empty() || group_.names.size() == count, Code::invalid, group_.names.size(), " names for ",
               count, " ranks");
  for (std::uint32_t r = 0; group_.names.size() < count; ++r) group_.names.push_back(Rank{r});
  if (count == 1) return;
  TROUPE_CHECK(group_.room >= 64 && group_.room % 64 == 0, Code::invalid, group_.room,
               " bytes at once are not a multiple of 64");
  TROUPE_CHECK(group_.staging.size_bytes >= nccl_staging_bytes(group_), Code::invalid, "NCCL needs ",
               nccl_staging_bytes(group_), " bytes of staging memory, there are ", group_.staging.size_bytes);
  TROUPE_CHECK(is_device(group_.staging) && is_device(group_.parameters), Code::invalid,
               "the parameters and the staging memory of NCCL must be the device's own");
  places_ = std::make_unique<const Places>(group_);
  link_ = std::make_unique<nccl::Link>(space, library_stream(stream), group_, options);
}

/// Peers may still be in the last call, which this rank has done: to them it says nothing then.
NcclCommunicator::~NcclCommunicator() {
  if (link_ != nullptr && !link_->has_done(calls_)) link_->abort({Code::aborted, "a rank's exchange was ended"});
}

void NcclCommunicator::connect(Blocking& blocking, Deadline deadline) {
  if (link_ != nullptr) link_->connect(blocking, deadline);
}

CommunicatorTraits NcclCommunicator::traits() const noexcept {
  return {.rank_ordered = group_.rank_ordered, .device_memory = true};
}

bool NcclCommunicator::is_device(const Memory& memory) const {
  return space_.region(memory.arena).kind == MemoryKind::device;
}

/// The calls that were collected, as one call. `about` and `sizes` are the same at all ranks.
void NcclCommunicator::call(Stream& stream, Kind kind, std::uint64_t about, std::span<const std::uint64_t> sizes) {
  LibraryStream& on = library_stream(stream);
  auto* const heads = static_cast<std::uint64_t*>(on.device_address(places_->heads));
  group_calls_.push_back(
      {.kind = Call::Kind::all_gather, .from = heads + group_.rank.value, .to = heads, .count = 1, .type = Type::u64});
  const std::uint64_t number = link_->number();
  std::vector<std::byte> what(sizeof number + group_calls_.size() * sizeof(Call));
  std::memcpy(what.data(), &number, sizeof number);
  std::memcpy(what.data() + sizeof number, group_calls_.data(), group_calls_.size() * sizeof(Call));
  group_calls_.clear();
  const NcclMember& own = group_.members[group_.rank.value];
  on.call(*link_, {.number = ++calls_,
                   .hash = hash_of(static_cast<std::uint64_t>(kind), about, sizes),
                   .what = what,
                   .heads = places_->heads,
                   .rank = group_.rank.value,
                   .ranks = group_.names,
                   .progress = own.progress,
                   .ended = own.ended});
}

// ---- Plain operations ----

/// Calls round(pieces) until all of `parts` has been moved: one piece of each owner at a time. Behind the parts of the
/// synchronous step, as at all ranks.
template <class Round>
void NcclCommunicator::in_rounds(Stream& stream, std::span<const OwnedPart> parts, Round&& round) {
  if (link_ == nullptr) return;
  library_stream(stream).join_beside();
  std::vector<Memory> now(ranks());
  const auto enqueue = [&] {
    std::uint64_t longest = 0;
    for (const Memory& part : now) longest = std::max(longest, part.size_bytes);
    for (std::uint64_t first = 0; first < longest; first += group_.room) {
      std::vector<Memory> pieces;
      for (const Memory& part : now) {
        const std::uint64_t begin = std::min(first, part.size_bytes);
        pieces.push_back(slice(part, begin, std::min(group_.room, part.size_bytes - begin)));
      }
      round(pieces);
    }
    std::fill(now.begin(), now.end(), Memory{});
  };
  for (const OwnedPart& part : parts) {
    Memory& place = now.at(part.owner.value);
    if (place.size_bytes != 0) enqueue();
    place = part.data;
  }
  enqueue();
}

void NcclCommunicator::reduce_round(Stream& stream, std::span<const Memory> pieces) {
  LibraryStream& on = library_stream(stream);
  const std::uint32_t self = group_.rank.value;
  contributions_.clear();
  for (std::uint32_t r = 0; r < pieces.size(); ++r) {
    const Memory piece = pieces[r];
    if (piece.size_bytes == 0) continue;
    const Memory data = is_device(piece) ? piece : slice(places_->copies[r], 0, piece.size_bytes);
    if (data != piece) stream.copy(data, piece);
    void* const at = on.device_address(data);
    const std::uint64_t count = piece.size_bytes / sizeof(float);
    if (!group_.rank_ordered) {
      group_calls_.push_back({.kind = Call::Kind::reduce, .rank = r, .from = at, .to = at, .count = count});
      if (r == self) contributions_.push_back(data);
    } else if (r != self) {
      group_calls_.push_back({.kind = Call::Kind::send, .rank = r, .from = at, .count = count});
    } else {
      for (std::uint32_t from = 0; from < ranks(); ++from) {
        contributions_.push_back(from == self ? data : slice(places_->found[from], 0, piece.size_bytes));
        if (from == self) continue;
        void* const to = on.device_address(contributions_.back());
        group_calls_.push_back({.kind = Call::Kind::recv, .rank = from, .to = to, .count = count});
      }
    }
  }
  call(stream, Kind::reduce, 0, sizes_of(pieces));
  if (contributions_.empty()) return;
  if (group_.rank_ordered)
    stream.reduce(pieces[self], contributions_);
  else if (contributions_[0] != pieces[self])
    stream.copy(pieces[self], contributions_[0]);
}

void NcclCommunicator::gather_round(Stream& stream, std::span<const Memory> pieces) {
  LibraryStream& on = library_stream(stream);
  const std::uint32_t self = group_.rank.value;
  std::vector<std::pair<Memory, Memory>> copies;
  for (std::uint32_t r = 0; r < pieces.size(); ++r) {
    const Memory piece = pieces[r];
    if (piece.size_bytes == 0) continue;
    const Memory data = is_device(piece) ? piece : slice(places_->copies[r], 0, piece.size_bytes);
    if (data != piece && r == self) stream.copy(data, piece);
    if (data != piece && r != self) copies.emplace_back(piece, data);
    void* const at = on.device_address(data);
    group_calls_.push_back({.kind = Call::Kind::broadcast,
                            .rank = r,
                            .from = at,
                            .to = at,
                            .count = piece.size_bytes,
                            .type = Type::bytes});
  }
  call(stream, Kind::gather, 0, sizes_of(pieces));
  for (const auto& [to, from] : copies) stream.copy(to, from);
}

void NcclCommunicator::reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) {
  for (const OwnedPart& part : parts)
    TROUPE_CHECK(part.data.size_bytes % sizeof(float) == 0, Code::invalid, part.data.size_bytes,
                 " bytes are no whole number of f32");
  in_rounds(stream, parts, [&](std::span<const Memory> pieces) { reduce_round(stream, pieces); });
}

void NcclCommunicator::all_gather(Stream& stream, std::span<const OwnedPart> parts) {
  in_rounds(stream, parts, [&](std::span<const Memory> pieces) { gather_round(stream, pieces); });
}

void NcclCommunicator::barrier(Stream& stream) {
  if (link_ == nullptr) return;
  library_stream(stream).join_beside();
  call(stream, Kind::barrier, 0, {});
}

void NcclCommunicator::all_reduce(Stream& stream, Memory data) {
  TROUPE_CHECK(data.size_bytes % sizeof(float) == 0, Code::invalid, data.size_bytes,
               " bytes are no whole number of f32");
  if (link_ == nullptr) return;
  if (group_.rank_ordered) return Communicator::all_reduce(stream, data);
  library_stream(stream).join_beside();
  for (std::uint64_t first = 0; first < data.size_bytes; first += group_.room) {
    const Memory piece = slice(data, first, std::min(group_.room, data.size_bytes - first));
    const Memory here = is_device(piece) ? piece : slice(places_->copies[0], 0, piece.size_bytes);
    if (here != piece) stream.copy(here, piece);
    void* const at = library_stream(stream).device_address(here);
    const std::uint64_t sizes[] = {piece.size_bytes};
    group_calls_.push_back(
        {.kind = Call::Kind::all_reduce, .from = at, .to = at, .count = piece.size_bytes / sizeof(float)});
    call(stream, Kind::sum, 0, sizes);
    if (here != piece) stream.copy(piece, here);
  }
}

// ---- The synchronous step ----

/// All ranks make their calls there in the order of the buckets, so that they are the same calls at all.
template <class Work>
Point NcclCommunicator::beside(Stream& stream, Work&& work) {
  if (link_ != nullptr) return library_stream(stream).beside(std::forward<Work>(work));
  work();
  return {};
}

const std::vector<Stripe>& NcclCommunicator::owned(const Bucket& bucket) const {
  TROUPE_CHECK(bucket.index < owned_.size() && bucket == group_.buckets[bucket.index], Code::invalid,
               "the group has no such bucket ", bucket.index);
  return owned_[bucket.index];
}

/// By rank: its part of a bucket, of which `of_bucket` are the f32.
std::vector<Memory> NcclCommunicator::own_parts(const Memory& of_bucket, const Bucket& bucket) const {
  std::vector<Memory> parts;
  for (const Stripe& part : owned(bucket)) {
    parts.push_back(part.count == 0 ? Memory{}
                                    : elements(of_bucket, part.first - bucket.first, part.count, sizeof(float)));
  }
  return parts;
}

void NcclCommunicator::add_sums(Stream& stream, const BucketWork& work) {
  const Memory own = slice(places_->sums, group_.rank.value * sizeof(StepSums), sizeof(StepSums));
  stream.copy(own, work.sums);
  LibraryStream& on = library_stream(stream);
  group_calls_.push_back({.kind = Call::Kind::all_gather,
                          .from = on.device_address(own),
                          .to = on.device_address(places_->sums),
                          .count = sizeof(StepSums),
                          .type = Type::bytes});
}

/// In rank order, whatever NCCL does.
void NcclCommunicator::total_up(Stream& stream, const BucketWork& work) {
  if (link_ == nullptr) return stream.sum_up(work.total, {&work.sums, 1});
  std::vector<Memory> sums;
  for (std::uint32_t r = 0; r < ranks(); ++r)
    sums.push_back(slice(places_->sums, r * sizeof(StepSums), sizeof(StepSums)));
  stream.sum_up(work.total, sums);
}

/// `parts`: of the bucket's gradients, by owner. After the call `contributions_` are what is to be added up here.
void NcclCommunicator::add_gradients(Stream& stream, const BucketWork& work, std::span<const Memory> parts,
                                     bool ordered) {
  const std::uint32_t self = group_.rank.value;
  contributions_.clear();
  if (parts[self].size_bytes > 0) contributions_.push_back(parts[self]);
  if (link_ == nullptr) return;
  TROUPE_CHECK(is_device(work.gradients), Code::invalid, "NCCL's gradients must be in the device's own memory");
  LibraryStream& on = library_stream(stream);
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    if (parts[r].size_bytes == 0) continue;
    void* const at = on.device_address(parts[r]);
    const std::uint64_t count = parts[r].size_bytes / sizeof(float);
    if (!ordered)
      group_calls_.push_back({.kind = Call::Kind::reduce, .rank = r, .from = at, .to = at, .count = count});
    else if (r != self)
      group_calls_.push_back({.kind = Call::Kind::send, .rank = r, .from = at, .count = count});
  }
  if (!ordered || parts[self].size_bytes == 0) return;
  contributions_.clear();
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    contributions_.push_back(r == self ? parts[r] : slice(places_->gradients[r], 0, parts[self].size_bytes));
    if (r == self) continue;
    void* const to = on.device_address(contributions_.back());
    group_calls_.push_back(
        {.kind = Call::Kind::recv, .rank = r, .to = to, .count = parts[self].size_bytes / sizeof(float)});
  }
}

/// Each owner's new parameters go to all. The copy in half precision follows from them at each rank.
void NcclCommunicator::publish(Stream& stream, const Bucket& bucket) {
  if (link_ == nullptr) return;
  LibraryStream& on = library_stream(stream);
  const std::vector<Memory> parts =
      own_parts(elements(group_.parameters, bucket.first, bucket.count, sizeof(float)), bucket);
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    if (parts[r].size_bytes == 0) continue;
    void* const at = on.device_address(parts[r]);
    group_calls_.push_back(
        {.kind = Call::Kind::broadcast, .rank = r, .from = at, .to = at, .count = parts[r].size_bytes / sizeof(float)});
  }
  call(stream, Kind::publish, bucket.index, sizes_of(parts));
  if (group_.half.size_bytes == 0) return;
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    const Stripe& part = owned(bucket)[r];
    if (Rank{r} == group_.rank || part.count == 0) continue;
    stream.convert({elements(group_.half, part.first, part.count, size_bytes(group_.copy_type)), group_.copy_type,
                    parts[r], DType::f32});
  }
}

Point NcclCommunicator::reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) {
  const StripeMemory& part = work.only_part();
  const std::vector<Memory> parts = own_parts(work.gradients, work.bucket);
  return beside(stream, [&] {
    if (work.first && link_ != nullptr) add_sums(stream, work);
    add_gradients(stream, work, parts, group_.rank_ordered);
    if (link_ != nullptr) call(stream, Kind::update, work.bucket.index, sizes_of(parts));
    if (work.first) total_up(stream, work);
    if (part.stripe.count > 0) stream.update(rule, work.update, part, contributions_, work.total);
    publish(stream, work.bucket);
  });
}

/// In rank order: the rank that contributed a number that is not finite must be found.
Point NcclCommunicator::gather_gradients(Stream& stream, const BucketWork& work) {
  const StripeMemory& part = work.only_part();
  const std::vector<Memory> parts = own_parts(work.gradients, work.bucket);
  return beside(stream, [&] {
    add_gradients(stream, work, parts, true);
    if (link_ != nullptr) call(stream, Kind::measure, work.bucket.index, sizes_of(parts));
    if (part.stripe.count > 0)
      stream.reduce(parts[group_.rank.value], contributions_,
                    {work.sums, part.stripe.first, group_.names, work.squares});
  });
}

Point NcclCommunicator::agree(Stream& stream, const BucketWork& work) {
  return beside(stream, [&] {
    if (link_ != nullptr) {
      add_sums(stream, work);
      call(stream, Kind::agree, 0, {});
    }
    total_up(stream, work);
  });
}

Point NcclCommunicator::update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) {
  const StripeMemory& part = work.only_part();
  return beside(stream, [&] {
    if (part.stripe.count > 0) {
      const Memory own = own_parts(work.gradients, work.bucket)[group_.rank.value];
      stream.update(rule, work.update, part, {&own, 1}, work.total);
    }
    publish(stream, work.bucket);
  });
}

void NcclCommunicator::abort(const Status& why) noexcept {
  if (link_ != nullptr) link_->abort(why);
}

}  // namespace troupe
