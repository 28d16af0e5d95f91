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

bool has_payload_in_pieces(const wire::Header& header) noexcept {
  return header.kind == wire::Kind::message && (header.flags & wire::kPayloadInPieces) != 0;
}

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
  const auto header = lane == Lane::bulk ? wire::load(head) : std::nullopt;
  if (header && header->kind == wire::Kind::payload_piece) return land_payload_piece(from, *header, size_bytes);
  if (const auto sink = sink_for(head, size_bytes)) return *sink;
  if (const auto memory = landing_pool_->take(size_bytes)) return *memory;
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
  if (header && header->kind == wire::Kind::payload_piece) {
    if (!payload_assembler_.end_landing(payload, true)) return cut_payload_short(from, *header);
    return finish_payload(from, header->order);
  }
  if (header && has_payload_in_pieces(*header)) return wait_for_payload(from, *header, head, payload);
  std::shared_ptr<const void> owner;
  if (payload.size_bytes > 0 && !sinks_.landed(payload, owner)) owner = landing_pool_->owner(payload);
  if (lane == Lane::control) {
    inbound_.take_in(from, {.head = head, .payload = payload, .payload_owner = std::move(owner)});
    inline_.run();
    return;
  }
  BodyAssembler::Message message{copy(head), payload, std::move(owner), false};
  if (header) return pass_on(from, *header, std::move(message));
  context_.lane_access->run([this, from, kept = std::move(message.head)] { inbound_.take_in(from, {.head = kept}); });
}

/// Passes a message of the bulk lane on, or lets it wait for its body.
void Arrivals::pass_on(Peer from, const wire::Header& header, BodyAssembler::Message message) {
  if (is_in_pieces(header)) return wait_for_body(from, header, std::move(message));
  context_.lane_access->run([this, from, kept = std::move(message)]() mutable {
    inbound_.take_in(from, {.head = kept.head,
                            .payload = kept.payload,
                            .payload_owner = std::move(kept.payload_owner),
                            .refused = kept.refused});
  });
}

void Arrivals::dropped(Peer, Lane lane, Memory payload, const Status&) noexcept {
  if (lane == Lane::bulk && payload_assembler_.end_landing(payload, false)) return;
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

/// Where a payload that comes in pieces is stored.
PayloadAssembler::Store Arrivals::store_for(SinkKey key, std::uint64_t size_bytes) {
  if (const auto sink = sinks_.take(key, size_bytes))
    return {*sink, {this, [this, memory = *sink](const void*) { sinks_.give_back(memory); }}};
  if (const auto memory = landing_pool_->take(size_bytes)) return {*memory, landing_pool_->owner(*memory)};
  return {};
}

Memory Arrivals::land_payload_piece(Peer from, const wire::Header& piece, std::uint64_t size_bytes) {
  bool wrong = false;
  const Memory memory = payload_assembler_.land(from, piece, size_bytes, wrong);
  if (wrong)
    report_violation(from, kPieceThatDoesNotFit);
  else if (memory.size_bytes == 0)
    finish_payload(from, piece.order);  // there was no memory for it, and it may be the last one
  return memory;
}

/// A piece without bytes says that the others will not come.
void Arrivals::cut_payload_short(Peer from, const wire::Header& piece) {
  bool wrong = (piece.flags & wire::kFailed) == 0;
  if (!wrong) payload_assembler_.cut_short(from, piece, wrong);
  if (wrong) return report_violation(from, kPieceThatDoesNotFit);
  finish_payload(from, piece.order);
}

void Arrivals::wait_for_payload(Peer from, const wire::Header& header, std::span<const std::byte> head,
                                Memory payload) {
  bool wrong = payload.size_bytes > 0;
  if (wrong) dropped(from, Lane::bulk, payload, {});
  if (!wrong) payload_assembler_.add_message(from, header, copy(head), wrong);
  if (wrong) return report_violation(from, "a message has two payloads, or a payload two messages");
  finish_payload(from, header.order);
}

/// Passes on a message with its complete payload. A sink that has been filled is the tensor's from now on.
void Arrivals::finish_payload(Peer from, std::uint32_t order) {
  auto whole = payload_assembler_.take_whole(from, order);
  if (!whole) return;
  auto& [memory, keeper] = whole->payload;
  const bool refused = keeper == nullptr;
  if (std::shared_ptr<const void> owner; !refused && sinks_.landed(memory, owner)) keeper = std::move(owner);
  const wire::Header header = *wire::load(whole->head);
  pass_on(from, header, {std::move(whole->head), memory, std::move(keeper), refused});
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
