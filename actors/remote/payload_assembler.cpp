#include "actors/remote/detail/payload_assembler.hpp"

#include <limits>

namespace troupe::remote {
namespace {

/// For one process. A peer sends a few payloads at a time, and each takes memory of the pool.
constexpr std::size_t kMostOpenPayloads = 65536;

}  // namespace

PayloadAssembler::Payload& PayloadAssembler::payload_of(Peer from, const wire::Header& piece, bool& wrong) {
  Payload& payload = open_[{from, piece.order}];
  if (payload.size_bytes == 0) {
    wrong = piece.source == 0 || piece.sequence == 0 || open_.size() > kMostOpenPayloads;
    payload.size_bytes = piece.source;
    payload.pieces = piece.sequence;
    if (!wrong) payload.store = find_store_({piece.message_id}, piece.source);
  } else {
    wrong = payload.size_bytes != piece.source || payload.pieces != piece.sequence;
  }
  return payload;
}

/// No more pieces land than the payload has: when all of them have ended, nothing writes to its memory any more.
Memory PayloadAssembler::land(Peer from, const wire::Header& piece, std::uint64_t size_bytes, bool& wrong) {
  Payload& payload = payload_of(from, piece, wrong);
  const std::uint64_t offset = piece.target;
  wrong = wrong || payload.announced == payload.pieces || offset > payload.size_bytes ||
          size_bytes > payload.size_bytes - offset;
  if (wrong) return {};
  if (!payload.store.keeper) {
    ++payload.announced;
    ++payload.ended;
    return {};
  }
  const Memory memory = slice(payload.store.memory, offset, size_bytes);
  const Landing landing{{from, piece.order}, payload.store.keeper};
  wrong = !landings_.try_emplace({memory.arena, memory.offset}, landing).second;
  if (wrong) return {};
  ++payload.announced;
  return memory;
}

bool PayloadAssembler::end_landing(Memory memory, bool has_arrived) {
  const auto landing = landings_.extract({memory.arena, memory.offset});
  if (landing.empty()) return false;
  const auto payload = open_.find(landing.mapped().place);
  if (has_arrived && payload != open_.end()) ++payload->second.ended;
  return true;
}

void PayloadAssembler::add_message(Peer from, const wire::Header& header, std::vector<std::byte> head, bool& wrong) {
  Payload& payload = open_[{from, header.order}];
  wrong = payload.head.has_value() || payload.failed || open_.size() > kMostOpenPayloads;
  if (!wrong) payload.head = std::move(head);
}

void PayloadAssembler::cut_short(Peer from, const wire::Header& piece, bool& wrong) {
  Payload& payload = payload_of(from, piece, wrong);
  const std::uint64_t missing = payload.pieces - std::uint64_t{payload.announced};
  wrong = wrong || payload.failed || payload.head.has_value() || piece.target > payload.pieces ||
          payload.pieces - piece.target > missing;
  if (wrong) return;
  payload.failed = true;
  payload.announced += payload.pieces - static_cast<std::uint32_t>(piece.target);
  payload.ended += payload.pieces - static_cast<std::uint32_t>(piece.target);
}

std::optional<PayloadAssembler::Whole> PayloadAssembler::take_whole(Peer from, std::uint32_t order) {
  const auto place = open_.find({from, order});
  if (place == open_.end()) return {};
  Payload& payload = place->second;
  const bool complete = payload.size_bytes > 0 && payload.ended == payload.pieces;
  if (!complete || (!payload.failed && !payload.head)) return {};
  std::optional<Whole> whole;
  if (!payload.failed) whole = Whole{std::move(*payload.head), std::move(payload.store)};
  open_.erase(place);
  return whole;
}

void PayloadAssembler::forget(Peer peer) {
  open_.erase(open_.lower_bound({peer, 0}), open_.upper_bound({peer, std::numeric_limits<std::uint32_t>::max()}));
}

}  // namespace troupe::remote
