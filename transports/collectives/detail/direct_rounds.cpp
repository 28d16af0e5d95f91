#include "transports/collectives/detail/direct_rounds.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "runtime/exchange.hpp"

// The lane's side, and what both sides need.
namespace troupe::collectives {

std::uint64_t capacity_of(std::span<const Stripe> stripes, std::span<const Bucket> buckets) {
  std::uint64_t most = Layout::kAlignElements;
  for (const Stripe& stripe : stripes) {
    for (const Bucket& bucket : buckets) most = std::max(most, common_part(stripe, bucket).count);
  }
  return (most + Layout::kAlignElements - 1) / Layout::kAlignElements * Layout::kAlignElements;
}

namespace {

bool carries_gradients(const RoundShape& shape) noexcept {
  return shape.part == RoundPart::all || shape.part == RoundPart::gradients;
}

bool carries_parameters(const RoundShape& shape) noexcept {
  return shape.part == RoundPart::all || shape.part == RoundPart::parameters;
}

}  // namespace

void Delivery::sent(Status status) noexcept { sending.told(to, status); }

Sending::Sending(Call& its_call, bool sends_results, std::uint32_t self, std::uint32_t ranks, std::uint32_t each)
    : call(its_call), results(sends_results) {
  for (std::uint32_t message = 0; message < each * (ranks - 1); ++message) {
    deliveries.emplace_back(*this, (self + 1 + message / each) % ranks);
  }
}

void Sending::reached(Point, Status status) noexcept {
  if (!status.ok()) call.rounds.fail_everywhere(status);
  if (!status.ok() || !call.rounds.post(*this)) call.rounds.give_back(call);
}

void Sending::run() noexcept {
  DirectRounds& rounds = call.rounds;
  if (!std::exchange(begun, true)) rounds.begin(*this);
  while (next < count && !rounds.failed()) {
    if (!rounds.try_send(*this, next)) {
      // No room: again after the lane has moved on. A lane that runs no tasks any more sends nothing either.
      if (rounds.post(*this)) return;
      break;
    }
    ++next;
  }
  count = next;
  if (on_way == 0) rounds.finished(*this);
}

void Sending::told(std::uint32_t rank, const Status& status) noexcept {
  --on_way;
  if (!status.ok()) call.rounds.undelivered(rank, status);
  if (on_way == 0 && next == count) call.rounds.finished(*this);
}

void Farewell::run() noexcept {
  for (; told < rounds.ranks(); ++told) {
    if (rounds.try_tell(*this, told)) continue;
    rounds.post(*this);  // no room: again after the lane has moved on
    return;
  }
}

DirectRounds::DirectRounds(AddressSpace& space, LaneLoop& loop, DirectGroup group)
    : space_(space),
      loop_(loop),
      group_(std::move(group)),
      capacity_(capacity_of(group_.stripes, group_.buckets)),
      self_(group_.rank.value),
      gathered_(space.timeline(space.make_private_timeline())),
      published_(space.timeline(space.make_private_timeline())),
      window_(group_.rank, static_cast<std::uint32_t>(group_.peers.size())) {
  TROUPE_CHECK(loop.lane() == Lane::bulk, Code::invalid, "gradients travel on the bulk lane");
  TROUPE_CHECK(self_ < ranks() && group_.stripes.size() == ranks() && !group_.buckets.empty(), Code::invalid, "rank ",
               self_, " of ", ranks(), " with ", group_.stripes.size(), " stripes and ", group_.buckets.size(),
               " buckets");
  std::uint64_t count = 0;
  for (const Stripe& stripe : group_.stripes) count += stripe.count;
  for (const Bucket& bucket : group_.buckets) {
    std::uint64_t owned = 0;
    for (const Stripe& stripe : group_.stripes) owned += common_part(stripe, bucket).count;
    TROUPE_CHECK(bucket.count > 0 && owned == bucket.count && &bucket == &group_.buckets[bucket.index], Code::invalid,
                 "bucket ", bucket.index, " of ", bucket.count, " elements: ", owned, " of them have a tenant");
  }
  TROUPE_CHECK(group_.parameters.size_bytes == count * sizeof(float) &&
                   (group_.half.size_bytes == 0 || group_.half.size_bytes * 2 == group_.parameters.size_bytes),
               Code::invalid, count, " elements have tenants, the memory is of ", group_.parameters.size_bytes,
               " bytes of parameters and ", group_.half.size_bytes, " of their bf16 image");
  const std::uint64_t staging = direct_staging_bytes(group_.stripes, group_.buckets);
  TROUPE_CHECK(group_.staging.size_bytes >= staging, Code::invalid, "the staging memory has ",
               group_.staging.size_bytes, " bytes, ", staging, " are needed");
  const std::uint64_t sending = direct_sending_bytes(group_.buckets, group_.filter);
  TROUPE_CHECK(group_.sending.size_bytes >= sending, Code::invalid, "the sending memory has ",
               group_.sending.size_bytes, " bytes, ", sending, " are needed");
  for (const Memory& memory : {group_.parameters, group_.half, group_.staging, group_.sending}) {
    if (memory.size_bytes > 0) (void)space_.address(memory);  // throws when it is not mapped here
  }
  parts_.reserve(ranks());
}

Part DirectRounds::part_of(const RoundShape& shape, std::uint32_t rank) const {
  if (!shape.reduces) {
    const Stripe part = common_part(group_.stripes[rank], group_.buckets[shape.bucket]);
    return {part.first, part.count};
  }
  constexpr std::uint64_t kBlock = Layout::kAlignElements;
  const std::uint64_t each = (shape.elements + kBlock * ranks() - 1) / (kBlock * ranks()) * kBlock;
  const std::uint64_t first = std::min(rank * each, shape.elements);
  return {first, std::min(each, shape.elements - first)};
}

/// Whether `rank` tells everybody else of a result, with payload or without.
bool DirectRounds::has_result(const RoundShape& shape, std::uint32_t rank) const {
  return shape.part != RoundPart::sums && part_of(shape, rank).count > 0;
}

bool DirectRounds::is_filtered(const RoundShape& shape) const noexcept {
  return group_.filter == Filter::bf16 && !shape.reduces && carries_gradients(shape);
}

/// What leaves, beside the gradients; the round before has been sent, since the stream waited for that.
void DirectRounds::round_contributions(const Call& call) {
  const auto* from = space_.address_of<const float>(call.contributions);
  auto* to = space_.address_of<std::uint16_t>(group_.sending);
  for (std::uint64_t i = 0; i < call.shape.elements; ++i) to[i] = to_bf16(from[i]);
}

/// Makes f32 of the `count` bf16 that landed in the second half of the place for as many f32. From the first on, no
/// element is written over before it was read.
void DirectRounds::widen(const Memory& landed, std::uint64_t count) {
  const std::byte* from = space_.address(landed);
  std::byte* to = space_.address(landed) - count * kHalfBytes;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint16_t half;
    std::memcpy(&half, from + i * kHalfBytes, sizeof half);
    const float value = from_bf16(half);
    std::memcpy(to + i * sizeof(float), &value, sizeof value);
  }
}

/// Whether `rank` gets a contribution from everybody else: it adds something up, or at least the sums.
bool DirectRounds::contributes_to(const RoundShape& shape, std::uint32_t rank) const {
  return shape.sums || has_result(shape, rank);
}

RoundWindow::Expected DirectRounds::expected(const RoundShape& shape) const {
  RoundWindow::Expected all;
  if (contributes_to(shape, self_)) all.contributions = ranks() - 1;
  const std::uint32_t each = !shape.reduces && carries_parameters(shape) && group_.half.size_bytes > 0 ? 2 : 1;
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    if (r != self_ && has_result(shape, r)) all.results += each;
  }
  // An update's results lie in the parameters, which the next update writes, and that one waits for them. What an
  // all_reduce leaves is the caller's at once.
  all.own_results_first = shape.reduces && part_of(shape, self_).count > 0;
  return all;
}

Memory DirectRounds::staged_sums(std::uint64_t sequence, std::uint32_t rank) const {
  return slice(group_.staging, ((sequence % 2) * ranks() + rank) * sizeof(StepSums), sizeof(StepSums));
}

Memory DirectRounds::staged(std::uint32_t rank, std::uint64_t count) const {
  const std::uint64_t place = rank < self_ ? rank : rank - 1;
  const std::uint64_t base = 2 * ranks() * sizeof(StepSums);
  return slice(group_.staging, base + place * capacity_ * sizeof(float), count * sizeof(float));
}

void DirectRounds::give_back(Call& call) noexcept {
  if (call.uses.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::lock_guard lock{mutex_};
  free_.push_back(&call);
}

void DirectRounds::fail(const Status& why) noexcept {
  failed_.store(true, std::memory_order_release);
  gathered_.poison(why);  // the first reason stays
  published_.poison(why);
}

void DirectRounds::fail_everywhere(const Status& why) noexcept {
  const bool first = !failed();
  fail(why);
  if (!first || farewell_posted_.exchange(true)) return;
  farewell_.why = why;
  loop_.post(farewell_);
}

bool DirectRounds::try_tell(Farewell& farewell, std::uint32_t rank) {
  if (rank == self_) return true;
  return loop_.transport().send(group_.peers[rank], Lane::bulk, Class::control, Channel::exchange,
                                encode(Ended{group_.view.value, self_, farewell.why, group_.id}), {}, farewell);
}

template <class What>
void DirectRounds::guarded(What&& what) noexcept {
  try {
    what();
  } catch (const Error& error) {
    fail_everywhere(error.status());
  } catch (const std::exception& error) {
    fail_everywhere({Code::device_fault, error.what()});
  }
}

/// Tells the stream how far the rounds have come.
void DirectRounds::show_progress() {
  if (failed()) return;
  if (window_.gathered() > gathered_.value()) gathered_.signal(window_.gathered());
  if (window_.published() > published_.value()) published_.signal(window_.published());
}

void DirectRounds::begin(Sending& sending) {
  const Call& call = sending.call;
  sending.count = static_cast<std::uint32_t>(sending.deliveries.size());
  if (sending.results) {
    window_.results_leave();
    return;
  }
  data_[call.shape.sequence % 2] = call.contributions;
  guarded([&] {
    if (is_filtered(call.shape)) round_contributions(call);
    const Status status = window_.announce(call.shape, expected(call.shape));
    TROUPE_CHECK(status.ok(), status.code(), status.text());
    show_progress();
  });
}

/// Sends message number `message` of a sending. False: no room.
bool DirectRounds::try_send(Sending& sending, std::uint32_t message) {
  const Call& call = sending.call;
  Delivery& delivery = sending.deliveries[message];
  DirectHead head;
  head.view = group_.view.value;
  head.rank = self_;
  head.group = group_.id;
  head.round = call.shape;
  Memory payload;
  if (sending.results) {
    const bool half = message % 2 == 1;
    if (half && call.half.size_bytes == 0) return true;
    head.cargo = half ? Cargo::half_result : Cargo::result;
    payload = half ? call.half : call.result;
  } else {
    if (!contributes_to(call.shape, delivery.to)) return true;
    const Part part = part_of(call.shape, delivery.to);
    const std::uint64_t base = call.shape.reduces ? 0 : group_.buckets[call.shape.bucket].first;
    if (part.count > 0 && carries_gradients(call.shape))
      payload = is_filtered(call.shape) ? elements(group_.sending, part.first - base, part.count, kHalfBytes)
                                        : elements(call.contributions, part.first - base, part.count, sizeof(float));
    if (call.shape.sums) head.sums = *space_.address_of<const StepSums>(call.sums);
  }
  const std::span<const Memory> pieces{&payload, payload.size_bytes > 0 ? 1u : 0u};
  ++sending.on_way;
  const bool taken = loop_.transport().send(group_.peers[delivery.to], Lane::bulk, Class::gradient, Channel::exchange,
                                            encode(head), pieces, delivery);
  if (!taken) --sending.on_way;
  return taken;
}

void DirectRounds::undelivered(std::uint32_t rank, const Status& why) noexcept {
  fail({why.code(), text("rank ", rank, " did not get what was sent to it: ", why.text())});
}

/// All of it is out (or the communicator has failed): its memory is not read any more.
void DirectRounds::finished(Sending& sending) {
  Call& call = sending.call;
  if (sending.results) {
    window_.results_sent(call.shape.sequence);
  } else {
    window_.contributions_sent(call.shape.sequence);
  }
  show_progress();
  give_back(call);
}

/// The head of a message that may come now; Error for one that may not, nothing for one of an earlier view.
std::optional<DirectHead> DirectRounds::accept(Peer from, std::span<const std::byte> bytes, std::uint64_t size_bytes) {
  const std::optional<DirectHead> head = decode(bytes);
  TROUPE_CHECK(head, Code::corrupt, "peer ", from.value, " sent an exchange message with a head of ", bytes.size(),
               " bytes that is none");
  if (head->view < group_.view.value) return std::nullopt;
  TROUPE_CHECK(head->group == group_.id, Code::corrupt, "peer ", from.value, " sent an exchange message of group ",
               head->group.value, " to group ", group_.id.value);
  TROUPE_CHECK(head->view == group_.view.value && head->rank < ranks() && head->rank != self_ &&
                   group_.peers[head->rank] == from,
               Code::corrupt, "peer ", from.value, " sent an exchange message as rank ", head->rank, " of view ",
               head->view, ", which it is not in view ", group_.view.value);
  const RoundShape& shape = head->round;
  const bool known =
      shape.reduces
          ? shape.elements > 0 && shape.elements <= chunk_elements() && !shape.sums && shape.part == RoundPart::all
          : shape.bucket < group_.buckets.size() && shape.elements == group_.buckets[shape.bucket].count;
  TROUPE_CHECK(known, Code::invalid, "rank ", head->rank, " is at ", describe(shape), ", which rank ", self_,
               " does not have");
  const Part part = part_of(shape, head->cargo == Cargo::contribution ? self_ : head->rank);
  const bool full = head->cargo == Cargo::contribution ? carries_gradients(shape) : carries_parameters(shape);
  const bool halves = head->cargo == Cargo::half_result || (head->cargo == Cargo::contribution && is_filtered(shape));
  const std::uint64_t expected = full ? part.count * (halves ? kHalfBytes : sizeof(float)) : 0;
  const bool has_half = group_.half.size_bytes > 0 && !shape.reduces && carries_parameters(shape);
  const bool due = head->cargo == Cargo::contribution  ? contributes_to(shape, self_)
                   : head->cargo == Cargo::half_result ? has_half && has_result(shape, head->rank)
                                                       : has_result(shape, head->rank);
  TROUPE_CHECK(due && size_bytes == expected, Code::corrupt, "rank ", head->rank, " sent ", size_bytes, " bytes for ",
               describe(shape), ", ", due ? expected : 0, " were expected");
  const Status status = window_.enter(Rank{head->rank}, shape, head->cargo);
  TROUPE_CHECK(status.ok(), status.code(), status.text());
  return head;
}

/// Whether the message says that a rank's exchange has ended; if so, this one ends.
bool DirectRounds::hear_ended(Peer from, std::span<const std::byte> bytes) {
  const std::optional<Ended> ended = decode_ended(bytes);
  if (!ended) return false;
  const bool known = ended->rank < ranks() && group_.peers[ended->rank] == from;
  if (known && ended->view == group_.view.value) {
    fail({ended->why.code(), text("rank ", ended->rank, ": ", ended->why.text())});
  }
  return true;
}

Memory DirectRounds::landing_of(const DirectHead& head) const {
  if (head.cargo == Cargo::contribution) {
    const std::uint64_t count = part_of(head.round, self_).count;
    const Memory place = staged(head.rank, count);
    return is_filtered(head.round) ? slice(place, count * kHalfBytes, count * kHalfBytes) : place;
  }
  const Part part = part_of(head.round, head.rank);
  if (head.cargo == Cargo::half_result) return elements(group_.half, part.first, part.count, kHalfBytes);
  // An all_reduce is in place: its owner has read what this rank contributed before it has a result to send.
  const Memory& whole = head.round.reduces ? data_[head.round.sequence % 2] : group_.parameters;
  return elements(whole, part.first, part.count, sizeof(float));
}

Memory DirectRounds::landing(Peer from, Lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept {
  Memory place;
  if (failed()) return place;
  guarded([&] {
    if (const std::optional<DirectHead> accepted = accept(from, head, size_bytes)) place = landing_of(*accepted);
  });
  return place;
}

void DirectRounds::arrived(Peer from, Lane, std::span<const std::byte> head, Memory payload) noexcept {
  if (failed()) return;
  guarded([&] {
    if (payload.size_bytes == 0 && hear_ended(from, head)) return;
    // With a payload, landing() has accepted it.
    const std::optional<DirectHead> here = payload.size_bytes > 0 ? decode(head) : accept(from, head, 0);
    if (!here) return;
    if (here->cargo == Cargo::contribution && here->round.sums) {
      *space_.address_of<StepSums>(staged_sums(here->round.sequence, here->rank)) = here->sums;
    }
    if (here->cargo == Cargo::contribution && payload.size_bytes > 0 && is_filtered(here->round))
      widen(payload, payload.size_bytes / kHalfBytes);
    window_.arrived(here->round.sequence, here->cargo);
    show_progress();
  });
}

void DirectRounds::dropped(Peer from, Lane, Memory payload, const Status& why) noexcept {
  if (payload.size_bytes == 0) return;  // refused by landing(), which has said why
  fail({why.code(), text(name_of(from), " did not finish what it sent: ", why.text())});
}

void DirectRounds::lost(Peer peer, const Status& why) noexcept {
  const bool ours = std::find(group_.peers.begin(), group_.peers.end(), peer) != group_.peers.end();
  if (ours) fail({Code::peer_lost, text(name_of(peer), " is lost: ", why.text())});
}

std::string DirectRounds::name_of(Peer peer) const {
  const auto place = std::find(group_.peers.begin(), group_.peers.end(), peer);
  return place == group_.peers.end() ? text("peer ", peer.value) : text("rank ", place - group_.peers.begin());
}

}  // namespace troupe::collectives
