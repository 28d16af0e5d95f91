#include "actors/remote/detail/arrivals.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "actors/remote/detail/inbound.hpp"
#include "actors/remote/detail/inline_unit.hpp"

namespace troupe::remote {
namespace {

constexpr const char* kPieceThatDoesNotFit = "a piece of a message does not fit to the others";

/// A copy of a head, kept until the control lane handles it.
std::vector<std::byte> copy(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

bool is_in_pieces(const wire::Header& header) noexcept { return (header.flags & wire::kBodyInPieces) != 0; }

}  // namespace

void Arrivals::post_sink(SinkKey key, Memory memory, std::shared_ptr<const void> owner) {
  TROUPE_CHECK(key.value != 0 && memory.size_bytes > 0, Code::invalid,
               "a sink needs a key other than 0 and memory; key ", key.value, " has ", memory.size_bytes, " bytes");
  context_.space.address(memory);
  const MemoryKind kind = context_.space.kind(memory.arena);
  TROUPE_CHECK(context_.transport.carries(kind), Code::unsupported, "nothing lands in ", name_of(kind), " memory by ",
               context_.transport.description(), ": post host memory");
  sinks_.post(key, memory, std::move(owner));
}

Memory Arrivals::landing(Peer from, Lane lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept {
  if (const auto sink = sink_for(head, size_bytes)) return *sink;
  if (const auto memory = landing_pool_->take(size_bytes)) return *memory;
  const auto header = lane == Lane::bulk ? wire::load(head) : std::nullopt;
  const bool is_piece = header && header->kind == wire::Kind::piece;
  if (const auto memory = is_piece ? sending_pool_->take(size_bytes) : std::nullopt) return *memory;
  // Refused: returning no memory makes the transport drop the payload. The head still takes its place in the order.
  if (is_piece) {
    refuse_piece(from, *header, size_bytes);
  } else if (header && is_in_pieces(*header)) {
    wait_for_body(from, *header, {copy(head), {}, nullptr, true});
  } else {
    context_.lane_access->run(
        [this, from, kept = copy(head)] { inbound_.take_in(from, {.head = kept, .refused = true}); });
  }
  return {};
}

void Arrivals::arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept {
  const auto header = lane == Lane::bulk ? wire::load(head) : std::nullopt;
  if (header && header->kind == wire::Kind::piece) {
    take_in_piece(from, *header, payload);
    return dropped(from, lane, payload, {});
  }
  std::shared_ptr<const void> owner;
  if (payload.size_bytes > 0 && !sinks_.landed(payload, owner)) owner = landing_pool_->owner(payload);
  if (lane == Lane::control) {
    inbound_.take_in(from, {.head = head, .payload = payload, .payload_owner = std::move(owner)});
    inline_.run();
    return;
  }
  if (header && is_in_pieces(*header))
    return wait_for_body(from, *header, {copy(head), payload, std::move(owner), false});
  context_.lane_access->run([this, from, kept = copy(head), payload, owner = std::move(owner)]() mutable {
    inbound_.take_in(from, {.head = kept, .payload = payload, .payload_owner = std::move(owner)});
  });
}

void Arrivals::dropped(Peer, Lane, Memory payload, const Status&) noexcept {
  if (sinks_.give_back(payload)) return;
  landing_pool_->give_back(payload);  // each pool takes only its own memory
  sending_pool_->give_back(payload);
}

void Arrivals::lost(Peer number, const Status& why) noexcept {
  context_.lane_access->run([this, number, why] {
    if (PeerState* const of = context_.peer(number); of != nullptr && !of->dead && !context_.ended)
      context_.lose(*of, why);
  });
}

/// The posted buffer for the tensor that is the whole payload of a message.
std::optional<Memory> Arrivals::sink_for(std::span<const std::byte> head, std::uint64_t size_bytes) {
  if (sinks_.empty()) return {};
  const auto header = wire::load(head);
  if (!header || header->kind != wire::Kind::message || (header->flags & wire::kBodyInPayload) != 0) return {};
  SinkKey key;
  for (const wire::TensorRecord& record : wire::load_records(head, header->tensors)) {
    if (record.by_reference == 0 && record.offset == 0 && record.size_bytes == size_bytes) key = {record.token};
  }
  return sinks_.take(key, size_bytes);
}

void Arrivals::take_in_piece(Peer from, const wire::Header& header, Memory payload) {
  bool wrong = payload.size_bytes == 0;
  auto whole =
      wrong ? std::nullopt
            : body_assembler_.add_piece(from, header, {context_.space.address(payload), payload.size_bytes}, wrong);
  finish(from, std::move(whole), wrong, kPieceThatDoesNotFit);
}

/// There was no memory for a piece: its message is refused when the rest has arrived.
void Arrivals::refuse_piece(Peer from, const wire::Header& header, std::uint64_t size_bytes) {
  bool wrong = false;
  auto whole = body_assembler_.skip_piece(from, header, size_bytes, wrong);
  finish(from, std::move(whole), wrong, kPieceThatDoesNotFit);
}

void Arrivals::wait_for_body(Peer from, const wire::Header& header, BodyAssembler::Message message) {
  wire::Pieces pieces;
  const std::size_t records = std::size_t{header.tensors} * sizeof(wire::TensorRecord);
  bool wrong = message.head.size() != wire::kHeaderBytes + sizeof pieces + records;
  std::optional<BodyAssembler::Whole> whole;
  if (!wrong) {
    std::memcpy(&pieces, message.head.data() + wire::kHeaderBytes, sizeof pieces);
    whole = body_assembler_.add_message(from, pieces, std::move(message), wrong);
  }
  finish(from, std::move(whole), wrong, "a message does not tell which body is its own");
}

/// Passes on a message with its complete body.
void Arrivals::finish(Peer from, std::optional<BodyAssembler::Whole> whole, bool wrong, const char* what) {
  if (wrong) return report_violation(from, what);
  if (!whole) return;
  context_.lane_access->run([this, from, kept = std::make_shared<BodyAssembler::Whole>(std::move(*whole))] {
    const BodyAssembler::Message& message = kept->message;
    inbound_.take_in(from, {.head = message.head,
                            .payload = message.payload,
                            .payload_owner = message.payload_owner,
                            .refused = message.refused,
                            .body = std::move(kept->body)});
  });
}

/// Reports a violation that the bulk lane found.
void Arrivals::report_violation(Peer from, const char* why) {
  context_.lane_access->run([this, from, why] {
    if (PeerState* const of = context_.peer(from); of != nullptr && !of->dead) context_.lose_later(*of, why);
  });
}

}  // namespace troupe::remote
