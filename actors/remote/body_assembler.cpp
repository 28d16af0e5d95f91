#include "actors/remote/detail/body_assembler.hpp"

#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace troupe::remote {
namespace {

/// For one process. A peer sends its large messages one after the other, so only a few bodies are incomplete at a time.
constexpr std::size_t kMostOpen = 4096;

/// The memory is not touched, so that a claimed size costs nothing; null if there is none.
std::unique_ptr<std::byte[]> try_allocate(std::uint64_t size_bytes) noexcept {
  try {
    return std::make_unique_for_overwrite<std::byte[]>(size_bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

BodyAssembler::Open::iterator BodyAssembler::find_or_open(Peer from, std::uint64_t number, std::uint64_t size_bytes,
                                                          bool& wrong) {
  const auto [place, fresh] = open_.try_emplace({from, number});
  Body& body = place->second;
  if (fresh) {
    wrong = size_bytes == 0 || size_bytes > wire::kLargestBody || open_.size() > kMostOpen;
    body.missing_bytes = body.arrived.size_bytes = size_bytes;
    if (!wrong && !budget_->full()) body.arrived.bytes = try_allocate(size_bytes);
    if (body.arrived.bytes) body.arrived.charge = Charge(budget_, size_bytes);
  } else {
    wrong = body.arrived.size_bytes != size_bytes;
  }
  return place;
}

std::optional<BodyAssembler::Whole> BodyAssembler::add_piece(Peer from, const wire::Header& piece,
                                                             std::span<const std::byte> bytes, bool& wrong) {
  const auto place = find_or_open(from, piece.message_id, piece.source, wrong);
  Body& body = place->second;
  const std::uint64_t offset = piece.target;
  wrong = wrong || bytes.empty() || bytes.size() > body.missing_bytes || offset > body.arrived.size_bytes ||
          bytes.size() > body.arrived.size_bytes - offset;
  if (wrong) return {};
  if (body.arrived.bytes) std::memcpy(body.arrived.bytes.get() + offset, bytes.data(), bytes.size());
  body.missing_bytes -= bytes.size();
  return finish_if_whole(place);
}

std::optional<BodyAssembler::Whole> BodyAssembler::skip_piece(Peer from, const wire::Header& piece,
                                                              std::uint64_t size_bytes, bool& wrong) {
  const auto place = find_or_open(from, piece.message_id, piece.source, wrong);
  Body& body = place->second;
  wrong = wrong || size_bytes > body.missing_bytes;
  if (wrong) return {};
  body.arrived.bytes.reset();
  body.missing_bytes -= size_bytes;
  return finish_if_whole(place);
}

std::optional<BodyAssembler::Whole> BodyAssembler::add_message(Peer from, const wire::Pieces& pieces, Message message,
                                                               bool& wrong) {
  const auto place = find_or_open(from, pieces.number, pieces.size_bytes, wrong);
  wrong = wrong || place->second.message.has_value();
  if (wrong) return {};
  place->second.message = std::move(message);
  return finish_if_whole(place);
}

std::optional<BodyAssembler::Whole> BodyAssembler::finish_if_whole(Open::iterator place) {
  Body& body = place->second;
  if (body.missing_bytes > 0 || !body.message) return {};
  Whole whole{std::move(*body.message), std::move(body.arrived)};
  if (!whole.body.bytes) whole.message.refused = true;
  open_.erase(place);
  return whole;
}

void BodyAssembler::forget(Peer peer) {
  open_.erase(open_.lower_bound({peer, 0}), open_.upper_bound({peer, UINT64_MAX}));
}

}  // namespace troupe::remote
